/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile XML through libxml2's SAX interface to rules: which text below the root is taken
 * by whom. Internal to oss_xml.c; the limits stand in oss_xml.h. */
#pragma once

#include "fs/backend/oss_xml.h"

struct _xmlParserCtxt;
struct oss_sax;
typedef void (*oss_sax_fn)(struct oss_sax *p, const char *text, size_t n);

/* Where a text stands below the root, and who takes it. */
struct oss_sax_rule {
	const char *parent; /* NULL: a child of the root */
	const char *name;
	oss_sax_fn take;
};

struct oss_sax_document {
	const char *const *roots; /* accepted names of the root, ends with NULL */
	const char *item;         /* child of the root that opens an item; NULL: none */
	const struct oss_sax_rule *rules; /* ends with take == NULL */
};

struct oss_sax {
	const struct oss_sax_document *document;
	struct _xmlParserCtxt *context;
	unsigned int depth;
	char parent[64], name[64]; /* at depth 2 and 3; "" where nothing matters */
	struct buf text;           /* of the element that is open */
	int result;                /* negative once something was refused */
	const char *complaint;

	struct oss_page page;
	size_t items_size;
	bool encoded; /* EncodingType url */
	struct oss_error error;
	struct oss_outcome outcome;
};

/* 0, -EBADMSG or -ENOMEM, with p->complaint. p->text is freed, the results are not. */
int oss_sax_run(struct oss_sax *p, const char *xml, size_t n);

/* For the rules: ends the parse; opens another item (NULL: refused). */
void oss_sax_refuse(struct oss_sax *p, int r, const char *complaint);
struct oss_item *oss_sax_push(struct oss_sax *p);
