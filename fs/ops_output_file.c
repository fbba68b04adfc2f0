/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests on /output: open files and directories.
 *
 * A file whose content is wholly staged is passed through: its reads and writes never come
 * here. Where files can be passed through, one that is not goes past the page cache, since
 * page-cache opens would keep later ones from it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "cache/kill_point.h"
#include "fs/base/err.h"
#include "fs/ops_call.h"
#include "fs/ops_file.h"
#include "fs/output.h"
#include "fs/session.h"

static struct output *tree(const struct call *c)
{
	return c->ops->config.output;
}

static struct output_owner owner(const struct call *c)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);

	return (struct output_owner){.uid = ctx->uid, .gid = ctx->gid};
}

static int reply_done(const struct call *c, int r)
{
	kill_point("request.executed");
	if (r == 0)
		fuse_reply_err(c->req, 0);
	return r;
}

/* ---- directories ----------------------------------------------------------------------- */

static void close_dir(void *dir)
{
	output_closedir(dir);
}

static int run_opendir(struct call *c, unsigned int flags)
{
	struct output_dir *dir;
	struct handle *h;
	int r = output_opendir(tree(c), c->ino, flags, &dir);

	if (r != 0)
		return r;
	h = handle_open_dir(c, dir, close_dir);
	if (!h) {
		output_closedir(dir);
		return err_origin(-ENOMEM);
	}
	kill_point("request.executed");
	if (fuse_reply_open(c->req, &c->fi) < 0) {
		close_dir(handle_close_dir(c, h));
		handle_told_closed(c);
	} else {
		handle_told_open(c);
	}
	return 0;
}

void ops_file_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_opendir, ino, NULL, fi);

	call_start(&c);
}

static int run_readdir(struct call *c, unsigned int flags)
{
	struct listing l;
	void *dir;
	int r = call_file(c, flags, &dir);

	if (r != 0)
		return r;
	r = listing_begin(c, &l);
	if (r == 0)
		r = output_readdir(dir, listing_cookie(c), c->flag, flags, listing_fill,
				   &l);
	return listing_end(&l, r);
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		 struct fuse_file_info *fi, bool plus)
{
	struct call c = call_make(req, run_readdir, ino, NULL, fi);

	c.size = size;
	c.off = (uint64_t)off;
	c.flag = plus;
	call_start(&c);
}

void ops_file_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, false);
}

void ops_file_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi)
{
	list(req, ino, size, off, fi, true);
}

void ops_file_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, NULL, ino, NULL, fi);
	struct handle *h = call_handle(&c);
	void *dir = h ? handle_close_dir(&c, h) : NULL;

	if (dir)
		output_closedir(dir);
	fuse_reply_err(req, 0);
	handle_told_closed(&c);
}

static int run_fsyncdir(struct call *c, unsigned int flags)
{
	(void)flags;
	return reply_done(c, output_fsyncdir(tree(c), c->ino));
}

void ops_file_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only,
		       struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_fsyncdir, ino, NULL, fi);

	(void)data_only;
	call_start_blocking(&c);
}

/* ---- files ----------------------------------------------------------------------------- */

static void close_file(void *file)
{
	output_release(file);
}

/* Fills c->fi for `file` of inode `ino`. */
static struct handle *grant(struct call *c, struct output_file *file)
{
	const struct session *session = c->ops->config.session;
	bool pass = session_passes_through(session);
	int fd = pass ? output_backing_fd(file) : -1;

	return handle_open(c, file, close_file, fd, !pass, false);
}

/* The kernel that writes back reads what it writes in part, and places appends. */
static int open_flags(const struct call *c)
{
	int flags = c->fi.flags;

	if (!session_writes_back(c->ops->config.session))
		return flags;
	if ((flags & O_ACCMODE) == O_WRONLY)
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	return flags & ~O_APPEND;
}

static int run_create(struct call *c, unsigned int flags)
{
	struct fuse_entry_param entry;
	struct output_file *file;
	struct tree_attr attr;
	struct handle *h;
	int r;

	c->fi.flags = open_flags(c);
	r = output_create(tree(c), c->ino, c->name, c->mode, c->fi.flags, owner(c), flags,
			  &attr, &file);
	if (r != 0)
		return r;
	c->ino = attr.ino;
	h = grant(c, file);
	if (!h) {
		output_release(file);
		output_forget(tree(c), attr.ino, 1);
		return err_origin(-ENOMEM);
	}
	call_entry(&attr, &entry);
	kill_point("request.executed");
	if (fuse_reply_create(c->req, &entry, &c->fi) < 0) {
		output_release(handle_close(c, h));
		output_forget(tree(c), attr.ino, 1);
		handle_told_closed(c);
	} else {
		handle_told_open(c);
	}
	return 0;
}

void ops_file_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_create, parent, name, fi);

	c.mode = mode;
	call_start(&c);
}

static int run_open(struct call *c, unsigned int flags)
{
	struct output_file *file;
	struct handle *h;
	int r;

	c->fi.flags = open_flags(c);
	r = output_open(tree(c), c->ino, c->fi.flags, flags, &file);
	if (r != 0)
		return r;
	h = grant(c, file);
	if (!h) {
		output_release(file);
		return err_origin(-ENOMEM);
	}
	c->fi.noflush = (c->fi.flags & O_ACCMODE) == O_RDONLY;
	kill_point("request.executed");
	if (fuse_reply_open(c->req, &c->fi) < 0) {
		output_release(handle_close(c, h));
		handle_told_closed(c);
	} else {
		handle_told_open(c);
	}
	return 0;
}

void ops_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_open, ino, NULL, fi);

	call_start(&c);
}

static int run_read(struct call *c, unsigned int flags)
{
	char *data = call_buffer(c->req, c->size);
	size_t got = 0;
	void *file;
	int r;

	if (!data)
		return err_origin(-ENOMEM);
	r = call_file(c, flags, &file);
	if (r != 0)
		return r;
	r = output_read(file, c->off, data, c->size, flags, &got);
	if (r != 0)
		return r;
	call_used_file(c);
	fuse_reply_buf(c->req, data, got);
	return 0;
}

void ops_file_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_read, ino, NULL, fi);

	c.size = size;
	c.off = (uint64_t)off;
	call_start(&c);
}

static int run_write(struct call *c, unsigned int flags)
{
	void *file;
	int r = call_file(c, flags, &file);

	if (r == 0)
		r = output_write(file, c->off, c->data, c->size,
				 c->again ? flags | TREE_AGAIN : flags);
	if (r != 0)
		return r;
	if (c->flag)
		output_drop_privileges(file);
	kill_point("request.executed");
	call_used_file(c);
	fuse_reply_write(c->req, c->size);
	return 0;
}

void ops_file_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
		    off_t off, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_write, ino, NULL, fi);

	c.data = data;
	c.size = size;
	c.off = (uint64_t)off;
#if FUSE_HAS_KILL_SUIDGID
	c.flag = fi->kill_suidgid;
#endif
	call_start(&c);
}

/* The reply of a flush comes from the journal's thread. */
struct flush {
	struct ops *ops;
	fuse_req_t req;
};

static void flush_done(void *arg, int result)
{
	struct flush *f = arg;

	if (result < 0)
		call_fail(f->req, result);
	else
		fuse_reply_err(f->req, 0);
	ops_reply_sent(f->ops);
	free(f);
}

static int flush_later(struct call *c, struct output_file *file)
{
	struct flush *f = malloc(sizeof(*f));
	int r;

	if (!f)
		return TREE_E_WAIT;
	*f = (struct flush){c->ops, c->req};
	ops_reply_expected(c->ops);
	r = output_flush_later(file, flush_done, f);
	if (r == OUTPUT_E_LATER)
		return 0;
	ops_reply_sent(c->ops);
	free(f);
	return r == 0 ? reply_done(c, 0) : r;
}

static int run_flush(struct call *c, unsigned int flags)
{
	void *file;
	int r = call_file(c, flags, &file);

	if (r != 0)
		return r;
	if (flags & TREE_NOWAIT)
		return flush_later(c, file);
	return reply_done(c, output_flush(file));
}

void ops_file_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_flush, ino, NULL, fi);

	const struct handle *h = call_handle(&c);

	/* Libraries without noflush send it for read-only opens too. */
	if (h && !h->writes)
		fuse_reply_err(req, 0);
	else
		call_start(&c);
}

static int run_fsync(struct call *c, unsigned int flags)
{
	void *file;
	int r = call_file(c, flags, &file);

	return r == 0 ? reply_done(c, output_fsync(file, c->flag)) : r;
}

void ops_file_fsync(fuse_req_t req, fuse_ino_t ino, int data_only,
		    struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_fsync, ino, NULL, fi);

	c.flag = data_only;
	call_start_blocking(&c);
}

static int run_release(struct call *c, unsigned int flags)
{
	struct handle *h = call_handle(c);
	void *file = h ? h->file : NULL;
	int r;

	if (file && (flags & TREE_NOWAIT) && output_is_unsaved(file))
		return TREE_E_WAIT;
	if (h)
		handle_close(c, h);
	if (file)
		output_release(file);
	r = reply_done(c, 0);
	handle_told_closed(c);
	return r;
}

void ops_file_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_release, ino, NULL, fi);

	call_start(&c);
}

static int run_fallocate(struct call *c, unsigned int flags)
{
	void *file;
	int r = call_file(c, flags, &file);

	return r == 0 ? reply_done(c,
				   output_fallocate(file, (int)c->set, c->off, c->size))
		      : r;
}

void ops_file_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_fallocate, ino, NULL, fi);

	c.set = (unsigned int)mode;
	c.off = (uint64_t)off;
	c.size = (size_t)len;
	call_start_blocking(&c);
}

void ops_file_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		    struct fuse_file_info *fi)
{
	struct call c = call_make(req, NULL, ino, NULL, fi);
	uint64_t result = 0;
	void *file;
	int r;

	if (session_writes_back(c.ops->config.session)) {
		/* We do not know what the kernel has not written yet: it answers itself. */
		fuse_reply_err(req, ENOSYS);
		return;
	}
	r = call_file(&c, 0, &file);
	if (r == 0)
		r = output_lseek(file, (uint64_t)off, whence, &result);
	if (r == 0)
		fuse_reply_lseek(req, (off_t)result);
	else
		call_fail(req, r);
}
