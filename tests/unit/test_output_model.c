/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on /output and on a plain directory, with a store that fails now and
 * then and restarts in between: both must answer alike, look alike, and in the end the
 * store must hold what the directory holds.
 *
 * SLUICE_SEED repeats a run, SLUICE_STEPS makes it longer.
 */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/fault.h"
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

static const struct output_owner me = {1000, 1000};

struct model {
	char dir[64], state[80], plain[80];
	struct origin *mem, *origin;
	struct output *o;
	uint64_t seed, random;
	int step;
	char last[256]; /* the operation, for messages */
};

static uint64_t pick(struct model *m, uint64_t n)
{
	/* xorshift64*: the run must be the same everywhere for one seed. */
	m->random ^= m->random >> 12;
	m->random ^= m->random << 25;
	m->random ^= m->random >> 27;
	return (m->random * 2685821657736338717ull >> 33) % n;
}

static void start(struct model *m)
{
	struct output_config config = {.origin = m->origin,
				       .state_dir = m->state,
				       .ttl_ms = 60000,
				       .part_size = PART,
				       .fetch_max = FETCH_MAX,
				       .upload_parallel = 4,
				       .publish_interval_ms = 20};
	struct why why = {""};

	m->origin->part_size_min = PART_MIN;
	if (output_new(&config, &m->o, &why) < 0)
		fail_msg("%s", why.text);
}

static void set_up(struct model *m, uint64_t seed)
{
	*m = (struct model){.dir = "/tmp/sluice-model.XXXXXX", .seed = seed};
	m->random = seed * 2 + 1;
	assert_non_null(mkdtemp(m->dir));
	snprintf(m->state, sizeof(m->state), "%s/state", m->dir);
	snprintf(m->plain, sizeof(m->plain), "%s/plain", m->dir);
	assert_int_equal(mkdir(m->plain, 0700), 0);
	assert_int_equal(mem_origin_new(&m->mem), 0);
	m->mem->part_size_min = PART_MIN;
	assert_int_equal(fault_origin_new(m->mem, &m->origin), 0);
	start(m);
}

static void tear_down(struct model *m)
{
	output_free(m->o);
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
		int r = output_lookup(m->o, *dir, c, 0, &attr);

		if (r < 0)
			return r;
		output_forget(m->o, attr.ino, 1);
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

	if (r == 0)
		r = output_lookup(m->o, dir, base, 0, attr);
	if (r == 0)
		output_forget(m->o, attr->ino, 1);
	return r;
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

static int open_ours(struct model *m, const char *path, int flags, struct output_file **f)
{
	struct tree_attr attr;
	const char *base;
	uint64_t dir;
	int r = parent_of(m, path, &dir, &base);

	if (r < 0)
		return r;
	r = output_lookup(m->o, dir, base, 0, &attr);
	if (r == -ENOENT && (flags & O_CREAT))
		r = output_create(m->o, dir, base, 0644, flags, me, 0, &attr, f);
	else if (r == 0)
		r = output_open(m->o, attr.ino, flags, 0, f);
	if (r == 0)
		output_forget(m->o, attr.ino, 1);
	return r;
}

/* A range through the open file, whose other bytes may be in the store only. */
static void compare_range(struct model *m, struct output_file *f, int fd)
{
	uint64_t off = pick(m, SIZE_MAX_WRITE);
	size_t n = pick(m, SIZE_MAX_WRITE), got = 0;
	_cleanup_(freep) char *want = malloc(n + 1);
	_cleanup_(freep) char *have = malloc(n + 1);
	ssize_t r = io_pread(fd, want, n, off);

	assert_true(r >= 0);
	same(m, output_read(f, off, have, n, 0, &got), 0);
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
	struct output_file *f = NULL;
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
		same(m, output_write(f, off, data, n, 0), 0);
		if (pick(m, 3) == 0)
			same(m, output_fsync(f, false), 0);
		if (pick(m, 3) == 0)
			compare_range(m, f, fd);
		if (pick(m, 4) == 0)
			off = pick(m, SIZE_MAX_WRITE);
	}
	if (fd < 0)
		return;
	close(fd);
	same(m, output_flush(f), 0);
	output_release(f);
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
	if (r == 0) {
		attr.size = size;
		r = output_setattr(m->o, attr.ino, OUTPUT_SET_SIZE, &attr);
	}
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
		r = output_rename(m->o, x, a, y, b, how);
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
		r = dir ? output_rmdir(m->o, parent, base)
			: output_unlink(m->o, parent, base);
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
		r = output_mkdir(m->o, parent, base, 0755, me, &attr);
	if (r == 0)
		output_forget(m->o, attr.ino, 1);
	same(m, r, want);
}

/* Requests of a kind fail for a while, before or after they took effect. */
static void do_fault(struct model *m)
{
	static const enum origin_op ops[] = {
		ORIGIN_PUT,        ORIGIN_COPY,      ORIGIN_DELETE,    ORIGIN_MULTI_BEGIN,
		ORIGIN_MULTI_PART, ORIGIN_MULTI_END, ORIGIN_MULTI_COPY};
	struct fault_rule rule = {.op = ops[pick(m, 7)],
				  .count = 1 + (unsigned)pick(m, 2),
				  .error = -ECONNRESET,
				  .after = pick(m, 2)};

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
		r = lib_get(m->mem, path, 0, ORIGIN_TO_END, NULL, &got);
	} else {
		struct output_file *f;
		size_t n = 0;

		r = open_ours(m, path, O_RDONLY, &f);
		if (r == 0) {
			buf_reserve(&got, want.len + 100);
			r = output_read(f, 0, got.data, want.len + 100, 0, &n);
			got.len = n;
			output_release(f);
		}
	}
	if (r < 0 || got.len != want.len ||
	    (want.len && memcmp(got.data, want.data, want.len) != 0))
		fail_msg("seed %llu step %d: %s differs %s (%d): %zu bytes, expected %zu",
			 (unsigned long long)m->seed, m->step, path,
			 in_store ? "in the store" : "through the tree", r, got.len,
			 want.len);
}

static int count_name(void *arg, const char *name, const struct tree_attr *attr,
		      uint64_t next)
{
	(void)name;
	(void)attr;
	(void)next;
	++*(int *)arg;
	return 0;
}

static int count_ours(struct model *m, const char *path)
{
	struct tree_attr attr = {.ino = TREE_ROOT};
	struct output_dir *d;
	int count = 0;

	if (path[0] && lookup(m, path, &attr) != 0)
		return -1;
	assert_int_equal(output_opendir(m->o, attr.ino, 0, &d), 0);
	assert_int_equal(output_readdir(d, 0, false, 0, count_name, &count), 0);
	output_closedir(d);
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
		keys += lib_stat(m->mem, below, &attr) == 0;
		if (names == 0 && lib_stat(m->mem, below, &attr) != 0)
			fail_msg("seed %llu: empty directory %s is not in the store",
				 (unsigned long long)m->seed, path);
	}
	return keys;
}

static void settle(struct model *m)
{
	struct lib_listed listed = {0};
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};
	struct buf receipt = BUF_INIT;
	int keys;

	if (output_drain(m->o, clock_mono_ms() + 30000, &receipt) != 0)
		fail_msg("seed %llu step %d: not drained: %s",
			 (unsigned long long)m->seed, m->step, receipt.data);
	buf_fini(&receipt);
	keys = compare_dir(m, "", true);
	req.list.recursive = true;
	req.list.entry = lib_keep_entry;
	req.list.entry_arg = &listed;
	assert_int_equal(origin_list_all(m->mem, &req), 0);
	if (listed.count != keys)
		fail_msg("seed %llu step %d: the store holds %d keys, expected %d (last "
			 "%s)",
			 (unsigned long long)m->seed, m->step, listed.count, keys,
			 listed.key);
}

static void run(uint64_t seed, int steps)
{
	struct model m;

	set_up(&m, seed);
	for (m.step = 0; m.step < steps; m.step++) {
		uint64_t dice = pick(&m, 100);

		if (dice < 40)
			do_write(&m);
		else if (dice < 60)
			do_rename(&m);
		else if (dice < 75)
			do_remove(&m);
		else if (dice < 87)
			do_mkdir(&m);
		else if (dice < 91)
			do_truncate(&m);
		else if (dice < 94)
			compare_dir(&m, "", false);
		else if (dice < 96)
			do_fault(&m);
		else if (dice < 98)
			settle(&m);
		if (dice >= 97) {
			snprintf(m.last, sizeof(m.last), "restart");
			m.o = output_free(m.o);
			start(&m);
		}
		if (getenv("SLUICE_TRACE"))
			print_message("%d dice %d\n", m.step, (int)dice);
	}
	compare_dir(&m, "", false);
	settle(&m);
	tear_down(&m);
}

static void test_random_operations_match_a_plain_directory(void **state)
{
	const char *seed = getenv("SLUICE_SEED"), *steps = getenv("SLUICE_STEPS");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : clock_random() % 1000000;

	(void)state;
	log_set_level(LOG_ERROR);
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)first);
	for (uint64_t i = 0; i < (seed ? 1 : 4); i++)
		run(first + i, steps ? atoi(steps) : 250);
}

TEST_MAIN(cmocka_unit_test(test_random_operations_match_a_plain_directory))
