/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when a process has no descriptor left for another file. */
#include "tests/unit/lib_output.h"

#include <sys/resource.h>

#include "cache/stage.h"

#define FEW 256 /* descriptors that the process may have */

struct hoard {
	int fds[FEW];
	int count;
};

/* Takes all that are left. */
static void hoard(struct hoard *h)
{
	int fd;

	h->count = 0;
	while ((fd = dup(STDERR_FILENO)) >= 0)
		h->fds[h->count++] = fd;
	assert_int_equal(errno, EMFILE);
}

static void give_back(struct hoard *h, int n)
{
	while (n-- > 0 && h->count > 0)
		close(h->fds[--h->count]);
}

static int few_descriptors(void **state)
{
	const struct rlimit few = {FEW, FEW};

	(void)state;
	return setrlimit(RLIMIT_NOFILE, &few);
}

static int create(struct rig *t, const char *name, struct output_file **f)
{
	struct tree_attr attr;
	int r = output_create(t->o, TREE_ROOT, name, 0644, O_CREAT | O_RDWR, me, 0, &attr,
			      f);

	if (r == 0)
		output_forget(t->o, attr.ino, 1);
	return r;
}

static void *give_later(void *arg)
{
	clock_sleep_ms(500);
	give_back(arg, 4);
	return NULL;
}

/* Something is on its way to the store, so there may be one soon. */
static void test_an_open_waits_for_a_descriptor(void **state)
{
	struct fault_rule slow = {.op = ORIGIN_PUT, .delay_ms = 1000};
	struct output_file *f;
	struct tree_attr attr;
	struct hoard h;
	pthread_t thread;
	uint64_t ino;
	struct rig t;

	(void)state;
	for (int i = 0; i < 3; i++) {
		set_up_faulty(&t);
		put(&t, "there", "there");
		drain(&t);
		fault_add(t.origin, &slow);
		put(&t, "pending", "pending");
		ino = walk(&t, "there", &attr);
		hoard(&h);
		assert_int_equal(pthread_create(&thread, NULL, give_later, &h), 0);
		attr.size = 0;
		if (i == 0)
			assert_int_equal(create(&t, "new", &f), 0);
		else if (i == 1)
			assert_int_equal(output_open(t.o, ino, O_RDWR | O_TRUNC, 0, &f),
					 0);
		else
			assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr),
					 0);
		pthread_join(thread, NULL);
		give_back(&h, h.count);
		fault_clear(t.origin);
		if (i < 2)
			close_file(f);
		drain(&t);
		tear_down(&t);
	}
}

/* Nothing is: then it says so, and nothing else breaks. */
static void test_without_a_descriptor_an_open_fails(void **state)
{
	struct output_file *f;
	struct tree_attr attr;
	struct hoard h;
	uint64_t ino;
	struct rig t;

	(void)state;
	set_up(&t);
	put(&t, "there", "there");
	drain(&t);
	restart(&t);
	ino = walk(&t, "there", &attr);
	hoard(&h);
	assert_int_equal(create(&t, "new", &f), -EMFILE);
	attr.size = 2;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr), -EMFILE);
	assert_int_equal(output_open(t.o, ino, O_RDWR | O_TRUNC, 0, &f), -EMFILE);
	give_back(&h, h.count);
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr), 0);
	drain(&t);
	lib_assert_content(t.origin, "there", "th");
	tear_down(&t);
}

/* Of a version on its way, which has a descriptor only while it is in use. */
static void test_without_a_descriptor_a_pending_file_stays(void **state)
{
	struct fault_rule away = {.op = ORIGIN_OP_N, .error = -ECONNREFUSED};
	static char data[2 * STAGE_CARRY_MAX];
	struct origin_attr stored;
	struct output_file *f;
	struct tree_attr attr;
	struct hoard h;
	uint64_t ino;
	struct rig t;

	(void)state;
	set_up_faulty(&t);
	assert_int_equal(create(&t, "large", &f), 0);
	fault_add(t.origin, &away);
	assert_int_equal(output_write(f, 0, data, sizeof(data), 0), 0);
	close_file(f);
	ino = walk(&t, "large", &attr);
	hoard(&h);
	attr.size = 2;
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr), -EMFILE);
	give_back(&h, h.count);
	assert_int_equal(output_setattr(t.o, ino, OUTPUT_SET_SIZE, &attr), 0);
	fault_clear(t.origin);
	drain(&t);
	assert_int_equal(lib_stat(t.origin, "large", &stored), 0);
	assert_int_equal(stored.size, 2);
	tear_down(&t);
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < FEW; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* What waits to be removed does so without descriptors, however long that takes. */
static void test_removed_files_keep_few_descriptors(void **state)
{
	char dir[] = "/tmp/sluice-stage.XXXXXX";
	struct stage_config config = {0};
	struct content *c;
	struct stage *s;
	int before;

	(void)state;
	assert_non_null(mkdtemp(dir));
	config.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(stage_new(&config, &s), 0);
	before = open_descriptors();
	for (int i = 0; i < 2 * FEW; i++) {
		assert_int_equal(stage_create(s, &c), 0);
		content_unpin(c);
		content_put(c, 0);
	}
	assert_in_range(open_descriptors(), before, before + FEW / 8);
	stage_reap(s, 0);
	assert_int_equal(open_descriptors(), before);
	stage_free(s);
	close(config.dirfd);
	io_remove_tree(AT_FDCWD, dir);
}

TEST_MAIN(cmocka_unit_test_setup(test_an_open_waits_for_a_descriptor, few_descriptors),
	  cmocka_unit_test_setup(test_without_a_descriptor_an_open_fails,
				 few_descriptors),
	  cmocka_unit_test_setup(test_without_a_descriptor_a_pending_file_stays,
				 few_descriptors),
	  cmocka_unit_test_setup(test_removed_files_keep_few_descriptors,
				 few_descriptors))
