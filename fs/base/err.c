/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/err.h"

#include <stdio.h>
#include <string.h>

#include "fs/base/log.h"

int err_at(int r, const char *verb, const char *file, int line)
{
	if (r < 0)
		log_debug(LOG_ERR_AREA, "%s %s at=%s:%d", verb, strerror(-r), file, line);
	return r;
}

static void replace_control(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++)
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
}

int why_set(struct why *why, int r, const char *format, ...)
{
	va_list args;

	if (!why)
		return r;
	va_start(args, format);
	vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	replace_control(why->text);
	return r;
}

void why_wrap(struct why *why, const char *format, ...)
{
	struct why old;
	va_list args;
	size_t n;

	if (!why)
		return;
	old = *why;
	va_start(args, format);
	vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	replace_control(why->text);
	n = strlen(why->text);
	snprintf(why->text + n, sizeof(why->text) - n, ": %s", old.text);
}
