/* SPDX-License-Identifier: Apache-2.0 */
/* Short forms of origin requests for tests. Each returns the request's result. */
#pragma once

#include <stdbool.h>

#include "cache/origin.h"
#include "fs/base/buf.h"

/* The last request's sentence and attributes, for assertions after any of these. */
extern struct origin_req lib_last;

int lib_put(struct origin *o, const char *key, const char *text);
int lib_put_new(struct origin *o, const char *key, const char *text); /* if_none_match */
int lib_put_meta(struct origin *o, const char *key, const char *text,
		 const struct origin_meta *meta);
int lib_append(struct origin *o, const char *key, uint64_t off, const char *text);
int lib_stat(struct origin *o, const char *key, struct origin_attr *attr); /* with meta */
int lib_delete(struct origin *o, const char *key);
int lib_copy(struct origin *o, const char *key, const char *source);

/* Appends what is delivered; fails the test when it does not come in order. */
int lib_get(struct origin *o, const char *key, uint64_t off, uint64_t len,
	    const char *if_match, struct buf *out);
/* The whole object is exactly this text. */
void lib_assert_content(struct origin *o, const char *key, const char *text);

/* Entries joined by blanks, through as many pages as it takes. */
int lib_list(struct origin *o, const char *prefix, bool recursive, uint32_t count_max,
	     struct buf *out);
void lib_assert_listed(struct origin *o, const char *prefix, bool recursive,
		       const char *entries);

/* For list.entry: appends the key to a struct buf; keeps the last entry. */
int lib_note_entry(void *buf, const char *key, size_t key_len,
		   const struct origin_attr *attr);
struct lib_listed {
	int count;
	char key[1024];
	struct origin_attr attr;
};
int lib_keep_entry(void *listed, const char *key, size_t key_len,
		   const struct origin_attr *attr);

int lib_multi_begin(struct origin *o, const char *key, char id[ORIGIN_UPLOAD_ID_MAX]);
int lib_multi_part(struct origin *o, const char *key, const char *id, uint32_t number,
		   uint64_t off, const void *data, size_t n, struct origin_part *part);
int lib_multi_end(struct origin *o, const char *key, const char *id,
		  const struct origin_part *parts, size_t count);
int lib_multi_abort(struct origin *o, const char *key, const char *id);

/* Removes every key and unfinished upload below the prefix. */
void lib_empty(struct origin *o, const char *prefix);
