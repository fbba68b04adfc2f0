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

static void print_moving(json_int_t moving)
{
	if (moving > 0)
		fprintf(stderr,
			"  and what is below %lld renamed director%s: not counted yet, "
			"in the store with old names\n",
			(long long)moving, moving == 1 ? "y" : "ies");
}

static void print_pending(const json_t *receipt, const char *dir)
{
	const json_t *pending = json_object_get(receipt, "pending"), *file;
	json_int_t count = json_integer_value(json_object_get(receipt, "files_pending"));
	json_int_t moving = json_integer_value(json_object_get(receipt, "moving"));
	size_t i;

	fprintf(stderr,
		"sluice: %s: %lld files are not in the store yet; they stay on disk:\n",
		dir, (long long)count);
	json_array_foreach(pending, i, file)
	{
		const char *path = json_string_value(json_object_get(file, "path"));
		const char *error = json_string_value(json_object_get(file, "error"));
		char shown[1024], reason[512];

		if (i == PENDING_SHOWN) {
			fprintf(stderr, "  ... and %lld more\n",
				(long long)count - (json_int_t)i);
			break;
		}
		fprintf(stderr, "  %s%s%s\n",
			log_escape(shown, sizeof(shown), path ? path : "?"),
			error ? ": " : "",
			log_escape(reason, sizeof(reason), error ? error : ""));
	}
	print_moving(moving);
}

/* The object's own members first: they are what a person looks for. */
static void print_receipt(const json_t *receipt, FILE *files)
{
	_cleanup_(freep) char *text = json_dumps(receipt, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	char buf[65536];

	if (n < 3)
		return;
	if (files)
		rewind(files);
	printf("%.*s,\"files\":[", (int)n - 1, text);
	while (files && (n = fread(buf, 1, sizeof(buf), files)) > 0)
		fwrite(buf, 1, n, stdout);
	puts("]}");
}

int cmd_print_drained(const json_t *result, FILE *files, bool as_json, const char *given)
{
	char dir[PATH_MAX];
	const char *word = json_string_value(json_object_get(result, "result"));
	const char *message = json_string_value(json_object_get(result, "message"));
	const json_t *receipt = json_object_get(result, "receipt");

	log_escape(dir, sizeof(dir), given);
	if (as_json && receipt)
		print_receipt(receipt, files);
	if (word && !strcmp(word, "ok"))
		return EXIT_OK;
	if (word && !strcmp(word, "pending")) {
		print_pending(receipt, dir);
		return EXIT_PENDING;
	}
	if (word && !strcmp(word, "busy")) {
		char users[256];

		mounts_users(given, users, sizeof(users));
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
		r = client_run(dir, "flush",
			       options->deadline_ms ? options->deadline_ms : UINT64_MAX,
			       options->json, &c, &result, &why);
	if (r == CLIENT_E_NOBODY) {
		why_set(&why, -ENOENT, "%s: no mount of sluice is served there", dir);
		return cmd_fail(EXIT_CONFIG, &why);
	}
	if (r < 0 && *why.text) {
		r = cmd_fail(r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG, &why);
	} else if (r == 0) {
		r = cmd_print_drained(result, client_files(c), options->json, dir);
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
