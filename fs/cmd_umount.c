/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
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
	if (entry->read_only) {
		fprintf(stderr, "sluice: %s: %s\n", entry->dir, what);
		return EXIT_OK;
	}
	fprintf(stderr,
		"sluice: %s: %s; uploads may be pending: mount %s again or run \"sluice "
		"recover\"\n",
		entry->dir, what, entry->source);
	return EXIT_PENDING;
}

/* Lazily, and with the connection aborted: no process keeps waiting. */
static int free_by_force(const struct mounts_entry *entry, pid_t daemon, struct why *why)
{
	int aborted = mounts_abort(entry->minor);

	if (umount2(entry->dir, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != EINVAL) {
		why_set(why, -errno, "%s: %s", entry->dir, strerror(errno));
		return cmd_fail(errno == EPERM ? EXIT_REFUSED : EXIT_INTERNAL, why);
	}
	if (daemon > 0)
		kill(daemon, SIGKILL);
	else if (aborted < 0)
		fprintf(stderr, "sluice: %s: connection %u not aborted: %s\n", entry->dir,
			entry->minor, strerror(-aborted));
	return leftover(entry, "freed by force");
}

/* Nobody serves it: the kernel answers every call with ENOTCONN. */
static int remove_dead(const struct mounts_entry *entry, struct why *why)
{
	char users[256];

	if (umount2(entry->dir, UMOUNT_NOFOLLOW) == 0)
		return leftover(entry, "its process was gone already");
	if (errno == EBUSY) {
		mounts_users(entry->dir, users, sizeof(users));
		why_set(why, -EBUSY,
			"%s: its process is gone and it is in use%s%s; --force detaches "
			"it",
			entry->dir, *users ? " by " : "", users);
		return cmd_fail(EXIT_PENDING, why);
	}
	why_set(why, -errno, "%s: %s", entry->dir, strerror(errno));
	return cmd_fail(errno == EPERM ? EXIT_REFUSED : EXIT_INTERNAL, why);
}

/* It is in use, and goes on. */
static bool refused(const json_t *result)
{
	const char *text = json_string_value(json_object_get(result, "result"));

	return text && !strcmp(text, "busy");
}

static int stop(struct client *c, const struct umount_options *options, const char *dir)
{
	_cleanup_(close_fdp) int process = pidfd_open(client_peer(c), 0);
	struct pollfd ended = {.fd = process, .events = POLLIN};
	struct why why = {""};
	json_t *result = NULL, *extra = NULL;
	int code, r;

	r = client_send(c, "stop",
			options->deadline_ms ? options->deadline_ms : UINT64_MAX);
	if (r == 0)
		r = client_follow(c, options->json, &result);
	if (r != 0) {
		why_set(&why, r,
			"%s: its process does not answer; \"sluice umount --force %s\" "
			"frees "
			"it",
			dir, dir);
		return cmd_fail(EXIT_UNAVAILABLE, &why);
	}
	code = cmd_print_drained(result, options->json, dir);
	/* The connection closes with the process: then everything is really gone. */
	if (code == EXIT_OK || code == EXIT_PENDING) {
		if (client_read(c, END_TIMEOUT_MS, &extra) == 0)
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
		r = stop(c, options, dir);
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
