/* SPDX-License-Identifier: Apache-2.0 */
/* A job file: it is accepted, or at least one mistake says why not. What was accepted can
 * be written and is accepted again. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

#include "runner/spec.h"

static void check_round_trip(const struct spec *spec)
{
	struct spec *again = NULL;
	struct mistakes m;
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	if (!f || spec_write(spec, f) < 0 || fclose(f) != 0)
		abort();
	mistakes_init(&m);
	if (spec_parse("again", text, n, "/", NULL, 0, &again, &m) < 0) {
		mistakes_print(&m, stderr);
		fputs(text, stderr);
		abort();
	}
	spec_free(again);
	mistakes_fini(&m);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spec *spec = NULL;
	struct mistakes m;

	mistakes_init(&m);
	if (spec_parse("fuzz", (const char *)data, size, "/", NULL, 0, &spec, &m) < 0) {
		if (!m.count)
			abort();
	} else {
		check_round_trip(spec);
		spec_free(spec);
	}
	mistakes_fini(&m);
	return 0;
}
