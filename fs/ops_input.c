/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests on /input. Changes are refused by the kernel: the mount is read-only.
 *
 * How a file is served (backing.h grants it, so that opens do not exclude each other). An
 * inode is one version (inode.h), so what the kernel keeps of it stays true:
 *   large and wholly local   passthrough, where session.h has it
 *   small                    the page cache, kept from open to open
 *   all else                 past the page cache, which would keep passthrough out
 *
 * Opens left out. A kernel that is told ENOSYS sends no open, release or flush of any file
 * any more: what it has in its page cache costs nothing then, and nothing can be passed
 * through. That fits a source that consists of small files (ops.h has the choice); reads
 * then come without a file, and standin.h keeps one. An inode being one version, names are
 * as fresh as before: the kernel looks them up again when their time has come, or when a
 * read has found that the store has another version. Directories of a source that never
 * changes go without opendir in any case.
 * Opens that the kernel was about to release when it learned of it are kept to the end: as
 * many as there were at one moment.
 */
#include <errno.h>
#include <stdlib.h>

#include "fs/base/err.h"
#include "fs/base/log.h"
#include "fs/base/worker.h"
#include "fs/inode.h"
#include "fs/input.h"
#include "fs/ops_call.h"
#include "fs/session.h"
#include "fs/standin.h"

/* Small files opened before opens are left out, for ever: of a source that never changes,
 * which is a data set of its own, and of others, where large ones may be yet to come. */
#define SMALL_EVIDENCE_FIXED 64
#define SMALL_EVIDENCE 1024
#define SMALL_SHARE 64 /* and this many for each large one */

static struct input *tree(const struct call *c)
{
	return c->ops->config.input;
}

static void count(fuse_req_t req, enum ops_request kind)
{
	struct ops *o = fuse_req_userdata(req);

	atomic_fetch_add_explicit(&o->requests[kind], 1, memory_order_relaxed);
}

static bool is_set(atomic_bool *flag)
{
	return atomic_load_explicit(flag, memory_order_relaxed);
}

static void in_init(void *user, struct fuse_conn_info *conn)
{
	struct ops *o = user;

	ops_common_init(user, conn);
	o->can_skip_open = conn->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	o->can_skip_opendir =
		o->config.immutable && (conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT);
	atomic_store(&o->skips_opendir, o->can_skip_opendir);
	atomic_store(&o->skips_open,
		     o->can_skip_open && o->config.profile == OPS_PROFILE_SMALL);
}

/* Before a page of a listing that would take more. While the kernel lets go of inodes it
 * trusts no attributes of entries that are on their way, and asks for each: so its reader
 * waits, where it can be told without the directory's lock, which the reader holds. */
static int make_room(struct ops *o, unsigned int flags)
{
	if (!input_is_over(o->config.input))
		return 0;
	if (!session_forgets_files(o->config.session)) {
		ops_spare(o);
		return 0;
	}
	if (flags & TREE_NOWAIT)
		return TREE_E_WAIT;
	ops_spare_now(o);
	return 0;
}

/* One worker at a time: it waits for look-ups in the directory, and these for workers. */
static void look_again(void *arg)
{
	struct ops *o = arg;

	for (;;) {
		struct replaced *name = NULL;

		lock_take(&o->lock);
		if (list_empty(&o->replaced))
			o->looking_again = false;
		else
			name = list_first(&o->replaced, struct replaced, link);
		if (name)
			list_remove(&name->link);
		lock_drop(&o->lock);
		if (!name)
			return;
		if (!atomic_load(&o->stopping))
			session_forget_name(o->config.session, name->name.parent,
					    name->name.name);
		free(name);
	}
}

/* Without an open there is none that could fail and make the kernel look the name up. */
static void note_replaced(struct ops *o, fuse_ino_t ino)
{
	struct replaced *name = calloc(1, sizeof(*name));
	bool begin;

	if (!name || input_name(o->config.input, ino, &name->name) < 0) {
		free(name);
		return;
	}
	list_init(&name->link);
	lock_take(&o->lock);
	list_push_back(&o->replaced, &name->link);
	begin = !o->looking_again;
	o->looking_again = true;
	lock_drop(&o->lock);
	if (!begin || worker_try_submit(o->workers, look_again, o))
		return;
	lock_take(&o->lock);
	o->looking_again = false; /* the next one begins again */
	lock_drop(&o->lock);
}

struct wrong {
	struct ops *ops;
	uint64_t ino;
};

static void forget_pages(void *arg)
{
	struct wrong *w = arg;

	session_forget_content(w->ops->config.session, w->ino);
	free(w);
}

void ops_input_wrong(void *arg, uint64_t ino)
{
	struct ops *o = arg;
	struct wrong *w = malloc(sizeof(*w));

	if (!w)
		return;
	*w = (struct wrong){o, ino};
	lock_scope(&o->lock);
	if (atomic_load(&o->stopping) || !worker_try_submit(o->workers, forget_pages, w))
		free(w);
}

static int run_lookup(struct call *c, unsigned int flags)
{
	struct fuse_entry_param entry;
	struct tree_attr attr;
	struct ops *o;
	int r;

	r = input_lookup(tree(c), c->ino, c->name, flags, &attr);
	if (r == -ENOENT)
		return call_reply_absent(c);
	if (r != 0)
		return r;
	call_entry(&attr, &entry);
	o = c->ops;
	if (fuse_reply_entry(c->req, &entry) < 0)
		input_forget(tree(c), attr.ino, 1);
	if (input_is_over(o->config.input))
		ops_spare(o);
	return 0;
}

static void in_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_make(req, run_lookup, parent, name, NULL);

	count(req, OPS_LOOKUP);
	call_start(&c);
}

static void forget(struct ops *o, fuse_ino_t ino, uint64_t n)
{
	/* First: the number may be another file's the moment it is forgotten. */
	if (is_set(&o->skips_open) || is_set(&o->skips_opendir))
		standin_forget(o->standins, ino);
	input_forget(o->config.input, ino, n);
}

static void in_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	struct ops *o = fuse_req_userdata(req);

	forget(o, ino, n);
	fuse_reply_none(req);
}

static void in_forget_multi(fuse_req_t req, size_t count,
			    struct fuse_forget_data *forgets)
{
	struct ops *o = fuse_req_userdata(req);

	for (size_t i = 0; i < count; i++)
		forget(o, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static int run_getattr(struct call *c, unsigned int flags)
{
	struct tree_attr attr;
	struct stat st;
	int r;

	r = input_getattr(tree(c), c->ino, flags, &attr);
	if (r != 0)
		return r;
	call_stat(&attr, &st);
	fuse_reply_attr(c->req, &st, call_timeout(attr.ttl_ms));
	return 0;
}

static void in_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_getattr, ino, NULL, fi);

	count(req, OPS_GETATTR);
	call_start(&c);
}

static int run_readlink(struct call *c, unsigned int flags)
{
	char target[PATH_MAX];
	int r;

	r = input_readlink(tree(c), c->ino, flags, target, sizeof(target));
	if (r != 0)
		return r;
	fuse_reply_readlink(c->req, target);
	return 0;
}

static void in_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct call c = call_make(req, run_readlink, ino, NULL, NULL);

	count(req, OPS_READLINK);
	call_start(&c);
}

/* ---- directories ----------------------------------------------------------------------- */

static void close_dir(void *dir)
{
	input_closedir(dir);
}

static int run_opendir(struct call *c, unsigned int flags)
{
	struct input_dir *dir;
	struct handle *h;
	int r;

	r = input_opendir(tree(c), c->ino, flags, &dir);
	if (r != 0)
		return r;
	h = handle_open_dir(c, dir, close_dir);
	if (!h) {
		input_closedir(dir);
		return err_origin(-ENOMEM);
	}
	/* Where opendir is not left out: kernels before 5.1. */
	c->fi.cache_readdir = c->fi.keep_cache = c->ops->config.immutable;
	if (fuse_reply_open(c->req, &c->fi) < 0) {
		input_closedir(handle_close_dir(c, h));
		handle_told_closed(c);
	} else {
		handle_told_open(c);
	}
	return 0;
}

static void in_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_opendir, ino, NULL, fi);

	count(req, OPS_OPENDIR);
	if (is_set(&c.ops->skips_opendir))
		fuse_reply_err(req, ENOSYS);
	else
		call_start(&c);
}

/* The directory of a call; *s is to be put. */
static int dir_of(struct call *c, unsigned int flags, struct standin **s,
		  struct input_dir **dir)
{
	int r;

	*s = NULL;
	if (c->fi.fh)
		return call_file(c, flags, (void **)dir);
	*s = standin_get(c->ops->standins, c->ino);
	if (!*s) {
		r = input_opendir(tree(c), c->ino, flags, dir);
		if (r != 0)
			return r;
		*s = standin_add(c->ops->standins, c->ino, *dir, close_dir);
		if (!*s)
			return err_origin(-ENOMEM);
	}
	*dir = standin_file(*s);
	return 0;
}

static int run_readdir(struct call *c, unsigned int flags)
{
	struct listing l;
	struct standin *s;
	struct input_dir *dir;
	int r = c->flag ? make_room(c->ops, flags) : 0;

	if (r == 0)
		r = dir_of(c, flags, &s, &dir);
	if (r != 0)
		return r;
	r = listing_begin(c, &l);
	if (r == 0)
		r = input_readdir(dir, listing_cookie(c), c->flag, flags, listing_fill,
				  &l);
	standin_put(c->ops->standins, s);
	return listing_end(&l, r);
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		 struct fuse_file_info *fi, bool plus)
{
	struct call c = call_make(req, run_readdir, ino, NULL, fi);

	count(req, OPS_READDIR);
	c.size = size;
	c.off = (uint64_t)off;
	c.flag = plus;
	call_start(&c);
}

static void in_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, false);
}

static void in_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, true);
}

static void in_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, NULL, ino, NULL, fi);
	struct handle *h = call_handle(&c);

	count(req, OPS_RELEASEDIR);
	if (h)
		input_closedir(handle_close_dir(&c, h));
	fuse_reply_err(req, 0);
	handle_told_closed(&c);
}

/* ---- files ----------------------------------------------------------------------------- */

/* Whether the page cache may serve an open that cannot be passed through. */
static bool may_cache(const struct call *c, const struct input_file *file)
{
	const struct ops_config *config = &c->ops->config;

	if (input_is_small(file))
		return true;
	if (!session_maps_direct(config->session)) /* kernels before 6.6 */
		return true;
	return config->immutable && !session_passes_through(config->session);
}

/* Whether it is time to leave opens out. */
static bool skips_open(struct ops *o)
{
	uint64_t small, large;
	struct backing_stats stats;

	if (is_set(&o->skips_open))
		return true;
	if (!o->can_skip_open || o->config.profile != OPS_PROFILE_AUTO)
		return false;
	small = atomic_load_explicit(&o->small_opens, memory_order_relaxed);
	large = atomic_load_explicit(&o->large_opens, memory_order_relaxed);
	if (small < (o->config.immutable ? SMALL_EVIDENCE_FIXED : SMALL_EVIDENCE) ||
	    small / SMALL_SHARE < large)
		return false;
	/* Their release would never come, nor the space of an evicted one. */
	backing_stats(o->backing, &stats);
	if (stats.passed)
		return false;
	if (!atomic_exchange(&o->skips_open, true))
		log_info("files are small, opens are left out");
	return true;
}

static void close_file(void *file)
{
	input_close(file);
}

static int run_open(struct call *c, unsigned int flags)
{
	struct input_file *file;
	struct handle *h;
	bool cached;
	int fd = -1, r;

	r = input_open(tree(c), c->ino, flags, &file);
	if (r != 0)
		return r;
	cached = may_cache(c, file);
	atomic_fetch_add_explicit(input_is_small(file) ? &c->ops->small_opens
						       : &c->ops->large_opens,
				  1, memory_order_relaxed);
	if (session_passes_through(c->ops->config.session))
		r = input_backing_fd(file, flags, &fd);
	if (r == TREE_E_WAIT) {
		input_close(file);
		return r;
	}
	/* Pages of a large file may turn out to be wrong once it is whole. */
	h = handle_open(c, file, close_file, fd, cached, input_is_small(file));
	if (!h) {
		input_close(file);
		return err_origin(-ENOMEM);
	}
	c->fi.noflush = 1;
	if (fuse_reply_open(c->req, &c->fi) < 0) {
		input_close(handle_close(c, h));
		handle_told_closed(c);
	} else {
		handle_told_open(c);
	}
	return 0;
}

static void in_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_open, ino, NULL, fi);

	count(req, OPS_OPEN);
	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		call_fail(req, -EROFS);
	else if (skips_open(c.ops))
		fuse_reply_err(req, ENOSYS);
	else
		call_start(&c);
}

/* The file of a call; *s is to be put. */
static int file_of(struct call *c, unsigned int flags, struct standin **s,
		   struct input_file **file)
{
	int r;

	*s = NULL;
	if (c->fi.fh)
		return call_file(c, flags, (void **)file);
	/* The last daemon may have said so. */
	if (!is_set(&c->ops->skips_open))
		atomic_store(&c->ops->skips_open, true);
	*s = standin_get(c->ops->standins, c->ino);
	if (!*s) {
		r = input_open(tree(c), c->ino, flags, file);
		if (r != 0)
			return r;
		*s = standin_add(c->ops->standins, c->ino, *file, close_file);
		if (!*s)
			return err_origin(-ENOMEM);
	}
	*file = standin_file(*s);
	return 0;
}

static int run_read(struct call *c, unsigned int flags)
{
	char *data = call_buffer(c->req, c->size);
	struct input_file *file;
	struct standin *s;
	size_t got = 0;
	int r;

	if (!data)
		return err_origin(-ENOMEM);
	r = file_of(c, flags, &s, &file);
	if (r == 0) {
		r = input_read(file, c->off, data, c->size, flags, &got);
		standin_put(c->ops->standins, s);
	}
	/* What an open would begin anew, the next read does. */
	if ((r == -ESTALE || r == -EIO) && !c->fi.fh)
		standin_forget(c->ops->standins, c->ino);
	if (r == -ESTALE && !c->fi.fh)
		note_replaced(c->ops, c->ino);
	if (r != 0)
		return r;
	call_used_file(c);
	fuse_reply_buf(c->req, data, got);
	return 0;
}

static void in_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_read, ino, NULL, fi);

	count(req, OPS_READ);
	c.size = size;
	c.off = (uint64_t)off;
	call_start(&c);
}

static void in_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, NULL, ino, NULL, fi);
	struct handle *h = call_handle(&c);

	count(req, OPS_RELEASE);
	if (h)
		input_close(handle_close(&c, h));
	fuse_reply_err(req, 0);
	handle_told_closed(&c);
}

static void in_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ops *o = fuse_req_userdata(req);
	struct input_stats stats;
	struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255};

	(void)ino;
	count(req, OPS_STATFS);
	input_stats(o->config.input, &stats);
	st.f_files = stats.inodes;
	fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops ops_input_table = {
	.init = in_init,
	.lookup = in_lookup,
	.forget = in_forget,
	.forget_multi = in_forget_multi,
	.getattr = in_getattr,
	.readlink = in_readlink,
	.opendir = in_opendir,
	.readdir = in_readdir,
	.readdirplus = in_readdirplus,
	.releasedir = in_releasedir,
	.open = in_open,
	.read = in_read,
	.release = in_release,
	.statfs = in_statfs,
};
