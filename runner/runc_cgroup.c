/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "runner/mnt.h"

#define HIERARCHY_MAX 32
#define FILE_MAX (64 * 1024)

struct hierarchies {
	struct {
		char path[256];
		bool v2;
		char options[256]; /* v1: has the names of its controllers */
	} at[HIERARCHY_MAX];
	int count;
};

static void add_hierarchy(const struct mnt_line *m, void *arg)
{
	struct hierarchies *h = arg;
	bool v2 = !strcmp(m->fstype, "cgroup2");

	if ((!v2 && strcmp(m->fstype, "cgroup")) || h->count == HIERARCHY_MAX ||
	    strlen(m->point) >= sizeof(h->at[0].path))
		return;
	snprintf(h->at[h->count].path, sizeof(h->at[0].path), "%s", m->point);
	snprintf(h->at[h->count].options, sizeof(h->at[0].options), "%s", m->options);
	h->at[h->count++].v2 = v2;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (*list) {
		size_t m = strcspn(list, ", \n");

		if (m == n && !strncmp(list, word, n))
			return true;
		list += m;
		list += strspn(list, ", \n");
	}
	return false;
}

static bool exists(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       !access(path, F_OK);
}

static void note_v2(struct runc_cgroup_support *s, const char *dir)
{
	char path[PATH_MAX];
	struct buf b = BUF_INIT;

	snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
	if (!io_read_file(AT_FDCWD, path, FILE_MAX, &b) && b.data) {
		bool memory = has_word(b.data, "memory");

		s->memory |= memory;
		s->swap |= memory;
		s->cpu |= has_word(b.data, "cpu");
		s->pids |= has_word(b.data, "pids");
	}
	buf_fini(&b);
}

int runc_cgroup_probe(struct runc_cgroup_support *s, struct why *why)
{
	struct hierarchies h = {.count = 0};

	mnt_each(add_hierarchy, &h);
	*s = (struct runc_cgroup_support){0};
	for (int i = 0; i < h.count; i++) {
		const char *o = h.at[i].options;

		if (h.at[i].v2) {
			note_v2(s, h.at[i].path);
			continue;
		}
		s->cpu |= has_word(o, "cpu");
		s->pids |= has_word(o, "pids");
		if (has_word(o, "memory")) {
			s->memory = true;
			s->swap = exists(h.at[i].path, "memory.memsw.limit_in_bytes");
		}
	}
	if (!h.count)
		return why_set(
			why, err_origin(-ENOSYS),
			"no control groups are mounted; mount them: mount -t cgroup2 "
			"none /sys/fs/cgroup");
	return 0;
}

/* The number after "key " in a file of lines "key number". */
static unsigned long read_counter(const char *dir, const char *name, const char *file,
				  const char *key)
{
	char path[PATH_MAX];
	struct buf b = BUF_INIT;
	unsigned long value = 0;
	size_t n = strlen(key);

	snprintf(path, sizeof(path), "%s/%s/%s", dir, name, file);
	if (!io_read_file(AT_FDCWD, path, FILE_MAX, &b))
		for (const char *s = b.data; s && *s; s = strchr(s, '\n'), s += !!s)
			if (!strncmp(s, key, n) && s[n] == ' ')
				value = strtoul(s + n + 1, NULL, 10);
	buf_fini(&b);
	return value;
}

bool runc_cgroup_oom(const char *name)
{
	struct hierarchies h = {.count = 0};

	mnt_each(add_hierarchy, &h);
	for (int i = 0; i < h.count; i++) {
		const char *file = h.at[i].v2 ? "memory.events" : "memory.oom_control";

		if (read_counter(h.at[i].path, name, file, "oom_kill"))
			return true;
	}
	return false;
}

/* Processes of one group; its own pid namespace's first process takes the rest along. */
static void kill_members(const char *dir)
{
	char path[PATH_MAX];
	struct buf b = BUF_INIT;

	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	if (!io_read_file(AT_FDCWD, path, FILE_MAX, &b))
		for (const char *s = b.data; s && *s; s = strchr(s, '\n'), s += !!s) {
			pid_t pid = (pid_t)strtol(s, NULL, 10);

			if (pid > 1)
				kill(pid, SIGKILL);
		}
	buf_fini(&b);
}

/* One attempt at a group and the groups below it (a container may make some). Depth is
 * bounded by PATH_MAX. True when it is gone. */
static bool remove_group(const char *dir)
{
	_cleanup_(closedirp) DIR *d = opendir(dir);
	struct dirent *entry;
	char below[PATH_MAX];

	if (!d)
		return errno == ENOENT;
	while ((entry = readdir(d))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (snprintf(below, sizeof(below), "%s/%s", dir, entry->d_name) <
		    (int)sizeof(below))
			remove_group(below);
	}
	if (!rmdir(dir) || errno == ENOENT)
		return true;
	kill_members(dir);
	return false;
}

int runc_cgroup_remove(const char *name, struct why *why)
{
	struct hierarchies h = {.count = 0};
	uint64_t deadline = clock_mono_ms() + RUNC_CGROUP_REMOVE_MS;

	mnt_each(add_hierarchy, &h);
	for (int i = 0; i < h.count; i++) {
		char dir[PATH_MAX];

		snprintf(dir, sizeof(dir), "%s/%s", h.at[i].path, name);
		while (!remove_group(dir)) {
			if (clock_mono_ms() >= deadline)
				return why_set(why, err_origin(-EBUSY),
					       "processes of the control group %s do not "
					       "end (a hung file system?)",
					       dir);
			clock_sleep_ms(10);
		}
	}
	return 0;
}
