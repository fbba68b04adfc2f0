/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/receive.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/base/err.h"

bool receive_ready(char *buffer, size_t need)
{
	volatile char *p = buffer;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool locked = mlock(buffer, need) == 0;

	for (size_t at = 0; at < need; at += page)
		p[at] = 0;
	return locked;
}

int receive(int fd, char *buffer, size_t *size)
{
	ssize_t n;

	do {
		n = read(fd, buffer, RECEIVE_SIZE);
		/* ENOENT: it was withdrawn while it was read. */
	} while (n < 0 && errno == ENOENT);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return RECEIVE_E_NONE;
	if (n < 0)
		return errno == ENODEV ? RECEIVE_E_ENDED : err_origin(-errno);
	if ((size_t)n < sizeof(struct fuse_in_header))
		return err_origin(-EBADMSG);
	*size = (size_t)n;
	return 0;
}
