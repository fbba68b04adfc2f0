/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of open files. While a file is open with bytes of its own, those know when they were
 * changed; before and after, the node does. So the first open gives them the node's time, and
 * the last close takes theirs. A file system rounds what it cannot hold (years, nanoseconds): as
 * long as it shows what it made of the node's time, the node's is the one.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "fs/base/clock.h"
#include "fs/output_content.h"

void content_set_time(struct node *n)
{
	struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, clock_to_timespec(n->mtime_ns)};
	struct stat st;

	if (futimens(content_fd(n->live), t) == 0 && fstat(content_fd(n->live), &st) == 0)
		n->live_mtime_ns = clock_from_timespec(st.st_mtim);
}

int64_t content_mtime(const struct node *n, int64_t live_mtime_ns)
{
	return live_mtime_ns == n->live_mtime_ns ? n->mtime_ns : live_mtime_ns;
}

/* A write changes both times of the bytes. If theirs was set since, the change is what the node
 * knows already. */
int64_t content_ctime(const struct node *n, const struct stat *st)
{
	int64_t mtime_ns = clock_from_timespec(st->st_mtim),
		ctime_ns = clock_from_timespec(st->st_ctim);

	if (mtime_ns < ctime_ns)
		ctime_ns = mtime_ns;
	return ctime_ns > n->ctime_ns ? ctime_ns : n->ctime_ns;
}

void content_take_time(struct node *n, const struct stat *st)
{
	int64_t mtime_ns = content_mtime(n, clock_from_timespec(st->st_mtim));

	n->ctime_ns = content_ctime(n, st);
	n->live_mtime_ns = clock_from_timespec(st->st_mtim);
	n->mtime_ns = mtime_ns;
}

void content_begin_time(struct node *n)
{
	struct seal *s = &n->seal;
	struct stat st;
	bool same;

	if (fstat(content_fd(n->live), &st) < 0)
		return;
	n->live_mtime_ns = clock_from_timespec(st.st_mtim);
	if (n->live_mtime_ns == n->mtime_ns)
		return;
	same = s->whole || (n->live_mtime_ns == s->mtime_ns &&
			    clock_from_timespec(st.st_ctim) == s->ctime_ns);
	content_set_time(n);
	if (!same || fstat(content_fd(n->live), &st) < 0)
		return;
	s->mtime_ns = n->live_mtime_ns;
	s->ctime_ns = clock_from_timespec(st.st_ctim);
}
