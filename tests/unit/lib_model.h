/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on /output and on a plain directory: both must answer alike, look alike,
 * and in the end the store must hold what the directory holds. The store has some trees from
 * the start.
 *
 * Who includes this says how a tree is asked (sut_*) and what an open file is.
 */
#pragma once

#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/fault.h"
#include "fs/backend/file.h"
#include "fs/backend/mem.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/output.h"
#include "tests/unit/lib_origin.h"

#define PART (16 << 10)
#define SIZE_MAX_WRITE (3 * PART)
#define FETCH_MAX 6000 /* larger objects are changed without being fetched */
#define PART_MIN 2000
#define NAMES 4
#define LOOKED_MAX 4096
#define JITTER_US 5000 /* of a store whose answers come late and in any order */

static const struct output_owner me = {1000, 1000};

struct file; /* an open one */
struct sut;

struct model {
	char dir[64], plain[80];
	struct origin *store, *origin;
	struct sut *sut;
	uint64_t seed, random;
	int step;
	char last[256]; /* the operation, for messages */
	/* Looked up by the operation; as the kernel does, it forgets them afterwards. */
	uint64_t looked[LOOKED_MAX];
	size_t looked_count;
};

/* The tree. Errors as it gives them. */
static int sut_lookup(struct model *m, uint64_t dir, const char *name,
		      struct tree_attr *attr);
static void sut_forget(struct model *m, uint64_t ino);
static int sut_open(struct model *m, uint64_t ino, int flags, struct file **f);
static int sut_create(struct model *m, uint64_t dir, const char *name, int flags,
		      struct tree_attr *attr, struct file **f);
static int sut_read(struct model *m, struct file *f, uint64_t off, void *p, size_t n,
		    size_t *got);
static int sut_write(struct model *m, struct file *f, uint64_t off, const void *p,
		     size_t n);
static int sut_fsync(struct model *m, struct file *f);
static int sut_flush(struct model *m, struct file *f);
static void sut_release(struct model *m, struct file *f);
static int sut_truncate(struct model *m, uint64_t ino, uint64_t size);
static int sut_rename(struct model *m, uint64_t from_dir, const char *from, uint64_t dir,
		      const char *to, unsigned int flags);
static int sut_unlink(struct model *m, uint64_t dir, const char *name);
static int sut_rmdir(struct model *m, uint64_t dir, const char *name);
static int sut_mkdir(struct model *m, uint64_t dir, const char *name,
		     struct tree_attr *attr);
static int sut_count(struct model *m, uint64_t ino, int *count); /* names */
static void sut_drain(struct model *m);

static uint64_t pick(struct model *m, uint64_t n)
{
	/* xorshift64*: the run must be the same everywhere for one seed. */
	m->random ^= m->random >> 12;
	m->random ^= m->random << 25;
	m->random ^= m->random >> 27;
	return (m->random * 2685821657736338717ull >> 33) % n;
}

/* Every third run: a store of real directories, where a name is a file or a directory. */
static void open_store(struct model *m)
{
	struct why why = {""};
	char dir[80];

	if (m->seed % 3 != 0) {
		assert_int_equal(mem_origin_new(&m->store), 0);
		return;
	}
	snprintf(dir, sizeof(dir), "%s/store", m->dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	if (file_origin_open(dir, false, &m->store, &why) < 0)
		fail_msg("%s", why.text);
}

/* A store that is late now and then, and an empty directory. */
static void make_model(struct model *m, uint64_t seed)
{
	*m = (struct model){.dir = "/tmp/sluice-model.XXXXXX", .seed = seed};
	m->random = seed * 2 + 1;
	assert_non_null(mkdtemp(m->dir));
	snprintf(m->plain, sizeof(m->plain), "%s/plain", m->dir);
	assert_int_equal(mkdir(m->plain, 0700), 0);
	open_store(m);
	m->store->part_size_min = PART_MIN;
	assert_int_equal(fault_origin_new(m->store, &m->origin), 0);
	m->origin->part_size_min = PART_MIN;
	fault_set_jitter(m->origin, pick(m, 2) ? pick(m, JITTER_US) : 0);
}

static void remove_model(struct model *m)
{
	origin_free(m->origin);
	io_remove_tree(AT_FDCWD, m->dir);
}

/* ---- names ----------------------------------------------------------------------------------------- */

/* One to three components out of a few, so that operations meet. */
static void random_path(struct model *m, char out[64])
{
	uint64_t depth = 1 + pick(m, 3);
	size_t at = 0;

	for (uint64_t i = 0; i < depth; i++)
		at += (size_t)snprintf(out + at, 64 - at, "%s%c", i ? "/" : "",
				       (char)('a' + pick(m, NAMES)));
}

static void plain_path(struct model *m, const char *path, char out[160])
{
	snprintf(out, 160, "%s/%s", m->plain, path);
}

static int look(struct model *m, uint64_t dir, const char *name, struct tree_attr *attr)
{
	int r = sut_lookup(m, dir, name, attr);

	if (r == 0) {
		assert_true(m->looked_count < LOOKED_MAX);
		m->looked[m->looked_count++] = attr->ino;
	}
	return r;
}

static void forget_all(struct model *m)
{
	while (m->looked_count > 0)
		sut_forget(m, m->looked[--m->looked_count]);
}

/* The directory's number and the last component, or the errno of the way there. */
static int parent_of(struct model *m, const char *path, uint64_t *dir, const char **base)
{
	char copy[64], *save = NULL, *c;
	struct tree_attr attr = {.mode = S_IFDIR};

	snprintf(copy, sizeof(copy), "%s", path);
	c = strrchr(copy, '/');
	*base = c ? path + (c - copy) + 1 : path;
	*dir = TREE_ROOT;
	if (!c)
		return 0;
	*c = '\0';
	for (c = strtok_r(copy, "/", &save); c; c = strtok_r(NULL, "/", &save)) {
		int r = look(m, *dir, c, &attr);

		if (r < 0)
			return r;
		if (!S_ISDIR(attr.mode))
			return -ENOTDIR;
		*dir = attr.ino;
	}
	return 0;
}

static int lookup(struct model *m, const char *path, struct tree_attr *attr)
{
	const char *base;
	uint64_t dir;
	int r = parent_of(m, path, &dir, &base);

	return r == 0 ? look(m, dir, base, attr) : r;
}

/* ---- operations -------------------------------------------------------------------------------------- */

static void same(struct model *m, int got, int want)
{
	if (getenv("SLUICE_TRACE"))
		print_message("\t%s: %d\n", m->last, got);
	/* rename(2) may say either for a directory that is not empty. */
	if (want == -EEXIST && got == -ENOTEMPTY)
		return;
	if (got != want)
		fail_msg("seed %llu step %d: %s: %d (%s), the plain directory says %d "
			 "(%s)",
			 (unsigned long long)m->seed, m->step, m->last, got,
			 strerror(-got), want, strerror(-want));
}

static int open_ours(struct model *m, const char *path, int flags, struct file **f)
{
	struct tree_attr attr;
	const char *base;
	uint64_t dir;
	int r = parent_of(m, path, &dir, &base);

	if (r < 0)
		return r;
	r = look(m, dir, base, &attr);
	if (r == 0)
		return sut_open(m, attr.ino, flags, f);
	if (r != -ENOENT || !(flags & O_CREAT))
		return r;
	r = sut_create(m, dir, base, flags, &attr, f);
	if (r == 0)
		sut_forget(m, attr.ino);
	return r;
}

/* A range through the open file, whose other bytes may be in the store only. */
static void compare_range(struct model *m, struct file *f, int fd)
{
	uint64_t off = pick(m, SIZE_MAX_WRITE);
	size_t n = pick(m, SIZE_MAX_WRITE), got = 0;
	_cleanup_(freep) char *want = malloc(n + 1);
	_cleanup_(freep) char *have = malloc(n + 1);
	ssize_t r = io_pread(fd, want, n, off);

	assert_true(r >= 0);
	same(m, sut_read(m, f, off, have, n, &got), 0);
	if (got != (size_t)r || memcmp(want, have, got) != 0)
		fail_msg("seed %llu step %d: %s: a read of %zu bytes at %llu differs",
			 (unsigned long long)m->seed, m->step, m->last, n,
			 (unsigned long long)off);
}

static void do_write(struct model *m)
{
	static const int modes[] = {O_CREAT | O_TRUNC, O_CREAT, O_CREAT | O_APPEND, 0};
	int flags = modes[pick(m, 4)] | O_RDWR;
	size_t n = pick(m, 4) ? pick(m, 200) : pick(m, SIZE_MAX_WRITE);
	uint64_t off = pick(m, pick(m, 2) ? 300 : SIZE_MAX_WRITE), times = 1 + pick(m, 2);
	_cleanup_(freep) char *data = malloc(n + 1);
	struct file *f = NULL;
	char path[64], plain[160];
	struct stat st;
	int fd, r, want;

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "write %s flags %o off %llu n %zu", path,
		 flags, (unsigned long long)off, n);
	for (size_t i = 0; i < n; i++)
		data[i] = (char)pick(m, 256);
	fd = open(plain, flags | O_CLOEXEC, 0644);
	want = fd < 0 ? -errno : 0;
	r = open_ours(m, path, flags, &f);
	same(m, r, want);
	for (uint64_t i = 0; fd >= 0 && i < times; i++) {
		assert_int_equal(fstat(fd, &st), 0);
		if (flags & O_APPEND)
			off = (uint64_t)st.st_size;
		assert_int_equal(io_pwrite(fd, data, n, off), 0);
		same(m, sut_write(m, f, off, data, n), 0);
		if (pick(m, 3) == 0)
			same(m, sut_fsync(m, f), 0);
		if (pick(m, 3) == 0)
			compare_range(m, f, fd);
		if (pick(m, 4) == 0)
			off = pick(m, SIZE_MAX_WRITE);
	}
	if (fd < 0)
		return;
	close(fd);
	same(m, sut_flush(m, f), 0);
	sut_release(m, f);
}

static void do_truncate(struct model *m)
{
	struct tree_attr attr;
	char path[64], plain[160];
	uint64_t size = pick(m, pick(m, 2) ? 400 : SIZE_MAX_WRITE);
	int r, want;

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "truncate %s to %llu", path,
		 (unsigned long long)size);
	want = truncate(plain, (off_t)size) < 0 ? -errno : 0;
	r = lookup(m, path, &attr);
	if (r == 0)
		r = sut_truncate(m, attr.ino, size);
	same(m, r, want);
}

static void do_rename(struct model *m)
{
	static const unsigned int flags[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	unsigned int how = flags[pick(m, 5)];
	char from[64], to[64], plain_from[160], plain_to[160];
	const char *a, *b;
	uint64_t x, y;
	int r, s, want;

	random_path(m, from);
	random_path(m, to);
	plain_path(m, from, plain_from);
	plain_path(m, to, plain_to);
	snprintf(m->last, sizeof(m->last), "rename %s to %s flags %u", from, to, how);
	want = renameat2(AT_FDCWD, plain_from, AT_FDCWD, plain_to, how) < 0 ? -errno : 0;
	r = parent_of(m, from, &x, &a);
	s = parent_of(m, to, &y, &b);
	if (r == 0)
		r = s;
	if (r == 0)
		r = sut_rename(m, x, a, y, b, how);
	/* Which of two mistakes is named first is no one's business. */
	if (r < 0 && want < 0)
		return;
	same(m, r, want);
}

static void do_remove(struct model *m)
{
	char path[64], plain[160];
	bool dir = pick(m, 3) == 0;
	const char *base;
	uint64_t parent;
	int r, want;

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "%s %s", dir ? "rmdir" : "unlink", path);
	want = (dir ? rmdir(plain) : unlink(plain)) < 0 ? -errno : 0;
	r = parent_of(m, path, &parent, &base);
	if (r == 0)
		r = dir ? sut_rmdir(m, parent, base) : sut_unlink(m, parent, base);
	same(m, r, want);
}

static void do_mkdir(struct model *m)
{
	char path[64], plain[160];
	struct tree_attr attr;
	const char *base;
	uint64_t parent;
	int r, want;

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "mkdir %s", path);
	want = mkdir(plain, 0755) < 0 ? -errno : 0;
	r = parent_of(m, path, &parent, &base);
	if (r == 0)
		r = sut_mkdir(m, parent, base, &attr);
	if (r == 0)
		sut_forget(m, attr.ino);
	same(m, r, want);
}

/* Requests of a kind fail for a while, before or after they took effect. */
static void do_fault(struct model *m)
{
	static const enum origin_op ops[] = {ORIGIN_PUT,        ORIGIN_COPY,
					     ORIGIN_DELETE,     ORIGIN_MULTI_BEGIN,
					     ORIGIN_MULTI_PART, ORIGIN_MULTI_END,
					     ORIGIN_MULTI_COPY, ORIGIN_DELETE_MANY};
	struct fault_rule rule = {.op = ops[pick(m, 8)],
				  .count = 1 + (unsigned)pick(m, 2),
				  .error = -ECONNRESET,
				  .after = pick(m, 2),
				  .cut_after = pick(m, 3)};

	/* Of many keys some go and some stay. */
	rule.cut = rule.op == ORIGIN_DELETE_MANY && !rule.after;

	fault_clear(m->origin);
	fault_add(m->origin, &rule);
}

/* ---- comparison ---------------------------------------------------------------------------------------- */

static void compare_file(struct model *m, const char *path, bool in_store)
{
	_cleanup_(buf_fini) struct buf want = BUF_INIT, got = BUF_INIT;
	char plain[160];
	int r;

	plain_path(m, path, plain);
	assert_int_equal(io_read_file(AT_FDCWD, plain, 1 << 24, &want), 0);
	if (in_store) {
		r = lib_get(m->store, path, 0, ORIGIN_TO_END, NULL, &got);
	} else {
		struct file *f;
		size_t n = 0;

		r = open_ours(m, path, O_RDONLY, &f);
		if (r == 0) {
			buf_reserve(&got, want.len + 100);
			r = sut_read(m, f, 0, got.data, want.len + 100, &n);
			got.len = n;
			sut_release(m, f);
		}
	}
	if (r < 0 || got.len != want.len ||
	    (want.len && memcmp(got.data, want.data, want.len) != 0))
		fail_msg("seed %llu step %d: %s differs %s (%d): %zu bytes, expected %zu",
			 (unsigned long long)m->seed, m->step, path,
			 in_store ? "in the store" : "through the tree", r, got.len,
			 want.len);
}

static int count_ours(struct model *m, const char *path)
{
	struct tree_attr attr = {.ino = TREE_ROOT};
	int count = 0;

	if (path[0] && lookup(m, path, &attr) != 0)
		return -1;
	same(m, sut_count(m, attr.ino, &count), 0);
	return count;
}

/* The plain directory below `path` against tree or store. Returns how many keys the store
 * should hold. At most three levels deep. */
static int compare_dir(struct model *m, const char *path, bool in_store)
{
	char plain[160], below[64];
	int names = 0, keys = 0;
	struct dirent *e;
	DIR *d;

	plain_path(m, path, plain);
	d = opendir(plain);
	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		names++;
		snprintf(below, sizeof(below), "%.40s%s%.2s", path, path[0] ? "/" : "",
			 e->d_name);
		if (e->d_type == DT_DIR) {
			keys += compare_dir(m, below, in_store);
		} else {
			compare_file(m, below, in_store);
			keys++;
		}
	}
	closedir(d);
	if (!in_store && count_ours(m, path) != names)
		fail_msg(
			"seed %llu step %d: directory \"%s\" shows %d names, expected %d",
			(unsigned long long)m->seed, m->step, path, count_ours(m, path),
			names);
	if (in_store && path[0]) {
		struct origin_attr attr;

		snprintf(below, sizeof(below), "%s/", path);
		keys += lib_stat(m->store, below, &attr) == 0;
		if (names == 0 && lib_stat(m->store, below, &attr) != 0)
			fail_msg("seed %llu: empty directory %s is not in the store",
				 (unsigned long long)m->seed, path);
	}
	return keys;
}

/* What others have put into the store before. */
static void put_trees(struct model *m)
{
	for (int i = 0; i < 12; i++) {
		char path[64], plain[160], *slash;
		int fd;

		random_path(m, path);
		for (slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			plain_path(m, path, plain);
			mkdir(plain, 0755);
			*slash = '/';
		}
		plain_path(m, path, plain);
		fd = open(plain, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			continue;
		assert_int_equal(io_pwrite(fd, path, strlen(path), 0), 0);
		close(fd);
		assert_int_equal(lib_put(m->store, path, path), 0);
	}
}

static void settle(struct model *m)
{
	struct lib_listed listed = {0};
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};
	int keys;

	sut_drain(m);
	keys = compare_dir(m, "", true);
	req.list.recursive = true;
	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_list_all(m->store, &req), 0);
	if (listed.count != keys)
		fail_msg("seed %llu step %d: the store holds %d keys, expected %d (last "
			 "%s)",
			 (unsigned long long)m->seed, m->step, listed.count, keys,
			 listed.key);
}

/* The seed is printed; SLUICE_SEED repeats one run, SLUICE_STEPS makes it longer or shorter. */
static void run_seeds(void (*run)(uint64_t seed, int steps), uint64_t runs, int steps)
{
	const char *seed = getenv("SLUICE_SEED"), *wanted = getenv("SLUICE_STEPS");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : clock_random() % 1000000;

	log_set_level(getenv("SLUICE_TRACE") ? LOG_DEBUG : LOG_ERROR);
	if (getenv("SLUICE_TRACE"))
		log_set_debug("all");
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)first);
	for (uint64_t i = 0; i < (seed ? 1 : runs); i++)
		run(first + i, wanted ? atoi(wanted) : steps);
}
