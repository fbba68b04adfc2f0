/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML document as a tree that knows where each part stands, within limits.
 *
 * Kept: maps with plain keys, lists, scalars, null, anchors and aliases (an alias is the
 * same node again, so a document of aliases costs no memory). Refused with a place: a
 * second document, tags, keys given twice, "<<", NUL bytes, anything over the limits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "runner/mistakes.h"

#define NODE_TEXT_MAX (1024 * 1024) /* bytes of a document */
#define NODE_DEPTH_MAX 16
#define NODE_COUNT_MAX 20000
#define NODE_ANCHORS_MAX 64

enum node_kind {
	NODE_NULL,
	NODE_SCALAR,
	NODE_LIST,
	NODE_MAP
};

struct node;

struct node_entry {
	struct node *key; /* a scalar; NULL in a list */
	struct node *value;
};

struct node {
	enum node_kind kind;
	struct mistake_place place;
	char *text;  /* NODE_SCALAR */
	bool quoted; /* NODE_SCALAR: "1" and 1 differ where the type is not known */
	struct node_entry *entries;
	size_t count;
};

struct node_doc;

/* Reads a document; an empty one is an empty map. `source` is copied. -EINVAL: the mistakes
 * say why. The nodes belong to the document. */
int node_parse(const char *source, const char *text, size_t n, struct node_doc **out,
	       struct mistakes *m);
struct node_doc *node_doc_free(struct node_doc *doc);
struct node *node_root(struct node_doc *doc);

/* NULL when `map` is no map or has no such key. */
const struct node *node_get(const struct node *map, const char *key);

/* The node at "a.b.c", or the nearest one above it that exists: for the place of a mistake
 * about something that was left out. */
const struct node *node_nearest(struct node_doc *doc, const char *path);

/* "a.b.c=VALUE" as --set gives it: VALUE is YAML; maps on the way are made. The place of
 * what it sets is "--set a.b.c". -EINVAL: the mistakes say why. */
int node_set(struct node_doc *doc, const char *assignment, struct mistakes *m);

/* "a.b" to a string, replacing what is there. The maps on the way must exist. */
void node_set_string(struct node_doc *doc, const char *path, const char *value);

/* The document as YAML text that node_parse() reads back, aliases written out. -EFBIG when
 * that makes it larger than the limits. */
int node_write(struct node_doc *doc, FILE *out);
