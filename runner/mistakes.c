/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/mistakes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/base/xalloc.h"

#define TEXT_MAX 1024

void mistakes_init(struct mistakes *m)
{
	m->count = m->dropped = 0;
}

void mistakes_fini(struct mistakes *m)
{
	while (m->count)
		free(m->items[--m->count].text);
}

void mistakes_add(struct mistakes *m, struct mistake_place place, int exit_code,
		  const char *format, ...)
{
	char raw[TEXT_MAX], text[TEXT_MAX * 2], where[TEXT_MAX / 2] = "";
	char source[TEXT_MAX / 2 - 32] = "";
	struct mistake *new = &m->items[m->count];
	va_list args;

	if (m->count == MISTAKES_MAX) {
		m->dropped++;
		return;
	}
	if (place.source)
		log_escape(source, sizeof(source), place.source);
	if (place.source && place.line)
		snprintf(where, sizeof(where), "%s:%u:%u: ", source, place.line,
			 place.column);
	else if (place.source)
		snprintf(where, sizeof(where), "%s: ", source);
	va_start(args, format);
	vsnprintf(raw, sizeof(raw), format, args);
	va_end(args);
	log_escape(text, sizeof(text), raw);
	*new = (struct mistake){xasprintf("%s%s", where, text), place.line, place.column,
				exit_code};
	m->count++;
}

int mistakes_exit_code(const struct mistakes *m)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->items[i].exit_code == EXIT_USAGE)
			return EXIT_USAGE;
	return m->count ? m->items[0].exit_code : EXIT_OK;
}

static int compare(const void *a, const void *b)
{
	const struct mistake *x = a, *y = b;
	bool x_in_file = x->line > 0, y_in_file = y->line > 0;

	if (x_in_file != y_in_file)
		return x_in_file ? -1 : 1;
	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	if (x->column != y->column)
		return x->column < y->column ? -1 : 1;
	return 0;
}

void mistakes_sort(struct mistakes *m)
{
	qsort(m->items, m->count, sizeof(m->items[0]), compare);
}

void mistakes_print(struct mistakes *m, FILE *out)
{
	mistakes_sort(m);
	for (size_t i = 0; i < m->count; i++)
		fprintf(out, "%s\n", m->items[i].text);
	if (m->dropped)
		fprintf(out, "and %zu more\n", m->dropped);
}
