/* SPDX-License-Identifier: Apache-2.0 */
/* Code from a local directory. */
#pragma once

struct code_tree;

/* Copies files, directories and links (as links, wherever they lead: they are resolved in
 * the container). Leaves out every .git; refuses devices, sockets and pipes. */
int code_dir_copy(const char *dir, struct code_tree *tree)
	__attribute__((warn_unused_result));
