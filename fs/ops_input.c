/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FUSE requests on /input. Changes are refused by the kernel: the mount is read-only.
 *
 * How a file is served (backing.h grants it, so that opens do not exclude each other):
 *   wholly local          passthrough, where session.h has it
 *   small and immutable   the page cache, kept from open to open
 *   all else              past the page cache: an open file is one version, and pages
 *                         belong to the inode, so they could mix two
 */
#include <errno.h>

#include "fs/base/err.h"
#include "fs/input.h"
#include "fs/ops_call.h"
#include "fs/session.h"

static struct input *tree(const struct call *c)
{
	return c->ops->config.input;
}

static int run_lookup(struct call *c, unsigned int flags)
{
	struct fuse_entry_param entry;
	struct tree_attr attr;
	int r;

	r = input_lookup(tree(c), c->ino, c->name, flags, &attr);
	if (r == -ENOENT)
		return call_reply_absent(c);
	if (r != 0)
		return r;
	call_entry(&attr, &entry);
	if (fuse_reply_entry(c->req, &entry) < 0)
		input_forget(tree(c), attr.ino, 1);
	return 0;
}

static void in_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct call c = call_make(req, run_lookup, parent, name, NULL);

	call_start(&c);
}

static void in_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	struct ops *o = fuse_req_userdata(req);

	input_forget(o->config.input, ino, n);
	fuse_reply_none(req);
}

static void in_forget_multi(fuse_req_t req, size_t count,
			    struct fuse_forget_data *forgets)
{
	struct ops *o = fuse_req_userdata(req);

	for (size_t i = 0; i < count; i++)
		input_forget(o->config.input, forgets[i].ino, forgets[i].nlookup);
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
	c->fi.cache_readdir = c->fi.keep_cache = c->ops->config.immutable;
	if (fuse_reply_open(c->req, &c->fi) < 0)
		input_closedir(handle_close_dir(c->ops, h));
	return 0;
}

static void in_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_opendir, ino, NULL, fi);

	call_start(&c);
}

static int run_readdir(struct call *c, unsigned int flags)
{
	struct listing l;
	int r;

	r = listing_begin(c, &l);
	if (r == 0)
		r = input_readdir(call_handle(c)->file, listing_cookie(c), c->flag, flags,
				  listing_fill, &l);
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
	struct ops *o = fuse_req_userdata(req);

	(void)ino;
	input_closedir(handle_close_dir(o, handle_of(fi->fh)));
	fuse_reply_err(req, 0);
}

/* ---- files ----------------------------------------------------------------------------- */

/* Whether the page cache may serve an open that cannot be passed through. */
static bool may_cache(const struct call *c)
{
	const struct ops_config *config = &c->ops->config;
	struct tree_attr attr;

	if (!config->immutable) /* kernels before 6.6 cannot map a direct file */
		return !session_maps_direct(config->session);
	if (!session_passes_through(config->session))
		return true;
	return input_getattr(tree(c), c->ino, TREE_NOWAIT, &attr) == 0 &&
	       attr.size < OPS_SMALL_FILE;
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
	cached = may_cache(c);
	if (session_passes_through(c->ops->config.session))
		fd = input_backing_fd(file);
	h = handle_open(c, file, close_file, fd, cached, c->ops->config.immutable);
	if (!h) {
		input_close(file);
		return err_origin(-ENOMEM);
	}
	c->fi.noflush = 1;
	if (fuse_reply_open(c->req, &c->fi) < 0)
		input_close(handle_close(c->ops, c->req, c->ino, h));
	return 0;
}

static void in_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_open, ino, NULL, fi);

	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		call_fail(req, -EROFS);
	else
		call_start(&c);
}

static int run_read(struct call *c, unsigned int flags)
{
	char *data = call_buffer(c->req, c->size);
	size_t got = 0;
	int r;

	if (!data)
		return err_origin(-ENOMEM);
	r = input_read(call_handle(c)->file, c->off, data, c->size, flags, &got);
	if (r != 0)
		return r;
	fuse_reply_buf(c->req, data, got);
	return 0;
}

static void in_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct call c = call_make(req, run_read, ino, NULL, fi);

	c.size = size;
	c.off = (uint64_t)off;
	call_start(&c);
}

static void in_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ops *o = fuse_req_userdata(req);
	struct handle *h = handle_of(fi->fh);

	input_close(handle_close(o, req, ino, h));
	fuse_reply_err(req, 0);
}

static void in_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct ops *o = fuse_req_userdata(req);
	struct input_stats stats;
	struct statvfs st = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255};

	(void)ino;
	input_stats(o->config.input, &stats);
	st.f_files = stats.inodes;
	fuse_reply_statfs(req, &st);
}

const struct fuse_lowlevel_ops ops_input_table = {
	.init = ops_common_init,
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
