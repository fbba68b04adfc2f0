/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/survey.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/client.h"
#include "fs/mounts.h"

#define ANSWER_TIMEOUT_MS 5000
#define DAEMONS_MAX 10

/* What can be said of a mount whose process cannot be asked. */
static json_t *unserved(const struct mounts_entry *entry, const char *state)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	json_put_uint(&b, "version", 1);
	json_put_string(&b, "dir", entry->dir);
	json_put_string(&b, "source", entry->source);
	json_put_string(&b, "role", entry->read_only ? "input" : "output");
	json_put_string(&b, "state", state);
	if (entry->user != geteuid())
		json_put_uint(&b, "user", entry->user);
	json_end_object(&b);
	return buf_error(&b) < 0 ? NULL : json_loadb(b.data, b.len, 0, NULL);
}

/* The status object of `dir`. 0; CLIENT_E_NOBODY; -ETIMEDOUT: it hangs; -EBUSY: it answers
 * others; -EACCES. */
static int ask(const char *dir, json_t **out, struct why *why)
{
	struct client *c = NULL;
	int r = CLIENT_E_END;

	/* A daemon that dies meanwhile may have another one behind it. */
	for (int i = 0; r == CLIENT_E_END && i < DAEMONS_MAX; i++) {
		r = client_open(dir, &c, why);
		if (r != 0)
			return r;
		r = client_send(c, "status", UINT64_MAX, false);
		if (r == 0)
			r = client_read(c, ANSWER_TIMEOUT_MS, out);
		c = client_close(c);
	}
	if (r == 0 && json_object_get(*out, "result")) {
		json_decref(*out);
		return err_origin(-EBUSY);
	}
	return r == CLIENT_E_END ? CLIENT_E_NOBODY : err_trace(r);
}

static const char *state_of(const struct mounts_entry *entry, int r)
{
	if (r == -EACCES)
		return "unknown";
	if (r == -EBUSY)
		return "busy";
	if (r != CLIENT_E_NOBODY)
		return "hung";
	/* Its socket is where that user has those of his mounts, and refuses others. */
	return entry->user != geteuid() ? "unknown" : "dead";
}

/* Of a mount in the kernel's table: always an object, or NULL without memory. */
static json_t *look_at(const struct mounts_entry *entry)
{
	struct why why = {""};
	json_t *status = NULL;
	int r = ask(entry->dir, &status, &why);

	if (r == 0)
		return status;
	return unserved(entry, state_of(entry, r));
}

static int add_mount(void *arg, const struct mounts_entry *entry)
{
	return json_array_append_new(arg, look_at(entry)) < 0 ? -ENOMEM : 0;
}

static bool listed(const json_t *mounts, const char *dir)
{
	const json_t *mount;
	size_t i;

	json_array_foreach(mounts, i, mount)
	{
		const char *other = json_string_value(json_object_get(mount, "dir"));

		if (other && !strcmp(other, dir))
			return true;
	}
	return false;
}

/* A process that drains after its mount was taken away is not in the kernel's table: the
 * sockets lead to it. */
static void add_draining(json_t *mounts)
{
	_cleanup_(closedirp) DIR *d = NULL;
	char run_dir[PATH_MAX];
	struct dirent *e;

	if (mounts_run_dir(run_dir, sizeof(run_dir), NULL) < 0)
		return;
	d = opendir(run_dir);
	while (d && (e = readdir(d))) {
		struct client *c = NULL;
		json_t *status = NULL;
		const char *dir;

		if (!strstr(e->d_name, ".sock") ||
		    client_open_socket(run_dir, e->d_name, &c))
			continue;
		if (client_send(c, "status", UINT64_MAX, false) == 0 &&
		    client_read(c, ANSWER_TIMEOUT_MS, &status) == 0) {
			dir = json_string_value(json_object_get(status, "dir"));
			if (dir && !listed(mounts, dir))
				json_array_append(mounts, status);
		}
		json_decref(status);
		client_close(c);
	}
}

int survey_all(json_t **out)
{
	json_t *mounts = json_array();
	int r = mounts ? mounts_each(add_mount, mounts) : err_origin(-ENOMEM);

	if (r < 0) {
		json_decref(mounts);
		return err_trace(r);
	}
	add_draining(mounts);
	*out = mounts;
	return 0;
}

int survey_one(const char *dir, json_t **out, struct why *why)
{
	struct mounts_entry entry;
	int r;

	if (mounts_find(dir, &entry) == 0 && !strcmp(entry.type, MOUNTS_TYPE)) {
		*out = look_at(&entry);
		return *out ? 0 : err_origin(-ENOMEM);
	}
	r = ask(dir, out, why);
	if (r == -EBUSY)
		return why_set(why, r,
			       "%s: its process answers too many others; try again", dir);
	if (r != 0)
		return why_set(why, -ENOENT, "%s: nothing of sluice is mounted there",
			       dir);
	return 0;
}
