/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests on /output: names and attributes; ops_output_file.c has what is open. What
 * changes something waits for the local disk at most and is run where it came in (by a
 * worker, over io_uring); look-ups may have to ask the store and go the way of ops_input.c.
 */
#include <errno.h>
#include <time.h>

#include "cache/kill_point.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/ops_call.h"
#include "fs/ops_file.h"
#include "fs/output.h"

#define XATTR_VALUE_MAX 65536

static struct output *tree(const struct call *c)
{
	return c->ops->config.output;
}

static struct output_owner owner(const struct call *c)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(c->req);

	return (struct output_owner){.uid = ctx->uid, .gid = ctx->gid};
}

/* Replies the entry that a call made; the kernel then holds one look-up reference. */
static void reply_entry(const struct call *c, const struct tree_attr *attr)
{
	struct fuse_entry_param entry;

	call_entry(attr, &entry);
	kill_point("request.executed");
	if (fuse_reply_entry(c->req, &entry) < 0)
		output_forget(tree(c), attr->ino, 1);
}

static int run_lookup(struct call *c, unsigned int flags)
{
	struct tree_attr attr;
	int r;

	r = output_lookup(tree(c), c->ino, c->name, flags, &attr);
	if (r == -ENOENT)
		return call_reply_absent(c);
	if (r == 0)
		reply_entry(c, &attr);
	return r;
}

static void out_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_make(req, run_lookup, parent, name, NULL);

	call_start(&c);
}

static void out_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	struct ops *o = fuse_req_userdata(req);

	output_forget(o->config.output, ino, n);
	fuse_reply_none(req);
}

static void out_forget_multi(fuse_req_t req, size_t count,
			     struct fuse_forget_data *forgets)
{
	struct ops *o = fuse_req_userdata(req);

	for (size_t i = 0; i < count; i++)
		output_forget(o->config.output, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static int reply_attr(const struct call *c, const struct tree_attr *attr)
{
	struct stat st;

	call_stat(attr, &st);
	kill_point("request.executed");
	fuse_reply_attr(c->req, &st, call_timeout(attr->ttl_ms));
	return 0;
}

static int run_getattr(struct call *c, unsigned int flags)
{
	struct tree_attr attr;
	int r = output_getattr(tree(c), c->ino, flags, &attr);

	return r != 0 ? r : reply_attr(c, &attr);
}

static void out_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_getattr, ino, NULL, fi);

	call_start(&c);
}

static int run_setattr(struct call *c, unsigned int flags)
{
	struct tree_attr attr = {
		.mode = c->attr.st_mode,
		.uid = c->attr.st_uid,
		.gid = c->attr.st_gid,
		.size = (uint64_t)c->attr.st_size,
		.mtime_ns = clock_from_timespec(c->attr.st_mtim),
	};
	unsigned int set = 0;
	int r;

	if (c->set & FUSE_SET_ATTR_MODE)
		set |= OUTPUT_SET_MODE;
	if (c->set & FUSE_SET_ATTR_UID)
		set |= OUTPUT_SET_UID;
	if (c->set & FUSE_SET_ATTR_GID)
		set |= OUTPUT_SET_GID;
	if (c->set & FUSE_SET_ATTR_SIZE)
		set |= OUTPUT_SET_SIZE;
	if (c->set & FUSE_SET_ATTR_MTIME)
		set |= OUTPUT_SET_MTIME;
	if (c->set & FUSE_SET_ATTR_MTIME_NOW) {
		set |= OUTPUT_SET_MTIME;
		attr.mtime_ns = clock_real_ns();
	}
	/* Also comes with a size, from who may not keep them. */
	if (c->set & (FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID))
		set |= OUTPUT_SET_DROP;
	if (!set) /* an access time alone: not kept */
		return run_getattr(c, flags);
	if (c->fi.fh)
		set |= OUTPUT_SET_OPEN;
	r = output_setattr(tree(c), c->ino, set, &attr);
	return r != 0 ? r : reply_attr(c, &attr);
}

static void out_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
			struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_setattr, ino, NULL, fi);

	c.attr = *attr;
	c.set = (unsigned int)set;
	call_start_blocking(&c);
}

static int run_readlink(struct call *c, unsigned int flags)
{
	char target[PATH_MAX];
	int r = output_readlink(tree(c), c->ino, flags, target, sizeof(target));

	if (r == 0)
		fuse_reply_readlink(c->req, target);
	return r;
}

static void out_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct call c = call_make(req, run_readlink, ino, NULL, NULL);

	call_start(&c);
}

/* Whether the last daemon has done what this call is for; only its reply was lost. */
static bool is_done(const struct call *c)
{
	return c->again && output_executed(tree(c), c->request);
}

/* The reply to a call that has made its name already. */
static int reply_made(struct call *c)
{
	struct tree_attr attr;
	int r = output_lookup(tree(c), c->ino, c->name, 0, &attr);

	if (r == 0)
		reply_entry(c, &attr);
	return r;
}

/* ---- names ----------------------------------------------------------------------------- */

static int run_mkdir(struct call *c, unsigned int flags)
{
	struct tree_attr attr;
	int r;

	if (is_done(c))
		return reply_made(c);
	r = output_mkdir(tree(c), c->ino, c->name, c->mode, owner(c), &attr);

	(void)flags;
	if (r == 0)
		reply_entry(c, &attr);
	return r;
}

static void out_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct call c = call_make(req, run_mkdir, parent, name, NULL);

	c.mode = mode;
	call_start_blocking(&c);
}

static int run_symlink(struct call *c, unsigned int flags)
{
	struct tree_attr attr;
	int r;

	if (is_done(c))
		return reply_made(c);
	r = output_symlink(tree(c), c->ino, c->name, c->new_name, owner(c), &attr);

	(void)flags;
	if (r == 0)
		reply_entry(c, &attr);
	return r;
}

static void out_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
			const char *name)
{
	struct call c = call_make(req, run_symlink, parent, name, NULL);

	c.new_name = target;
	call_start_blocking(&c);
}

static int reply_done(const struct call *c, int r)
{
	kill_point("request.executed");
	if (r == 0)
		fuse_reply_err(c->req, 0);
	return r;
}

/* A name that only the last daemon knew went with it. */
static int reply_gone(const struct call *c, int r)
{
	return reply_done(c, c->again && r == -ENOENT ? 0 : r);
}

static int run_unlink(struct call *c, unsigned int flags)
{
	(void)flags;
	return reply_gone(c, is_done(c) ? 0 : output_unlink(tree(c), c->ino, c->name));
}

static void out_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_make(req, run_unlink, parent, name, NULL);

	call_start_blocking(&c);
}

static int run_rmdir(struct call *c, unsigned int flags)
{
	(void)flags;
	return reply_gone(c, is_done(c) ? 0 : output_rmdir(tree(c), c->ino, c->name));
}

static void out_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_make(req, run_rmdir, parent, name, NULL);

	call_start_blocking(&c);
}

static int run_rename(struct call *c, unsigned int flags)
{
	(void)flags;
	if (is_done(c))
		return reply_done(c, 0);
	return reply_done(c, output_rename(tree(c), c->ino, c->name, c->new_parent,
					   c->new_name, c->set));
}

static void out_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		       fuse_ino_t new_parent, const char *new_name, unsigned int flags)
{
	struct call c = call_make(req, run_rename, parent, name, NULL);

	c.new_parent = new_parent;
	c.new_name = new_name;
	c.set = flags;
	call_start_blocking(&c);
}

/* mknod(2) of a regular file: created and closed. */
static int run_mknod(struct call *c, unsigned int flags)
{
	struct output_file *file;
	struct tree_attr attr;
	int r;

	(void)flags;
	r = output_create(tree(c), c->ino, c->name, c->mode, O_RDWR | O_EXCL, owner(c), 0,
			  &attr, &file);
	if (r == -EEXIST && c->again)
		return reply_made(c);
	if (r != 0)
		return r;
	r = output_flush(file);
	output_release(file);
	if (r == 0)
		reply_entry(c, &attr);
	else
		output_forget(tree(c), attr.ino, 1);
	return r;
}

static void out_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      dev_t device)
{
	struct call c = call_make(req, run_mknod, parent, name, NULL);

	(void)device;
	c.mode = mode;
	if (S_ISREG(mode))
		call_start_blocking(&c);
	else
		call_fail(req, -EPERM);
}

static void out_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino;
	(void)parent;
	(void)name;
	call_fail(req, -EPERM); /* POSIX: a file system without hard links */
}

/* ---- the rest -------------------------------------------------------------------------- */

static void out_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ops *o = fuse_req_userdata(req);
	struct statvfs st;
	int r = output_statfs(o->config.output, &st);

	(void)ino;
	if (r == 0)
		fuse_reply_statfs(req, &st);
	else
		call_fail(req, r);
}

/* An attribute's value or the list of names, as getxattr(2) and listxattr(2) want them. */
static void reply_xattr(fuse_req_t req, const char *data, ssize_t n, size_t size)
{
	if (n < 0)
		call_fail(req, (int)n);
	else if (size == 0)
		fuse_reply_xattr(req, (size_t)n);
	else if ((size_t)n > size)
		call_fail(req, -ERANGE);
	else
		fuse_reply_buf(req, data, (size_t)n);
}

static void out_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct ops *o = fuse_req_userdata(req);
	char *data = call_buffer(req, XATTR_VALUE_MAX);

	if (!data)
		call_fail(req, -ENOMEM);
	else
		reply_xattr(req, data,
			    output_getxattr(o->config.output, ino, name, data,
					    XATTR_VALUE_MAX),
			    size);
}

static void out_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ops *o = fuse_req_userdata(req);
	char *data = call_buffer(req, XATTR_VALUE_MAX);

	if (!data)
		call_fail(req, -ENOMEM);
	else
		reply_xattr(
			req, data,
			output_listxattr(o->config.output, ino, data, XATTR_VALUE_MAX),
			size);
}

const struct fuse_lowlevel_ops ops_output_table = {
	.init = ops_common_init,
	.lookup = out_lookup,
	.forget = out_forget,
	.forget_multi = out_forget_multi,
	.getattr = out_getattr,
	.setattr = out_setattr,
	.readlink = out_readlink,
	.mkdir = out_mkdir,
	.mknod = out_mknod,
	.symlink = out_symlink,
	.unlink = out_unlink,
	.rmdir = out_rmdir,
	.rename = out_rename,
	.link = out_link,
	.opendir = ops_file_opendir,
	.readdir = ops_file_readdir,
	.readdirplus = ops_file_readdirplus,
	.releasedir = ops_file_releasedir,
	.fsyncdir = ops_file_fsyncdir,
	.create = ops_file_create,
	.open = ops_file_open,
	.read = ops_file_read,
	.write = ops_file_write,
	.flush = ops_file_flush,
	.fsync = ops_file_fsync,
	.release = ops_file_release,
	.fallocate = ops_file_fallocate,
	.lseek = ops_file_lseek,
	.statfs = out_statfs,
	.getxattr = out_getxattr,
	.listxattr = out_listxattr,
};
