/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/client.h"
#include "fs/cmd.h"
#include "fs/mounts.h"

#define PENDING_SHOWN 10

struct flush_options {
	uint64_t deadline_ms;
	bool json;
};

static const struct opt_spec specs[] = {
	{"deadline", 0, OPT_DURATION, offsetof(struct flush_options, deadline_ms), "0", 0,
	 0, "TIME", "wait so long at most; 0: no limit", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct flush_options, json), NULL, 0, 0, NULL,
	 "print the receipt as JSON", NULL},
	{0},
};

static void print_pending(const json_t *pending, const char *dir)
{
	size_t count = json_array_size(pending), i;
	const json_t *file;

	fprintf(stderr,
		"sluice: %s: %zu files are not in the store yet; they stay on disk:\n",
		dir, count);
	json_array_foreach(pending, i, file)
	{
		const char *path = json_string_value(json_object_get(file, "path"));
		const char *error = json_string_value(json_object_get(file, "error"));
		char shown[1024];

		if (i == PENDING_SHOWN) {
			fprintf(stderr, "  ... and %zu more\n", count - i);
			return;
		}
		fprintf(stderr, "  %s%s%s\n",
			log_escape(shown, sizeof(shown), path ? path : "?"),
			error ? ": " : "", error ? error : "");
	}
}

int cmd_print_drained(const json_t *result, bool as_json, const char *dir)
{
	const char *word = json_string_value(json_object_get(result, "result"));
	const char *message = json_string_value(json_object_get(result, "message"));
	const json_t *receipt = json_object_get(result, "receipt");

	if (as_json && receipt) {
		json_dumpf(receipt, stdout, JSON_COMPACT);
		putchar('\n');
	}
	if (word && !strcmp(word, "ok"))
		return EXIT_OK;
	if (word && !strcmp(word, "pending")) {
		print_pending(json_object_get(receipt, "pending"), dir);
		return EXIT_PENDING;
	}
	if (word && !strcmp(word, "busy")) {
		char users[256];

		mounts_users(dir, users, sizeof(users));
		fprintf(stderr,
			"sluice: %s is in use%s%s; end what uses it and try again\n", dir,
			*users ? " by " : "", users);
		return EXIT_PENDING;
	}
	fprintf(stderr, "sluice: %s: %s\n", dir, message ? message : "no answer");
	return EXIT_UNAVAILABLE;
}

static int run(void *arg, int argc, char **argv)
{
	const struct flush_options *options = arg;
	struct client *c = NULL;
	struct why why = {""};
	char dir[PATH_MAX];
	json_t *result = NULL;
	int r;

	(void)argc;
	r = mounts_path(argv[0], dir, &why);
	if (r == 0)
		r = client_open(dir, &c, &why);
	if (r == CLIENT_E_NOBODY) {
		why_set(&why, -ENOENT, "%s: no mount of sluice is served there", dir);
		return cmd_fail(EXIT_CONFIG, &why);
	}
	if (r < 0)
		return cmd_fail(r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG, &why);
	r = client_send(c, "flush",
			options->deadline_ms ? options->deadline_ms : UINT64_MAX);
	if (r == 0)
		r = client_follow(c, options->json, &result);
	if (r == 0) {
		r = cmd_print_drained(result, options->json, dir);
	} else {
		why_set(&why, r, "%s: its process does not answer; \"sluice status %s\"",
			dir, dir);
		r = cmd_fail(EXIT_UNAVAILABLE, &why);
	}
	json_decref(result);
	client_close(c);
	return r;
}

const struct command cmd_flush = {
	.name = "flush",
	.args = "DIR",
	.summary = "wait until everything written is in the store",
	.examples = "  sluice flush /output\n"
		    "  sluice flush /output --deadline 10m --json > receipt.json\n",
	.options = specs,
	.options_size = sizeof(struct flush_options),
	.args_min = 1,
	.args_max = 1,
	.run = run,
};
