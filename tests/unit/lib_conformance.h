/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the contract that every origin keeps (test_origin_conformance.c). */
#pragma once

struct origin;

/* What *state points to. */
struct conformance {
	struct origin *origin;
	char path[64]; /* a file: store's root */
};

void a_put_object_reads_back(void **state);
void an_empty_object_is_an_object(void **state);
void what_is_not_there_is_enoent(void **state);
void ranges_are_cut_at_the_end(void **state);
void a_range_is_pinned_by_its_etag(void **state);
void a_sink_that_refuses_ends_the_request(void **state);
void put_replaces_the_whole(void **state);
void put_new_does_not_replace(void **state);
void a_body_may_be_a_piece_of_a_file(void **state);
void a_body_with_another_checksum_leaves_no_object(void **state);
void deleting_twice_is_success(void **state);
void many_are_deleted_at_once(void **state);
void a_copy_is_an_object_of_its_own(void **state);
void keys_are_bytes(void **state);
void bad_keys_are_refused(void **state);
void posix_metadata_comes_back(void **state);
void a_symlink_is_an_object_that_holds_its_target(void **state);
void probing_succeeds(void **state);
void what_is_done_is_counted(void **state);
void listings_are_in_byte_order(void **state);
void listings_keep_to_their_window(void **state);
void an_entry_that_is_refused_ends_the_listing(void **state);
void a_listed_entry_is_what_stat_says(void **state);
void a_marker_keeps_an_empty_directory(void **state);
void a_directory_without_marker_goes_with_its_last_key(void **state);
void a_marker_may_go_before_what_is_below_it(void **state);
void appending_costs_the_position(void **state);
void parts_in_any_order_make_one_object(void **state);
void a_part_that_is_not_as_told_ends_nothing(void **state);
void an_assembly_with_another_checksum_stays_invisible(void **state);
void a_part_may_be_copied(void **state);
void unfinished_uploads_are_listed(void **state);
