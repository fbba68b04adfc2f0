/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of /output over a store in memory, and what programs do with it, by path. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/fault.h"
#include "fs/backend/mem.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/crc.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_drain.h"
#include "tests/unit/lib_origin.h"

static const struct output_owner me = {1000, 1000};

#define RIG_KNOWN 16

struct rig {
	char dir[64];
	struct origin *origin;
	struct output *o;
	struct output_config config;
	/* Numbers looked up lately, in a ring: valid until they are forgotten, as a kernel's;
	 * 0: none. */
	uint64_t known[RIG_KNOWN];
	size_t last_known;
};

static inline void start(struct rig *t)
{
	struct why why = {""};
	int r = output_new(&t->config, &t->o, &why);

	if (r < 0)
		print_error("%s\n", why.text);
	assert_int_equal(r, 0);
	memset(t->known, 0, sizeof(t->known));
}

static inline void know(struct rig *t, uint64_t ino)
{
	uint64_t *place = &t->known[++t->last_known % RIG_KNOWN];

	if (*place)
		output_forget(t->o, *place, 1);
	*place = ino;
}

static inline void set_up(struct rig *t)
{
	log_set_level(LOG_ERROR);
	*t = (struct rig){.dir = "/tmp/sluice-output.XXXXXX"};
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(mem_origin_new(&t->origin), 0);
	t->config = (struct output_config){.origin = t->origin,
					   .state_dir = t->dir,
					   .ttl_ms = 60000,
					   .part_size = 128 << 10,
					   .uid = 1000,
					   .gid = 1000};
	start(t);
}

static inline void set_up_faulty(struct rig *t)
{
	set_up(t);
	t->o = output_free(t->o);
	assert_int_equal(fault_origin_new(t->origin, &t->origin), 0);
	t->config.origin = t->origin;
	start(t);
}

static inline void tear_down(struct rig *t)
{
	output_free(t->o);
	origin_free(t->origin);
	io_remove_tree(AT_FDCWD, t->dir);
}

static inline void drain(struct rig *t)
{
	struct buf receipt = BUF_INIT;
	int r = lib_drain(t->o, patience(), &receipt);

	if (r != 0)
		print_error("%s\n", receipt.data);
	buf_fini(&receipt);
	assert_int_equal(r, 0);
}

static inline uint64_t walk(struct rig *t, const char *path, struct tree_attr *attr)
{
	char copy[256], *save = NULL;
	uint64_t ino = TREE_ROOT;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *c = strtok_r(copy, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
		if (output_lookup(t->o, ino, c, 0, attr) != 0)
			return 0;
		know(t, attr->ino);
		ino = attr->ino;
	}
	return ino;
}

/* The directory's number and the last component. */
static inline uint64_t parent_of(struct rig *t, const char *path, const char **base)
{
	struct tree_attr attr;
	char dir[256];
	const char *slash = strrchr(path, '/');

	*base = slash ? slash + 1 : path;
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	return walk(t, dir, &attr);
}

static inline struct output_file *open_for(struct rig *t, const char *path, int flags)
{
	struct output_file *f = NULL;
	struct tree_attr attr = {0};
	const char *base;
	uint64_t dir = parent_of(t, path, &base);

	if (flags & O_CREAT) {
		assert_int_equal(
			output_create(t->o, dir, base, 0644, flags, me, 0, &attr, &f), 0);
		output_forget(t->o, attr.ino, 1);
		return f;
	}
	assert_int_not_equal(walk(t, path, &attr), 0);
	assert_int_equal(output_open(t->o, attr.ino, flags, 0, &f), 0);
	return f;
}

static inline void close_file(struct output_file *f)
{
	assert_int_equal(output_flush(f), 0);
	output_release(f);
}

static inline void write_text(struct rig *t, const char *path, int flags, uint64_t off,
			      const char *text)
{
	struct output_file *f = open_for(t, path, flags);

	assert_int_equal(output_write(f, off, text, strlen(text), 0), 0);
	close_file(f);
}

static inline void put(struct rig *t, const char *path, const char *text)
{
	write_text(t, path, O_CREAT | O_WRONLY | O_TRUNC, 0, text);
}

static inline void assert_reads(struct rig *t, const char *path, const char *text)
{
	struct output_file *f = open_for(t, path, O_RDONLY);
	char got[4096] = "";
	size_t n;

	assert_int_equal(output_read(f, 0, got, sizeof(got) - 1, 0, &n), 0);
	got[n] = '\0';
	assert_string_equal(got, text);
	output_release(f);
}

static inline void make_dir(struct rig *t, const char *path)
{
	struct tree_attr attr;
	const char *base;
	uint64_t dir = parent_of(t, path, &base);

	assert_int_equal(output_mkdir(t->o, dir, base, 0755, me, &attr), 0);
	output_forget(t->o, attr.ino, 1);
}

static inline int move(struct rig *t, const char *from, const char *to,
		       unsigned int flags)
{
	const char *a, *b;
	uint64_t from_dir = parent_of(t, from, &a), to_dir = parent_of(t, to, &b);

	return output_rename(t->o, from_dir, a, to_dir, b, flags);
}

static inline int remove_file(struct rig *t, const char *path)
{
	const char *base;
	uint64_t dir = parent_of(t, path, &base);

	return output_unlink(t->o, dir, base);
}

static inline void restart(struct rig *t)
{
	t->o = output_free(t->o);
	start(t);
}

static inline void assert_listed(struct rig *t, const char *keys)
{
	lib_assert_listed(t->origin, "", true, keys);
}

/* ---- what the store has been asked, and what it holds ------------------------------------- */

static inline struct origin_stats stats_of(struct rig *t)
{
	struct origin_stats stats = {0};

	t->origin->ops->stats(t->origin, &stats);
	return stats;
}

static inline uint64_t requests(struct rig *t, enum origin_op op)
{
	return stats_of(t).requests[op];
}

/* Unfinished uploads in the store. */
static inline int uploads(struct rig *t)
{
	struct origin_req req = {.op = ORIGIN_MULTI_LIST, .key = ""};
	struct lib_listed listed = {0};

	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_call(t->origin, &req), 0);
	return listed.count;
}

/* ---- odds and ends ------------------------------------------------------------------------ */

static inline void fill(char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(seed + i % 251 + i / 4096);
}

static inline int count_name(void *arg, const char *name, const struct tree_attr *attr,
			     uint64_t next)
{
	(void)name;
	(void)attr;
	(void)next;
	++*(int *)arg;
	return 0;
}

static inline int count_names(struct rig *t, const char *path)
{
	struct tree_attr attr;
	struct output_dir *d;
	int count = 0;
	uint64_t ino = walk(t, path, &attr);

	assert_int_not_equal(ino, 0);
	assert_int_equal(output_opendir(t->o, ino, 0, &d), 0);
	assert_int_equal(output_readdir(d, 0, false, 0, count_name, &count), 0);
	output_closedir(d);
	return count;
}
