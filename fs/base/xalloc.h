/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the runner and the tools, which have nothing better to do than to abort when
 * there is none. The gateway never uses these: there a request fails with -ENOMEM. */
#pragma once

#include <stddef.h>

#define XALLOC_MUST __attribute__((returns_nonnull, warn_unused_result))

void *xcalloc(size_t count, size_t size) XALLOC_MUST; /* zeroed */
void *xrealloc(void *p, size_t count, size_t size) XALLOC_MUST;
char *xstrdup(const char *s) XALLOC_MUST;
char *xstrndup(const char *s, size_t n) XALLOC_MUST;
char *xasprintf(const char *format, ...) XALLOC_MUST
	__attribute__((format(printf, 1, 2)));
