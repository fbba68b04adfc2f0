/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory that is filled with what others wrote. Paths are relative, "a/b/c"; every
 * one is opened beneath the root without following any link, counted and bounded.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct why;

struct code_tree {
	int root;            /* borrowed */
	uint64_t bytes_left; /* of the size that is allowed */
	uint64_t bytes_max;
	uint32_t entries_left;
	char **links; /* paths, for code_tree_check_links() */
	size_t link_count, link_size;
	struct why *why; /* borrowed; has the sentence after a failure */
};

void code_tree_init(struct code_tree *t, int root, uint64_t size_max, struct why *why);
void code_tree_fini(struct code_tree *t);

/* Counts `bytes` of the file `path` before they are fetched. -EFBIG. */
int code_tree_reserve(struct code_tree *t, const char *path, uint64_t bytes);

/* May an entry have this name? Not "..", not ".git" in any of its spellings. */
bool code_tree_name_ok(const char *name);

int code_tree_add_dir(struct code_tree *t, const char *path);

/* An empty new file (its bytes were reserved): its descriptor, for the caller to close. */
int code_tree_add_file(struct code_tree *t, const char *path, bool executable);

int code_tree_add_link(struct code_tree *t, const char *path, const char *to);

/* Refuses a link that leads out of the tree, directly or through other links. When all is
 * there. */
int code_tree_check_links(struct code_tree *t);
