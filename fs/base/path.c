/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/path.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const fault_names[] = {"ok", "empty component", "dot component",
					  "too long", "NUL byte"};
static_assert(sizeof(fault_names) / sizeof(*fault_names) == PATH_E_N, "fault names");

const char *path_fault_name(int fault)
{
	return fault >= 0 && fault < PATH_E_N ? fault_names[fault] : "unknown";
}

int path_name_check(const char *name, size_t n)
{
	if (n == 0 || memchr(name, '/', n))
		return PATH_E_EMPTY;
	if (memchr(name, '\0', n))
		return PATH_E_NUL;
	if ((n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.'))
		return PATH_E_DOT;
	return n > PATH_NAME_MAX ? PATH_E_LONG : PATH_OK;
}

int path_key_check(const char *key, size_t n)
{
	const char *end = key + n;

	if (n > PATH_KEY_MAX)
		return PATH_E_LONG;
	if (n == 0)
		return PATH_E_EMPTY;
	while (key < end) {
		const char *slash = memchr(key, '/', (size_t)(end - key));
		const char *stop = slash ? slash : end;
		int fault = path_name_check(key, (size_t)(stop - key));

		if (fault)
			return fault;
		key = slash ? slash + 1 : end;
	}
	return PATH_OK;
}

int path_join(char *out, size_t out_size, const char *dir, const char *name)
{
	int n = snprintf(out, out_size, "%s%s%s", dir, *dir ? "/" : "", name);

	return n < 0 || (size_t)n >= out_size ? -ENAMETOOLONG : 0;
}
