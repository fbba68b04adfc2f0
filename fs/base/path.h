/* SPDX-License-Identifier: Apache-2.0 */
/* The one gate between object keys and paths. Pure. */
#pragma once

#include <stddef.h>

#define PATH_KEY_MAX 1023 /* bytes of an object key (protocol.md §5) */
#define PATH_NAME_MAX 255 /* bytes of one component */

enum path_fault {
	PATH_OK = 0,
	PATH_E_EMPTY, /* no bytes, or an empty component ("a//b", "/a") */
	PATH_E_DOT,   /* a component "." or ".." */
	PATH_E_LONG,  /* component over PATH_NAME_MAX or key over PATH_KEY_MAX */
	PATH_E_NUL,   /* NUL inside */
	PATH_E_N
};

/* Whether a key can be shown as a path one to one (design.md, /input 1). A single trailing
 * slash is allowed: it names a directory marker. Returns an enum path_fault. */
int path_key_check(const char *key, size_t n);
const char *path_fault_name(int fault);

/* Whether a single component may stand in a directory: not empty, ".", "..", no '/', no
 * NUL, at most PATH_NAME_MAX bytes. Returns an enum path_fault. */
int path_name_check(const char *name, size_t n);

/* "dir/name" (or "name" when dir is empty) into out. -ENAMETOOLONG when it does not fit. */
int path_join(char *out, size_t out_size, const char *dir, const char *name);
