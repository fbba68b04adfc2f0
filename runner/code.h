/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a job's code into a fresh directory: a copy of a local directory, or a checkout
 * of a git repository over http or https.
 *
 * What is fetched was written by others. Nothing of it runs here (no hooks, no filters,
 * no submodules), no redirect to another server is followed, and nothing is ever written
 * outside the target: a symbolic link that leaves the tree is refused.
 */
#pragma once

#include <stdint.h>

struct why;

#define CODE_COMMIT_SIZE 65 /* hex of SHA-1 or SHA-256 and the NUL */

/* Exactly one of dir and git_url is set. All strings are borrowed. */
struct code_source {
	const char *dir;      /* absolute path of a local directory to copy */
	const char *git_url;  /* http:// or https://, without a user in it */
	const char *branch;   /* branch or tag; NULL: what the remote's HEAD names */
	const char *commit;   /* 7 to 64 hex digits, checked out instead of the branch's
				 newest; NULL: the newest */
	const char *user;     /* NULL with a password: a token alone */
	const char *password; /* resolved; never logged, never in an error */
	const char *ca_file;  /* PEM bundle for a private server; NULL: the system's */
	uint64_t size_max;    /* bytes on disk; 0: CODE_SIZE_MAX */
};

#define CODE_SIZE_MAX (2ull << 30)
#define CODE_FILE_MAX 200000 /* files and directories of one tree */

/* Pure part, for `runner check`: is this a source we fetch from? -EINVAL with a sentence
 * for ssh://, git@host:…, file://, a user or password inside the URL, and the like. */
int code_check(const struct code_source *s, struct why *why);

/*
 * Fetches into `target_dir`, which must not exist or be empty; its parent must exist.
 * commit_out gets the commit's hex id ("" for a local directory). Blocks for as long as
 * the transfer takes; gives up when nothing moves for 60 s. On failure the target
 * is left empty or absent, `why` says what to do. Credentials are held only in memory,
 * and the checkout has no .git that could hold them.
 */
int code_fetch(const struct code_source *s, const char *target_dir,
	       char commit_out[CODE_COMMIT_SIZE], struct why *why)
	__attribute__((warn_unused_result));
