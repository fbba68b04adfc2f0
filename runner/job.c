/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/suggest.h"
#include "fs/base/xalloc.h"

#define LOCK_NAME "lock"
#define SUPERVISOR_NAME "supervisor"

int job_root(char out[PATH_MAX], struct why *why)
{
	const char *run = getenv("SLUICE_RUN_DIR"), *state = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	int n;

	if (run && *run)
		n = snprintf(out, PATH_MAX, "%s", run);
	else if (geteuid() == 0)
		n = snprintf(out, PATH_MAX, "/var/lib/sluice");
	else if (state && *state == '/')
		n = snprintf(out, PATH_MAX, "%s/sluice", state);
	else
		n = snprintf(out, PATH_MAX, "%s/.local/state/sluice", home ? home : "");
	/* What lies below has bounded names: 512 bytes are enough for all of them. */
	if (*out != '/' || n > PATH_MAX - 512)
		return why_set(why, err_origin(-EINVAL),
			       "no place for the state of jobs: set SLUICE_RUN_DIR to an "
			       "absolute path");
	return 0;
}

static int jobs_dir(char out[PATH_MAX], struct why *why)
{
	int r = job_root(out, why);

	if (r == 0) /* it leaves room */
		snprintf(out + strlen(out), PATH_MAX - strlen(out), "/jobs");
	return r;
}

void job_path(const struct job *job, char out[PATH_MAX], const char *format, ...)
{
	size_t n = strlen(job->dir);
	va_list args;
	int added;

	memcpy(out, job->dir, n);
	out[n++] = '/';
	va_start(args, format);
	added = vsnprintf(out + n, PATH_MAX - n, format, args);
	va_end(args);
	check(added >= 0);
	check((size_t)added < PATH_MAX - n);
}

struct job *job_close(struct job *job)
{
	if (!job)
		return NULL;
	close_fdp(&job->dirfd);
	close_fdp(&job->lock_fd);
	free(job);
	return NULL;
}

/* `root` is where all jobs are. */
static struct job *new_job(const char *root, const char *name)
{
	struct job *job = xcalloc(1, sizeof(*job));

	job->dirfd = job->lock_fd = -1;
	snprintf(job->name, sizeof(job->name), "%s", name);
	snprintf(job->dir, sizeof(job->dir), "%.*s/%s", PATH_MAX - SPEC_NAME_MAX - 2,
		 root, job->name);
	return job;
}

/* A name that came from the command line, not from a checked spec. */
static bool is_name(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= SPEC_NAME_MAX && !strchr(name, '/') && *name != '.';
}

static int no_such_job(const char *name, struct why *why)
{
	struct job_names names = {0};
	const char *near = NULL;

	if (job_list(&names, NULL) == 0) {
		const char **pointers = xcalloc(names.count, sizeof(*pointers));

		for (size_t i = 0; i < names.count; i++)
			pointers[i] = names.items[i];
		near = suggest_nearest(name, pointers, names.count, sizeof(*pointers));
		why_set(why, 0, "there is no job \"%.64s\"%s%s%s", name,
			near ? ", did you mean \"" : ": \"runner list\" shows all",
			near ? near : "", near ? "\"?" : "");
		free(pointers);
		job_names_fini(&names);
	}
	return err_origin(-ENOENT);
}

int job_open(const char *name, struct job **out, struct why *why)
{
	struct job *job;
	char root[PATH_MAX];
	int r;

	if (!is_name(name))
		return no_such_job(name, why);
	r = jobs_dir(root, why);
	if (r < 0)
		return err_trace(r);
	job = new_job(root, name);
	job->dirfd = open(job->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (job->dirfd < 0) {
		r = -errno;
		job_close(job);
		if (r == -ENOENT)
			return no_such_job(name, why);
		return why_set(why, err_origin(r), "job %s: its state cannot be read: %s",
			       name, strerror(-r));
	}
	*out = job;
	return 0;
}

static struct flock whole_file(short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

/* Locks belong to the open file, not to the process: they pass to a forked supervisor. */
static int take_lock(struct job *job)
{
	struct flock lock = whole_file(F_WRLCK);
	int fd = openat(job->dirfd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_origin(-errno);
	if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
		int r = errno == EAGAIN || errno == EACCES ? JOB_E_HELD : -errno;

		close(fd);
		return r;
	}
	job->lock_fd = fd;
	return 0;
}

int job_hold(const char *name, struct job **out, struct why *why)
{
	struct job *job;
	char root[PATH_MAX];
	int r;

	r = jobs_dir(root, why);
	if (r < 0)
		return err_trace(r);
	job = new_job(root, name);
	r = io_mkdir_p(root, 0700);
	if (r < 0)
		why_set(why, r, "%.200s: %s", root, strerror(-r));
	if (r == 0) {
		job->dirfd = io_open_private_dir(job->dir, why);
		r = job->dirfd < 0 ? job->dirfd : 0;
	}
	if (r == 0) {
		r = take_lock(job);
		if (r < 0)
			why_set(why, r, "job %s cannot be locked: %s", name,
				strerror(-r));
	}
	if (r != 0) {
		job_close(job);
		return r;
	}
	*out = job;
	return 0;
}

bool job_is_held(const struct job *job)
{
	struct flock lock = whole_file(F_WRLCK);
	_cleanup_(close_fdp) int fd = openat(job->dirfd, LOCK_NAME, O_RDWR | O_CLOEXEC);

	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int job_clear(struct job *job, struct why *why)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	int fd = openat(job->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;

	check(job->lock_fd >= 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return why_set(why, err_origin(-errno), "%.200s: %s", job->dir,
			       strerror(errno));
	while ((entry = readdir(dir))) {
		int r;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    !strcmp(entry->d_name, LOCK_NAME))
			continue;
		r = io_remove_tree(job->dirfd, entry->d_name);
		if (r < 0)
			return why_set(
				why, err_trace(r),
				"%.150s/%.60s is left from an earlier run and cannot "
				"be removed: %s",
				job->dir, entry->d_name, strerror(-r));
	}
	return 0;
}

/* ---- the supervisor ---------------------------------------------------------------------- */

/* Field 22 of /proc/PID/stat, after the command's name, which may hold anything. */
static int start_time(pid_t pid, uint64_t *ticks)
{
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	char path[64], *at;
	int r;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	r = io_read_file(AT_FDCWD, path, 4096, &text);
	if (r < 0)
		return -ESRCH;
	at = text.data ? strrchr(text.data, ')') : NULL;
	for (int i = 0; at && i < 20; i++)
		at = strchr(at + 1, ' ');
	if (!at)
		return err_origin(-EIO);
	*ticks = strtoull(at + 1, NULL, 10);
	return 0;
}

int job_sign(struct job *job, struct why *why)
{
	uint64_t ticks = 0;
	char text[64];
	int r;

	r = start_time(getpid(), &ticks);
	if (r == 0) {
		snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)getpid(), ticks);
		r = io_replace_file(job->dirfd, SUPERVISOR_NAME, text, strlen(text),
				    0600);
	}
	if (r < 0)
		return why_set(why, err_trace(r), "%.200s cannot be written: %s",
			       job->dir, strerror(-r));
	return 0;
}

int job_supervisor(const struct job *job, pid_t *pid)
{
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	uint64_t signed_ticks, ticks = 0;
	int number, fd;

	if (io_read_file(job->dirfd, SUPERVISOR_NAME, 256, &text) < 0 || !text.data ||
	    sscanf(text.data, "%d %" SCNu64, &number, &signed_ticks) != 2 || number <= 0)
		return -ESRCH;
	/* The descriptor first: what it names cannot change under the comparison. */
	fd = (int)syscall(SYS_pidfd_open, number, 0);
	if (fd < 0)
		return -ESRCH;
	if (start_time(number, &ticks) < 0 || ticks != signed_ticks) {
		close(fd);
		return -ESRCH;
	}
	*pid = number;
	return fd;
}

/* ---- all jobs ---------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

int job_list(struct job_names *out, struct why *why)
{
	_cleanup_(closedirp) DIR *dir = NULL;
	struct job_names names = {0};
	char root[PATH_MAX];
	struct dirent *entry;
	int r = jobs_dir(root, why);

	if (r < 0)
		return err_trace(r);
	dir = opendir(root);
	if (!dir && errno != ENOENT)
		return why_set(why, err_origin(-errno), "%.200s: %s", root,
			       strerror(errno));
	while (dir && (entry = readdir(dir)) && names.count < JOB_LIST_MAX) {
		if (!is_name(entry->d_name))
			continue;
		names.items =
			xrealloc(names.items, names.count + 1, sizeof(*names.items));
		snprintf(names.items[names.count++], sizeof(*names.items), "%.*s",
			 SPEC_NAME_MAX, entry->d_name);
	}
	if (names.count)
		qsort(names.items, names.count, sizeof(*names.items), by_name);
	*out = names;
	return 0;
}

void job_names_fini(struct job_names *names)
{
	free(names->items);
	*names = (struct job_names){0};
}
