/* SPDX-License-Identifier: Apache-2.0 */
/* ossctl: put, get, cp. What is read from a store is checked against its CRC-64 before the
 * file gets its name. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/units.h"
#include "fs/base/worker.h"
#include "tools/ossctl.h"

#define MULTIPART_MIN (32u << 20)
#define PART_SIZE (8u << 20)
#define PARTS_AT_ONCE 4
#define WHOLE_TRIES 4

/* A file without a name, for what comes through a pipe or goes from store to store. */
static int open_spool(void)
{
	const char *set = getenv("TMPDIR"), *dir = set ? set : "/tmp";
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd < 0 ? ossctl_fail(-errno, dir), -1 : fd;
}

static void say(const struct ossctl_options *o, const char *verb, const char *name,
		uint64_t size)
{
	char text[16];

	if (o->verbose)
		fprintf(stderr, "%s %s (%s)\n", verb, name,
			units_format_size(text, sizeof(text), size));
}

/* ---- put ----------------------------------------------------------------------------- */

struct upload {
	struct origin *origin;
	const char *key, *id;
	int fd;
	uint64_t size, part_size;
	size_t count;
	struct origin_part *parts;
	struct origin_req *requests; /* `user` is the upload */
};

static void send_part(void *arg)
{
	struct origin_req *req = arg;
	const struct upload *u = req->user;

	(void)origin_call(u->origin, req);
}

static int send_parts(struct upload *u)
{
	struct worker_pool *pool;
	int r = worker_pool_new(&pool, "parts", PARTS_AT_ONCE, PARTS_AT_ONCE);

	if (r < 0)
		return ossctl_fail(r, "cannot start threads");
	for (size_t i = 0; i < u->count; i++) {
		uint64_t off = i * u->part_size, left = u->size - off;

		u->requests[i] = (struct origin_req){
			.op = ORIGIN_MULTI_PART,
			.key = u->key,
			.upload_id = u->id,
			.part = (uint32_t)i + 1,
			.off = off,
			.body = {.fd = u->fd,
				 .fd_off = off,
				 .len = left < u->part_size ? left : u->part_size},
			.user = u,
		};
		worker_submit(pool, send_part, &u->requests[i]);
	}
	worker_pool_free(pool);
	for (size_t i = 0; i < u->count; i++) {
		if (u->requests[i].result < 0)
			return ossctl_fail(u->requests[i].result,
					   u->requests[i].why.text);
		u->parts[i] = u->requests[i].part_result;
	}
	return EXIT_OK;
}

/* The upload has begun: ends it, or takes it back. */
static int send_upload(struct upload *u, const char *id)
{
	struct origin_req end = {.op = ORIGIN_MULTI_END,
				 .key = u->key,
				 .upload_id = id,
				 .parts = u->parts,
				 .part_count = u->count,
				 .size = u->size};
	struct origin_req abort_it = {
		.op = ORIGIN_MULTI_ABORT, .key = u->key, .upload_id = id};
	int code;

	u->id = id;
	code = send_parts(u);

	if (code == EXIT_OK)
		code = ossctl_exit(ossctl_call(u->origin, &end));
	if (code != EXIT_OK)
		(void)origin_call(u->origin, &abort_it);
	return code;
}

static int send_large(struct origin *o, const char *key, int fd, uint64_t size)
{
	uint64_t least = (size + ORIGIN_PART_COUNT_MAX - 1) / ORIGIN_PART_COUNT_MAX;
	struct upload u = {.origin = o,
			   .key = key,
			   .fd = fd,
			   .size = size,
			   .part_size =
				   least < PART_SIZE ? PART_SIZE : (least | 0xfffff) + 1};
	struct origin_req begin = {.op = ORIGIN_MULTI_BEGIN, .key = key, .size = size};
	int code;

	u.count = (size_t)((size + u.part_size - 1) / u.part_size);
	u.parts = calloc(u.count, sizeof(*u.parts));
	u.requests = calloc(u.count, sizeof(*u.requests));
	if (!u.parts || !u.requests)
		code = ossctl_fail(-ENOMEM, "no memory");
	else if (ossctl_call(o, &begin) < 0)
		code = ossctl_exit(begin.result);
	else
		code = send_upload(&u, begin.upload_id_result);
	free(u.parts);
	free(u.requests);
	return code;
}

static int send_file(struct origin *o, const char *key, int fd, uint64_t size)
{
	struct origin_req put = {
		.op = ORIGIN_PUT, .key = key, .body = {.fd = fd, .len = size}};

	if (size < MULTIPART_MIN || !(o->caps & ORIGIN_CAP_MULTI))
		return ossctl_exit(ossctl_call(o, &put));
	return send_large(o, key, fd, size);
}

/* Standard input has no size to announce: it is spooled first. */
static int open_input(const char *file)
{
	_cleanup_(close_fdp) int spool = -1;
	char chunk[65536];
	uint64_t off = 0;
	ssize_t n;
	int fd;

	if (strcmp(file, "-") != 0) {
		fd = open(file, O_RDONLY | O_CLOEXEC);
		return fd < 0 ? ossctl_fail(-errno, file), -1 : fd;
	}
	spool = open_spool();
	while (spool >= 0 && (n = read(STDIN_FILENO, chunk, sizeof(chunk))) > 0) {
		int r = io_pwrite(spool, chunk, (size_t)n, off);

		if (r < 0)
			return ossctl_fail(r, "cannot spool standard input"), -1;
		off += (uint64_t)n;
	}
	return steal_fd(&spool);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int ossctl_put(const struct ossctl_options *o, const char *file, const char *to)
{
	_cleanup_(close_fdp) int fd = -1;
	struct ossctl_place place = {.source = ""};
	struct origin *origin;
	struct stat st;
	size_t n;
	int code;

	if (ossctl_parse(to, &place) < 0)
		return EXIT_USAGE;
	n = strlen(place.key);
	if ((!n || place.key[n - 1] == '/') && strcmp(file, "-") != 0)
		snprintf(place.key + n, sizeof(place.key) - n, "%s", base_name(file));
	fd = open_input(file);
	if (fd < 0 || fstat(fd, &st) < 0)
		return EXIT_CONFIG;
	if (!S_ISREG(st.st_mode))
		return ossctl_fail(-EINVAL, "only regular files and - can be sent");
	code = ossctl_exit(ossctl_open(o, &place, &origin));
	if (code != EXIT_OK)
		return code;
	code = send_file(origin, place.key, fd, (uint64_t)st.st_size);
	if (code == EXIT_OK)
		say(o, "sent", place.key, (uint64_t)st.st_size);
	origin_free(origin);
	return code;
}

/* ---- get ----------------------------------------------------------------------------- */

struct receiver {
	int fd;
	bool is_pipe;
	uint64_t crc;
};

static int receive(void *arg, uint64_t off, const void *data, size_t n)
{
	struct receiver *r = arg;

	r->crc = crc64(r->crc, data, n);
	return r->is_pipe ? io_write(r->fd, data, n) : io_pwrite(r->fd, data, n, off);
}

/* One whole try: 0, -EBADMSG when all came and fails its checksum, or another errno value;
 * get->why says what. */
static int receive_once(struct origin *o, struct origin_req *get,
			struct receiver *receiver)
{
	int r;

	receiver->crc = 0;
	get->received = 0;
	r = origin_call(o, get);
	if (r == 0 && get->attr.has_crc64 && get->attr.crc64 != receiver->crc)
		r = why_set(&get->why, -EBADMSG, "%s: what arrived fails its checksum",
			    get->key);
	return r;
}

/* A whole that fails its checksum cannot be mended, only fetched again; what has gone into
 * a pipe cannot be taken back. */
static int receive_file(struct origin *o, const char *key, int fd, bool is_pipe,
			uint64_t *size)
{
	struct receiver receiver = {.fd = fd, .is_pipe = is_pipe};
	struct origin_req get = {.op = ORIGIN_GET,
				 .key = key,
				 .len = ORIGIN_TO_END,
				 .sink = receive,
				 .sink_arg = &receiver};
	int r = receive_once(o, &get, &receiver);

	for (int tries = 1; r == -EBADMSG && !is_pipe && tries < WHOLE_TRIES; tries++) {
		if (ftruncate(fd, 0) < 0)
			return ossctl_fail(-errno, key);
		r = receive_once(o, &get, &receiver);
	}
	if (r < 0)
		return ossctl_fail(r, get.why.text);
	*size = get.received;
	return EXIT_OK;
}

/* Beside its final name, which it gets when it is whole. */
static int receive_named(struct origin *o, const char *key, const char *file,
			 uint64_t *size)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[PATH_MAX];
	mode_t mask = umask(0);
	int code;

	umask(mask);
	if (snprintf(path, sizeof(path), "%s.XXXXXX", file) >= (int)sizeof(path))
		return ossctl_fail(-ENAMETOOLONG, file);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return ossctl_fail(-errno, file);
	code = receive_file(o, key, fd, false, size);
	if (code == EXIT_OK && (fchmod(fd, 0666 & ~mask) < 0 || rename(path, file) < 0))
		code = ossctl_fail(-errno, file);
	if (code != EXIT_OK)
		unlink(path);
	return code;
}

int ossctl_get(const struct ossctl_options *o, const char *from, const char *file)
{
	struct ossctl_place place = {.source = ""};
	char path[PATH_MAX];
	struct origin *origin;
	struct stat st;
	uint64_t size = 0;
	int code;

	if (ossctl_parse(from, &place) < 0)
		return EXIT_USAGE;
	code = ossctl_exit(ossctl_open(o, &place, &origin));
	if (code != EXIT_OK)
		return code;
	if (strcmp(file, "-") == 0) {
		code = receive_file(origin, place.key, STDOUT_FILENO, true, &size);
	} else {
		bool is_dir = stat(file, &st) == 0 && S_ISDIR(st.st_mode);

		if (snprintf(path, sizeof(path), is_dir ? "%s/%s" : "%s", file,
			     base_name(place.key)) >= (int)sizeof(path))
			code = ossctl_fail(-ENAMETOOLONG, file);
		else
			code = receive_named(origin, place.key, path, &size);
	}
	if (code == EXIT_OK)
		say(o, "got", place.key, size);
	origin_free(origin);
	return code;
}

/* ---- cp ------------------------------------------------------------------------------ */

static int copy_across(struct origin *from, const char *from_key, struct origin *to,
		       const char *to_key)
{
	_cleanup_(close_fdp) int fd = open_spool();
	uint64_t size = 0;
	int code;

	if (fd < 0)
		return EXIT_INTERNAL;
	code = receive_file(from, from_key, fd, false, &size);
	return code == EXIT_OK ? send_file(to, to_key, fd, size) : code;
}

int ossctl_cp(const struct ossctl_options *o, const char *from, const char *to)
{
	struct ossctl_place source = {.source = ""}, target = {.source = ""};
	struct origin *a, *b = NULL;
	size_t n;
	int code;

	if (ossctl_parse(from, &source) < 0 || ossctl_parse(to, &target) < 0)
		return EXIT_USAGE;
	n = strlen(target.key);
	if (!n || target.key[n - 1] == '/')
		snprintf(target.key + n, sizeof(target.key) - n, "%s",
			 base_name(source.key));
	code = ossctl_exit(ossctl_open(o, &target, &a));
	if (code != EXIT_OK)
		return code;
	if (strcmp(source.source, target.source) == 0) {
		struct origin_req copy = {
			.op = ORIGIN_COPY, .key = target.key, .source = source.key};

		code = ossctl_exit(ossctl_call(a, &copy));
	} else {
		code = ossctl_exit(ossctl_open(o, &source, &b));
		if (code == EXIT_OK)
			code = copy_across(b, source.key, a, target.key);
	}
	origin_free(a);
	origin_free(b);
	return code;
}
