/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and stop of /output.
 *
 * Start: lock the state directory, read the journal, tie the tree together, adopt the
 * staged files, write a fresh snapshot, sweep what nothing refers to, start the
 * reconciler. Stop: the same backwards; what is pending stays for the next start.
 */
#include "fs/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/handover.h"
#include "fs/output_look.h"

/* An open file description lock: it ends with the process, also by kill -9. */
static int take_state_lock(struct output *o, struct why *why)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	o->lock_fd = openat(o->state_fd, "lock",
			    O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (o->lock_fd < 0)
		return why_set(why, err_origin(-errno), "%s/lock: %s",
			       o->config.state_dir, strerror(errno));
	if (fcntl(o->lock_fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return why_set(
			why, err_origin(-EBUSY),
			"%s is in use by another mount: unmount that first, or use "
			"another --state-dir",
			o->config.state_dir);
	return why_set(why, err_origin(-errno), "%s/lock: %s", o->config.state_dir,
		       strerror(errno));
}

static int open_sub_dir(struct output *o, const char *name, int *fd, struct why *why)
{
	char path[PATH_MAX];
	int r = path_join(path, sizeof(path), o->config.state_dir, name);

	if (r < 0)
		return why_set(why, r, "%s: the path is too long", o->config.state_dir);
	r = io_open_private_dir(path, why);
	if (r < 0)
		return err_trace(r);
	*fd = r;
	return 0;
}

static int open_state(struct output *o, struct why *why)
{
	int r = io_open_private_dir(o->config.state_dir, why);

	if (r < 0)
		return err_trace(r);
	o->state_fd = r;
	r = take_state_lock(o, why);
	if (r == 0)
		r = open_sub_dir(o, "journal", &o->journal_fd, why);
	if (r == 0)
		r = open_sub_dir(o, "stage", &o->stage_fd, why);
	if (r == 0)
		r = open_sub_dir(o, "quarantine", &o->quarantine_fd, why);
	if (r == 0)
		r = io_fsync_dir(o->state_fd);
	return err_trace(r);
}

static int before_commit(void *arg)
{
	struct output *o = arg;

	return err_trace(stage_sync_names(o->stage));
}

static struct node *new_root(struct output *o)
{
	struct node *n = node_new(o, RECORD_DIR, TREE_ROOT);

	if (!n)
		return NULL;
	n->mode = S_IFDIR | (o->config.dir_mode ? o->config.dir_mode : 0755);
	n->uid = o->config.uid;
	n->gid = o->config.gid;
	n->mtime_ns = n->ctime_ns = clock_real_ns();
	return n;
}

static int recover(struct output *o, struct why *why)
{
	struct stage_config stage = {.dirfd = o->stage_fd,
				     .quarantine_fd = o->quarantine_fd,
				     .size_max = o->config.stage_size_max,
				     .carry_max = o->config.carry_max};
	struct journal_config journal = {
		.dirfd = o->journal_fd,
		.quarantine_fd = o->quarantine_fd,
		.source = o->config.origin->name,
		.tail = o->config.handover ? o->config.handover->tail : NULL,
		.arg = o,
		.replay = log_replay,
		.snapshot = log_snapshot,
		.before_commit = before_commit};
	bool keep;
	int r = 0;

	if (o->config.handover)
		r = patch_table_new(o->config.handover->patches, &o->patches);
	stage.patches = o->patches;
	if (r == 0)
		r = stage_new(&stage, &o->stage);
	if (r == 0)
		r = handover_restore_contents(o);
	if (r == 0)
		r = journal_open(&journal, &o->journal, &o->recovered, why);
	if (r == 0)
		r = log_finish(o);
	if (r == 0)
		r = handover_restore_nodes(o);
	if (r == 0)
		r = handover_restore_files(o);
	if (r < 0)
		return err_trace(r);
	/* With a damaged journal a file without a record may be one whose record is gone; and
	 * what is left of a damaged one is not ours to delete. */
	keep = o->recovered.damaged > 0 || o->recovered.torn_bytes > 0 ||
	       o->lost_contents > 0;
	r = stage_sweep(o->stage, keep);
	if (r >= 0)
		r = journal_start(o->journal);
	if (r < 0)
		return why_set(why, err_trace(r), "cannot write to %s: %s",
			       o->config.state_dir, strerror(-r));
	if (o->pending_count > 0)
		o->quiet_until_ms = clock_mono_ms() + o->config.settle_ms;
	if (o->recovered.records > 1)
		log_info("recovered records=%llu pending=%llu damaged=%llu",
			 (unsigned long long)o->recovered.records,
			 (unsigned long long)o->pending_count,
			 (unsigned long long)o->recovered.damaged);
	return 0;
}

int output_new(const struct output_config *config, struct output **out, struct why *why)
{
	struct output *o = calloc(1, sizeof(*o));
	int r;

	kill_point_init();
	if (!o)
		return err_origin(-ENOMEM);
	o->config = *config;
	if (o->config.fetch_max == 0)
		o->config.fetch_max = OUTPUT_FETCH_MAX;
	o->state_fd = o->journal_fd = o->stage_fd = o->quarantine_fd = o->lock_fd = -1;
	o->next_ino = TREE_ROOT + 1;
	lock_init(&o->lock);
	lock_cond_init(&o->changed);
	lock_cond_init(&o->work);
	lock_cond_init(&o->drained);
	lock_cond_init(&o->watch_cond);
	lock_cond_init(&o->walk_cond);
	list_init(&o->lingering);
	list_init(&o->ready);
	list_init(&o->waiting);
	list_init(&o->blocked);
	list_init(&o->doomed);
	list_init(&o->flying);
	list_init(&o->writing);
	list_init(&o->retained);
	lock_take(&o->lock);
	o->root = new_root(o);
	lock_drop(&o->lock);
	r = o->root ? open_state(o, why) : err_origin(-ENOMEM);
	if (r == 0)
		r = receipt_begin(o);
	if (r == 0)
		r = look_start(o);
	if (r == 0)
		r = recover(o, why);
	if (r == 0)
		r = sync_start(o);
	if (r < 0) {
		if (why && !why->text[0])
			why_set(why, r, "%s: %s", config->state_dir, strerror(-r));
		output_free(o);
		return err_trace(r);
	}
	*out = o;
	return 0;
}

static void free_nodes(struct output *o)
{
	struct node *n, *next;
	struct displaced *d, *d_next;

	lock_take(&o->lock);
	HASH_ITER (by_ino, o->nodes, n, next) {
		HASH_CLEAR(by_name, n->children);
		n->parent = NULL; /* all go: no child looks for it again */
		n->kept = NULL;   /* the next daemon's, if this one failed */
	}
	HASH_ITER (by_ino, o->nodes, n, next)
		node_free(o, n);
	HASH_ITER (hh, o->displaced, d, d_next) {
		HASH_DELETE(hh, o->displaced, d);
		free(d);
	}
	receipt_end(o);
	lock_drop(&o->lock);
}

struct output *output_free(struct output *o)
{
	if (!o)
		return NULL;
	look_stop(o);
	sync_stop(o);
	if (o->journal)
		o->journal = journal_close(o->journal);
	free_nodes(o);
	free(o->restored);
	free(o->files);
	stage_free(o->stage);
	patch_table_free(o->patches);
	/* The lock is the last but one to go: the state is at rest. */
	close_fdp(&o->journal_fd);
	close_fdp(&o->stage_fd);
	close_fdp(&o->quarantine_fd);
	close_fdp(&o->lock_fd);
	close_fdp(&o->state_fd);
	pthread_cond_destroy(&o->walk_cond);
	pthread_cond_destroy(&o->watch_cond);
	pthread_cond_destroy(&o->drained);
	pthread_cond_destroy(&o->work);
	pthread_cond_destroy(&o->changed);
	lock_fini(&o->lock);
	free(o);
	return NULL;
}
