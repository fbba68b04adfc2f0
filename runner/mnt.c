/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"

#define DETACH_MAX 4096 /* mounts below one directory */

/* "\040" and its like, in place. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
		    s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				       (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* proc(5): id parent major:minor root point options [tag...] - type source options */
static bool parse_line(char *line, struct mnt_line *m)
{
	char *save, *field = strtok_r(line, " \n", &save), *point = NULL;

	*m = (struct mnt_line){0};
	for (int i = 0; field; i++, field = strtok_r(NULL, " \n", &save)) {
		if (i == 4)
			point = field;
		if (i > 5 && !strcmp(field, "-"))
			break;
		if (i > 5 && !strncmp(field, "shared:", 7))
			m->shared = true;
		if (i > 5 && !strncmp(field, "master:", 7))
			m->slave = true;
	}
	if (!field || !point)
		return false;
	unescape(point);
	m->point = point;
	m->fstype = strtok_r(NULL, " \n", &save);
	strtok_r(NULL, " \n", &save); /* the source */
	m->options = strtok_r(NULL, " \n", &save);
	return m->fstype && m->options;
}

/* Is `path` the directory itself or below it? */
static bool is_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1) /* the root */
		return true;
	return !strncmp(path, dir, n) && (path[n] == '\0' || path[n] == '/');
}

void mnt_each(void (*fn)(const struct mnt_line *m, void *arg), void *arg)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_(freep) char *line = NULL;
	struct mnt_line m;
	size_t size = 0;

	while (f && getline(&line, &size, f) > 0)
		if (parse_line(line, &m))
			fn(&m, arg);
}

struct search {
	const char *dir;
	bool (*want)(const char *point, const char *dir);
	bool found;
	char point[PATH_MAX];
	bool propagates;
};

/* The longest, and of equals the last: what was mounted last lies on top. */
static void consider(const struct mnt_line *m, void *arg)
{
	struct search *s = arg;
	size_t n = strlen(m->point);

	if (!s->want(m->point, s->dir) || n >= sizeof(s->point) ||
	    (s->found && n < strlen(s->point)))
		return;
	s->found = true;
	memcpy(s->point, m->point, n + 1);
	s->propagates = m->shared || m->slave;
}

static bool find(struct search *s)
{
	s->found = false;
	mnt_each(consider, s);
	return s->found;
}

static bool want_same(const char *point, const char *dir)
{
	return !strcmp(point, dir);
}

static bool want_holder(const char *point, const char *dir)
{
	return is_within(dir, point);
}

static bool want_below(const char *point, const char *dir)
{
	return is_within(point, dir);
}

bool mnt_is_mounted(const char *dir)
{
	struct search s = {.dir = dir, .want = want_same};

	return find(&s);
}

bool mnt_propagates(const char *dir)
{
	struct search s = {.dir = dir, .want = want_holder};

	return find(&s) && s.propagates;
}

/* All by descriptor: a directory that is swapped for a link meanwhile changes nothing. */
static int open_dir(const char *dir, char by_fd[32], struct stat *st)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, st)) {
		int r = -errno;

		if (fd >= 0)
			close(fd);
		return err_origin(r);
	}
	snprintf(by_fd, 32, "/proc/self/fd/%d", fd);
	return fd;
}

int mnt_share(const char *dir, struct why *why)
{
	_cleanup_(close_fdp) int below = -1, top = -1;
	char below_path[32], top_path[32];
	struct stat a = {0}, b = {0};
	bool fresh = !mnt_is_mounted(dir);

	below = open_dir(dir, below_path, &a);
	if (below < 0)
		return why_set(why, below, "cannot open the directory %s: %s", dir,
			       strerror(-below));
	if (fresh && mount(below_path, below_path, NULL, MS_BIND, NULL))
		goto failed;
	top = open_dir(dir, top_path, &b);
	if (top < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return why_set(why, err_origin(-EAGAIN), "%s was replaced meanwhile",
			       dir);
	/* Private first: a peer group of its own, not that of the surrounding mount. */
	if (fresh && mount(NULL, top_path, NULL, MS_PRIVATE, NULL))
		goto failed;
	if (mount(NULL, top_path, NULL, MS_SHARED, NULL))
		goto failed;
	return 0;
failed:
	return why_set(why, err_origin(-errno), "cannot make %s a shared mount: %s", dir,
		       strerror(errno));
}

int mnt_unshare(const char *dir, struct why *why)
{
	struct search s = {.dir = dir, .want = want_below};

	if (dir[0] != '/' || !dir[1])
		return why_set(why, err_origin(-EINVAL), "not a directory of ours: %s",
			       dir);
	for (int i = 0; find(&s); i++) {
		if (i >= DETACH_MAX)
			return why_set(why, err_origin(-EBUSY),
				       "more than %d mounts below %s", DETACH_MAX, dir);
		if (umount2(s.point, MNT_DETACH | UMOUNT_NOFOLLOW) && errno != EINVAL)
			return why_set(why, err_origin(-errno), "cannot unmount %s: %s",
				       s.point, strerror(errno));
	}
	return 0;
}
