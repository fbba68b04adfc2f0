/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ossd: a local OSS server over a folder.
 *
 *   ossd_http.c      listener         ossd_auth.c      signatures
 *   ossd_dispatch.c  way of a request ossd_fault.c     faults on demand
 *   ossd_op.c        which operation  ossd_admin.c     statistics and faults over HTTP
 *   ossd_ops_*.c     the operations   ossd_send.c      bodies, with faults
 *   ossd_store.c     objects as files (ossd_append.c, ossd_upload.c, ossd_scan.c)
 *   ossd_index.c     the ordered index
 *   ossd_s3*.c       the S3 dialect
 */
#include <errno.h>
#include <libxml/parser.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/base/opt.h"
#include "fs/base/standard.h"
#include "tools/ossd_admin.h"
#include "tools/ossd_fault.h"
#include "tools/ossd_http.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_request.h"
#include "tools/ossd_stats.h"

struct options {
	const char *root, *listen, *admin, *key_file, *region, *debug;
	bool no_auth, clock_check, sync, verbose;
	struct opt_strings buckets, suffixes;
	uint64_t part_min;
};

#define FIELD(name) offsetof(struct options, name)

static const struct opt_spec specs[] = {
	{.name = "root",
	 .type = OPT_STRING,
	 .field = FIELD(root),
	 .value = "DIR",
	 .help = "folder that holds one folder per bucket"},
	{.name = "listen",
	 .type = OPT_STRING,
	 .field = FIELD(listen),
	 .value = "HOST:PORT",
	 .help = "address to serve on; port 0 takes a free one"},
	{.name = "admin",
	 .type = OPT_STRING,
	 .field = FIELD(admin),
	 .value = "HOST:PORT",
	 .help = "address for statistics and faults"},
	{.name = "key-file",
	 .type = OPT_STRING,
	 .field = FIELD(key_file),
	 .value = "FILE",
	 .help = "lines ID:SECRET or ID:SECRET:TOKEN, mode 0600"},
	{.name = "no-auth",
	 .type = OPT_FLAG,
	 .field = FIELD(no_auth),
	 .help = "let everyone do everything, check no signature"},
	{.name = "bucket",
	 .type = OPT_STRINGS,
	 .field = FIELD(buckets),
	 .value = "NAME",
	 .help = "create this bucket at start; may be repeated"},
	{.name = "region",
	 .type = OPT_STRING,
	 .field = FIELD(region),
	 .value = "REGION",
	 .help = "refuse V4 signatures for another region; without it any is taken"},
	{.name = "suffix",
	 .type = OPT_STRINGS,
	 .field = FIELD(suffixes),
	 .value = "HOST",
	 .help = "BUCKET.HOST addresses a bucket, beside BUCKET.localhost"},
	{.name = "clock-check",
	 .type = OPT_FLAG,
	 .field = FIELD(clock_check),
	 .init = "true",
	 .help = "refuse what was signed more than 15 minutes away"},
	{.name = "sync",
	 .type = OPT_FLAG,
	 .field = FIELD(sync),
	 .help = "answer only when the disk has it: for power failures too"},
	{.name = "part-min",
	 .type = OPT_SIZE,
	 .field = FIELD(part_min),
	 .value = "SIZE",
	 .init = "100K",
	 .help = "smallest part of a multipart upload but the last"},
	{.name = "verbose",
	 .letter = 'v',
	 .type = OPT_FLAG,
	 .field = FIELD(verbose),
	 .help = "log changes of state"},
	{.name = "debug",
	 .type = OPT_STRING,
	 .field = FIELD(debug),
	 .value = "AREA,...",
	 .help = "log in detail"},
	{.name = NULL},
};

struct server {
	struct ossd_context context;
	struct ossd_accounts accounts;
	struct ossd_http *http;
	struct ossd_admin *admin;
	const char *suffixes[OPT_STRINGS_MAX + 1];
};

/* Prints the sentence and picks the exit code. */
static int fail(int exit_code, const struct why *why)
{
	fprintf(stderr, "ossd: %s\n", why->text);
	return exit_code;
}

static int usage(const char *text)
{
	fprintf(stderr, "ossd: %s (ossd --help shows how)\n", text);
	return EXIT_USAGE;
}

static int check_options(const struct options *o)
{
	if (!o->root)
		return usage("missing --root DIR");
	if (!o->listen)
		return usage("missing --listen HOST:PORT");
	if (!o->key_file == !o->no_auth)
		return usage("one of --key-file FILE and --no-auth is needed");
	for (size_t i = 0; i < o->buckets.count; i++)
		if (!ossd_bucket_name_valid(o->buckets.items[i]))
			return usage(
				"--bucket: a name has 3 to 63 of a-z, 0-9 and -, with a "
				"letter or digit at both ends");
	if (o->debug && log_set_debug(o->debug) < 0)
		return usage("--debug: no such area");
	return EXIT_OK;
}

static int create_buckets(struct server *s, const struct options *o, struct why *why)
{
	for (size_t i = 0; i < o->buckets.count; i++) {
		struct ossd_bucket bucket = {.acl = OSSD_ACL_PRIVATE};
		int r;

		snprintf(bucket.name, sizeof(bucket.name), "%s", o->buckets.items[i]);
		r = ossd_store_bucket_create(s->context.store, &bucket);
		if (r < 0)
			return why_set(why, r, "bucket %s: %s", bucket.name,
				       strerror(-r));
	}
	return 0;
}

static int open_store(struct server *s, const struct options *o)
{
	struct ossd_store_config config = {
		.root = o->root, .sync = o->sync, .part_min = o->part_min};
	struct why why = {""};

	if (o->key_file) {
		if (ossd_accounts_load(&s->accounts, o->key_file, &why) < 0)
			return fail(EXIT_CONFIG, &why);
		s->context.accounts = &s->accounts;
	}
	if (ossd_store_open(&s->context.store, &config, &why) < 0 ||
	    create_buckets(s, o, &why) < 0)
		return fail(EXIT_CONFIG, &why);
	return EXIT_OK;
}

static int listen_all(struct server *s, const struct options *o)
{
	struct why why = {""};
	int r = ossd_http_start(&s->http, o->listen, &s->context, &why);

	if (r == 0 && o->admin)
		r = ossd_admin_start(&s->admin, o->admin, &s->context, &why);
	if (r == -EINVAL)
		return fail(EXIT_USAGE, &why);
	if (r < 0)
		return fail(EXIT_UNAVAILABLE, &why);
	printf("ready http://%s\n", ossd_http_address(s->http));
	if (s->admin)
		printf("admin http://%s\n", ossd_admin_address(s->admin));
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_INTERNAL;
}

static void stop(struct server *s)
{
	ossd_admin_stop(s->admin);
	ossd_http_stop(s->http);
	ossd_store_close(s->context.store);
	ossd_stats_free(s->context.stats);
	ossd_fault_program_free(s->context.faults);
	ossd_accounts_fini(&s->accounts);
}

static int run(void *options, int argc, char **argv)
{
	const struct options *o = options;
	static struct server s;
	sigset_t ends;
	int r = check_options(o), got;

	(void)argc;
	(void)argv;
	if (r)
		return r;
	if (o->verbose)
		log_set_level(LOG_INFO);
	/* Blocked before the first thread: all of them leave the signals to sigwait(). */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	xmlInitParser();
	s.suffixes[0] = "localhost";
	for (size_t i = 0; i < o->suffixes.count; i++)
		s.suffixes[i + 1] = o->suffixes.items[i];
	s.context = (struct ossd_context){
		.faults = ossd_fault_program_new(),
		.stats = ossd_stats_new(),
		.region = o->region ? o->region : "cn-hangzhou",
		.region_required = o->region,
		.clock_check = o->clock_check,
		.suffixes = s.suffixes,
		.suffix_count = o->suffixes.count + 1,
	};
	r = open_store(&s, o);
	if (r == EXIT_OK)
		r = listen_all(&s, o);
	if (r == EXIT_OK)
		sigwait(&ends, &got);
	stop(&s);
	return r;
}

int main(int argc, char **argv)
{
	static const struct command command = {
		.name = "",
		.args = "",
		.summary = "serve a folder as an OSS service",
		.examples =
			"  ossd --root /srv/oss --listen 127.0.0.1:8000 --key-file keys "
			"--bucket data\n"
			"  ossd --root /tmp/oss --listen 127.0.0.1:0 --admin 127.0.0.1:0 "
			"--no-auth\n",
		.options = specs,
		.options_size = sizeof(struct options),
		.run = run,
	};
	static const struct command *const commands[] = {&command, NULL};
	static const struct program program = {
		.name = "ossd",
		.summary = "a local OSS server",
		.version = VERSION,
		.commands = commands,
	};

	standard_open();
	log_init("ossd");
	return opt_main(&program, argc, argv);
}
