/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/client.h"
#include "fs/cmd.h"
#include "fs/mounts.h"

#define END_TIMEOUT_MS 30000 /* from the last answer to the end of the process */

struct umount_options {
	uint64_t deadline_ms;
	bool json, force;
};

static const struct opt_spec specs[] = {
	{"deadline", 0, OPT_DURATION, offsetof(struct umount_options, deadline_ms), "0",
	 0, 0, "TIME", "wait so long for uploads at most; 0: no limit", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct umount_options, json), NULL, 0, 0, NULL,
	 "print the receipt as JSON", NULL},
	{"force", 0, OPT_FLAG, offsetof(struct umount_options, force), NULL, 0, 0, NULL,
	 "free a mount that hangs: wait for nothing, end its process; nothing that was "
	 "acknowledged is lost",
	 NULL},
	{0},
};

/* A writable mount may leave uploads behind that nobody is there to tell about. */
static int leftover(const struct mounts_entry *entry, const char *what)
{
	char dir[PATH_MAX], source[sizeof(entry->source)];

	log_escape(dir, sizeof(dir), entry->dir);
	log_escape(source, sizeof(source), entry->source);
	if (entry->read_only) {
		fprintf(stderr, "sluice: %s: %s\n", dir, what);
		return EXIT_OK;
	}
	fprintf(stderr,
		"sluice: %s: %s; uploads may be pending: mount %s again or run \"sluice "
		"recover\"\n",
		dir, what, source);
	return EXIT_PENDING;
}

static bool read_command_line(pid_t pid, char *out, size_t size, ssize_t *n)
{
	_cleanup_(close_fdp) int fd = -1;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	*n = fd < 0 ? -1 : read(fd, out, size);
	return *n > 0;
}

static pid_t parent_of(pid_t pid)
{
	_cleanup_(fclosep) FILE *f = NULL;
	char path[64], line[256];
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "PPid: %d", &parent) == 1)
			break;
	return parent;
}

/* The parent, if it is the same program, forked: the holder. Else 0. */
static pid_t holder_of(pid_t daemon)
{
	char own[4096], other[4096];
	pid_t parent = parent_of(daemon);
	ssize_t n, m;

	return parent > 1 && read_command_line(daemon, own, sizeof(own), &n) &&
			       read_command_line(parent, other, sizeof(other), &m) &&
			       n == m && !memcmp(own, other, (size_t)n)
		       ? parent
		       : 0;
}

/* Lazily, and with the connection aborted: no process keeps waiting. */
static int free_by_force(const struct mounts_entry *entry, pid_t daemon, struct why *why)
{
	_cleanup_(close_fdp) int fd = mounts_abort_open(entry);
	int aborted = fd < 0 ? fd : mounts_abort(fd), r;
	char shown[PATH_MAX];
	pid_t holder = 0;

	r = mounts_remove(entry->dir, true);
	if (r < 0) {
		why_set(why, r, "%s: %s", entry->dir, strerror(-r));
		return cmd_fail(r == -EPERM ? EXIT_REFUSED : EXIT_INTERNAL, why);
	}
	/* It would start another daemon for a connection that goes on. */
	if (daemon > 0 && aborted < 0)
		holder = holder_of(daemon);
	if (holder > 0)
		kill(holder, SIGKILL);
	if (daemon > 0)
		kill(daemon, SIGKILL);
	else if (aborted < 0)
		fprintf(stderr, "sluice: %s: connection %u not aborted: %s\n",
			log_escape(shown, sizeof(shown), entry->dir), entry->minor,
			strerror(-aborted));
	return leftover(entry, "freed by force");
}

/* Nobody serves it, and the kernel answers every call with ENOTCONN; or it is another user's,
 * whose process ends by itself. */
static int remove_dead(const struct mounts_entry *entry, struct why *why)
{
	int r = mounts_remove(entry->dir, false);
	char users[256];

	if (r == 0)
		return leftover(entry,
				entry->user != geteuid()
					? "another user's, whose process was not asked"
					: "its process was gone already");
	if (r == MOUNTS_E_BUSY) {
		mounts_users(entry->dir, users, sizeof(users));
		why_set(why, -EBUSY,
			"%s: its process %s and it is in use%s%s; --force detaches it",
			entry->dir,
			entry->user != geteuid() ? "cannot be asked" : "is gone",
			*users ? " by " : "", users);
		return cmd_fail(EXIT_PENDING, why);
	}
	why_set(why, r, "%s: %s", entry->dir, strerror(-r));
	return cmd_fail(r == -EPERM ? EXIT_REFUSED : EXIT_INTERNAL, why);
}

/* It is in use, and goes on. */
static bool refused(const json_t *result)
{
	const char *text = json_string_value(json_object_get(result, "result"));

	return text && !strcmp(text, "busy");
}

/* Whether it is mounted somewhere else, too, and served there on: then that is told. */
static bool goes_on(const json_t *result, pid_t daemon, const char *dir)
{
	const char *where = json_string_value(json_object_get(result, "elsewhere"));
	char shown[PATH_MAX];

	if (where)
		fprintf(stderr,
			"sluice: %s: unmounted here, but it is mounted elsewhere, "
			"too%s%s; "
			"process %d serves it there until that ends\n",
			log_escape(shown, sizeof(shown), dir), *where ? ": " : "", where,
			(int)daemon);
	return where;
}

static int stop(struct client **c, const struct umount_options *options, const char *dir)
{
	struct pollfd ended = {.fd = -1, .events = POLLIN};
	_cleanup_(close_fdp) int process = -1;
	struct why why = {""};
	json_t *result = NULL, *extra = NULL;
	int code, r;

	r = client_run(dir, "stop",
		       options->deadline_ms ? options->deadline_ms : UINT64_MAX,
		       options->json, c, &result, &why);
	if (r != 0) {
		why_set(&why, r,
			"%s: its process does not answer; \"sluice umount --force %s\" "
			"frees "
			"it",
			dir, dir);
		return cmd_fail(EXIT_UNAVAILABLE, &why);
	}
	process = ended.fd = pidfd_open(client_peer(*c), 0);
	code = cmd_print_drained(result, client_files(*c), options->json, dir);
	/* The connection closes with the process: then everything is really gone. */
	if (!goes_on(result, client_peer(*c), dir) &&
	    (code == EXIT_OK || code == EXIT_PENDING)) {
		if (client_read(*c, END_TIMEOUT_MS, &extra) == 0)
			json_decref(extra);
		if (process >= 0 && !refused(result))
			poll(&ended, 1, END_TIMEOUT_MS);
	}
	json_decref(result);
	return code;
}

static int run(void *arg, int argc, char **argv)
{
	const struct umount_options *options = arg;
	struct mounts_entry entry;
	struct client *c = NULL;
	struct why why = {""};
	char dir[PATH_MAX];
	bool mounted;
	int r;

	(void)argc;
	r = mounts_path(argv[0], dir, &why);
	if (r < 0)
		return cmd_fail(EXIT_CONFIG, &why);
	mounted = mounts_find(dir, &entry) == 0 && !strcmp(entry.type, MOUNTS_TYPE);
	r = client_open(dir, &c, &why);
	if (r < 0)
		return cmd_fail(r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG, &why);
	if (mounted && options->force)
		r = free_by_force(&entry, c ? client_peer(c) : 0, &why);
	else if (r == 0)
		r = stop(&c, options, dir);
	else if (mounted)
		r = remove_dead(&entry, &why);
	else {
		why_set(&why, -EINVAL, "%s: nothing of sluice is mounted there", dir);
		r = cmd_fail(EXIT_CONFIG, &why);
	}
	client_close(c);
	return r;
}

const struct command cmd_umount = {
	.name = "umount",
	.args = "DIR",
	.summary = "upload what is pending, then take the mount away",
	.examples =
		"  sluice umount /output\n"
		"  sluice umount /output --deadline 5m    # 75 if something is pending\n",
	.options = specs,
	.options_size = sizeof(struct umount_options),
	.args_min = 1,
	.args_max = 1,
	.run = run,
};
