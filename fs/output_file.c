/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files. Every open file of a node shares the node's `live` content; a file whose
 * content is only in the store is read from there until someone writes to it.
 *
 * Locks: node->io for reading around each use of the bytes, for writing where `live` is
 * exchanged (output_content.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/kill_point.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/backing.h"
#include "fs/base/log.h"
#include "fs/output_content.h"
#include "fs/output_impl.h"

#define PAGE_BYTES 4096

#define PASS_ROOM (512ull << 20) /* with less, writes come to us and wait for uploads */

/* A writer that can only add at the end: not even a mapping can change what is there. */
static bool only_appends(int flags)
{
	return (flags & O_ACCMODE) == O_WRONLY && (flags & O_APPEND);
}

static struct output_file *file_new(struct output *o, struct node *n, int flags)
{
	struct output_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->output = o;
	f->node = n;
	f->flags = flags;
	return f;
}

/* Lock held; the node is open already. */
static void note_open(struct output *o, struct output_file *f)
{
	struct node *n = f->node;

	f->stored_change = n->stored_change;
	if (!may_write(f->flags))
		return;
	if (n->writers++ == 0)
		watch_open(o, n, clock_mono_ms());
	if (!only_appends(f->flags))
		n->random_writers++;
}

/* Opens what has the name already. Takes the hold on it. */
static int open_there(struct output *o, struct node *there, int open_flags,
		      struct tree_attr *attr, struct output_file **out)
{
	int r = open_flags & O_EXCL ? err_origin(-EEXIST) : store_attributes(o, there, 0);

	lock_take(&o->lock);
	node_look(o, there, 1);
	node_attr(o, there, attr);
	node_release(o, there);
	lock_drop(&o->lock);
	if (r == 0)
		r = output_open(o, attr->ino, open_flags, 0, out);
	if (r < 0)
		output_forget(o, attr->ino, 1);
	else
		output_getattr(o, attr->ino, 0, attr);
	return err_trace(r);
}

struct creation {
	uint64_t parent;
	const char *name;
	mode_t mode;
	int open_flags;
	struct output_owner owner;
	struct content *content; /* made already */
};

/* One try. -EEXIST, NAME_AGAIN: others were faster. */
static int create_once(struct output *o, struct creation *new, unsigned int flags,
		       struct tree_attr *attr, struct output_file **out)
{
	uint32_t departures = name_departures(o, new->parent);
	struct output_file *f;
	struct node *there;
	int r = store_lookup(o, new->parent, new->name, flags, &there);

	if (r == 0 && (flags & TREE_NOWAIT)) {
		lock_scope(&o->lock);
		node_release(o, there);
		return TREE_E_WAIT;
	}
	if (r == 0)
		return err_trace(open_there(o, there, new->open_flags, attr, out));
	if (r != -ENOENT)
		return r == TREE_E_WAIT ? r : err_trace(r);
	r = new->content ? 0 : content_create(o, &new->content);
	if (r < 0)
		return err_trace(r);
	f = file_new(o, NULL, new->open_flags);
	if (!f)
		return err_origin(-ENOMEM);
	r = name_create(o, new->parent, new->name, new->mode, new->owner, departures,
			new->content, &f->node);
	if (r != 0) {
		free(f);
		return r; /* not a failure yet */
	}
	new->content = NULL;
	lock_scope(&o->lock);
	note_open(o, f);
	node_attr(o, f->node, attr);
	*out = f;
	return 0;
}

int output_create(struct output *o, uint64_t parent, const char *name, mode_t mode,
		  int open_flags, struct output_owner owner, unsigned int flags,
		  struct tree_attr *attr, struct output_file **out)
{
	struct creation new = {parent, name, mode, open_flags, owner, NULL};
	int r = path_name_check(name, strlen(name));

	if (r != PATH_OK)
		return r == PATH_E_LONG ? err_origin(-ENAMETOOLONG) : err_origin(-EINVAL);
	if ((flags & TREE_NOWAIT) &&
	    (!stage_has_spare(o->stage) || !stage_has_room(o->stage, 0)))
		return TREE_E_WAIT;
	do {
		r = create_once(o, &new, flags, attr, out);
	} while (r == NAME_AGAIN || (r == -EEXIST && !(open_flags & O_EXCL)));
	if (new.content) {
		content_unpin(new.content);
		content_put(new.content, 0);
	}
	return r < 0 ? err_trace(r) : r;
}

/* What an open does to the bytes. */
static int open_bytes(struct output *o, struct node *n, int flags)
{
	int r = 0;

	if ((flags & O_TRUNC) && may_write(flags)) {
		pthread_rwlock_wrlock(&n->io);
		r = content_truncate(o, n, 0);
		pthread_rwlock_unlock(&n->io);
	} else if (n->passthrough && may_write(flags) && !only_appends(flags)) {
		/* It will be written behind our back through the descriptor that the
		 * others use. */
		pthread_rwlock_wrlock(&n->io);
		r = content_prepare(o, n, 0);
		pthread_rwlock_unlock(&n->io);
	}
	return err_trace(r);
}

int output_open(struct output *o, uint64_t ino, int open_flags, unsigned int flags,
		struct output_file **out)
{
	struct output_file *f;
	struct node *n;
	int r;

	(void)flags;
	lock_take(&o->lock);
	n = node_find(o, ino);
	if (!n || n->kind != RECORD_FILE) {
		lock_drop(&o->lock);
		if (!n)
			return err_origin(-ESTALE);
		return n->kind == RECORD_DIR ? err_origin(-EISDIR) : err_origin(-ELOOP);
	}
	f = file_new(o, n, open_flags);
	r = f ? content_open(o, n) : err_origin(-ENOMEM);
	lock_drop(&o->lock);
	if (r == 0) {
		r = open_bytes(o, n, open_flags);
		lock_scope(&o->lock);
		if (r == 0) {
			note_open(o, f);
			*out = f;
			return 0;
		}
		content_close(o, n);
	}
	free(f);
	return err_trace(r);
}

int file_restore(struct output *o, uint64_t ino, int flags, int mode,
		 struct output_file **out)
{
	struct output_file *f = NULL;
	struct node *n;
	int r;

	lock_scope(&o->lock);
	n = node_find(o, ino);
	if (!n || n->kind != RECORD_FILE)
		return err_origin(-ESTALE);
	f = file_new(o, n, flags);
	r = f ? content_open(o, n) : err_origin(-ENOMEM);
	if (r < 0) {
		free(f);
		return err_trace(r);
	}
	if (mode == BACKING_PASS)
		n->passthrough = true;
	/* Perhaps it was written to since the last acknowledgement. */
	if (n->live && may_write(flags))
		atomic_store(&n->changed, true);
	note_open(o, f);
	*out = f;
	return 0;
}

/* A small object comes home whole, so that it is verified and read once; so does one whose
 * key is wanted. */
static int bring_home(struct output_file *file)
{
	struct output *o = file->output;
	struct node *n = file->node;
	bool small;
	int r = 0;

	lock_take(&o->lock);
	small = n->stored.key && n->stored.size <= o->config.fetch_max &&
		n->stored_change == file->stored_change;
	lock_drop(&o->lock);
	if (!content_is_home(o, n) &&
	    (!small || !stage_has_room(o->stage, o->config.fetch_max)))
		return 0;
	pthread_rwlock_wrlock(&n->io);
	if (!n->live)
		r = content_make_live(o, n);
	pthread_rwlock_unlock(&n->io);
	return err_trace(r);
}

/* Whether the byte is in the file; *end: where that stops being so. io is held. */
static bool live_has(const struct node *n, uint64_t off, uint64_t *end)
{
	struct patch *p = content_patch(n->live);

	return !p || patch_has(p, off, end);
}

static bool live_has_now(struct node *n, uint64_t off)
{
	uint64_t end;
	bool has;

	pthread_rwlock_rdlock(&n->io);
	has = live_has(n, off, &end);
	pthread_rwlock_unlock(&n->io);
	return has;
}

/* One piece of what `off` begins: the file's own bytes, or the object's. Sets *got to what
 * was read, 0 at the end, or returns TREE_E_WAIT, or -EAGAIN: the object's bytes came home
 * while it was asked. */
static int read_piece(struct output_file *file, uint64_t off, char *p, size_t n,
		      unsigned int flags, size_t *got)
{
	struct node *node = file->node;
	uint64_t end = UINT64_MAX;
	bool own;
	ssize_t r = 0;
	struct stat st;
	int e;

	*got = 0;
	pthread_rwlock_rdlock(&node->io);
	own = live_has(node, off, &end);
	if (fstat(content_fd(node->live), &st) < 0)
		r = -errno;
	else if (off >= (uint64_t)st.st_size)
		n = 0;
	else if ((uint64_t)st.st_size - off < n)
		n = (size_t)((uint64_t)st.st_size - off);
	if (end - off < n)
		n = (size_t)(end - off);
	if (r == 0 && own)
		r = io_pread(content_fd(node->live), p, n, off);
	pthread_rwlock_unlock(&node->io);
	if (r < 0)
		return err_origin((int)r);
	if (own || n == 0) {
		*got = (size_t)r;
		return 0;
	}
	if (flags & TREE_NOWAIT)
		return TREE_E_WAIT;
	e = store_read(file->output, file, off, p, n, got);
	return e == -ESTALE && live_has_now(node, off) ? -EAGAIN : err_trace(e);
}

/* What is here and what is in the store, as one. */
static int read_merged(struct output_file *file, uint64_t off, char *p, size_t n,
		       unsigned int flags, size_t *got)
{
	size_t done = 0, piece;

	while (done < n) {
		int r = read_piece(file, off + done, p + done, n - done, flags, &piece);

		if (r == -EAGAIN)
			continue;
		if (r != 0)
			return r;
		if (piece == 0)
			break;
		done += piece;
	}
	*got = done;
	return 0;
}

/* From `live`; *there: whether there is one. */
static int read_live(struct output_file *file, uint64_t off, char *p, size_t n,
		     unsigned int flags, size_t *got, bool *there)
{
	struct node *node = file->node;
	bool sparse;
	ssize_t r;

	pthread_rwlock_rdlock(&node->io);
	*there = node->live;
	sparse = *there && content_is_sparse(node->live);
	r = *there && !sparse ? io_pread(content_fd(node->live), p, n, off) : 0;
	pthread_rwlock_unlock(&node->io);
	if (r < 0)
		return err_trace((int)r);
	*got = (size_t)r;
	/* While the file is open, `live` is exchanged but never taken away. */
	return sparse ? err_trace(read_merged(file, off, p, n, flags, got)) : 0;
}

int output_read(struct output_file *file, uint64_t off, void *p, size_t n,
		unsigned int flags, size_t *got)
{
	struct node *node = file->node;
	bool there;
	int r;

	do {
		r = read_live(file, off, p, n, flags, got, &there);
		if (there)
			return err_trace(r);
		if (flags & TREE_NOWAIT)
			return TREE_E_WAIT;
		r = bring_home(file);
		if (r < 0)
			return err_trace(r);
		r = read_live(file, off, p, n, flags, got, &there);
		if (there)
			return err_trace(r);
		/* What was written is lost; what the object has is another version. */
		if (node->error)
			return err_origin(node->error);
		r = store_read(file->output, file, off, p, n, got);
	} while (r == -ESTALE && content_is_home(file->output, node));
	return err_trace(r);
}

/* Whether others have replaced the object since the file was opened, and nothing of it is
 * here: what is written now must not be mixed with theirs. io is held. */
static bool is_replaced(struct output_file *file)
{
	struct node *n = file->node;

	lock_scope(&file->output->lock);
	return !n->live && !n->acked && n->stored.key &&
	       n->stored_change != file->stored_change;
}

/* Readies the bytes for a write at `off`; io is held for reading when it returns 0. */
static int begin_write(struct output_file *file, uint64_t off, unsigned int flags)
{
	struct node *n = file->node;

	for (;;) {
		int r;

		if (n->error)
			return err_origin(n->error);
		pthread_rwlock_rdlock(&n->io);
		if (n->live && off >= atomic_load(&n->frozen))
			return 0;
		pthread_rwlock_unlock(&n->io);
		if (flags & TREE_NOWAIT)
			return TREE_E_WAIT;
		pthread_rwlock_wrlock(&n->io);
		r = is_replaced(file) ? err_origin(-ESTALE)
				      : content_prepare(file->output, n, off);
		pthread_rwlock_unlock(&n->io);
		if (r < 0)
			return err_trace(r);
	}
}

/* The bytes of a file in use; io is held for reading. */
static int write_bytes(struct node *n, uint64_t off, const void *p, size_t size)
{
	struct patch *patch = content_patch(n->live);
	int r;

	if (!patch)
		r = io_pwrite(content_fd(n->live), p, size, off);
	else
		r = patch_write(patch, content_fd(n->live), p, size, off);
	if (r == 0 && content_is_sparse(n->live))
		content_measure(n->live, UINT64_MAX);
	else if (r == 0)
		content_grow(n->live, off + size);
	return err_trace(r);
}

/* A version was made meanwhile, and what is sent of it may have the bytes or not. */
static int note_late(struct output *o, struct node *n, uint64_t off, uint64_t end)
{
	struct patch *p = content_patch(n->live);

	if (!p) {
		lock_scope(&o->lock);
		/* It gets one when the version is stored. */
		p = content_patch(n->live);
		if (!p) {
			n->raced = true;
			return 0;
		}
	}
	return err_trace(patch_mark_late(p, off, end));
}

/* Behind every change. io is held. */
static int note_changed(struct output *o, struct node *n, uint64_t off, uint64_t end)
{
	int r = 0;

	if (off < atomic_load(&n->frozen))
		r = note_late(o, n, off, end);
	/* An acknowledgement in between has it, or comes again. */
	atomic_store(&n->changed, true);
	return err_trace(r);
}

/* A page that the kernel writes back starts with what was there before the bytes that were
 * appended. How many of those may not change and need not: a version on its way holds them,
 * and to write them again would first copy the whole file. */
static size_t frozen_prefix(struct node *n, uint64_t off, const void *p, size_t size)
{
	char there[PAGE_BYTES];
	size_t same = 0;
	uint64_t frozen, end;

	pthread_rwlock_rdlock(&n->io);
	frozen = atomic_load(&n->frozen);
	/* Bytes that are only in the store cannot be compared. */
	if (n->live && content_is_sparse(n->live) &&
	    (!patch_has(content_patch(n->live), off, &end) || end < frozen))
		frozen = 0;
	if (n->live && off < frozen && frozen - off < sizeof(there) &&
	    frozen - off < size) {
		same = (size_t)(frozen - off);
		if (io_pread(content_fd(n->live), there, same, off) != (ssize_t)same ||
		    memcmp(there, p, same) != 0)
			same = 0;
	}
	pthread_rwlock_unlock(&n->io);
	return same;
}

int output_write(struct output_file *file, uint64_t off, const void *p, size_t n,
		 unsigned int flags)
{
	struct output *o = file->output;
	struct node *node = file->node;
	struct space_wait space = SPACE_WAIT_INIT;
	size_t same;
	int r;

	if (!may_write(file->flags))
		return err_origin(-EBADF);
	same = file->flags & O_APPEND ? 0 : frozen_prefix(node, off, p, n);
	off += same;
	p = (const char *)p + same;
	n -= same;
	for (;;) {
		uint64_t at = off;
		struct stat st;

		if ((flags & TREE_NOWAIT) && !stage_has_room(o->stage, n))
			return TREE_E_WAIT;
		r = content_wait_room(o, n);
		if (r == 0)
			r = begin_write(file, (file->flags & O_APPEND) ? UINT64_MAX : off,
					flags);
		if (r != 0)
			return r < 0 ? err_trace(r) : r;
		/* The kernel has resolved O_APPEND with the size it knows; the staged file
		 * knows better when others append too. */
		if ((file->flags & O_APPEND) && !(flags & TREE_AGAIN) &&
		    fstat(content_fd(node->live), &st) == 0 && (uint64_t)st.st_size > at)
			at = (uint64_t)st.st_size;
		r = write_bytes(node, at, p, n);
		if (note_changed(o, node, at, at + n) < 0 && r == 0)
			r = err_origin(-ENOMEM);
		pthread_rwlock_unlock(&node->io);
		kill_point("stage.write");
		/* The disk filled up under us: once more, after what can be freed was. */
		if (r != -ENOSPC)
			return err_trace(r);
		if (flags & TREE_NOWAIT)
			return TREE_E_WAIT;
		stage_look_again(o->stage);
		r = content_wait_space(o, &space);
		if (r < 0)
			return err_trace(r);
	}
}

bool output_is_unsaved(struct output_file *file)
{
	struct node *n = file->node;

	return may_write(file->flags) && (atomic_load(&n->changed) || n->passthrough) &&
	       !content_is_saved(file->output, n);
}

void output_release(struct output_file *file)
{
	struct output *o = file->output;
	struct node *n = file->node;
	int r = 0;

	/* No flush came behind the last write: a mapping that outlived its descriptor. What
	 * has not changed since the flush costs a look. */
	if (output_is_unsaved(file))
		r = content_ack(o, n);
	if (r < 0)
		log_error("a file was closed and could not be made durable error=%s",
			  strerror(-r));
	lock_take(&o->lock);
	if (may_write(file->flags)) {
		if (--n->writers == 0)
			watch_close(o, n);
		if (!only_appends(file->flags))
			n->random_writers--;
	}
	content_close(o, n);
	sync_queue(o, n);
	node_settle(o, n);
	lock_drop(&o->lock);
	free(file);
}

int output_fallocate(struct output_file *file, int mode, uint64_t off, uint64_t len)
{
	struct node *n = file->node;
	int r;

	if (!may_write(file->flags))
		return err_origin(-EBADF);
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return err_origin(-EOPNOTSUPP);
	r = content_wait_room(file->output, mode & FALLOC_FL_PUNCH_HOLE ? 0 : len);
	if (r == 0)
		r = begin_write(file, mode ? off : UINT64_MAX, 0);
	if (r < 0)
		return err_trace(r);
	kill_point("fallocate.before");
	r = content_allocate(n->live, mode, off, len);
	if (note_changed(file->output, n, mode ? off : UINT64_MAX, off + len) < 0 &&
	    r == 0)
		r = err_origin(-ENOMEM);
	pthread_rwlock_unlock(&n->io);
	return err_trace(r);
}

/* The staged file's holes are none where the object has bytes. `live` is sparse. Returns
 * the offset, or -1 with errno. */
static off_t seek_merged(struct node *n, uint64_t off, int whence)
{
	struct patch *p = content_patch(n->live);
	int fd = content_fd(n->live);
	bool begun = false;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	for (; off < (uint64_t)st.st_size; begun = true) {
		uint64_t end;
		bool own = patch_has(p, off, &end);
		off_t at;

		if (!own && whence == SEEK_DATA)
			return (off_t)off;
		at = own ? lseek(fd, (off_t)off, whence) : -1;
		if (at >= 0 && (uint64_t)at < end)
			return at;
		if (own && at < 0 && errno != ENXIO)
			return -1;
		off = end;
	}
	if (begun && whence == SEEK_HOLE)
		return st.st_size;
	errno = ENXIO;
	return -1;
}

int output_lseek(struct output_file *file, uint64_t off, int whence, uint64_t *result)
{
	struct node *n = file->node;
	off_t at = -1;
	int r = 0;

	pthread_rwlock_rdlock(&n->io);
	if (n->live) {
		/* The staged file's own position is nobody's. */
		bool holes = whence == SEEK_DATA || whence == SEEK_HOLE;

		at = holes && content_is_sparse(n->live)
			     ? seek_merged(n, off, whence)
			     : lseek(content_fd(n->live), (off_t)off, whence);
		r = at < 0 ? -errno : 0;
	} else if (whence != SEEK_DATA && whence != SEEK_HOLE) {
		r = -EINVAL;
	} else if (off >= n->stored.size) {
		r = -ENXIO;
	} else {
		/* An object has no holes but the one behind its end. */
		at = whence == SEEK_DATA ? (off_t)off : (off_t)n->stored.size;
	}
	pthread_rwlock_unlock(&n->io);
	if (r < 0)
		return r;
	*result = (uint64_t)at;
	return 0;
}

static mode_t node_mode(struct output *o, struct node *n)
{
	lock_scope(&o->lock);
	return n->mode;
}

int output_backing_fd(struct output_file *file)
{
	struct output *o = file->output;
	struct node *n = file->node;
	int fd, r = 0;

	/* Written past us it cannot wait for space. */
	if (may_write(file->flags) && !stage_has_room(o->stage, PASS_ROOM))
		return -ENOSPC;
	pthread_rwlock_wrlock(&n->io);
	/* The one rule: the kernel gets a file only when all its bytes are here; what is
	 * written behind our back to one with holes could not be told from them. And it
	 * does not tell of writes that have to drop privileges. */
	if (!n->live || content_is_sparse(n->live) ||
	    (may_write(file->flags) && node_mode(o, n) & (S_ISUID | S_ISGID))) {
		pthread_rwlock_unlock(&n->io);
		return -ENODATA;
	}
	/* Someone may write anywhere, unseen: the version on its way keeps its bytes, and
	 * what the file has in common with its object is a guess. */
	if (n->random_writers > 0) {
		r = content_prepare(o, n, 0);
		if (r == 0 && content_patch(n->live))
			patch_doubt(content_patch(n->live));
	}
	fd = r == 0 ? fcntl(content_fd(n->live), F_DUPFD_CLOEXEC, 0) : r;
	if (r == 0 && fd < 0)
		fd = err_origin(-errno);
	lock_take(&o->lock);
	if (fd >= 0)
		n->passthrough = true;
	lock_drop(&o->lock);
	pthread_rwlock_unlock(&n->io);
	return fd;
}
