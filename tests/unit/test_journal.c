/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/journal.h"
#include "cache/segment.h"
#include "fs/base/buf.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define NODES_MAX 4096

/* An owner whose state is one version per ino, each value set by one append. */
struct owner {
	char dir[64];
	int dirfd, quarantine_fd;
	struct journal *journal;
	struct journal_report report;
	pthread_mutex_t lock;
	uint64_t versions[NODES_MAX]; /* 0: no such node */
	uint64_t replayed[NODES_MAX];
};

static void encode(struct buf *b, uint64_t ino, uint64_t version)
{
	struct record r = {.type = RECORD_NODE,
			   .ino = ino,
			   .version = version,
			   .name = "a name",
			   .stored_key = "key",
			   .stored_etag = "etag"};

	record_encode(b, &r);
}

static int replay(void *arg, const struct record *r)
{
	struct owner *o = arg;

	assert_true(r->ino < NODES_MAX);
	if (r->type == RECORD_NODE)
		o->replayed[r->ino] = r->version;
	else
		o->replayed[r->ino] = 0;
	return 0;
}

static void snapshot(void *arg, struct buf *b)
{
	struct owner *o = arg;

	pthread_mutex_lock(&o->lock);
	for (uint64_t i = 0; i < NODES_MAX; i++) {
		if (o->versions[i])
			encode(b, i, o->versions[i]);
	}
	journal_snapshot_taken(o->journal);
	pthread_mutex_unlock(&o->lock);
}

static int try_open(struct owner *o, const char *source, struct why *why)
{
	struct journal_config config = {.dirfd = o->dirfd,
					.quarantine_fd = o->quarantine_fd,
					.source = source,
					.log_size_min = 16384,
					.arg = o,
					.replay = replay,
					.snapshot = snapshot};

	memset(o->replayed, 0, sizeof(o->replayed));
	return journal_open(&config, &o->journal, &o->report, why);
}

static void reopen(struct owner *o)
{
	struct why why = {""};

	assert_int_equal(try_open(o, "mem:", &why), 0);
}

static void start(struct owner *o)
{
	memcpy(o->versions, o->replayed, sizeof(o->versions));
	assert_int_equal(journal_start(o->journal), 0);
}

static void set_up(struct owner *o)
{
	*o = (struct owner){.dir = "/tmp/sluice-journal.XXXXXX"};
	pthread_mutex_init(&o->lock, NULL);
	assert_non_null(mkdtemp(o->dir));
	o->dirfd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(o->dirfd, "q", 0700), 0);
	o->quarantine_fd = openat(o->dirfd, "q", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void tear_down(struct owner *o)
{
	o->journal = journal_close(o->journal);
	close(o->dirfd);
	close(o->quarantine_fd);
	io_remove_tree(AT_FDCWD, o->dir);
}

static uint64_t append(struct owner *o, uint64_t ino, uint64_t version)
{
	struct buf b = BUF_INIT;
	struct record drop = {.type = RECORD_DROP, .ino = ino};
	uint64_t seq;

	pthread_mutex_lock(&o->lock);
	if (version)
		encode(&b, ino, version);
	else
		record_encode(&b, &drop);
	assert_int_equal(journal_append(o->journal, &b, &seq), 0);
	o->versions[ino] = version;
	pthread_mutex_unlock(&o->lock);
	buf_fini(&b);
	return seq;
}

/* What kill -9 leaves: the descriptors vanish, nothing is written any more. The journal
 * itself leaks, as it would. */
static char *crash_image(struct owner *o, size_t *n)
{
	struct buf b = BUF_INIT;
	char name[SEGMENT_NAME_MAX];

	segment_name(name, 1, "wal");
	assert_int_equal(io_read_file(o->dirfd, name, 64 << 20, &b), 0);
	*n = b.len;
	return b.data;
}

static void put_image(struct owner *o, const char *p, size_t n)
{
	char name[SEGMENT_NAME_MAX];
	int fd;

	segment_name(name, 1, "wal");
	fd = openat(o->dirfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(io_pwrite(fd, p, n, 0), 0);
	close(fd);
}

static void test_a_synced_record_is_replayed(void **state)
{
	struct owner o;

	(void)state;
	set_up(&o);
	reopen(&o);
	assert_true(o.report.fresh);
	start(&o);
	append(&o, 1, 7);
	append(&o, 2, 8);
	assert_int_equal(journal_sync(o.journal, append(&o, 1, 9)), 0);
	assert_int_equal(journal_sync(o.journal, append(&o, 2, 0)), 0);
	o.journal = journal_close(o.journal);
	reopen(&o);
	assert_true(o.report.closed);
	assert_false(o.report.fresh);
	assert_int_equal(o.replayed[1], 9);
	assert_int_equal(o.replayed[2], 0);
	assert_int_equal(o.report.damaged, 0);
	tear_down(&o);
}

static void test_a_long_log_gives_way_to_a_snapshot(void **state)
{
	struct journal_stats stats;
	struct owner o;

	(void)state;
	set_up(&o);
	reopen(&o);
	start(&o);
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(journal_sync(o.journal, append(&o, i % 10, i + 1)), 0);
	journal_stats(o.journal, &stats);
	assert_true(stats.snapshots > 4);
	assert_true(stats.segment_bytes < 65536);
	o.journal = journal_close(o.journal);
	reopen(&o);
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(o.replayed[i], 491 + i);
	tear_down(&o);
}

struct writer {
	struct owner *o;
	uint64_t ino;
};

static void *write_many(void *arg)
{
	struct writer *w = arg;

	for (uint64_t v = 1; v <= 50; v++) {
		if (journal_sync(w->o->journal, append(w->o, w->ino, v)) != 0)
			return w; /* failed */
	}
	return NULL;
}

static void test_writers_that_meet_share_a_sync(void **state)
{
	struct journal_stats stats;
	pthread_t threads[8];
	struct writer writers[8];
	struct owner o;
	void *failed;

	(void)state;
	set_up(&o);
	reopen(&o);
	start(&o);
	for (int i = 0; i < 8; i++) {
		writers[i] = (struct writer){&o, (uint64_t)i + 1};
		pthread_create(&threads[i], NULL, write_many, &writers[i]);
	}
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	journal_stats(o.journal, &stats);
	assert_int_equal(stats.appends, 400);
	assert_true(stats.commits < 400);
	o.journal = journal_close(o.journal);
	reopen(&o);
	for (int i = 0; i < 8; i++)
		assert_int_equal(o.replayed[i + 1], 50);
	tear_down(&o);
}

/* Five records, each in its own frame; the image as a crash leaves it. */
static char *five_records(struct owner *o, size_t *n)
{
	reopen(o);
	start(o);
	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(journal_sync(o->journal, append(o, i, i)), 0);
	return crash_image(o, n);
}

static int count_replayed(const struct owner *o)
{
	int count = 0;

	for (int i = 1; i <= 5; i++)
		count += o->replayed[i] == (uint64_t)i;
	return count;
}

static void close_quietly(struct owner *o)
{
	/* Not started: nothing is written. */
	o->journal = journal_close(o->journal);
}

static void test_a_journal_cut_anywhere_keeps_a_prefix(void **state)
{
	int last = 0;
	struct owner o;
	char *image;
	size_t n;

	(void)state;
	set_up(&o);
	image = five_records(&o, &n);
	o.journal = journal_close(o.journal);
	for (size_t cut = 1024; cut < 1024 + 6 * 512; cut += 64) {
		int count;

		io_remove_tree(o.dirfd, "q");
		mkdirat(o.dirfd, "q", 0700);
		close(o.quarantine_fd);
		o.quarantine_fd = openat(o.dirfd, "q", O_RDONLY | O_DIRECTORY);
		put_image(&o, image, cut);
		reopen(&o);
		count = count_replayed(&o);
		for (int i = 1; i <= 5; i++)
			assert_int_equal(o.replayed[i], i <= count ? i : 0);
		assert_true(count >= last);
		assert_int_equal(o.report.damaged, 0);
		last = count;
		close_quietly(&o);
	}
	assert_int_equal(last, 5);
	free(image);
	tear_down(&o);
}

static void test_a_flipped_byte_anywhere_loses_one_frame_at_most(void **state)
{
	struct owner o;
	char *image;
	size_t n;

	(void)state;
	set_up(&o);
	image = five_records(&o, &n);
	o.journal = journal_close(o.journal);
	/* Frames: header, end of the snapshot, five records; 512 bytes each. */
	log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC)); /* a line for each */
	for (size_t at = 0; at < 7 * 512; at += 13) {
		bool last_frame = at >= 6 * 512;
		int count;

		io_remove_tree(o.dirfd, "q");
		mkdirat(o.dirfd, "q", 0700);
		close(o.quarantine_fd);
		o.quarantine_fd = openat(o.dirfd, "q", O_RDONLY | O_DIRECTORY);
		image[at] = (char)(image[at] ^ 0x10);
		put_image(&o, image, n);
		image[at] = (char)(image[at] ^ 0x10);
		reopen(&o);
		count = count_replayed(&o);
		assert_true(count >= 4);
		/* Nothing is lost in silence. */
		if (count < 5)
			assert_true(last_frame ? o.report.torn_bytes > 0
					       : o.report.damaged == 1);
		if (o.report.damaged || o.report.torn_bytes)
			assert_int_equal(
				faccessat(o.quarantine_fd, o.report.quarantined, F_OK, 0),
				0);
		close_quietly(&o);
	}
	free(image);
	tear_down(&o);
}

static void test_the_state_of_another_source_is_refused(void **state)
{
	struct why why = {""};
	struct owner o;

	(void)state;
	set_up(&o);
	reopen(&o);
	start(&o);
	o.journal = journal_close(o.journal);
	assert_int_equal(try_open(&o, "oss://other", &why), -EINVAL);
	assert_non_null(strstr(why.text, "mem:"));
	tear_down(&o);
}

/* The one record in `b`, which no shorter part of it is. */
static void decode_whole(const struct buf *b, struct record *out)
{
	const char *p;
	size_t n;

	for (size_t cut = 0; cut < b->len; cut++) {
		p = b->data;
		n = cut;
		assert_int_equal(record_decode(&p, &n, out), -EBADMSG);
	}
	p = b->data;
	n = b->len;
	assert_int_equal(record_decode(&p, &n, out), 0);
	assert_int_equal(n, 0);
}

static void test_records_survive_encoding(void **state)
{
	struct buf b = BUF_INIT;
	struct record out;
	struct record in = {.type = RECORD_NODE,
			    .ino = 77,
			    .kind = RECORD_SYMLINK,
			    .flags = RECORD_LINKED | RECORD_HAS_STORED,
			    .parent = 3,
			    .name = "n\xff",
			    .mode = 0120777,
			    .uid = 1,
			    .gid = 2,
			    .mtime_ns = -5,
			    .ctime_ns = 6,
			    .version = 7,
			    .stored_version = 8,
			    .content = 9,
			    .content_size = 10,
			    .pending_ns = 11,
			    .target = "../t",
			    .stored_key = "a/b",
			    .stored_etag = "E",
			    .stored_size = 12,
			    .stored_crc64 = 13,
			    .stored_mtime_ns = 14};

	(void)state;
	record_encode(&b, &in);
	decode_whole(&b, &out);
	assert_string_equal(out.name, in.name);
	assert_string_equal(out.target, in.target);
	assert_string_equal(out.stored_key, in.stored_key);
	assert_int_equal(out.mtime_ns, in.mtime_ns);
	assert_int_equal(out.stored_crc64, in.stored_crc64);
	assert_int_equal(out.stored_mtime_ns, in.stored_mtime_ns);
	assert_int_equal(out.pending_ns, in.pending_ns);
	assert_int_equal(out.flags, in.flags);
	buf_fini(&b);
}

struct later {
	struct journal_waiter journal;
	pthread_mutex_t *lock;
	pthread_cond_t *cond;
	int *left, result;
};

static void note_result(struct journal_waiter *w, int result)
{
	struct later *l = (struct later *)w;

	pthread_mutex_lock(l->lock);
	l->result = result;
	--*l->left;
	pthread_cond_signal(l->cond);
	pthread_mutex_unlock(l->lock);
}

/* Who does not wait is told once, and what was promised is there after a restart. */
static void test_waiters_are_told_when_it_is_durable(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
	struct later later[50];
	struct journal_stats stats;
	struct owner o;
	int left = 50;

	(void)state;
	set_up(&o);
	reopen(&o);
	start(&o);
	for (int i = 0; i < 50; i++) {
		later[i] = (struct later){.journal = {.done = note_result},
					  .lock = &lock,
					  .cond = &cond,
					  .left = &left,
					  .result = 1};
		later[i].journal.seq =
			append(&o, 1 + (uint64_t)i % 5, 1 + (uint64_t)i / 5);
		if (!journal_sync_later(o.journal, &later[i].journal))
			note_result(&later[i].journal, 0);
	}
	pthread_mutex_lock(&lock);
	while (left > 0)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < 50; i++)
		assert_int_equal(later[i].result, 0);
	assert_false(journal_sync_later(o.journal, &later[0].journal));
	journal_stats(o.journal, &stats);
	assert_true(stats.commits <= 51);
	o.journal = journal_close(o.journal);
	reopen(&o);
	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(o.replayed[i], 10);
	tear_down(&o);
}

static void test_data_survives_encoding(void **state)
{
	struct buf b = BUF_INIT;
	struct record out;
	struct record in = {.type = RECORD_DATA,
			    .ino = 5,
			    .version = 6,
			    .data = "a\0b\xff",
			    .content_size = 4};
	const char *p;
	size_t n;

	(void)state;
	record_encode(&b, &in);
	decode_whole(&b, &out);
	assert_int_equal(out.version, 6);
	assert_int_equal(out.content_size, 4);
	assert_memory_equal(out.data, in.data, 4);
	/* A size that does not fit the record. */
	b.data[24]++;
	p = b.data;
	n = b.len;
	assert_int_equal(record_decode(&p, &n, &out), -EBADMSG);
	buf_fini(&b);
}

TEST_MAIN(cmocka_unit_test(test_waiters_are_told_when_it_is_durable),
	  cmocka_unit_test(test_data_survives_encoding),
	  cmocka_unit_test(test_a_synced_record_is_replayed),
	  cmocka_unit_test(test_a_long_log_gives_way_to_a_snapshot),
	  cmocka_unit_test(test_writers_that_meet_share_a_sync),
	  cmocka_unit_test(test_a_journal_cut_anywhere_keeps_a_prefix),
	  cmocka_unit_test(test_a_flipped_byte_anywhere_loses_one_frame_at_most),
	  cmocka_unit_test(test_the_state_of_another_source_is_refused),
	  cmocka_unit_test(test_records_survive_encoding))
