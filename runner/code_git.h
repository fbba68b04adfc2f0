/* SPDX-License-Identifier: Apache-2.0 */
/* Code from git over http(s). */
#pragma once

#include "fs/base/err.h"
#include "runner/code.h"

struct code_tree;

/* Fetches in a child process, which can be ended when the server keeps it waiting, and
 * whose memory is limited. The objects lie in a directory beside `target_dir` for as long
 * as it runs. */
int code_git_checkout(const struct code_source *s, const char *target_dir,
		      struct code_tree *tree, char commit[CODE_COMMIT_SIZE])
	__attribute__((warn_unused_result));

/* ---- between code_git.c and its child, code_git_child.c --------------------------------- */

enum code_git_kind {
	CODE_GIT_ALIVE, /* something has moved */
	CODE_GIT_DONE
};

struct code_git_message { /* below PIPE_BUF, so that it arrives whole */
	int kind;
	int result;
	char commit[CODE_COMMIT_SIZE];
	struct why why;
};

/* The child's work: `objects` is an empty directory; messages go to `report`. */
void code_git_child(const struct code_source *s, const char *objects,
		    struct code_tree *tree, int report) __attribute__((noreturn));
