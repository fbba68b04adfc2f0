/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, entries and listings as FUSE wants them. */
#include <errno.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/ops_call.h"

#define DOTS 2 /* "." and "..": cookies of the tree start after them */

double call_timeout(uint64_t ttl_ms)
{
	return (double)(ttl_ms < OPS_TTL_MAX_MS ? ttl_ms : OPS_TTL_MAX_MS) / 1000.0;
}

void call_stat(const struct tree_attr *attr, struct stat *st)
{
	*st = (struct stat){
		.st_ino = attr->ino,
		.st_size = (off_t)attr->size,
		.st_blocks = (blkcnt_t)attr->blocks,
		.st_blksize = OPS_BLOCK_SIZE,
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_mtim = clock_to_timespec(attr->mtime_ns),
		.st_ctim = clock_to_timespec(attr->ctime_ns),
		.st_atim = clock_to_timespec(attr->mtime_ns),
	};
}

void call_entry(const struct tree_attr *attr, struct fuse_entry_param *entry)
{
	*entry = (struct fuse_entry_param){
		.ino = attr->ino,
		.generation = attr->generation,
		.attr_timeout = call_timeout(attr->ttl_ms),
		.entry_timeout = call_timeout(attr->ttl_ms),
	};
	call_stat(attr, &entry->attr);
}

int call_reply_absent(const struct call *c)
{
	struct fuse_entry_param entry = {
		.entry_timeout = call_timeout(c->ops->config.ttl_ms),
	};

	return fuse_reply_entry(c->req, &entry) < 0 ? -ENOENT : 0;
}

static int put_entry(struct listing *l, const char *name,
		     const struct fuse_entry_param *entry, uint64_t next)
{
	const struct call *c = l->call;
	size_t room = c->size - l->used, n;

	if (c->flag)
		n = fuse_add_direntry_plus(c->req, l->data + l->used, room, name, entry,
					   (off_t)next);
	else
		n = fuse_add_direntry(c->req, l->data + l->used, room, name, &entry->attr,
				      (off_t)next);
	if (n > room)
		return TREE_E_FULL;
	l->used += n;
	return 0;
}

int listing_begin(struct call *c, struct listing *l)
{
	/* No inode number in the entry: the kernel takes no reference on these two. */
	struct fuse_entry_param dot = {
		.attr = {.st_ino = c->ino, .st_mode = S_IFDIR},
	};

	*l = (struct listing){.call = c, .data = call_buffer(c->req, c->size)};
	if (!l->data)
		return err_origin(-ENOMEM);
	if (c->off == 0 && put_entry(l, ".", &dot, 1) != 0)
		return TREE_E_FULL;
	if (c->off <= 1 && put_entry(l, "..", &dot, DOTS) != 0)
		return TREE_E_FULL;
	return 0;
}

uint64_t listing_cookie(const struct call *c)
{
	return c->off > DOTS ? c->off - DOTS : 0;
}

int listing_fill(void *listing, const char *name, const struct tree_attr *attr,
		 uint64_t next)
{
	struct fuse_entry_param entry;

	call_entry(attr, &entry);
	if (attr->unsure) {
		/* The kernel takes the name alone and looks it up when it is used. */
		entry.ino = 0;
		entry.attr.st_mode &= S_IFMT;
	}
	return put_entry(listing, name, &entry, next + DOTS);
}

int listing_end(struct listing *l, int r)
{
	if (r == TREE_E_WAIT && l->used == 0)
		return TREE_E_WAIT;
	if (r < 0 && l->used == 0)
		return r;
	fuse_reply_buf(l->call->req, l->data, l->used);
	return 0;
}
