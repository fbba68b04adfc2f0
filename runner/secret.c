/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"
#include "runner/spec.h"

char *secret_free(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
	return NULL;
}

static int read_file(const char *path, char **out, struct why *why)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[SECRET_SIZE_MAX];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return why_set(why, err_origin(-errno), "%.180s: %s", path,
			       strerror(errno));
	if (st.st_mode & 077)
		return why_set(why, err_origin(-EACCES),
			       "%.180s: others can read this secret: chmod 600 it", path);
	n = io_pread(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return why_set(why, err_trace((int)n), "%.180s: %s", path,
			       strerror((int)-n));
	text[n] = '\0';
	text[strcspn(text, "\r\n")] = '\0';
	if (*text)
		*out = xstrdup(text);
	explicit_bzero(text, sizeof(text));
	if (!*out)
		return why_set(why, err_origin(-EINVAL),
			       "%.180s: the first line is empty", path);
	return 0;
}

int secret_read(const struct spec_secret *ref, char **out, struct why *why)
{
	const char *value;

	*out = NULL;
	if (ref->file)
		return read_file(ref->file, out, why);
	if (!ref->env)
		return 0;
	value = getenv(ref->env);
	if (!value || !*value)
		return why_set(why, err_origin(-ENOENT),
			       "the variable %.100s is not set: export it first",
			       ref->env);
	*out = xstrdup(value);
	return 0;
}
