/* SPDX-License-Identifier: Apache-2.0 */
/* What was stored, over processes that end anywhere and disks that take nothing. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "cache/ledger.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/receipt.h"

struct rig {
	char dir[64];
	int dirfd;
	void *memory;
	struct ledger *l;
};

static void set_up(struct rig *t)
{
	*t = (struct rig){.dir = "/tmp/sluice-ledger.XXXXXX"};
	assert_non_null(mkdtemp(t->dir));
	t->dirfd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(t->dirfd >= 0);
	t->memory = mmap(NULL, ledger_memory_size(), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(t->memory, MAP_FAILED);
	assert_int_equal(ledger_open(t->dirfd, t->memory, false, &t->l), 0);
}

static void tear_down(struct rig *t)
{
	ledger_close(t->l);
	assert_int_equal(faccessat(t->dirfd, LEDGER_FILE, F_OK, 0), -1);
	munmap(t->memory, ledger_memory_size());
	close(t->dirfd);
	assert_int_equal(rmdir(t->dir), 0);
}

/* The process is gone, and only what it leaves counts: so the file stays, too. */
static void next_process(struct rig *t)
{
	assert_int_equal(linkat(t->dirfd, LEDGER_FILE, t->dirfd, "kept", 0), 0);
	ledger_close(t->l);
	assert_int_equal(renameat(t->dirfd, "kept", t->dirfd, LEDGER_FILE), 0);
	assert_int_equal(ledger_open(t->dirfd, t->memory, true, &t->l), 0);
}

static void note(struct rig *t, const char *key, uint64_t size)
{
	const struct ledger_line line = {
		.key = key, .etag = "5D41402ABC4B2A76", .size = size, .crc64 = ~size};

	ledger_note(t->l, &line);
}

static int tell(void *arg, const struct ledger_line *line)
{
	assert_string_equal(line->etag, "5D41402ABC4B2A76");
	assert_int_equal(line->crc64, ~line->size);
	buf_printf(arg, "%s=%llu ", line->key, (unsigned long long)line->size);
	return 0;
}

/* All lines, as "key=size " each. */
static void expect(struct rig *t, const char *lines, uint64_t left_out)
{
	struct buf b = BUF_INIT;
	struct ledger_view *v;

	buf_puts(&b, "");
	assert_int_equal(ledger_look(t->l, &v), 0);
	assert_int_equal(ledger_view_each(v, tell, &b), 0);
	assert_string_equal(b.len ? b.data : "", lines);
	assert_int_equal(ledger_view_left_out(v), left_out);
	ledger_view_free(v);
	buf_fini(&b);
}

static void test_the_last_word_on_a_key_counts(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	expect(&t, "", 0);
	note(&t, "a", 1);
	note(&t, "b", 2);
	expect(&t, "a=1 b=2 ", 0);
	note(&t, "a", 3);
	note(&t, "c/d", 4);
	ledger_forget(t.l, "b");
	ledger_forget(t.l, "never there");
	expect(&t, "a=3 c/d=4 ", 0);
	note(&t, "b", 5);
	expect(&t, "a=3 c/d=4 b=5 ", 0);
	tear_down(&t);
}

static void test_the_next_process_goes_on_and_the_next_mount_does_not(void **state)
{
	struct rig t;

	(void)state;
	set_up(&t);
	note(&t, "written", 1);
	expect(&t, "written=1 ", 0);
	note(&t, "gathered", 2);
	next_process(&t);
	note(&t, "new", 3);
	expect(&t, "written=1 gathered=2 new=3 ", 0);
	next_process(&t);
	expect(&t, "written=1 gathered=2 new=3 ", 0);
	ledger_close(t.l);
	memset(t.memory, 0, 4096);
	assert_int_equal(ledger_open(t.dirfd, t.memory, false, &t.l), 0);
	expect(&t, "", 0);
	tear_down(&t);
}

/* Files of this process cannot grow beyond. */
static void limit_files(rlim_t bytes)
{
	const struct rlimit limit = {bytes, RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_a_write_that_was_cut_off_is_made_again(void **state)
{
	struct stat st;
	struct rig t;

	(void)state;
	set_up(&t);
	note(&t, "a", 1);
	expect(&t, "a=1 ", 0);
	note(&t, "b", 2);
	note(&t, "c", 3);
	limit_files(60);
	expect(&t, "a=1 ", 2);
	assert_int_equal(fstatat(t.dirfd, LEDGER_FILE, &st, 0), 0);
	assert_int_equal(st.st_size, 60);
	limit_files(RLIM_INFINITY);
	note(&t, "d", 4);
	next_process(&t);
	expect(&t, "a=1 b=2 c=3 d=4 ", 0);
	tear_down(&t);
}

static void test_damage_is_counted(void **state)
{
	struct rig t;
	int fd;

	(void)state;
	set_up(&t);
	note(&t, "a", 1);
	note(&t, "b", 2);
	expect(&t, "a=1 b=2 ", 0);
	fd = openat(t.dirfd, LEDGER_FILE, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 60), 1);
	close(fd);
	expect(&t, "", 2);
	next_process(&t);
	note(&t, "c", 3);
	expect(&t, "a=1 c=3 ", 1);
	tear_down(&t);
}

static void test_what_cannot_be_written_is_kept_and_then_counted(void **state)
{
	struct ledger_view *v;
	char key[1024];
	struct rig t;

	(void)state;
	set_up(&t);
	note(&t, "a", 1);
	expect(&t, "a=1 ", 0);
	limit_files(0);
	note(&t, "b", 2);
	expect(&t, "a=1 ", 1);
	limit_files(RLIM_INFINITY);
	expect(&t, "a=1 b=2 ", 0);
	/* More than there is memory for. */
	limit_files(0);
	memset(key, 'k', 1000);
	for (int i = 0; i < 20000; i++) {
		snprintf(key + 1000, sizeof(key) - 1000, "%d", i);
		note(&t, key, 1);
		ledger_write(t.l);
	}
	limit_files(RLIM_INFINITY);
	assert_int_equal(ledger_look(t.l, &v), 0);
	assert_true(ledger_view_left_out(v) > 0);
	assert_int_equal(ledger_view_left_out(v) + ledger_view_count(v), 20002);
	ledger_view_free(v);
	tear_down(&t);
}

static void test_the_file_stays_as_long_as_the_list(void **state)
{
	struct buf b = BUF_INIT;
	struct ledger_view *old, *v;
	char key[1024];
	struct stat st;
	struct rig t;

	(void)state;
	set_up(&t);
	note(&t, "first", 0);
	note(&t, "gone", 0);
	assert_int_equal(ledger_look(t.l, &old), 0);
	ledger_forget(t.l, "gone");
	memset(key, 'k', 1000);
	for (int i = 0; i < 100000; i++) {
		snprintf(key + 1000, sizeof(key) - 1000, "%d", i % 5);
		note(&t, key, (uint64_t)i);
		ledger_write(t.l);
	}
	assert_int_equal(fstatat(t.dirfd, LEDGER_FILE, &st, 0), 0);
	assert_in_range(st.st_size, 1, 20 << 20);
	next_process(&t);
	assert_int_equal(ledger_look(t.l, &v), 0);
	assert_int_equal(ledger_view_count(v), 6);
	assert_int_equal(ledger_view_left_out(v), 0);
	assert_int_equal(ledger_view_each(v, tell, &b), 0);
	assert_non_null(strstr(b.data, "0=99995 "));
	assert_non_null(strstr(b.data, "4=99999 "));
	ledger_view_free(v);
	buf_reset(&b);
	assert_int_equal(ledger_view_each(old, tell, &b), 0);
	assert_string_equal(b.data, "first=0 gone=0 ");
	ledger_view_free(old);
	buf_fini(&b);
	tear_down(&t);
}

/* ---- deaths ---------------------------------------------------------------------------- */

#define KEYS 40
#define STEPS 60000

/* Step i changes key i % KEYS; every seventh forgets it. *done: steps that were taken. */
static void work(struct rig *t, _Atomic uint32_t *done)
{
	char key[400];

	memset(key, 'k', 300);
	while (*done < STEPS) {
		uint32_t i = *done;

		snprintf(key + 300, sizeof(key) - 300, "%u", i % KEYS);
		if (i % 7 == 0)
			ledger_forget(t->l, key);
		else
			note(t, key, i);
		++*done;
		ledger_write(t->l);
	}
}

struct seen {
	uint64_t size[KEYS];
};

static int see(void *arg, const struct ledger_line *line)
{
	struct seen *s = arg;
	int i = atoi(line->key + 300);

	assert_in_range(i, 0, KEYS - 1);
	assert_int_equal(s->size[i], 0);
	s->size[i] = line->size;
	return 0;
}

static void compare(struct rig *t, uint32_t done)
{
	struct seen s = {{0}};
	struct ledger_view *v;

	assert_int_equal(ledger_look(t->l, &v), 0);
	assert_int_equal(ledger_view_left_out(v), 0);
	assert_int_equal(ledger_view_each(v, see, &s), 0);
	ledger_view_free(v);
	for (uint32_t k = 0; k < KEYS; k++) {
		uint32_t last = (done - 1) - (done - 1 - k) % KEYS;

		/* The step that it died in may have been noted. */
		if (k == done % KEYS && s.size[k] == (done % 7 == 0 ? 0 : done))
			continue;
		assert_int_equal(s.size[k], last % 7 == 0 ? 0 : last);
	}
}

/* At that kill point, or after so long. */
static void die_at(const char *point, uint32_t after_us)
{
	void *shared = mmap(NULL, sizeof(uint32_t), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	_Atomic uint32_t *done = shared;
	struct rig t;
	int status;
	pid_t pid;

	set_up(&t);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (point)
			setenv("SLUICE_KILL_AT", point, 1);
		kill_point_init();
		work(&t, done);
		_exit(0);
	}
	while (!point && *done <= KEYS)
		usleep(100);
	if (!point) {
		usleep(after_us);
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (point && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL))
		fail_msg("%s was not reached", point);
	next_process(&t);
	compare(&t, *done);
	work(&t, done);
	compare(&t, STEPS);
	munmap(shared, sizeof(uint32_t));
	tear_down(&t);
}

static void test_nothing_is_lost_with_the_process(void **state)
{
	(void)state;
	die_at("ledger.write.before", 0);
	die_at("ledger.write.before:7", 0);
	die_at("ledger.write.after", 0);
	die_at("ledger.write.after:9", 0);
	die_at("ledger.rename.before", 0);
	die_at("ledger.rename.after", 0);
	for (int i = 0; i < 20; i++)
		die_at(NULL, (uint32_t)(clock_random() % 50000));
}

/* ---- the receipt ----------------------------------------------------------------------- */

static int join(void *arg, const char *text, size_t n)
{
	struct buf *b = arg;

	assert_in_range(n, 1, 64 << 10);
	if (b->len > 1)
		buf_putc(b, ',');
	buf_append(b, text, n);
	return 0;
}

static void test_a_receipt_comes_in_pieces(void **state)
{
	struct buf object = BUF_INIT, files = BUF_INIT;
	struct ledger_view *v;
	struct receipt *r;
	uint64_t unread = 7;
	char key[32];
	struct rig t;

	(void)state;
	set_up(&t);
	note(&t, "a \"quoted\" one", 7);
	for (int i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "key-%d", i);
		note(&t, key, 1);
	}
	assert_int_equal(ledger_look(t.l, &v), 0);
	buf_puts(&object, "{\"status\":\"stored\"");
	assert_int_equal(receipt_new(&object, v, &r), 0);
	assert_int_equal(receipt_files(r, join, &files, &unread), 0);
	assert_int_equal(unread, 0);
	assert_memory_equal(files.data,
			    "{\"key\":\"a \\\"quoted\\\" one\",\"size\":7,\"crc64\":"
			    "\"18446744073709551608\",\"etag\":\"5D41402ABC4B2A76\"},"
			    "{\"key\":\"key-0\",",
			    100);
	assert_string_equal(strrchr(files.data, '{') + 1,
			    "\"key\":\"key-4999\",\"size\":1,\"crc64\":"
			    "\"18446744073709551614\",\"etag\":\"5D41402ABC4B2A76\"}");
	receipt_object(r, unread, &object);
	assert_string_equal(object.data, "{\"status\":\"stored\",\"files_left_out\":0}");
	receipt_free(r);
	buf_fini(&object);
	buf_fini(&files);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_the_last_word_on_a_key_counts),
	  cmocka_unit_test(test_the_next_process_goes_on_and_the_next_mount_does_not),
	  cmocka_unit_test(test_a_write_that_was_cut_off_is_made_again),
	  cmocka_unit_test(test_damage_is_counted),
	  cmocka_unit_test(test_what_cannot_be_written_is_kept_and_then_counted),
	  cmocka_unit_test(test_the_file_stays_as_long_as_the_list),
	  cmocka_unit_test(test_nothing_is_lost_with_the_process),
	  cmocka_unit_test(test_a_receipt_comes_in_pieces))
