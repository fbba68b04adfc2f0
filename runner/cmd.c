/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <stdio.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/exit.h"
#include "fs/base/json.h"
#include "fs/base/opt.h"
#include "runner/mistakes.h"
#include "runner/preflight.h"
#include "runner/spec.h"

static void print_json(const struct mistakes *m)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	json_put_bool(&b, "ok", m->count == 0);
	json_begin_array(&b, "mistakes");
	for (size_t i = 0; i < m->count; i++) {
		json_begin_object(&b, NULL);
		json_put_string(&b, "text", m->items[i].text);
		json_put_uint(&b, "line", m->items[i].line);
		json_put_uint(&b, "column", m->items[i].column);
		json_put_int(&b, "exit_code", m->items[i].exit_code);
		json_end_object(&b);
	}
	json_end_array(&b);
	json_end_object(&b);
	printf("%s\n", b.data);
}

int cmd_load(const char *path, const struct opt_strings *sets, bool json,
	     struct spec **out)
{
	struct mistakes mistakes;
	struct spec *spec = NULL;
	int code;

	mistakes_init(&mistakes);
	if (spec_load(path, sets->items, sets->count, &spec, &mistakes) == 0)
		preflight(spec, &mistakes);
	code = mistakes_exit_code(&mistakes);
	if (json) {
		mistakes_sort(&mistakes);
		print_json(&mistakes);
	} else {
		mistakes_print(&mistakes, stderr);
	}
	mistakes_fini(&mistakes);
	if (code)
		spec_free(spec);
	else
		*out = spec;
	return code;
}
