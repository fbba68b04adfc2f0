/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/exit.h"

void standard_open(void)
{
	int fd;

	/* The lowest free one each time; children have these, too. */
	do {
		fd = open("/dev/null", O_RDWR);
		if (fd < 0)
			_exit(EXIT_INTERNAL);
	} while (fd <= STDERR_FILENO);
	close(fd);
}

int standard_close(const char *program, int code)
{
	const char *why = ferror(stdout) ? "a write failed" : NULL;

	if (fclose(stdout) != 0)
		why = strerror(errno);
	if (!why)
		return code;
	fprintf(stderr, "%s: standard output: %s\n", program, why);
	return code == EXIT_OK ? EXIT_INTERNAL : code;
}
