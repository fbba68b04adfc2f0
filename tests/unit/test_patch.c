/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/patch.h"
#include "cache/record.h"
#include "cache/upload_plan.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"

#define SIZE 4096

static const struct patch_object object = {
	.etag = "E", .size = SIZE, .crc64 = 7, .has_crc64 = true};

static uint64_t random_below(uint64_t *state, uint64_t n)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * 2685821657736338717ull >> 33) % n;
}

static uint64_t seed(void)
{
	const char *text = getenv("SLUICE_SEED");
	uint64_t value = text ? strtoull(text, NULL, 10) : clock_random() % 1000000;

	print_message("SLUICE_SEED=%llu\n", (unsigned long long)value);
	return value * 2 + 1;
}

static void test_ranges_are_a_set_of_offsets(void **state)
{
	uint64_t random = seed();

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct ranges r = {0};
		bool in[64] = {false};
		uint64_t sum = 0;

		for (int i = 0; i < 20; i++) {
			uint64_t off = random_below(&random, 64);
			uint64_t end = off + random_below(&random, 64 - off + 1);

			if (random_below(&random, 6) == 0) {
				ranges_cut(&r, off);
				memset(in + off, 0, 64 - off);
				continue;
			}
			assert_int_equal(ranges_add(&r, off, end), 0);
			memset(in + off, 1, end - off);
		}
		for (uint64_t i = 0; i < 64; i++) {
			uint64_t end, want = i;

			assert_int_equal(ranges_at(&r, i, &end), in[i]);
			while (want < 64 && in[want] == in[i])
				want++;
			assert_int_equal(end, want == 64 && !in[i] ? UINT64_MAX : want);
			sum += in[i];
		}
		assert_int_equal(ranges_sum(&r), sum);
		if (r.count > 1) {
			ranges_coarsen(&r, 1);
			assert_int_equal(r.count, 1);
			assert_true(ranges_sum(&r) >= sum);
		}
		ranges_fini(&r);
	}
}

static void test_a_sparse_file_has_what_was_written(void **state)
{
	int fd = memfd_create("t", MFD_CLOEXEC);
	struct patch *p;
	uint64_t end;
	char c = 0;

	(void)state;
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(patch_new(&object, true, &p), 0);
	assert_false(patch_has(p, 0, &end));
	assert_int_equal(end, SIZE);
	assert_int_equal(patch_write(p, fd, "abc", 3, 10), 0);
	assert_true(patch_has(p, 10, &end));
	assert_int_equal(end, 13);
	assert_true(patch_same(p, 13, &end));
	assert_false(patch_same(p, 10, &end));
	/* The object's bytes do not cover what was written. */
	assert_int_equal(patch_fill(p, fd, "XXXXXXXX", 8, 8), 0);
	assert_int_equal(io_pread(fd, &c, 1, 11), 1);
	assert_int_equal(c, 'b');
	assert_int_equal(io_pread(fd, &c, 1, 13), 1);
	assert_int_equal(c, 'X');
	assert_false(patch_has(p, 13, &end));
	/* Behind the object, and behind what was cut off, all is the file's own. */
	assert_true(patch_has(p, SIZE, &end));
	patch_cut(p, 100);
	assert_true(patch_has(p, 100, &end));
	assert_int_equal(end, UINT64_MAX);
	patch_free(p);
	close(fd);
}

static void test_a_stored_version_is_the_new_object(void **state)
{
	int fd = memfd_create("t", MFD_CLOEXEC);
	struct patch_object now = {.etag = "N", .size = SIZE + 10};
	struct patch *p;
	uint64_t end;

	(void)state;
	assert_int_equal(patch_new(&object, true, &p), 0);
	assert_int_equal(patch_write(p, fd, "0123456789", 10, SIZE), 0);
	assert_int_equal(patch_write(p, fd, "ab", 2, 5), 0);
	assert_int_equal(patch_mark_late(p, 20, 22), 0);
	patch_stored(p, &now);
	assert_true(patch_same(p, 5, &end));
	assert_true(patch_same(p, SIZE + 9, &end));
	/* It may or may not be in the version that was stored. */
	assert_false(patch_same(p, 20, &end));
	/* What the file holds it still holds. */
	assert_true(patch_has(p, 5, &end));
	assert_int_equal(end, 7);
	assert_true(patch_has(p, SIZE, &end));
	assert_false(patch_has(p, 30, &end));
	patch_free(p);
	close(fd);
}

static void test_what_is_doubtful_and_changed_is_forgotten(void **state)
{
	struct patch *p;
	uint64_t end;

	(void)state;
	assert_int_equal(patch_new(&object, false, &p), 0);
	patch_doubt(p);
	assert_true(patch_is_doubtful(p));
	assert_true(patch_same(p, 0, &end));
	assert_int_equal(patch_mark_late(p, 1, 2), 0);
	assert_false(patch_is_doubtful(p));
	assert_false(patch_same(p, 0, &end));
	patch_free(p);
}

static uint64_t own_bytes(struct patch *p)
{
	struct ranges own;
	uint64_t sum;

	assert_int_equal(patch_own(p, &own), 0);
	sum = ranges_sum(&own);
	ranges_fini(&own);
	return sum;
}

/* A power cut would leave zeros in the place of the others, which the object has. */
static void test_only_durable_ranges_are_for_the_journal(void **state)
{
	struct patch_sync first = {0}, second = {0};
	int fd = memfd_create("t", MFD_CLOEXEC);
	struct patch *p, *late;
	struct ranges own;

	(void)state;
	assert_int_equal(ftruncate(fd, SIZE), 0);
	assert_int_equal(patch_new(&object, true, &p), 0);
	assert_int_equal(patch_write(p, fd, "0123456789", 10, 100), 0);
	assert_int_equal(own_bytes(p), 0);
	assert_int_equal(patch_sync_begin(p, &first), 0);
	assert_int_equal(patch_write(p, fd, "abc", 3, 200), 0);
	assert_int_equal(patch_sync_begin(p, &second), 0);
	patch_sync_end(p, &second, true);
	assert_int_equal(own_bytes(p), 13);
	/* It began earlier, and takes nothing back. */
	patch_sync_end(p, &first, true);
	assert_int_equal(own_bytes(p), 13);

	assert_int_equal(patch_write(p, fd, "late", 4, 300), 0);
	assert_int_equal(patch_sync_begin(p, &first), 0);
	patch_sync_end(p, &first, false);
	assert_int_equal(own_bytes(p), 13);
	/* A new daemon has all from the last one, and the journal's word for some of it. */
	assert_int_equal(patch_own(p, &own), 0);
	assert_int_equal(patch_restore(&object, SIZE, &own, &late), 0);
	ranges_fini(&own);
	assert_int_equal(patch_trust(p, late), 0);
	assert_int_equal(own_bytes(p), 13);
	patch_cut(p, 105);
	assert_int_equal(own_bytes(p), 5);
	patch_free(late);
	patch_free(p);
	close(fd);
}

struct filling {
	struct patch *patch;
	int fd;
	atomic_bool stop;
};

static void *keep_filling(void *arg)
{
	struct filling *f = arg;
	char data[SIZE];

	memset(data, 'x', sizeof(data));
	while (!atomic_load(&f->stop))
		patch_fill(f->patch, f->fd, data, SIZE, 0);
	return NULL;
}

static void test_a_hole_that_is_punched_is_not_filled(void **state)
{
	char got[SIZE];

	(void)state;
	for (int round = 0; round < 100; round++) {
		struct filling f = {.fd = memfd_create("file", MFD_CLOEXEC)};
		pthread_t thread;

		assert_int_equal(ftruncate(f.fd, SIZE), 0);
		assert_int_equal(patch_new(&object, true, &f.patch), 0);
		assert_int_equal(pthread_create(&thread, NULL, keep_filling, &f), 0);
		for (uint64_t at = 0; at < SIZE; at += 64)
			assert_int_equal(
				patch_zero(f.patch, f.fd,
					   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
					   32),
				0);
		atomic_store(&f.stop, true);
		pthread_join(thread, NULL);
		assert_int_equal(pread(f.fd, got, SIZE, 0), SIZE);
		for (uint64_t at = 0; at < SIZE; at += 64)
			assert_int_equal(got[at], 0);
		;
		patch_free(f.patch);
		close(f.fd);
	}
}

/* ---- plans -------------------------------------------------------------------------------- */

static void check_plan(struct patch *p, uint64_t size, const struct upload_rules *rules)
{
	struct upload_range *parts;
	uint64_t at = 0, end;
	uint32_t count;

	assert_int_equal(upload_plan(p, size, rules, &parts, &count), 0);
	assert_true(count <= ORIGIN_PART_COUNT_MAX);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(parts[i].off, at);
		assert_true(parts[i].size > 0);
		if (i + 1 < count)
			assert_true(parts[i].size >= rules->part_min);
		/* Nothing that changed is copied. */
		if (parts[i].copy) {
			assert_true(patch_same(p, at, &end));
			assert_true(end >= at + parts[i].size);
		}
		at += parts[i].size;
	}
	if (count > 0)
		assert_int_equal(at, size);
	free(parts);
}

static void test_plans_keep_the_rules_of_parts(void **state)
{
	uint64_t random = seed();

	(void)state;
	for (int round = 0; round < 500; round++) {
		struct patch_object o = {.etag = "E",
					 .size = 1 + random_below(&random, 8 << 20)};
		struct upload_rules rules = {
			.part_size = 200000 + random_below(&random, 1 << 20),
			.part_min = random_below(&random, 2) ? 102400 : 0,
			.copy_size = 200000 + random_below(&random, 4 << 20)};
		uint64_t size = o.size + random_below(&random, 2) * 300000;
		struct patch *p;

		assert_int_equal(patch_new(&o, random_below(&random, 2), &p), 0);
		for (uint64_t i = random_below(&random, 12); i > 0; i--) {
			uint64_t off = random_below(&random, o.size);

			patch_mark_late(p, off, off + random_below(&random, 200000));
		}
		if (random_below(&random, 4) == 0) {
			size = 1 + random_below(&random, o.size);
			patch_cut(p, size);
		}
		check_plan(p, size, &rules);
		patch_free(p);
	}
}

static void test_an_append_sends_the_tail(void **state)
{
	struct patch_object o = {.etag = "E", .size = 1u << 30};
	struct upload_rules rules = {8 << 20, 102400, 64 << 20};
	struct upload_range *parts;
	uint64_t sent = 0;
	struct patch *p;
	uint32_t count;

	(void)state;
	assert_int_equal(patch_new(&o, false, &p), 0);
	assert_int_equal(upload_plan(p, o.size + 1000, &rules, &parts, &count), 0);
	for (uint32_t i = 0; i < count; i++)
		sent += parts[i].copy ? 0 : parts[i].size;
	assert_int_equal(sent, 1000);
	assert_int_equal(count, 17);
	free(parts);
	patch_free(p);
}

static void test_many_changes_still_fit_into_one_upload(void **state)
{
	struct patch_object o = {.etag = "E", .size = 4ull << 30};
	struct upload_rules rules = {8 << 20, 102400, 64 << 20};
	struct patch *p;

	(void)state;
	assert_int_equal(patch_new(&o, false, &p), 0);
	for (uint64_t i = 0; i < PATCH_RANGES_MAX * 2; i++)
		patch_mark_late(p, i * 500000, i * 500000 + 1);
	check_plan(p, o.size, &rules);
	patch_free(p);
}

/* ---- in the journal ------------------------------------------------------------------------- */

static void test_ranges_survive_the_journal(void **state)
{
	struct ranges own = {0};
	struct record in = {.type = RECORD_RANGES,
			    .ino = 5,
			    .flags = RECORD_RANGES_CRC,
			    .content = 6,
			    .size = 1000,
			    .crc64 = 7,
			    .len = 900,
			    .etag = "E",
			    .own = &own};
	struct buf b = BUF_INIT;
	struct record out;
	const char *p;
	size_t n;

	(void)state;
	assert_int_equal(ranges_add(&own, 0, 10), 0);
	assert_int_equal(ranges_add(&own, 20, 900), 0);
	record_encode(&b, &in);
	for (size_t cut = 0; cut < b.len; cut++) {
		p = b.data;
		n = cut;
		assert_int_equal(record_decode(&p, &n, &out), -EBADMSG);
	}
	p = b.data;
	n = b.len;
	assert_int_equal(record_decode(&p, &n, &out), 0);
	assert_int_equal(out.range_count, 2);
	assert_int_equal(record_range(&out, 1).off, 20);
	assert_int_equal(record_range(&out, 1).end, 900);
	assert_int_equal(out.len, 900);
	assert_string_equal(out.etag, "E");
	/* Ranges that reach behind the object's part cannot be. */
	buf_reset(&b);
	in.len = 899;
	record_encode(&b, &in);
	p = b.data;
	n = b.len;
	assert_int_equal(record_decode(&p, &n, &out), -EBADMSG);
	buf_fini(&b);
	ranges_fini(&own);
}

TEST_MAIN(cmocka_unit_test(test_ranges_are_a_set_of_offsets),
	  cmocka_unit_test(test_a_sparse_file_has_what_was_written),
	  cmocka_unit_test(test_only_durable_ranges_are_for_the_journal),
	  cmocka_unit_test(test_a_hole_that_is_punched_is_not_filled),
	  cmocka_unit_test(test_a_stored_version_is_the_new_object),
	  cmocka_unit_test(test_what_is_doubtful_and_changed_is_forgotten),
	  cmocka_unit_test(test_plans_keep_the_rules_of_parts),
	  cmocka_unit_test(test_an_append_sends_the_tail),
	  cmocka_unit_test(test_many_changes_still_fit_into_one_upload),
	  cmocka_unit_test(test_ranges_survive_the_journal))
