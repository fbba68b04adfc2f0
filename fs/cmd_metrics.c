/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/cmd.h"
#include "fs/metrics.h"
#include "fs/mounts.h"
#include "fs/survey.h"

struct metrics_options {
	const char *output;
};

static const struct opt_spec specs[] = {
	{"output", 'o', OPT_STRING, offsetof(struct metrics_options, output), NULL, 0, 0,
	 "FILE", "replace this file as a whole instead of printing", NULL},
	{0},
};

/* The mounts asked for, as an array. Exit code. */
static int gather(const char *given, json_t **mounts)
{
	struct why why = {""};
	char dir[PATH_MAX];
	json_t *one = NULL;
	int r;

	if (!given)
		return survey_all(mounts) < 0 ? EXIT_INTERNAL : EXIT_OK;
	r = mounts_path(given, dir, &why);
	if (r == 0)
		r = survey_one(dir, &one, &why);
	if (r < 0)
		return cmd_fail(EXIT_CONFIG, &why);
	*mounts = json_pack("[o]", one);
	return *mounts ? EXIT_OK : EXIT_INTERNAL;
}

static int replace(const char *path, const struct buf *text)
{
	_cleanup_(close_fdp) int dir = -1;
	struct why why = {""};
	const char *name = strrchr(path, '/');
	char parent[PATH_MAX];
	int r;

	snprintf(parent, sizeof(parent), "%.*s", name ? (int)(name - path + 1) : 1,
		 name ? path : ".");
	name = name ? name + 1 : path;
	dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = dir < 0 ? err_origin(-errno)
		    : io_replace_file(dir, name, text->data, text->len, 0644);
	if (r < 0) {
		why_set(&why, r, "%s: %s", path, strerror(-r));
		return cmd_fail(EXIT_CONFIG, &why);
	}
	return EXIT_OK;
}

static int run(void *arg, int argc, char **argv)
{
	const struct metrics_options *options = arg;
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	json_t *mounts = NULL;
	int r = gather(argc ? argv[0] : NULL, &mounts);

	if (r != EXIT_OK)
		return r;
	metrics_write(&text, mounts);
	json_decref(mounts);
	if (buf_error(&text) < 0)
		return EXIT_INTERNAL;
	if (options->output)
		return replace(options->output, &text);
	fwrite(text.data, 1, text.len, stdout);
	return EXIT_OK;
}

const struct command cmd_metrics = {
	.name = "metrics",
	.args = "[DIR]",
	.summary = "print what mounts count, for Prometheus",
	.examples = "  sluice metrics\n"
		    "  sluice metrics --output "
		    "/var/lib/prometheus/node-exporter/sluice.prom\n",
	.options = specs,
	.options_size = sizeof(struct metrics_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
