/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/base/units.h"
#include "fs/cmd.h"
#include "fs/mounts.h"
#include "fs/survey.h"

struct status_options {
	bool json;
};

static const struct opt_spec specs[] = {
	{"json", 0, OPT_FLAG, offsetof(struct status_options, json), NULL, 0, 0, NULL,
	 "print JSON", NULL},
	{0},
};

/* ---- showing --------------------------------------------------------------------------- */

static const char *text(const json_t *o, const char *name, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : otherwise;
}

static uint64_t number(const json_t *o, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(o, name));

	return n > 0 ? (uint64_t)n : 0;
}

static void print_feature(const json_t *fuse, const char *name, const char *label)
{
	const json_t *f = json_object_get(fuse, name);
	bool used = json_is_true(json_object_get(f, "used"));

	printf("%s %s%s%s%s", label, used ? "yes" : "no", used ? "" : " (",
	       used ? "" : text(f, "why", "unknown"), used ? "" : ")");
}

static void print_fuse(const json_t *fuse)
{
	printf("  kernel     ");
	print_feature(fuse, "passthrough", "passthrough");
	print_feature(fuse, "io_uring", ", io_uring");
	printf(", readdirplus %s, libfuse %s\n",
	       json_is_true(json_object_get(fuse, "readdirplus")) ? "yes" : "no",
	       text(fuse, "libfuse", "?"));
}

/* Only when there is something to tell. */
static void print_restart(const json_t *restart)
{
	char ago[32];
	int64_t at = json_integer_value(json_object_get(restart, "last"));
	int64_t now = time(NULL);

	if (json_is_false(json_object_get(restart, "locked")))
		printf("  restarts   may cost a request: too little memory can be "
		       "locked\n");
	if (!number(restart, "count"))
		return;
	units_format_duration(ago, sizeof(ago),
			      now > at ? (uint64_t)(now - at) * 1000 : 0);
	printf("  restarts   %" PRIu64 ", the last %s ago", number(restart, "count"),
	       ago);
	if (number(restart, "holder"))
		printf("; holder %" PRIu64 "\n", number(restart, "holder"));
	else
		printf("; no other: %s\n", text(restart, "why", "?"));
}

static void print_input(const json_t *in, const json_t *cache)
{
	uint64_t all = number(in, "bytes_read"), hit = number(in, "bytes_hit");
	char read[24], fetched[24], used[24], max[24];

	units_format_size(read, sizeof(read), all);
	units_format_size(fetched, sizeof(fetched), number(in, "bytes_fetched"));
	units_format_size(used, sizeof(used), number(cache, "size_used"));
	units_format_size(max, sizeof(max), number(cache, "size_max"));
	printf("  read       %s in %" PRIu64 " reads, %d%% from the cache, %s fetched\n",
	       read, number(in, "reads"), all ? (int)(hit * 100 / all) : 0, fetched);
	printf("  cache      %s of %s in %s\n", used, max, text(cache, "dir", "?"));
	if (number(in, "hidden_keys"))
		printf("  hidden     %" PRIu64
		       " keys that cannot be paths; \"sluice check\" "
		       "lists them\n",
		       number(in, "hidden_keys"));
}

static void print_warm(const json_t *job)
{
	char done[24], all[24];
	uint64_t total = number(job, "bytes_total");

	units_format_size(done, sizeof(done), number(job, "bytes_done"));
	units_format_size(all, sizeof(all), total);
	printf("  warm       job %" PRIu64 " %s: %" PRIu64, number(job, "id"),
	       json_is_true(json_object_get(job, "ahead_of_readers"))
		       ? "ahead of the readers"
		       : text(job, "state", "?"),
	       number(job, "files_done"));
	if (number(job, "files_total"))
		printf(" of %" PRIu64, number(job, "files_total"));
	printf(" files, %s%s%s", done, total ? " of " : "", total ? all : "");
	if (number(job, "files_failed") + number(job, "files_missing"))
		printf(", %" PRIu64 " failed",
		       number(job, "files_failed") + number(job, "files_missing"));
	if (number(job, "files_not_fitting"))
		printf(", %" PRIu64 " do not fit", number(job, "files_not_fitting"));
	putchar('\n');
}

static void print_output(const json_t *out)
{
	char pending[24], stored[24], age[32];
	uint64_t files = number(out, "files_pending");

	units_format_size(pending, sizeof(pending), number(out, "bytes_pending"));
	units_format_size(stored, sizeof(stored), number(out, "bytes_stored"));
	units_format_duration(age, sizeof(age), number(out, "oldest_pending_ms"));
	printf("  pending    %" PRIu64 " files, %s%s%s\n", files, pending,
	       files ? ", oldest " : "", files ? age : "");
	if (number(out, "moving"))
		printf("  moving     what is below %" PRIu64
		       " renamed directories, not counted yet\n",
		       number(out, "moving"));
	printf("  stored     %" PRIu64 " files, %s since the mount; %" PRIu64 " open\n",
	       number(out, "files_stored"), stored, number(out, "files_open"));
	if (text(out, "last_failure", NULL))
		printf("  failures   %" PRIu64 ", last: %s\n", number(out, "failures"),
		       text(out, "last_failure", ""));
}

static void print_error(const json_t *error)
{
	char ago[32];
	int64_t at = json_integer_value(json_object_get(error, "at"));
	int64_t now = time(NULL);

	units_format_duration(ago, sizeof(ago),
			      now > at ? (uint64_t)(now - at) * 1000 : 0);
	printf("  last error %s, %s ago\n", text(error, "message", "?"), ago);
}

/* Of a mount whose process said nothing. Whether that is so. */
static bool print_unserved(const json_t *status, const char *state, const char *dir)
{
	if (!strcmp(state, "dead"))
		printf("  its process is not there; \"sluice umount %s\" takes it away\n",
		       dir);
	else if (!strcmp(state, "hung"))
		printf("  its process does not answer; \"sluice umount --force %s\" "
		       "takes "
		       "it away\n",
		       dir);
	else if (!strcmp(state, "busy"))
		printf("  its process answers too many others; try again\n");
	else if (!strcmp(state, "unknown") && json_object_get(status, "user"))
		printf("  it is user %" PRIu64 "'s; only that user can ask its process\n",
		       number(status, "user"));
	else if (!strcmp(state, "unknown"))
		printf("  its control socket may not be opened; try as root\n");
	else
		return false;
	return true;
}

static void print_status(const json_t *status)
{
	const json_t *in = json_object_get(status, "input");
	const json_t *out = json_object_get(status, "output");
	const char *dir = text(status, "dir", "?");
	const json_t *job;
	size_t i;
	const char *state = text(status, "state", "?");

	printf("%s  %s of %s: %s", dir, text(status, "role", "?"),
	       text(status, "source", "?"), state);
	if (json_object_get(status, "pid"))
		printf(" (pid %" PRIu64 ")", number(status, "pid"));
	putchar('\n');
	if (print_unserved(status, state, dir))
		return;
	print_fuse(json_object_get(status, "fuse"));
	print_restart(json_object_get(status, "restart"));
	if (in)
		print_input(in, json_object_get(status, "cache"));
	json_array_foreach(json_object_get(status, "warm"), i, job) print_warm(job);
	if (out)
		print_output(out);
	if (json_object_get(status, "last_error"))
		print_error(json_object_get(status, "last_error"));
}

/* Whatever is in names must not reach a terminal. */
static void escape_strings(json_t *value)
{
	const char *key;
	json_t *each;
	size_t i;

	if (json_is_string(value)) {
		char shown[PATH_MAX];

		json_string_set(value, log_escape(shown, sizeof(shown),
						  json_string_value(value)));
	}
	json_object_foreach(value, key, each) escape_strings(each);
	json_array_foreach(value, i, each) escape_strings(each);
}

static void print_json(const json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
}

/* ---- the command ----------------------------------------------------------------------- */

static int status_of_all(bool as_json)
{
	json_t *mounts, *root;
	const json_t *mount;
	size_t i;

	if (survey_all(&mounts) < 0)
		return EXIT_INTERNAL;
	if (as_json) {
		root = json_pack("{s:i, s:O}", "version", 1, "mounts", mounts);
		print_json(root);
		json_decref(root);
	} else {
		escape_strings(mounts);
		json_array_foreach(mounts, i, mount) print_status(mount);
		if (!json_array_size(mounts))
			puts("no mounts");
	}
	json_decref(mounts);
	return EXIT_OK;
}

static int status_of(const char *given, bool as_json)
{
	struct why why = {""};
	char dir[PATH_MAX];
	json_t *status = NULL;
	int r;

	r = mounts_path(given, dir, &why);
	if (r == 0)
		r = survey_one(dir, &status, &why);
	if (r < 0)
		return cmd_fail(EXIT_CONFIG, &why);
	if (as_json) {
		print_json(status);
	} else {
		escape_strings(status);
		print_status(status);
	}
	r = json_object_get(status, "pid")                  ? EXIT_OK
	    : !strcmp(text(status, "state", ""), "unknown") ? EXIT_REFUSED
							    : EXIT_UNAVAILABLE;
	json_decref(status);
	return r;
}

static int run(void *arg, int argc, char **argv)
{
	const struct status_options *options = arg;

	return argc ? status_of(argv[0], options->json) : status_of_all(options->json);
}

const struct command cmd_status = {
	.name = "status",
	.args = "[DIR]",
	.summary = "show mounts: what they serve, how, and what is pending",
	.examples = "  sluice status\n"
		    "  sluice status /output --json | jq .output.files_pending\n",
	.options = specs,
	.options_size = sizeof(struct status_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
