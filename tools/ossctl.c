/* SPDX-License-Identifier: Apache-2.0 */
/* ossctl: a small client for stores, for demos, tests and a quick look. It goes through the
 * same origins as the gateway, retries included. */
#include "tools/ossctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/exit.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/base/opt.h"
#include "fs/base/standard.h"

/* ---- errors -------------------------------------------------------------------------- */

int ossctl_exit(int r)
{
	if (origin_is_transient(r))
		return EXIT_UNAVAILABLE;
	switch (r) {
	case 0:
		return EXIT_OK;
	case -EACCES:
	case -EPERM:
	case -EROFS:
	case -EKEYEXPIRED:
		return EXIT_REFUSED;
	case -EINVAL:
	case -ENOENT:
	case -EEXIST:
	case -ENOTDIR:
	case -EISDIR:
	case -ESTALE:
	case -ENAMETOOLONG:
		return EXIT_CONFIG;
	default:
		return EXIT_INTERNAL;
	}
}

int ossctl_fail(int r, const char *sentence)
{
	char text[512];

	fprintf(stderr, "ossctl: %s%s%s\n", log_escape(text, sizeof(text), sentence),
		strchr(sentence, ' ') ? "" : ": ",
		strchr(sentence, ' ') ? "" : strerror(-r));
	return ossctl_exit(r);
}

int ossctl_call(struct origin *o, struct origin_req *req)
{
	int r = origin_call(o, req);

	if (r < 0)
		ossctl_fail(r, req->why.text);
	return r;
}

/* ---- places -------------------------------------------------------------------------- */

static int split_place(const char *text, const char *cut, const char *key,
		       struct ossctl_place *place)
{
	if (snprintf(place->source, sizeof(place->source), "%.*s", (int)(cut - text),
		     text) >= (int)sizeof(place->source) ||
	    snprintf(place->key, sizeof(place->key), "%s", key) >=
		    (int)sizeof(place->key))
		return ossctl_fail(-EINVAL, "the name is too long"), -EINVAL;
	return 0;
}

int ossctl_parse(const char *text, struct ossctl_place *place)
{
	const char *rest = strstr(text, "://"), *slash;

	if (strncmp(text, "oss://", 6) == 0) {
		slash = strchr(text + 6, '/');
		return split_place(text, slash ? slash : text + strlen(text),
				   slash ? slash + 1 : "", place);
	}
	if (strncmp(text, "file:///", 8) == 0) {
		slash = strrchr(rest + 3, '/');
		return split_place(text, slash == rest + 3 ? slash + 1 : slash, slash + 1,
				   place);
	}
	return ossctl_fail(-EINVAL, "a place is oss://bucket/key or file:///path"),
	       -EINVAL;
}

struct backend_config ossctl_config(const struct ossctl_options *o, const char *source)
{
	return (struct backend_config){
		.source = source,
		.endpoint = o->endpoint,
		.region = o->region,
		.addressing = (enum backend_addressing)o->addressing,
		.signature = (enum backend_signature)o->signature,
		/* Nothing is looked up in the user's files unless asked for. */
		.credentials = o->credentials ? o->credentials : "env",
		.ca_file = o->ca_file,
		.retry_budget_ms = o->retry_ms,
	};
}

int ossctl_open(const struct ossctl_options *o, const struct ossctl_place *place,
		struct origin **out)
{
	struct backend_config config = ossctl_config(o, place->source);
	struct why why = {""};
	int r = backend_open(&config, out, &why);

	if (r < 0)
		ossctl_fail(r, why.text);
	return r;
}

/* ---- ls ------------------------------------------------------------------------------ */

static void format_time(char out[32], int64_t ns)
{
	time_t s = (time_t)(ns / 1000000000);
	struct tm tm = {0};

	gmtime_r(&s, &tm);
	strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void attr_json(struct buf *b, const char *key, const struct origin_attr *attr)
{
	char text[32];

	json_begin_object(b, NULL);
	json_put_string(b, "key", key);
	json_put_bool(b, "is_dir", attr->is_dir);
	json_put_bool(b, "appendable", attr->is_appendable);
	json_put_uint(b, "size", attr->size);
	format_time(text, attr->mtime_ns);
	json_put_string(b, "modified", attr->mtime_ns ? text : NULL);
	json_put_string(b, "etag", *attr->etag ? attr->etag : NULL);
	if (attr->has_crc64) {
		snprintf(text, sizeof(text), "%" PRIu64, attr->crc64);
		json_put_string(b, "crc64", text);
	}
	if (attr->has_posix) {
		snprintf(text, sizeof(text), "%o", attr->mode);
		json_put_string(b, "mode", text);
		json_put_uint(b, "uid", attr->uid);
		json_put_uint(b, "gid", attr->gid);
	}
	json_end_object(b);
}

static void print_line(const char *key, const struct origin_attr *attr)
{
	char name[4200], when[32];

	format_time(when, attr->mtime_ns);
	printf("%20s %14" PRIu64 "  %s\n", attr->mtime_ns ? when : "-", attr->size,
	       log_escape(name, sizeof(name), key));
}

struct listing {
	bool json;
	uint64_t count, bytes;
	struct buf text;
};

static int note_entry(void *arg, const char *key, size_t key_len,
		      const struct origin_attr *attr)
{
	struct listing *l = arg;

	(void)key_len;
	l->count++;
	l->bytes += attr->size;
	if (!l->json) {
		print_line(key, attr);
		return 0;
	}
	attr_json(&l->text, key, attr);
	return buf_error(&l->text);
}

static int run_ls(void *options, int argc, char **argv)
{
	const struct ossctl_options *o = options;
	struct listing l = {.json = o->json};
	struct ossctl_place place = {.source = ""};
	struct origin *origin;
	struct origin_req req = {
		.op = ORIGIN_LIST,
		.key = place.key,
		.list = {.recursive = !o->dirs, .entry = note_entry, .entry_arg = &l}};
	int code;

	(void)argc;
	if (ossctl_parse(argv[0], &place) < 0)
		return EXIT_USAGE;
	code = ossctl_exit(ossctl_open(o, &place, &origin));
	if (code != EXIT_OK)
		return code;
	if (o->json)
		json_begin_array(&l.text, NULL);
	code = origin_list_all(origin, &req);
	if (code < 0)
		code = ossctl_fail(code, req.why.text);
	if (o->json && code == EXIT_OK) {
		json_end_array(&l.text);
		puts(l.text.data);
	}
	if (o->verbose)
		fprintf(stderr, "%" PRIu64 " entries, %" PRIu64 " bytes\n", l.count,
			l.bytes);
	buf_fini(&l.text);
	origin_free(origin);
	return code;
}

/* ---- stat, mb, rm -------------------------------------------------------------------- */

static int run_stat(void *options, int argc, char **argv)
{
	const struct ossctl_options *o = options;
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	struct ossctl_place place = {.source = ""};
	struct origin *origin;
	struct origin_req req = {.op = ORIGIN_STAT, .key = place.key, .want_meta = true};
	int code;

	(void)argc;
	if (ossctl_parse(argv[0], &place) < 0)
		return EXIT_USAGE;
	code = ossctl_exit(ossctl_open(o, &place, &origin));
	if (code != EXIT_OK)
		return code;
	code = ossctl_exit(ossctl_call(origin, &req));
	if (code == EXIT_OK && o->json) {
		attr_json(&text, place.key, &req.attr);
		puts(buf_error(&text) < 0 ? "" : text.data);
	} else if (code == EXIT_OK) {
		print_line(place.key, &req.attr);
	}
	origin_free(origin);
	return code;
}

static int run_mb(void *options, int argc, char **argv)
{
	struct backend_config config = ossctl_config(options, argv[0]);
	struct why why = {""};
	int r = backend_create_bucket(&config, &why);

	(void)argc;
	return r < 0 ? ossctl_fail(r, why.text) : EXIT_OK;
}

struct removal {
	struct origin *origin;
	const char **keys; /* ORIGIN_KEY_COUNT_MAX, each a copy */
	size_t count;
	uint64_t removed;
};

static int flush_removal(struct removal *m)
{
	struct origin_req req = {
		.op = ORIGIN_DELETE_MANY, .keys = m->keys, .key_count = m->count};
	int r = ossctl_call(m->origin, &req);

	for (size_t i = 0; i < m->count; i++)
		free((char *)(uintptr_t)m->keys[i]);
	m->removed += m->count;
	m->count = 0;
	return r;
}

/* Only collects: the store's thread must not wait for the store. */
static int note_removal(void *arg, const char *key, size_t key_len,
			const struct origin_attr *attr)
{
	struct removal *m = arg;

	(void)attr;
	m->keys[m->count] = strndup(key, key_len);
	return m->keys[m->count++] ? 0 : -ENOMEM;
}

static int remove_tree(struct origin *origin, const char *prefix, uint64_t *removed)
{
	_cleanup_(freep) const char **keys = calloc(ORIGIN_KEY_COUNT_MAX, sizeof(*keys));
	struct removal m = {.origin = origin, .keys = keys};
	struct origin_req req = {.op = ORIGIN_LIST,
				 .key = prefix,
				 .list = {.recursive = true,
					  .count_max = ORIGIN_KEY_COUNT_MAX,
					  .entry = note_removal,
					  .entry_arg = &m}};
	int r = keys ? 0 : -ENOMEM;

	/* Always the first page: what it held is gone by the next time. */
	while (r == 0) {
		r = ossctl_call(origin, &req);
		if (r < 0 || !m.count)
			break;
		r = flush_removal(&m);
	}
	*removed = m.removed;
	return r;
}

static int run_rm(void *options, int argc, char **argv)
{
	const struct ossctl_options *o = options;
	struct ossctl_place place = {.source = ""};
	struct origin *origin;
	struct origin_req req = {.op = ORIGIN_DELETE, .key = place.key};
	uint64_t removed = 1;
	int code, r;

	(void)argc;
	if (ossctl_parse(argv[0], &place) < 0)
		return EXIT_USAGE;
	code = ossctl_exit(ossctl_open(o, &place, &origin));
	if (code != EXIT_OK)
		return code;
	r = o->recursive ? remove_tree(origin, place.key, &removed)
			 : ossctl_call(origin, &req);
	if (r == 0 && o->verbose)
		fprintf(stderr, "removed %" PRIu64 "\n", removed);
	origin_free(origin);
	return ossctl_exit(r);
}

/* ---- put, get, cp -------------------------------------------------------------------- */

static int run_put(void *options, int argc, char **argv)
{
	(void)argc;
	return ossctl_put(options, argv[0], argv[1]);
}

static int run_get(void *options, int argc, char **argv)
{
	return ossctl_get(options, argv[0], argc > 1 ? argv[1] : ".");
}

static int run_cp(void *options, int argc, char **argv)
{
	(void)argc;
	return ossctl_cp(options, argv[0], argv[1]);
}

/* ---- the command line ---------------------------------------------------------------- */

#define FIELD(name) offsetof(struct ossctl_options, name)

static const char *const addressings[] = {"auto", "virtual", "path", "cname", NULL};
static const char *const signatures[] = {"v4", "v1", NULL};

static const struct opt_spec options_table[] = {
	{.name = "endpoint",
	 .type = OPT_STRING,
	 .field = FIELD(endpoint),
	 .value = "URL",
	 .help = "where the store is; else OSS_ENDPOINT, else from the region"},
	{.name = "region",
	 .type = OPT_STRING,
	 .field = FIELD(region),
	 .value = "REGION",
	 .help = "for example cn-hangzhou; else OSS_REGION, else from the endpoint"},
	{.name = "credentials",
	 .type = OPT_STRING,
	 .field = FIELD(credentials),
	 .value = "REFERENCE",
	 .help = "where keys are, for example file:PATH; without it the environment"},
	{.name = "ca-file",
	 .type = OPT_STRING,
	 .field = FIELD(ca_file),
	 .value = "FILE",
	 .help = "trust these authorities instead of the system's"},
	{.name = "addressing",
	 .type = OPT_CHOICE,
	 .field = FIELD(addressing),
	 .choices = addressings,
	 .init = "auto",
	 .value = "STYLE",
	 .help = "how the bucket stands in the URL"},
	{.name = "signature",
	 .type = OPT_CHOICE,
	 .field = FIELD(signature),
	 .choices = signatures,
	 .init = "v4",
	 .value = "VERSION",
	 .help = "version of the signature"},
	{.name = "retry-for",
	 .type = OPT_DURATION,
	 .field = FIELD(retry_ms),
	 .init = "20s",
	 .value = "TIME",
	 .help = "how long to try again after passing faults"},
	{.name = "json",
	 .type = OPT_FLAG,
	 .field = FIELD(json),
	 .help = "ls, stat: print JSON"},
	{.name = "dirs",
	 .letter = 'd',
	 .type = OPT_FLAG,
	 .field = FIELD(dirs),
	 .help = "ls: one level, with folders instead of what is in them"},
	{.name = "recursive",
	 .letter = 'r',
	 .type = OPT_FLAG,
	 .field = FIELD(recursive),
	 .help = "rm: whatever begins with the name"},
	{.name = "verbose",
	 .letter = 'v',
	 .type = OPT_FLAG,
	 .field = FIELD(verbose),
	 .help = "say what was done"},
	{.name = "debug",
	 .type = OPT_STRING,
	 .field = FIELD(debug),
	 .value = "AREA,...",
	 .help = "log in detail"},
	{.name = NULL},
};

static int with_log(void *options, int argc, char **argv,
		    int (*run)(void *options, int argc, char **argv))
{
	const struct ossctl_options *o = options;

	if (o->debug && log_set_debug(o->debug) < 0)
		return ossctl_fail(-EINVAL, "--debug names no such area"), EXIT_USAGE;
	return run(options, argc, argv);
}

#define COMMAND(verb, arguments, least, most, what)                                      \
	static int verb##_with_log(void *options, int argc, char **argv)                 \
	{                                                                                \
		return with_log(options, argc, argv, run_##verb);                        \
	}                                                                                \
	static const struct command command_##verb = {                                   \
		.name = #verb,                                                           \
		.args = (arguments),                                                     \
		.summary = (what),                                                       \
		.options = options_table,                                                \
		.options_size = sizeof(struct ossctl_options),                           \
		.args_min = (least),                                                     \
		.args_max = (most),                                                      \
		.run = verb##_with_log,                                                  \
	}

COMMAND(cp, "PLACE PLACE", 2, 2, "copy one object to another place");
COMMAND(get, "PLACE [FILE|-]", 1, 2, "fetch one object into a file");
COMMAND(ls, "PLACE", 1, 1, "list what begins with a name");
COMMAND(mb, "oss://BUCKET", 1, 1, "make a bucket");
COMMAND(put, "FILE|- PLACE", 2, 2, "send one file");
COMMAND(rm, "PLACE", 1, 1, "remove one object, or with -r many");
COMMAND(stat, "PLACE", 1, 1, "show one object's attributes");

static const struct command *const commands[] = {&command_cp,   &command_get, &command_ls,
						 &command_mb,   &command_put, &command_rm,
						 &command_stat, NULL};

int main(int argc, char **argv)
{
	static const struct program program = {
		.name = "ossctl",
		.summary = "look into a store and move single objects",
		.version = VERSION,
		.commands = commands,
	};

	standard_open();
	log_init("ossctl");
	log_set_level(LOG_WARN);
	return opt_main(&program, argc, argv);
}
