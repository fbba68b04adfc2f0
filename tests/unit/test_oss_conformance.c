/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of every origin, kept by a bucket of a local OSS server: with V4 and with V1,
 * at the bucket's top and below a prefix. */
#include "tests/unit/test.h"

#include "cache/origin.h"
#include "fs/backend/oss.h"
#include "tests/unit/lib_conformance.h"
#include "tests/unit/lib_origin.h"
#include "tests/unit/lib_ossd.h"

static struct lib_ossd server;

static int open_with(void **state, enum backend_signature signature, const char *prefix)
{
	struct conformance *f = calloc(1, sizeof(*f));
	struct oss_config config = lib_ossd_config(&server, prefix);
	struct why why = {""};

	assert_non_null(f);
	config.signature = signature;
	*state = f;
	if (oss_origin_open(&config, &f->origin, &why) < 0)
		fail_msg("%s", why.text);
	return 0;
}

static int open_v4(void **state)
{
	return open_with(state, SIGNATURE_V4, "");
}

static int open_v1(void **state)
{
	return open_with(state, SIGNATURE_V1, "some/where/");
}

static int close_fixture(void **state)
{
	struct conformance *f = *state;

	lib_empty(f->origin, "");
	origin_free(f->origin);
	free(f);
	return 0;
}

static int start_server(void **state)
{
	(void)state;
	/* Small parts, so that the cases need not send megabytes. */
	lib_ossd_start(&server, (const char *const[]){"--part-min", "1", NULL});
	return 0;
}

static int stop_server(void **state)
{
	(void)state;
	lib_ossd_stop(&server);
	return 0;
}

#define STORE(f, store)                                                                  \
	{                                                                                \
		"test_" #f " (" #store ")", f, open_##store, close_fixture, NULL         \
	}
#define CASE(f) STORE(f, v4), STORE(f, v1)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(a_put_object_reads_back),
		CASE(an_empty_object_is_an_object),
		CASE(what_is_not_there_is_enoent),
		CASE(ranges_are_cut_at_the_end),
		CASE(a_range_is_pinned_by_its_etag),
		CASE(a_sink_that_refuses_ends_the_request),
		CASE(put_replaces_the_whole),
		CASE(put_new_does_not_replace),
		CASE(a_body_may_be_a_piece_of_a_file),
		CASE(a_body_with_another_checksum_leaves_no_object),
		CASE(deleting_twice_is_success),
		CASE(many_are_deleted_at_once),
		CASE(a_copy_is_an_object_of_its_own),
		CASE(keys_are_bytes),
		CASE(bad_keys_are_refused),
		CASE(posix_metadata_comes_back),
		CASE(a_symlink_is_an_object_that_holds_its_target),
		CASE(listings_are_in_byte_order),
		CASE(listings_keep_to_their_window),
		CASE(an_entry_that_is_refused_ends_the_listing),
		CASE(a_listed_entry_is_what_stat_says),
		CASE(a_marker_keeps_an_empty_directory),
		CASE(a_directory_without_marker_goes_with_its_last_key),
		CASE(a_marker_may_go_before_what_is_below_it),
		CASE(appending_costs_the_position),
		CASE(parts_in_any_order_make_one_object),
		CASE(a_part_that_is_not_as_told_ends_nothing),
		CASE(an_assembly_with_another_checksum_stays_invisible),
		CASE(a_part_may_be_copied),
		CASE(unfinished_uploads_are_listed),
		CASE(probing_succeeds),
		CASE(what_is_done_is_counted),
	};
	char pattern[256];

	if (argc > 1) {
		snprintf(pattern, sizeof(pattern), "*%s*", argv[1]);
		cmocka_set_test_filter(pattern);
	}
	return cmocka_run_group_tests(tests, start_server, stop_server);
}
