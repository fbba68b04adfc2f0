/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract, every origin: the same cases over each store and over stores in layers.
 * With SLUICE_TEST_SOURCE (and SLUICE_TEST_ENDPOINT, SLUICE_TEST_REGION and credentials in
 * the environment) they run over that source instead, with the layers that a mount has and
 * below prefixes of their own: tests/oss/conformance.sh, or a real bucket by hand.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backend/backend.h"
#include "fs/backend/fault.h"
#include "fs/backend/file.h"
#include "fs/backend/mem.h"
#include "fs/backend/retry.h"
#include "fs/backend/retry_step.h"
#include "fs/backend/trace.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "tests/unit/lib_conformance.h"
#include "tests/unit/lib_origin.h"

static struct conformance *fixture_new(void)
{
	struct conformance *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	return f;
}

static int open_mem(void **state)
{
	struct conformance *f = fixture_new();

	*state = f;
	return mem_origin_new(&f->origin);
}

static int open_file(void **state)
{
	struct conformance *f = fixture_new();
	struct why why = {0};

	*state = f;
	snprintf(f->path, sizeof(f->path), "%s/sluice-origin.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(f->path));
	assert_int_equal(file_origin_open(f->path, false, &f->origin, &why), 0);
	return 0;
}

/* Every operation fails twice, and those that may be repeated blindly also after they took
 * effect: through the layers nobody notices. */
static void add_faults(struct origin *fault)
{
	for (int op = 0; op < ORIGIN_OP_N; op++) {
		bool repeatable = op != ORIGIN_GET && op != ORIGIN_LIST &&
				  op != ORIGIN_MULTI_LIST && op != ORIGIN_MULTI_BEGIN;
		/* Only a checksum tells whose success it was. */
		bool needs_crc = op == ORIGIN_PUT || op == ORIGIN_MULTI_END;
		struct fault_rule rule = {
			.op = op, .skip = 1, .count = 2, .error = -ECONNRESET};

		fault_add(fault, &rule);
		rule = (struct fault_rule){
			.op = op, .count = 1, .error = -ETIMEDOUT, .after = true};
		if (repeatable && (!needs_crc || (fault->caps & ORIGIN_CAP_CRC64)))
			fault_add(fault, &rule);
	}
}

static int put_layers(struct conformance *f)
{
	struct retry_policy policy;

	retry_policy_init(&policy, 0);
	policy.base_ms = 1;
	policy.cap_ms = 4;
	assert_int_equal(fault_origin_new(f->origin, &f->origin), 0);
	add_faults(f->origin);
	assert_int_equal(retry_origin_new(f->origin, NULL, &policy, &f->origin), 0);
	return trace_origin_new(f->origin, &f->origin);
}

static int open_mem_in_layers(void **state)
{
	return open_mem(state) || put_layers(*state);
}

static int open_file_in_layers(void **state)
{
	return open_file(state) || put_layers(*state);
}

/* The source in the environment, below a prefix of this case's own. */
static int open_named(void **state)
{
	struct conformance *f = fixture_new();
	char source[1024];
	struct backend_config config = {
		.source = source,
		.endpoint = getenv("SLUICE_TEST_ENDPOINT"),
		.region = getenv("SLUICE_TEST_REGION"),
	};
	struct why why = {0};

	*state = f;
	snprintf(source, sizeof(source), "%s/conformance-%016" PRIx64,
		 getenv("SLUICE_TEST_SOURCE"), clock_random());
	if (backend_open(&config, &f->origin, &why) < 0)
		fail_msg("%s", why.text);
	return 0;
}

static int close_fixture(void **state)
{
	struct conformance *f = *state;

	if (f->path[0] == '\0')
		lib_empty(f->origin, "");
	origin_free(f->origin);
	if (f->path[0])
		io_remove_tree(AT_FDCWD, f->path);
	free(f);
	return 0;
}

#define STORE(f, store)                                                                  \
	{                                                                                \
		"test_" #f " (" #store ")", f, open_##store, close_fixture, NULL         \
	}
#define CASES(store)                                                                     \
	STORE(a_put_object_reads_back, store),                                           \
		STORE(an_empty_object_is_an_object, store),                              \
		STORE(what_is_not_there_is_enoent, store),                               \
		STORE(ranges_are_cut_at_the_end, store),                                 \
		STORE(a_range_is_pinned_by_its_etag, store),                             \
		STORE(a_sink_that_refuses_ends_the_request, store),                      \
		STORE(put_replaces_the_whole, store),                                    \
		STORE(put_new_does_not_replace, store),                                  \
		STORE(a_body_may_be_a_piece_of_a_file, store),                           \
		STORE(a_body_with_another_checksum_leaves_no_object, store),             \
		STORE(deleting_twice_is_success, store),                                 \
		STORE(many_are_deleted_at_once, store),                                  \
		STORE(a_copy_is_an_object_of_its_own, store),                            \
		STORE(keys_are_bytes, store), STORE(bad_keys_are_refused, store),        \
		STORE(posix_metadata_comes_back, store),                                 \
		STORE(a_symlink_is_an_object_that_holds_its_target, store),              \
		STORE(listings_are_in_byte_order, store),                                \
		STORE(listings_keep_to_their_window, store),                             \
		STORE(an_entry_that_is_refused_ends_the_listing, store),                 \
		STORE(a_listed_entry_is_what_stat_says, store),                          \
		STORE(a_marker_keeps_an_empty_directory, store),                         \
		STORE(a_directory_without_marker_goes_with_its_last_key, store),         \
		STORE(a_marker_may_go_before_what_is_below_it, store),                   \
		STORE(appending_costs_the_position, store),                              \
		STORE(parts_in_any_order_make_one_object, store),                        \
		STORE(a_part_that_is_not_as_told_ends_nothing, store),                   \
		STORE(an_assembly_with_another_checksum_stays_invisible, store),         \
		STORE(a_part_may_be_copied, store),                                      \
		STORE(unfinished_uploads_are_listed, store),                             \
		STORE(probing_succeeds, store)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASES(mem),
		CASES(file),
		CASES(mem_in_layers),
		CASES(file_in_layers),
		STORE(what_is_done_is_counted, mem),
		STORE(what_is_done_is_counted, file),
	};
	const struct CMUnitTest named[] = {CASES(named)};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	if (getenv("SLUICE_TEST_SOURCE"))
		return cmocka_run_group_tests(named, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
