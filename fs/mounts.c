/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/mounts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/fusermount.h"

#define FUSECTL "/sys/fs/fuse/connections"
#define USERS_SHOWN 3
#define NAME_SHOWN 64 /* of a process: 15 bytes, escaped */

int mounts_run_dir(char *out, size_t size, struct why *why)
{
	const char *dir = getenv("SLUICE_RUN_DIR"), *tail = "";
	int n;

	if (!dir || !*dir) {
		if (geteuid() == 0) {
			dir = "/run/sluice";
		} else {
			dir = getenv("XDG_RUNTIME_DIR");
			tail = "/sluice";
		}
	}
	if (!dir || *dir != '/')
		return why_set(
			why, -EINVAL,
			"no directory for control sockets: set SLUICE_RUN_DIR to an "
			"absolute path");
	n = snprintf(out, size, "%s%s", dir, tail);
	return (size_t)n < size ? 0 : why_set(why, -ENAMETOOLONG, "%s: too long", dir);
}

void mounts_socket_name(const char *dir, char out[MOUNTS_SOCKET_NAME_MAX])
{
	snprintf(out, MOUNTS_SOCKET_NAME_MAX, "%016" PRIx64 ".sock",
		 crc64(0, dir, strlen(dir)));
}

/* Follows the parent, keeps the last component. */
static int join_real_parent(const char *given, char out[PATH_MAX])
{
	char path[PATH_MAX], parent[PATH_MAX];
	char *slash;
	size_t n = strlen(given);
	int len;

	while (n > 1 && given[n - 1] == '/')
		n--;
	if (n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, given, n);
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	if (!realpath(slash ? (*path ? path : "/") : ".", parent))
		return -errno;
	len = snprintf(out, PATH_MAX, "%s/%s", strcmp(parent, "/") ? parent : "",
		       slash ? slash + 1 : path);
	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static bool ends_in_dots(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] == '.')
		n--;
	return n != strlen(path) && (n == 0 || path[n - 1] == '/');
}

int mounts_path(const char *given, char out[PATH_MAX], struct why *why)
{
	struct mounts_entry entry;
	int r = 0;

	if (!*given)
		return why_set(why, -ENOENT, "the mount point is an empty name");
	if (!ends_in_dots(given)) {
		r = join_real_parent(given, out);
		if (r == 0 && mounts_find(out, &entry) == 0 &&
		    !strcmp(entry.type, MOUNTS_TYPE))
			return 0;
	}
	if (r == 0 && !realpath(given, out))
		r = -errno;
	return r < 0 ? why_set(why, r, "%s: %s", given, strerror(-r)) : 0;
}

/* Decodes the octal escapes of the kernel's tables in place. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (*s == '\\' && isdigit((unsigned char)s[1]) && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
					(s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* "id parent major:minor root dir options optional... - type source super-options" */
static bool parse_line(char *line, struct mounts_entry *e)
{
	char *dash = strstr(line, " - "), *rest = line, *field[6];
	char *type, *source, *user;

	if (!dash)
		return false;
	*dash = '\0';
	for (int i = 0; i < 6; i++) {
		field[i] = strsep(&rest, " ");
		if (!field[i])
			return false;
	}
	rest = dash + 3;
	type = strsep(&rest, " ");
	source = strsep(&rest, " ");
	if (!type || !source || sscanf(field[2], "%*u:%u", &e->minor) != 1 ||
	    sscanf(field[0], "%u", &e->id) != 1)
		return false;
	unescape(field[4]);
	unescape(source);
	snprintf(e->dir, sizeof(e->dir), "%s", field[4]);
	snprintf(e->type, sizeof(e->type), "%s", type);
	snprintf(e->source, sizeof(e->source), "%s", source);
	user = rest ? strstr(rest, "user_id=") : NULL;
	e->user = user ? (unsigned int)strtoul(user + strlen("user_id="), NULL, 10) : 0;
	e->read_only =
		!strncmp(field[5], "ro", 2) && (!field[5][2] || field[5][2] == ',');
	return true;
}

/* Calls fn for each line of the table of a process. */
static int walk(const char *pid, mounts_fn fn, void *arg)
{
	_cleanup_(fclosep) FILE *f = NULL;
	_cleanup_(freep) char *line = NULL;
	struct mounts_entry entry;
	size_t size = 0;
	char path[300];
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%s/mountinfo", pid);
	f = fopen(path, "re");
	if (!f)
		return err_origin(-errno);
	while (r == 0 && getline(&line, &size, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (parse_line(line, &entry))
			r = fn(arg, &entry);
	}
	return r;
}

struct find {
	const char *dir;
	struct mounts_entry last; /* that matched */
	bool found;
};

static int match_dir(void *arg, const struct mounts_entry *entry)
{
	struct find *f = arg;

	if (!strcmp(entry->dir, f->dir)) {
		f->last = *entry; /* a later line lies above an earlier one */
		f->found = true;
	}
	return 0;
}

int mounts_find(const char *dir, struct mounts_entry *out)
{
	struct find f = {.dir = dir};
	int r = walk("self", match_dir, &f);

	if (r < 0)
		return err_trace(r);
	if (!f.found)
		return MOUNTS_E_NONE;
	*out = f.last;
	return 0;
}

struct each {
	mounts_fn fn;
	void *arg;
};

static int match_type(void *arg, const struct mounts_entry *entry)
{
	struct each *e = arg;

	return strcmp(entry->type, MOUNTS_TYPE) ? 0 : e->fn(e->arg, entry);
}

int mounts_each(mounts_fn fn, void *arg)
{
	struct each e = {fn, arg};

	return walk("self", match_type, &e);
}

int mounts_abort_open(const struct mounts_entry *entry)
{
	_cleanup_(close_fdp) int fd = mounts_abort_open_connection(entry->minor);
	struct mounts_entry now;

	if (fd < 0)
		return err_trace(fd);
	/* While it is there the number cannot have been given to another one. */
	if (mounts_find(entry->dir, &now) != 0 || now.id != entry->id ||
	    now.minor != entry->minor)
		return err_origin(-ENOENT);
	return steal_fd(&fd);
}

int mounts_abort_open_connection(unsigned int minor)
{
	char path[64];
	int fd, r;

	snprintf(path, sizeof(path), FUSECTL "/%u/abort", minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	/* Where nobody has mounted it: for as long as this takes. */
	if (r == -ENOENT && mount("fusectl", FUSECTL, "fusectl",
				  MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0) {
		fd = open(path, O_WRONLY | O_CLOEXEC);
		r = fd < 0 ? -errno : 0;
		umount2(FUSECTL, MNT_DETACH);
	}
	return r < 0 ? err_origin(r) : fd;
}

int mounts_abort(int fd)
{
	return err_trace(io_write(fd, "1", 1));
}

static bool is_mounted(const char *dir)
{
	struct mounts_entry entry;

	return mounts_find(dir, &entry) == 0 && !strcmp(entry.type, MOUNTS_TYPE);
}

int mounts_remove(const char *dir, bool lazily)
{
	bool busy;
	int r;

	if (!is_mounted(dir)) /* what else is there is not ours to remove */
		return 0;
	if (geteuid() == 0) {
		r = umount2(dir, UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0));
		r = r < 0 ? -errno : 0;
		busy = r == -EBUSY;
	} else {
		r = fusermount_unmount(dir, lazily);
		busy = r == FUSERMOUNT_E_BUSY;
	}
	if (r == 0 || !is_mounted(dir)) /* somebody else did it */
		return 0;
	return busy ? MOUNTS_E_BUSY : err_origin(r);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || path[n] == '\0');
}

static bool link_below(const char *pid, const char *name, const char *dir)
{
	char path[300], target[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = '\0';
	return is_below(target, dir);
}

static bool uses(const char *pid, const char *dir)
{
	_cleanup_(closedirp) DIR *fds = NULL;
	char path[300];
	struct dirent *d;

	if (link_below(pid, "cwd", dir) || link_below(pid, "root", dir))
		return true;
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	fds = opendir(path);
	while (fds && (d = readdir(fds))) {
		snprintf(path, sizeof(path), "fd/%s", d->d_name);
		if (link_below(pid, path, dir))
			return true;
	}
	return false;
}

/* Whoever runs it has chosen it. */
static void process_name(const char *pid, char out[NAME_SHOWN])
{
	_cleanup_(close_fdp) int fd = -1;
	char path[300], name[32];
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		n = read(fd, name, sizeof(name) - 1);
	if (n > 0 && name[n - 1] == '\n')
		n--;
	name[n > 0 ? n : 0] = '\0';
	log_escape(out, NAME_SHOWN, name);
}

void mounts_users(const char *dir, char *out, size_t size)
{
	_cleanup_(closedirp) DIR *proc = opendir("/proc");
	struct dirent *d;
	size_t at = 0;
	int shown = 0;

	*out = '\0';
	while (proc && (d = readdir(proc)) && shown < USERS_SHOWN) {
		char name[NAME_SHOWN];

		if (!isdigit((unsigned char)*d->d_name) || atoi(d->d_name) == getpid() ||
		    !uses(d->d_name, dir))
			continue;
		process_name(d->d_name, name);
		at += (size_t)snprintf(out + at, size - at, "%s%s %s", shown ? ", " : "",
				       d->d_name, name);
		if (at >= size)
			return;
		shown++;
	}
}

/* Where a connection is mounted: each mount once, by its number, which is never another's
 * in another name space. */
struct elsewhere {
	unsigned int minor;
	const char *pid; /* whose table is read; NULL: our own */
	unsigned int seen[64];
	size_t seen_count;
	char *out;
	size_t size, at;
	int shown;
};

static bool is_new(struct elsewhere *e, unsigned int id)
{
	for (size_t i = 0; i < e->seen_count; i++) {
		if (e->seen[i] == id)
			return false;
	}
	if (e->seen_count < sizeof(e->seen) / sizeof(*e->seen))
		e->seen[e->seen_count++] = id;
	return true;
}

static int show_elsewhere(void *arg, const struct mounts_entry *entry)
{
	struct elsewhere *e = arg;
	char name[NAME_SHOWN] = "", dir[PATH_MAX] = "";

	if (entry->minor != e->minor || strcmp(entry->type, MOUNTS_TYPE) != 0 ||
	    !is_new(e, entry->id))
		return 0;
	if (e->pid)
		process_name(e->pid, name);
	else
		log_escape(dir, sizeof(dir), entry->dir);
	e->at += (size_t)snprintf(e->out + e->at, e->size - e->at, "%s%s%s%s",
				  e->shown ? ", " : "", e->pid ? e->pid : dir,
				  e->pid ? " " : "", name);
	return e->at >= e->size || ++e->shown == USERS_SHOWN;
}

void mounts_elsewhere(unsigned int minor, char *out, size_t size)
{
	_cleanup_(closedirp) DIR *proc = opendir("/proc");
	struct elsewhere e = {.minor = minor, .out = out, .size = size};
	struct dirent *d;
	int r;

	*out = '\0';
	r = walk("self", show_elsewhere, &e);
	while (proc && r <= 0 && (d = readdir(proc))) {
		if (!isdigit((unsigned char)*d->d_name))
			continue;
		e.pid = d->d_name;
		r = walk(d->d_name, show_elsewhere, &e); /* it may be gone */
	}
}
