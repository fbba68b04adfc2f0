/* SPDX-License-Identifier: Apache-2.0 */
/* The formats on disk, each module by itself: identity, block, disk, datafile, pack, index. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/block.h"
#include "cache/datafile.h"
#include "cache/disk.h"
#include "cache/ident.h"
#include "cache/index.h"
#include "cache/pack.h"
#include "fs/base/io.h"

#define MIB (1u << 20)

struct world {
	char dir[64];
	struct disk *disk;
};

static void open_disk(struct world *w, uint64_t size_max, uint64_t free_min)
{
	struct disk_config config = {w->dir, size_max, free_min};
	struct why why = {0};

	assert_int_equal(disk_open(&config, &w->disk, &why), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	strcpy(w->dir, "/tmp/test_disk.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	open_disk(w, 64 * MIB, 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	disk_close(w->disk);
	io_remove_tree(AT_FDCWD, w->dir);
	free(w);
	return 0;
}

static struct ident *ident_of(const char *key, const char *etag, uint64_t size)
{
	struct origin_attr attr = {.size = size};
	struct ident *id;

	snprintf(attr.etag, sizeof(attr.etag), "%s", etag);
	assert_int_equal(ident_new("test://b", key, &attr, &id), 0);
	return id;
}

static void test_identities_differ_in_every_part(void **state)
{
	struct ident *a = ident_of("k", "e", 1), *b = ident_of("k", "f", 1);
	struct ident *c = ident_of("k", "e", 2), *d = ident_of("ke", "", 1);
	struct ident *same = ident_of("k", "e", 1);
	unsigned char hash[IDENT_HASH_SIZE];
	char name[IDENT_NAME_SIZE];

	(void)state;
	assert_memory_equal(a->hash, same->hash, sizeof(a->hash));
	assert_memory_not_equal(a->hash, b->hash, sizeof(a->hash));
	assert_memory_not_equal(a->hash, c->hash, sizeof(a->hash));
	assert_memory_not_equal(a->hash, d->hash, sizeof(a->hash));
	assert_string_equal(ident_key(a), "k");
	assert_string_equal(ident_etag(a), "e");
	assert_int_equal(ident_parse_name(ident_name(name, a->hash), hash), 0);
	assert_memory_equal(hash, a->hash, sizeof(hash));
	assert_int_equal(ident_parse_name("../../etc/passwd", hash), -EINVAL);
	free(a), free(b), free(c), free(d), free(same);
}

static void test_block_states_follow_each_other(void **state)
{
	uint32_t records[BLOCK_PAGES] = {[3] = 1, [4] = 9, [200] = 7}, end;
	struct block b = {0};

	(void)state;
	block_merge(&b, 0, BLOCK_PAGES, records);
	assert_int_equal(block_run(&b, 0, 256, &end), BLOCK_ABSENT);
	assert_int_equal(end, 3);
	assert_int_equal(block_run(&b, 3, 256, &end), BLOCK_UNCHECKED);
	assert_int_equal(end, 5);
	assert_int_equal(block_mark(&b, 4, 3), 3);
	assert_int_equal(block_mark(&b, 4, 3), 0);
	assert_int_equal(block_run(&b, 4, 256, &end), BLOCK_CHECKED);
	assert_int_equal(end, 7);
	/* Reading the map again takes nothing away. */
	block_merge(&b, 0, BLOCK_PAGES, records);
	assert_int_equal(block_run(&b, 4, 256, &end), BLOCK_CHECKED);
	assert_int_equal(block_drop(&b, 3, 2), 1);
	assert_int_equal(block_run(&b, 3, 256, &end), BLOCK_ABSENT);
	assert_int_equal(block_run(&b, 255, 256, &end), BLOCK_ABSENT);
}

static void test_the_limit_counts_before_writing(void **state)
{
	struct world *w = *state;
	uint64_t limit = disk_limit(w->disk);

	assert_true(limit < 64 * MIB && limit >= 62 * MIB);
	assert_true(disk_reserve(w->disk, limit));
	assert_false(disk_reserve(w->disk, 1));
	disk_release(w->disk, 4096);
	assert_true(disk_reserve(w->disk, 4096));
	assert_int_equal(disk_used(w->disk), limit);
	disk_release(w->disk, 10 * limit); /* never below zero */
	assert_int_equal(disk_used(w->disk), 0);
}

static void test_free_space_that_must_remain_is_left(void **state)
{
	struct world *w = *state;

	disk_close(w->disk);
	open_disk(w, 64 * MIB, 1ull << 60);
	assert_false(disk_reserve(w->disk, 4096));
	assert_int_equal(disk_limit(w->disk), disk_used(w->disk));
}

static void test_an_unclean_end_is_counted_again(void **state)
{
	struct world *w = *state;
	struct ident *id = ident_of("k", "e", 3 * MIB);
	struct datafile *f;
	char *p = calloc(1, MIB);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		/* A process that dies with much more reserved than it wrote. */
		struct disk *d;
		struct disk_config config = {w->dir, 64 * MIB, 0};
		struct why why = {0};

		if (disk_open(&config, &d, &why) || !disk_reserve(d, 40 * MIB))
			_exit(1);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(datafile_open(w->disk, id, true, &f), 0);
	assert_int_equal(datafile_write(f, 0, p, MIB), 0);
	datafile_put(f);
	assert_true(disk_used(w->disk) >= 40 * MIB);
	/* We go without a farewell too: only the lock is given back. */
	{
		struct disk *left = w->disk;
		pid = fork();
		if (pid == 0) {
			struct why why = {0};
			struct disk_config config = {w->dir, 64 * MIB, 0};
			struct disk *d;

			/* The parent still has it open: no recount behind its back. */
			if (disk_open(&config, &d, &why) || disk_alone(d))
				_exit(1);
			_exit(disk_used(d) >= 40 * MIB ? 0 : 2);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		disk_close(left);
	}
	{
		/* "clean" is gone: as after kill -9. */
		char path[128];
		uint32_t zero = 0;
		int fd;

		snprintf(path, sizeof(path), "%s/usage", w->dir);
		fd = open(path, O_RDWR);
		assert_int_equal(pwrite(fd, &zero, sizeof(zero), 16), sizeof(zero));
		close(fd);
	}
	open_disk(w, 64 * MIB, 0);
	assert_true(disk_alone(w->disk));
	assert_true(disk_used(w->disk) >= MIB && disk_used(w->disk) < 2 * MIB);
	free(p);
	free(id);
}

static void test_a_fault_pauses_the_disk(void **state)
{
	struct world *w = *state;

	assert_true(disk_usable(w->disk));
	disk_fault(w->disk, -ENOSPC, "testing");
	assert_false(disk_usable(w->disk));
}

static void test_a_datafile_keeps_records_and_bytes(void **state)
{
	struct world *w = *state;
	struct ident *id = ident_of("k", "e", 2 * MIB + 5);
	uint32_t records[4] = {11, 12, 0, 14}, back[4];
	struct datafile *f, *g;
	uint64_t freed;
	char p[100];

	assert_int_equal(datafile_open(w->disk, id, false, &f), DATAFILE_E_NONE);
	assert_int_equal(datafile_open(w->disk, id, true, &f), 0);
	assert_int_equal(datafile_store(f, 510, 3, records), 0);
	assert_int_equal(datafile_write(f, 2 * MIB, "hello", 5), 0);
	assert_int_equal(datafile_load(f, 510, 3, back), 0);
	assert_memory_equal(records, back, 12);
	/* Opened by another, it is the same pair. */
	assert_int_equal(datafile_open(w->disk, id, false, &g), 0);
	assert_int_equal(g->nonce, f->nonce);
	assert_int_equal(datafile_read(g, 2 * MIB, p, sizeof(p), false), 5);
	assert_memory_equal(p, "hello", 5);
	assert_false(datafile_sealed(g));
	assert_int_equal(datafile_seal(f), 0);
	assert_true(datafile_sealed(g));
	/* Removed: gone for all, readable for those who have it. */
	assert_int_equal(datafile_remove(w->disk, id->hash, &freed), 0);
	assert_int_equal(freed, datafile_map_bytes(id->size) + 2 * 4096);
	assert_true(datafile_gone(g));
	assert_int_equal(datafile_read(g, 2 * MIB, p, sizeof(p), false), 5);
	assert_int_equal(datafile_remove(w->disk, id->hash, &freed), DATAFILE_E_NONE);
	datafile_put(f);
	assert_int_equal(datafile_open(w->disk, id, true, &f), 0);
	assert_int_not_equal(f->nonce, g->nonce);
	assert_int_equal(datafile_load(f, 510, 3, back), 0);
	assert_int_equal(back[0], 0);
	datafile_put(f);
	datafile_put(g);
	free(id);
}

struct removing {
	struct world *world;
	struct ident *id;
	atomic_bool stop;
};

static void *keep_removing(void *arg)
{
	struct removing *r = arg;
	uint64_t freed;

	while (!atomic_load(&r->stop))
		if (datafile_remove(r->world->disk, r->id->hash, &freed) == 0)
			disk_release(r->world->disk, freed);
	return NULL;
}

/* Whoever made a pair and wrote to it finds that, or another pair, or none. */
static void test_a_map_has_the_data_that_was_made_with_it(void **state)
{
	struct removing r = {.world = *state, .id = ident_of("a", "e", MIB)};
	struct disk *disk = r.world->disk;
	unsigned int found = 0;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, keep_removing, &r), 0);
	for (int i = 0; i < 20000 && found < 500; i++) {
		struct datafile *f, *g;
		uint64_t written, got = 0;

		if (datafile_open(disk, r.id, true, &f) != 0)
			continue;
		written = f->nonce;
		assert_int_equal(datafile_write(f, 0, &written, sizeof(written)), 0);
		datafile_put(f);
		if (datafile_open(disk, r.id, false, &g) != 0)
			continue;
		if (g->nonce == written) {
			found++;
			assert_int_equal(datafile_read(g, 0, &got, sizeof(got), false),
					 sizeof(got));
			assert_true(got == written);
		}
		datafile_put(g);
	}
	atomic_store(&r.stop, true);
	pthread_join(thread, NULL);
	assert_int_not_equal(found, 0);
	free(r.id);
}

static void test_a_map_of_another_object_is_not_taken(void **state)
{
	struct world *w = *state;
	struct ident *a = ident_of("a", "e", MIB), *b = ident_of("b", "e", MIB);
	char from[128], to[128], name[IDENT_NAME_SIZE];
	struct datafile *f;

	assert_int_equal(datafile_open(w->disk, a, true, &f), 0);
	datafile_put(f);
	/* As if the two hashes were one. */
	ident_name(name, a->hash);
	snprintf(from, sizeof(from), "%s/objects/%.2s/%s.map", w->dir, name, name);
	ident_name(name, b->hash);
	snprintf(to, sizeof(to), "%s/objects/%.2s/%s.map", w->dir, name, name);
	assert_int_equal(rename(from, to), 0);
	assert_int_equal(datafile_open(w->disk, b, false, &f), DATAFILE_E_NONE);
	assert_int_not_equal(access(to, F_OK), 0);
	free(a);
	free(b);
}

static void test_packs_give_back_what_was_appended(void **state)
{
	struct world *w = *state;
	struct index_small where[40];
	struct packs *p;
	char data[30000], back[30000], key[8];
	uint64_t bytes, freed;

	assert_int_equal(packs_new(w->disk, 16 * MIB, &p), 0);
	for (int i = 0; i < 40; i++) {
		struct ident *id;

		snprintf(key, sizeof(key), "k%d", i);
		id = ident_of(key, "e", sizeof(data));
		memset(data, i, sizeof(data));
		assert_int_equal(pack_append(p, id, data, &where[i]), 0);
		free(id);
	}
	/* 1.2 MB do not fit into one pack of 1 MiB. */
	assert_int_not_equal(where[0].pack, where[39].pack);
	assert_int_equal(pack_current(p, &bytes), where[39].pack);
	for (int i = 0; i < 40; i++) {
		struct ident *id, *other;

		snprintf(key, sizeof(key), "k%d", i);
		id = ident_of(key, "e", sizeof(data));
		key[0] = 'q';
		other = ident_of(key, "e", sizeof(data));
		memset(data, i, sizeof(data));
		assert_int_equal(pack_read(p, id, &where[i], back, false), 0);
		assert_memory_equal(back, data, sizeof(data));
		assert_int_equal(pack_read_part(p, &where[i], 29000, back, 1000, true),
				 0);
		assert_memory_equal(back, data, 1000);
		/* Not even a wrong index shows one as the other. */
		assert_int_equal(pack_read(p, other, &where[i], back, false),
				 PACK_E_DAMAGED);
		free(other);
		free(id);
	}
	assert_int_equal(pack_remove(p, where[0].pack, &freed), 0);
	assert_true(freed > 900000);
	assert_int_equal(pack_read_part(p, &where[0], 0, back, 10, false), PACK_E_NONE);
	assert_int_equal(pack_remove(p, where[0].pack, &freed), PACK_E_NONE);
	packs_free(p);
}

static bool count_item(void *arg, const struct index_item *item)
{
	int *n = arg;

	n[item->is_pack]++;
	return true;
}

static void test_the_index_finds_what_was_entered(void **state)
{
	struct world *w = *state;
	struct index_small small = {
		.pack = 77, .off = 5, .ident_len = 6, .len = 7, .crc = 8};
	struct index_small back;
	unsigned char hash[IDENT_HASH_SIZE] = "0123456789abcde";
	int counts[2] = {0};
	struct index *x;

	assert_int_equal(index_open(disk_fd(w->disk), "index", true, &x), 0);
	assert_int_equal(index_find_small(x, hash, &back), INDEX_E_NONE);
	for (int flushed = 0; flushed < 2; flushed++) {
		index_add_small(x, hash, &small);
		index_touch_pack(x, 77, 1000);
		index_touch_large(x, hash, 2000);
		if (flushed)
			assert_int_equal(index_flush(x), 0);
		assert_int_equal(index_find_small(x, hash, &back), 0);
		assert_memory_equal(&back, &small, sizeof(small));
	}
	assert_int_equal(index_each(x, count_item, counts), 0);
	assert_int_equal(counts[0], 1);
	assert_int_equal(counts[1], 1);
	/* It is there after closing, and goes with its pack. */
	index_close(x);
	assert_int_equal(index_open(disk_fd(w->disk), "index", true, &x), 0);
	assert_int_equal(index_find_small(x, hash, &back), 0);
	index_drop_pack(x, 77);
	assert_int_equal(index_flush(x), 0);
	assert_int_equal(index_find_small(x, hash, &back), INDEX_E_NONE);
	index_drop_large(x, hash);
	counts[0] = counts[1] = 0;
	assert_int_equal(index_each(x, count_item, counts), 0);
	assert_int_equal(counts[0] + counts[1], 0);
	index_close(x);
}

static void test_an_entry_that_moved_stays_when_its_old_pack_goes(void **state)
{
	struct world *w = *state;
	struct index_small small = {.pack = 1}, back;
	unsigned char hash[IDENT_HASH_SIZE] = "moved";
	struct index *x;

	assert_int_equal(index_open(disk_fd(w->disk), "index", true, &x), 0);
	index_add_small(x, hash, &small);
	assert_int_equal(index_flush(x), 0);
	small.pack = 2;
	index_add_small(x, hash, &small);
	assert_int_equal(index_flush(x), 0);
	index_drop_pack(x, 1);
	assert_int_equal(index_flush(x), 0);
	assert_int_equal(index_find_small(x, hash, &back), 0);
	assert_int_equal(back.pack, 2);
	index_close(x);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

TEST_MAIN(cmocka_unit_test(test_identities_differ_in_every_part),
	  cmocka_unit_test(test_block_states_follow_each_other),
	  CASE(test_the_limit_counts_before_writing),
	  CASE(test_free_space_that_must_remain_is_left),
	  CASE(test_an_unclean_end_is_counted_again), CASE(test_a_fault_pauses_the_disk),
	  CASE(test_a_datafile_keeps_records_and_bytes),
	  CASE(test_a_map_has_the_data_that_was_made_with_it),
	  CASE(test_a_map_of_another_object_is_not_taken),
	  CASE(test_packs_give_back_what_was_appended),
	  CASE(test_the_index_finds_what_was_entered),
	  CASE(test_an_entry_that_moved_stays_when_its_old_pack_goes))
