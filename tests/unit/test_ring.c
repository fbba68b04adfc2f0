/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies from other threads than the one that took the request, for seconds and from many
 * readers: libfuse 3.18 hung in half of such runs over io_uring until it was patched
 * (scripts/patches). The tree is a fake; most reads of it have to wait for a worker.
 * The mix matters: both kinds of replies go into one submission queue.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/worker.h"
#include "fs/input.h"
#include "fs/mounts.h"
#include "fs/ops.h"
#include "fs/session.h"

#define READERS 8
#define RUN_MS 1000
#define HANG_MS 60000 /* from the end of the run: far more than a loaded machine needs */
#define FILE_INO 2
#define FILE_SIZE (1 << 30)
#define READ_SIZE 4096

/* ---- a tree of one file, whose content says where it is from --------------------------- */

static void fill_attr(uint64_t ino, struct tree_attr *attr)
{
	*attr = (struct tree_attr){
		.ino = ino,
		.mode = ino == TREE_ROOT ? S_IFDIR | 0755 : S_IFREG | 0444,
		.size = ino == TREE_ROOT ? 0 : FILE_SIZE,
		.nlink = 1,
		.ttl_ms = 60000,
	};
}

int input_lookup(struct input *in, uint64_t parent, const char *name, unsigned int flags,
		 struct tree_attr *attr)
{
	(void)in;
	(void)parent;
	(void)flags;
	if (strcmp(name, "file") != 0)
		return -ENOENT;
	fill_attr(FILE_INO, attr);
	return 0;
}

bool input_is_over(struct input *in)
{
	(void)in;
	return false;
}

size_t input_spare(struct input *in, uint64_t *out, uint64_t *parents, size_t max)
{
	(void)parents;
	(void)in;
	(void)out;
	(void)max;
	return 0;
}

void input_forget(struct input *in, uint64_t ino, uint64_t n)
{
	(void)in;
	(void)ino;
	(void)n;
}

int input_getattr(struct input *in, uint64_t ino, unsigned int flags,
		  struct tree_attr *attr)
{
	(void)in;
	(void)flags;
	fill_attr(ino, attr);
	return 0;
}

void input_on_wrong(struct input *in, void (*fn)(void *arg, uint64_t ino), void *arg)
{
	(void)in;
	(void)fn;
	(void)arg;
}

int input_open(struct input *in, uint64_t ino, unsigned int flags,
	       struct input_file **out)
{
	(void)ino;
	(void)flags;
	*out = (struct input_file *)in;
	return 0;
}

void input_close(struct input_file *file)
{
	(void)file;
}

int input_read(struct input_file *file, uint64_t off, void *p, size_t n,
	       unsigned int flags, size_t *got)
{
	(void)file;
	if ((flags & TREE_NOWAIT) && off / READ_SIZE % 8)
		return TREE_E_WAIT;
	for (size_t i = 0; i + sizeof(off) <= n; i += sizeof(off)) {
		uint64_t at = off + i;

		memcpy((char *)p + i, &at, sizeof(at));
	}
	*got = n;
	return 0;
}

bool input_is_small(const struct input_file *file)
{
	(void)file;
	return false;
}

int input_backing_fd(struct input_file *file, unsigned int flags, int *fd)
{
	(void)file;
	(void)flags;
	(void)fd;
	return -ENODATA;
}

int input_name(struct input *in, uint64_t ino, struct inodes_name *out)
{
	(void)in;
	(void)ino;
	(void)out;
	return -ESTALE;
}

int input_readlink(struct input *in, uint64_t ino, unsigned int flags, char *target,
		   size_t target_size)
{
	(void)in;
	(void)ino;
	(void)flags;
	(void)target;
	(void)target_size;
	return -EINVAL;
}

int input_opendir(struct input *in, uint64_t ino, unsigned int flags,
		  struct input_dir **out)
{
	(void)in;
	(void)ino;
	(void)flags;
	(void)out;
	return -ENOTDIR;
}

int input_readdir(struct input_dir *dir, uint64_t cookie, bool with_lookup,
		  unsigned int flags, tree_fill_fn fill, void *arg)
{
	(void)dir;
	(void)cookie;
	(void)with_lookup;
	(void)flags;
	(void)fill;
	(void)arg;
	return 0;
}

void input_closedir(struct input_dir *dir)
{
	(void)dir;
}

void input_set_token(uint64_t token)
{
	(void)token;
}

void input_interrupt(struct input *in, uint64_t token)
{
	(void)in;
	(void)token;
}

void input_stats(struct input *in, struct input_stats *stats)
{
	(void)in;
	*stats = (struct input_stats){0};
}

/* ---- readers --------------------------------------------------------------------------- */

struct rig {
	char dir[64];
	struct ops *ops;
	struct session *session;
	pthread_t loop;
	_Atomic uint64_t reads, wrong;
	_Atomic int running;
	uint64_t until_ms;
};

static void *read_for_a_while(void *arg)
{
	struct rig *rig = arg;
	char path[96];
	uint64_t words[READ_SIZE / sizeof(uint64_t)];
	int fd;

	snprintf(path, sizeof(path), "%s/file", rig->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		atomic_fetch_add(&rig->wrong, 1);
	/* Each at least once, however busy the machine is. */
	for (bool again = fd >= 0; again; again = clock_mono_ms() < rig->until_ms) {
		uint64_t off = clock_random() % (FILE_SIZE / READ_SIZE) * READ_SIZE;

		if (pread(fd, words, READ_SIZE, (off_t)off) != READ_SIZE ||
		    words[0] != off || words[READ_SIZE / 8 - 1] != off + READ_SIZE - 8)
			atomic_fetch_add(&rig->wrong, 1);
		atomic_fetch_add(&rig->reads, 1);
	}
	if (fd >= 0)
		close(fd);
	atomic_fetch_sub(&rig->running, 1);
	return NULL;
}

static void *loop(void *arg)
{
	return (void *)(intptr_t)session_loop(arg);
}

static void mount_rig(struct rig *rig, bool uring)
{
	const struct session_config config = {
		.dir = rig->dir,
		.source = "test",
		.local_dir = "/",
		.read_only = true,
		.uring_wanted = uring,
		.loop_threads = 1,
	};
	const struct ops_config ops = {.input = (struct input *)rig, .thread_count = 2};
	struct why why = {""};

	strcpy(rig->dir, "/tmp/sluice-ring.XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	assert_int_equal(ops_new(&ops, &rig->ops), 0);
	if (session_open(&config, &ops_input_table, rig->ops, &rig->session, &why) < 0)
		fail_msg("%s", why.text);
	ops_set_session(rig->ops, rig->session);
	assert_int_equal(pthread_create(&rig->loop, NULL, loop, rig->session), 0);
}

static bool uring_used(struct rig *rig)
{
	struct buf b = BUF_INIT;
	bool used;

	buf_puts(&b, "{");
	session_status_json(rig->session, &b);
	used = strstr(b.data, "\"io_uring\":{\"used\":true") != NULL;
	buf_fini(&b);
	return used;
}

#define PARAMETER "/sys/module/fuse/parameters/enable_uring"

/* The kernel's switch: 0 where there is none. */
static char read_switch(void)
{
	char value = 0;
	int fd = open(PARAMETER, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, &value, 1) != 1)
		value = 0;
	if (fd >= 0)
		close(fd);
	return value;
}

static void write_switch(char value)
{
	int fd = open(PARAMETER, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, &value, 1) != 1)
		print_message("enable_uring not set: %s\n", strerror(errno));
	close(fd);
}

/* It takes every cycle it gets; the tests beside it are measured by the clock. */
static void be_nice(void)
{
	errno = 0;
	if (nice(15) < 0 && errno)
		print_message("nice: %s\n", strerror(errno));
}

static void run(bool uring)
{
	struct rig rig = {.running = READERS};
	pthread_t readers[READERS];
	struct mounts_entry entry;
	bool hung, used;

	if (geteuid() != 0)
		skip();
	be_nice();
	mount_rig(&rig, uring);
	rig.until_ms = clock_mono_ms() + RUN_MS;
	for (int i = 0; i < READERS; i++)
		assert_int_equal(
			pthread_create(&readers[i], NULL, read_for_a_while, &rig), 0);
	while (atomic_load(&rig.running) && clock_mono_ms() < rig.until_ms + HANG_MS)
		clock_sleep_ms(20);
	hung = atomic_load(&rig.running) > 0;
	if (hung && mounts_find(rig.dir, &entry) == 0)
		mounts_abort(entry.minor);
	for (int i = 0; i < READERS; i++)
		pthread_join(readers[i], NULL);
	if (hung) { /* the library's threads too: nothing of it can be joined */
		umount2(rig.dir, MNT_DETACH);
		rmdir(rig.dir);
		fail_msg("readers hung after %llu reads", (unsigned long long)rig.reads);
	}
	used = uring_used(&rig);
	session_detach(rig.session);
	pthread_join(rig.loop, NULL);
	ops_free(rig.ops);
	session_free(rig.session);
	rmdir(rig.dir);
	print_message("%s: %llu reads\n", uring ? "io_uring" : "classic",
		      (unsigned long long)rig.reads);
	assert_int_equal(rig.wrong, 0);
	assert_int_equal(used, uring);
	assert_in_range(rig.reads, READERS, UINT64_MAX);
}

static void test_replies_of_workers_reach_readers(void **state)
{
	(void)state;
	run(false);
}

/* Over io_uring, which the kernel has switched off at boot. */
static void test_replies_of_workers_reach_readers_over_io_uring(void **state)
{
	char before = read_switch();

	(void)state;
	if (!FUSE_HAS_URING || !before || geteuid() != 0)
		skip();
	if (before == 'N')
		write_switch('Y');
	run(true);
	if (before == 'N')
		write_switch('N');
}

TEST_MAIN(cmocka_unit_test(test_replies_of_workers_reach_readers),
	  cmocka_unit_test(test_replies_of_workers_reach_readers_over_io_uring))
