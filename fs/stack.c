/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/stack.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache.h"
#include "cache/origin.h"
#include "fs/backend/backend.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/config.h"
#include "fs/handover.h"
#include "fs/input.h"
#include "fs/order_log.h"
#include "fs/output.h"

#define PROBE_TIMEOUT_MS 15000
#define SETTLE_MS 3000 /* a store has done by then what it was sent */
/* Bytes of --memory for one: they take a quarter as much. */
#define INODE_SHARE 512
#define NODE_SHARE 8192

/* The sentence, if whoever failed had none. */
static int refuse(int exit_code, int r, const char *what, struct why *why)
{
	if (!*why->text)
		why_set(why, r, "%s: %s", what, strerror(-r));
	return exit_code;
}

/* What the errno values of cache/origin.h mean to whoever typed the command. */
static int code_of_store(int r)
{
	if (origin_is_transient(r))
		return EXIT_UNAVAILABLE;
	switch (r) {
	case -EACCES:
	case -EKEYEXPIRED:
		return EXIT_REFUSED;
	case -ENOENT:
	case -EINVAL:
	case -ENOTDIR:
	case -ENOTSUP:
		return EXIT_CONFIG;
	default:
		return EXIT_UNAVAILABLE;
	}
}

/* Of our own directories. */
static int code_of_disk(int r)
{
	switch (r) {
	case -EPERM:
	case -EACCES:
		return EXIT_REFUSED;
	case -ENOMEM:
		return EXIT_INTERNAL;
	default:
		return EXIT_CONFIG;
	}
}

static int probe(struct origin *o, uint64_t deadline_ms, struct why *why)
{
	uint64_t latest_ms = clock_mono_ms() + PROBE_TIMEOUT_MS;
	struct origin_req req = {
		.op = ORIGIN_PROBE,
		.key = "",
		.deadline_ms = deadline_ms < latest_ms ? deadline_ms : latest_ms,
	};
	int r = origin_call(o, &req);

	if (r == 0)
		return 0;
	*why = req.why;
	return refuse(code_of_store(r), r, o->name, why);
}

static int open_origin(const struct config *config, struct stack *s, struct why *why)
{
	struct backend_source source;
	struct backend_config backend;
	int r;

	*s = (struct stack){0};
	r = backend_parse(config->source, &source, why);
	if (r < 0)
		return refuse(EXIT_USAGE, r, config->source, why);
	config_to_backend(config, &backend);
	r = backend_open(&backend, &s->origin, why);
	if (r == -ENOENT && source.kind == BACKEND_OSS) /* no credentials there */
		return refuse(EXIT_REFUSED, r, config->source, why);
	if (r < 0)
		return refuse(code_of_store(r), r, config->source, why);
	return r;
}

int stack_open_origin(const struct config *config, uint64_t deadline_ms, struct stack *s,
		      struct why *why)
{
	int r = open_origin(config, s, why);

	if (r == 0)
		r = probe(s->origin, deadline_ms, why);
	if (r != 0)
		stack_close(s);
	return r;
}

static int add_input(const struct config *config, struct handover *handover,
		     struct stack *s, struct why *why)
{
	const struct cache_config cache = {
		.dir = config->cache_path,
		.size_max = config->cache_size,
		.free_min = config->cache_free,
		.memory_max = config->memory,
	};
	struct input_config input = {
		.handover = handover,
		.origin = s->origin,
		.ttl_ms = config->ttl_ms,
		.deadline_ms = config->deadline_ms,
		.inodes_max = config->memory / INODE_SHARE,
		.requests_max = (uint32_t)(config->connections - config->connections / 8),
		.immutable = config->immutable,
		.verify = (enum object_verify)config->verify,
		.posix = config->posix,
		.uid = config->owner_uid,
		.gid = config->owner_gid,
		.file_mode = config->file_bits,
		.dir_mode = config->dir_bits,
	};
	int r;

	r = cache_open(&cache, &s->cache, why);
	if (r < 0)
		return refuse(code_of_disk(r), r, config->cache_path, why);
	if (*config->record_path) {
		r = order_log_open(config->record_path, &s->order_log, why);
		if (r < 0)
			return refuse(code_of_disk(r), r, config->record_path, why);
	}
	input.cache = s->cache;
	input.order_log = s->order_log;
	r = input_new(&input, &s->input, why);
	return r < 0 ? refuse(code_of_disk(r), r, config->source, why) : 0;
}

static int add_output(const struct config *config, struct handover *handover,
		      struct stack *s, struct why *why)
{
	const struct output_config output = {
		.origin = s->origin,
		.handover = handover,
		.state_dir = config->state_path,
		.durability = (enum output_durability)config->durability,
		.ttl_ms = config->ttl_ms,
		.settle_ms = SETTLE_MS,
		.publish_interval_ms = config->publish_interval_ms,
		.append_objects = config->append_objects,
		.full_timeout_ms = config->full_timeout_ms,
		.part_size = config->part_size,
		.upload_parallel = (uint32_t)config->upload_parallel,
		.stage_size_max = config->stage_size,
		/* The rest is for what a transaction and a snapshot copy of them. */
		.carry_max = config->memory / 4,
		.nodes_max = config->memory / NODE_SHARE,
		.uid = config->owner_uid,
		.gid = config->owner_gid,
		.file_mode = config->file_bits,
		.dir_mode = config->dir_bits,
	};
	int r = output_new(&output, &s->output, why);

	return r < 0 ? refuse(code_of_disk(r), r, config->state_path, why) : 0;
}

int stack_open(const struct config *config, struct handover *handover,
	       uint64_t deadline_ms, struct stack *s, struct why *why)
{
	int r;

	if (handover && handover->generation > 1)
		r = open_origin(config, s, why);
	else
		r = stack_open_origin(config, deadline_ms, s, why);
	if (r != 0)
		return r;
	r = config->role == CONFIG_INPUT ? add_input(config, handover, s, why)
					 : add_output(config, handover, s, why);
	if (r != 0)
		stack_close(s);
	return r;
}

void stack_close(struct stack *s)
{
	if (s->input)
		s->input = input_free(s->input);
	if (s->output)
		s->output = output_free(s->output);
	s->order_log = order_log_close(s->order_log);
	s->cache = cache_close(s->cache);
	s->origin = origin_free(s->origin);
}
