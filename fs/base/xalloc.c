/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"

void *xcalloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);

	check(p);
	return p;
}

void *xrealloc(void *p, size_t count, size_t size)
{
	p = reallocarray(p, count ? count : 1, size ? size : 1);
	check(p);
	return p;
}

char *xstrdup(const char *s)
{
	char *p = strdup(s);

	check(p);
	return p;
}

char *xstrndup(const char *s, size_t n)
{
	char *p = strndup(s, n);

	check(p);
	return p;
}

char *xasprintf(const char *format, ...)
{
	va_list args;
	char *p;
	int n;

	va_start(args, format);
	n = vasprintf(&p, format, args);
	va_end(args);
	check(n >= 0);
	return p;
}
