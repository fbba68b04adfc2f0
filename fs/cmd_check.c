/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/cmd.h"
#include "fs/config.h"
#include "fs/stack.h"

struct walk {
	uint64_t keys, hidden;
};

static int look(void *arg, const char *key, size_t len, const struct origin_attr *attr)
{
	struct walk *w = arg;
	int fault = path_key_check(key, len);
	char name[PATH_KEY_MAX + 1], shown[4 * PATH_KEY_MAX + 1];

	(void)attr;
	w->keys++;
	if (fault == PATH_OK)
		return 0;
	w->hidden++;
	len = len < PATH_KEY_MAX ? len : PATH_KEY_MAX;
	memcpy(name, key, len);
	name[len] = '\0';
	printf("%s\t%s\n", path_fault_name(fault),
	       log_escape(shown, sizeof(shown), name));
	return 0;
}

static int run(void *options, int argc, char **argv)
{
	struct config *config = options;
	struct walk walk = {0};
	struct stack stack;
	struct why why = {""};
	int r;

	(void)argc;
	r = config_complete(config, argv[0], &why);
	if (r == 0)
		r = cmd_log_init(config, &why);
	if (r < 0)
		return cmd_fail(EXIT_USAGE, &why);
	config->role = CONFIG_INPUT; /* nothing is written */
	r = stack_open_origin(config, UINT64_MAX, &stack, &why);
	if (r != 0)
		return cmd_fail(r, &why);
	struct origin_req req = {
		.op = ORIGIN_LIST,
		.key = "",
		.list = {.recursive = true, .entry = look, .entry_arg = &walk},
	};
	r = origin_list_all(stack.origin, &req);
	if (r < 0) {
		why = req.why;
		if (!*why.text)
			why_set(&why, r, "%s: %s", argv[0], strerror(-r));
	}
	stack_close(&stack);
	if (r < 0)
		return cmd_fail(EXIT_UNAVAILABLE, &why);
	fprintf(stderr, "%" PRIu64 " keys, %" PRIu64 " hidden\n", walk.keys, walk.hidden);
	return EXIT_OK;
}

const struct command cmd_check = {
	.name = "check",
	.args = "SOURCE",
	.summary = "list the keys of a source that cannot be shown as paths",
	.examples = "  sluice check oss://data --region cn-hangzhou\n",
	.options = config_store_specs,
	.options_size = sizeof(struct config),
	.args_min = 1,
	.args_max = 1,
	.run = run,
};
