/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/xalloc.h"

struct anchor {
	char *name;
	struct node *node;
};

struct node_doc {
	struct node *root;
	struct node **nodes; /* all of them, also those no longer in the tree */
	size_t count;
	char **sources;
	size_t source_count;
};

/* One document being read. */
struct reader {
	yaml_parser_t yaml;
	struct node_doc *doc;
	const char *source; /* owned by doc */
	bool one_line;      /* places have no line: the source is a --set */
	struct mistakes *mistakes;
	struct node *open[NODE_DEPTH_MAX]; /* collections begun and not ended */
	struct node *key[NODE_DEPTH_MAX]; /* in a map: the key that waits for its value */
	size_t depth;
	struct anchor anchors[NODE_ANCHORS_MAX];
	size_t anchor_count;
	struct node *root;
	bool ended;
};

static const char *keep_source(struct node_doc *doc, char *source)
{
	doc->sources = xrealloc(doc->sources, doc->source_count + 1, sizeof(char *));
	return doc->sources[doc->source_count++] = source;
}

static struct node *node_new(struct node_doc *doc, enum node_kind kind,
			     struct mistake_place place)
{
	struct node *node = xcalloc(1, sizeof(*node));

	node->kind = kind;
	node->place = place;
	doc->nodes = xrealloc(doc->nodes, doc->count + 1, sizeof(struct node *));
	doc->nodes[doc->count++] = node;
	return node;
}

static void append(struct node *to, struct node *key, struct node *value)
{
	to->entries = xrealloc(to->entries, to->count + 1, sizeof(*to->entries));
	to->entries[to->count++] = (struct node_entry){key, value};
}

static struct mistake_place place_of(const struct reader *r, yaml_mark_t mark)
{
	if (r->one_line)
		return (struct mistake_place){.source = r->source};
	return (struct mistake_place){r->source, (unsigned int)mark.line + 1,
				      (unsigned int)mark.column + 1};
}

#define refuse(r, place, ...)                                                            \
	(mistakes_add((r)->mistakes, (place), EXIT_USAGE, __VA_ARGS__), -EINVAL)

/* A finished value goes to its map or list, or becomes the root. */
static int put(struct reader *r, struct node *node)
{
	struct node *parent = r->depth ? r->open[r->depth - 1] : NULL;
	struct node **key = r->depth ? &r->key[r->depth - 1] : NULL;

	if (!parent) {
		r->root = node;
		return 0;
	}
	if (parent->kind == NODE_LIST) {
		append(parent, NULL, node);
		return 0;
	}
	if (*key) {
		append(parent, *key, node);
		*key = NULL;
		return 0;
	}
	if (node->kind != NODE_SCALAR)
		return refuse(r, node->place, "a key must be a word");
	if (!strcmp(node->text, "<<"))
		return refuse(r, node->place,
			      "\"<<\" is not supported: write the keys out, or use an "
			      "alias for a whole value");
	for (size_t i = 0; i < parent->count; i++)
		if (!strcmp(parent->entries[i].key->text, node->text))
			return refuse(
				r, node->place,
				"\"%s\" is given twice (first in line %u): remove one",
				node->text, parent->entries[i].key->place.line);
	*key = node;
	return 0;
}

static int keep_anchor(struct reader *r, const yaml_char_t *name, struct node *node)
{
	if (!name)
		return 0;
	if (r->anchor_count == NODE_ANCHORS_MAX)
		return refuse(r, node->place, "more than %d anchors", NODE_ANCHORS_MAX);
	r->anchors[r->anchor_count++] =
		(struct anchor){xstrdup((const char *)name), node};
	return 0;
}

static bool is_open(const struct reader *r, const struct node *node)
{
	for (size_t i = 0; i < r->depth; i++)
		if (r->open[i] == node)
			return true;
	return false;
}

static int on_alias(struct reader *r, const yaml_event_t *e)
{
	const char *name = (const char *)e->data.alias.anchor;
	struct mistake_place place = place_of(r, e->start_mark);

	/* The last definition counts, as YAML has it. */
	for (size_t i = r->anchor_count; i-- > 0;) {
		if (strcmp(r->anchors[i].name, name) != 0)
			continue;
		if (is_open(r, r->anchors[i].node))
			return refuse(r, place, "alias *%s stands inside its own anchor",
				      name);
		return put(r, r->anchors[i].node);
	}
	return refuse(r, place, "alias *%s has no anchor &%s before it", name, name);
}

static bool means_null(const char *text)
{
	return !*text || !strcmp(text, "~") || !strcasecmp(text, "null");
}

static int on_scalar(struct reader *r, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	struct mistake_place place = place_of(r, e->start_mark);
	struct node *node;
	int err;

	if (e->data.scalar.tag)
		return refuse(r, place, "tags such as %s are not supported: remove it",
			      (const char *)e->data.scalar.tag);
	if (strlen(text) != e->data.scalar.length)
		return refuse(r, place, "a NUL byte inside a value");
	node = node_new(r->doc, plain && means_null(text) ? NODE_NULL : NODE_SCALAR,
			place);
	if (node->kind == NODE_SCALAR)
		node->text = xstrdup(text);
	node->quoted = !plain;
	err = keep_anchor(r, e->data.scalar.anchor, node);
	return err < 0 ? err : put(r, node);
}

static int on_begin(struct reader *r, const yaml_event_t *e, enum node_kind kind,
		    const yaml_char_t *anchor, const yaml_char_t *tag)
{
	struct mistake_place place = place_of(r, e->start_mark);
	struct node *node;
	int err;

	if (tag)
		return refuse(r, place, "tags such as %s are not supported: remove it",
			      (const char *)tag);
	if (r->depth == NODE_DEPTH_MAX)
		return refuse(r, place, "nested deeper than %d levels", NODE_DEPTH_MAX);
	node = node_new(r->doc, kind, place);
	err = keep_anchor(r, anchor, node);
	if (err == 0)
		err = put(r, node);
	r->open[r->depth] = node;
	r->key[r->depth++] = NULL;
	return err;
}

static int on_event(struct reader *r, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (r->root)
			return refuse(r, place_of(r, e->start_mark),
				      "a second document (\"---\"): one job a file");
		return 0;
	case YAML_ALIAS_EVENT:
		return on_alias(r, e);
	case YAML_SCALAR_EVENT:
		return on_scalar(r, e);
	case YAML_SEQUENCE_START_EVENT:
		return on_begin(r, e, NODE_LIST, e->data.sequence_start.anchor,
				e->data.sequence_start.tag);
	case YAML_MAPPING_START_EVENT:
		return on_begin(r, e, NODE_MAP, e->data.mapping_start.anchor,
				e->data.mapping_start.tag);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		return 0;
	case YAML_STREAM_END_EVENT:
		r->ended = true;
		return 0;
	default:
		return 0;
	}
}

static int syntax_error(struct reader *r)
{
	const yaml_parser_t *y = &r->yaml;
	yaml_mark_t mark = y->problem_mark;

	if (y->error == YAML_READER_ERROR)
		return refuse(r, (struct mistake_place){.source = r->source},
			      "not a text file in UTF-8 (byte %zu: %s)",
			      y->problem_offset, y->problem ? y->problem : "unreadable");
	return refuse(r, place_of(r, mark), "not valid YAML: %s%s%s%s",
		      y->problem ? y->problem : "syntax error", y->context ? " (" : "",
		      y->context ? y->context : "", y->context ? ")" : "");
}

static int read_all(struct reader *r)
{
	while (!r->ended) {
		yaml_event_t event;
		int err;

		if (!yaml_parser_parse(&r->yaml, &event))
			return syntax_error(r);
		err = on_event(r, &event);
		yaml_event_delete(&event);
		if (err < 0)
			return err;
		if (r->doc->count > NODE_COUNT_MAX)
			return refuse(r, (struct mistake_place){.source = r->source},
				      "more than %d values", NODE_COUNT_MAX);
	}
	return 0;
}

/* Reads `text` into nodes of `doc`; *root stays NULL for an empty text. */
static int read_text(struct node_doc *doc, const char *source, bool one_line,
		     const char *text, size_t n, struct node **root, struct mistakes *m)
{
	struct reader r = {
		.doc = doc, .source = source, .one_line = one_line, .mistakes = m};
	int err;

	if (n > NODE_TEXT_MAX)
		return refuse(&r, (struct mistake_place){.source = source},
			      "larger than %d bytes: not a job file", NODE_TEXT_MAX);
	check(yaml_parser_initialize(&r.yaml));
	yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, n);
	err = read_all(&r);
	yaml_parser_delete(&r.yaml);
	while (r.anchor_count)
		free(r.anchors[--r.anchor_count].name);
	if (err == 0)
		*root = r.root;
	return err;
}

int node_parse(const char *source, const char *text, size_t n, struct node_doc **out,
	       struct mistakes *m)
{
	struct node_doc *doc = xcalloc(1, sizeof(*doc));
	const char *kept = keep_source(doc, xstrdup(source));
	int err = read_text(doc, kept, false, text, n, &doc->root, m);

	if (err < 0) {
		node_doc_free(doc);
		return err_origin(err);
	}
	if (!doc->root || doc->root->kind == NODE_NULL)
		doc->root = node_new(doc, NODE_MAP, (struct mistake_place){kept, 1, 1});
	*out = doc;
	return 0;
}

struct node_doc *node_doc_free(struct node_doc *doc)
{
	if (!doc)
		return NULL;
	for (size_t i = 0; i < doc->count; i++) {
		free(doc->nodes[i]->text);
		free(doc->nodes[i]->entries);
		free(doc->nodes[i]);
	}
	for (size_t i = 0; i < doc->source_count; i++)
		free(doc->sources[i]);
	free(doc->nodes);
	free(doc->sources);
	free(doc);
	return NULL;
}

struct node *node_root(struct node_doc *doc)
{
	return doc->root;
}

static struct node_entry *find_entry(const struct node *map, const char *key, size_t n)
{
	for (size_t i = 0; map->kind == NODE_MAP && i < map->count; i++)
		if (strlen(map->entries[i].key->text) == n &&
		    !strncmp(map->entries[i].key->text, key, n))
			return &map->entries[i];
	return NULL;
}

const struct node *node_get(const struct node *map, const char *key)
{
	struct node_entry *entry = map ? find_entry(map, key, strlen(key)) : NULL;

	return entry ? entry->value : NULL;
}

const struct node *node_nearest(struct node_doc *doc, const char *path)
{
	const struct node *at = doc->root;

	for (;;) {
		size_t n = strcspn(path, ".");
		struct node_entry *entry = find_entry(at, path, n);

		if (!entry)
			return at;
		at = entry->value;
		if (!path[n])
			return at;
		path += n + 1;
	}
}

/* A copy of one level: an alias shares its node with the anchor, and what is set through
 * one path must not show under the other. */
static struct node *own_copy(struct node_doc *doc, const struct node *from)
{
	struct node *copy = node_new(doc, from->kind, from->place);

	for (size_t i = 0; i < from->count; i++)
		append(copy, from->entries[i].key, from->entries[i].value);
	return copy;
}

static struct node *new_key(struct node_doc *doc, const char *text, size_t n,
			    struct mistake_place place)
{
	struct node *key = node_new(doc, NODE_SCALAR, place);

	key->text = xstrndup(text, n);
	return key;
}

/* The map in which the last word of `path` is to be set, and that word. NULL: something on
 * the way is no map. */
static struct node *descend(struct node_doc *doc, const char *path, const char **last,
			    struct mistake_place place)
{
	struct node *at = doc->root;

	for (;; path += strcspn(path, ".") + 1) {
		size_t n = strcspn(path, ".");
		struct node_entry *entry;

		*last = path;
		if (!path[n])
			return at;
		entry = find_entry(at, path, n);
		if (!entry) {
			append(at, new_key(doc, path, n, place),
			       node_new(doc, NODE_MAP, place));
			entry = &at->entries[at->count - 1];
		} else if (entry->value->kind == NODE_NULL) {
			entry->value = node_new(doc, NODE_MAP, place);
		} else if (entry->value->kind == NODE_MAP) {
			entry->value = own_copy(doc, entry->value);
		} else {
			return NULL;
		}
		at = entry->value;
	}
}

static void replace(struct node_doc *doc, struct node *map, const char *key,
		    struct node *value)
{
	struct node_entry *entry = find_entry(map, key, strlen(key));

	if (entry)
		entry->value = value;
	else
		append(map, new_key(doc, key, strlen(key), value->place), value);
}

static bool path_is_good(const char *path)
{
	size_t words = 0;

	do {
		size_t n = strcspn(path, ".");

		if (n == 0 || ++words >= NODE_DEPTH_MAX)
			return false;
		path += n;
	} while (*path++ == '.');
	return true;
}

int node_set(struct node_doc *doc, const char *assignment, struct mistakes *m)
{
	const char *equals = strchr(assignment, '=');
	const char *last;
	struct mistake_place place = {.source = "--set"};
	_cleanup_(freep) char *path = NULL;
	struct node *value = NULL, *map;
	int err;

	if (equals)
		path = xstrndup(assignment, (size_t)(equals - assignment));
	if (!path || !path_is_good(path)) {
		mistakes_add(m, place, EXIT_USAGE,
			     "give it as --set key=value, such as roles.worker.count=2");
		return err_origin(-EINVAL);
	}
	place.source = keep_source(doc, xasprintf("--set %s", path));
	err = read_text(doc, place.source, true, equals + 1, strlen(equals + 1), &value,
			m);
	if (err < 0)
		return err_origin(err);
	if (!value)
		value = node_new(doc, NODE_NULL, place);
	map = doc->root->kind == NODE_MAP ? descend(doc, path, &last, place) : NULL;
	if (!map) {
		mistakes_add(m, place, EXIT_USAGE,
			     "a key on the way holds a value, not "
			     "further keys");
		return err_origin(-EINVAL);
	}
	replace(doc, map, last, value);
	return 0;
}

void node_set_string(struct node_doc *doc, const char *path, const char *value)
{
	struct mistake_place place = node_nearest(doc, path)->place;
	struct node *node = node_new(doc, NODE_SCALAR, place), *map;
	const char *last;

	node->text = xstrdup(value);
	node->quoted = true;
	map = descend(doc, path, &last, place);
	check(map);
	replace(doc, map, last, node);
}

/* ---- writing --------------------------------------------------------------------------- */

static int emit_begin(yaml_emitter_t *e, const struct node *node)
{
	yaml_event_t event;

	if (node->kind == NODE_MAP)
		yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
						    YAML_BLOCK_MAPPING_STYLE);
	else
		yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
						     YAML_FLOW_SEQUENCE_STYLE);
	return yaml_emitter_emit(e, &event);
}

static int emit_scalar(yaml_emitter_t *e, const struct node *node)
{
	const char *text = node->kind == NODE_NULL ? "null" : node->text;
	yaml_scalar_style_t style =
		node->quoted ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE;
	yaml_event_t event;

	if (!yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
					  (int)strlen(text), 1, 1, style))
		return 0;
	return yaml_emitter_emit(e, &event);
}

static int emit_end(yaml_emitter_t *e, const struct node *node)
{
	yaml_event_t event;

	if (node->kind == NODE_MAP)
		yaml_mapping_end_event_initialize(&event);
	else
		yaml_sequence_end_event_initialize(&event);
	return yaml_emitter_emit(e, &event);
}

/* Aliases of aliases can be deeper than any text, and --set can graft below them. */
#define WRITE_DEPTH_MAX (2 * NODE_DEPTH_MAX)

static int emit_tree(yaml_emitter_t *e, const struct node *root)
{
	const struct node *open[WRITE_DEPTH_MAX] = {NULL};
	size_t next[WRITE_DEPTH_MAX] = {0}, depth = 0, written = 0;
	const struct node *node = root;

	for (;;) {
		int ok;

		if (++written > NODE_COUNT_MAX)
			return -EFBIG; /* aliases of aliases, written out */
		if (node->kind == NODE_MAP || node->kind == NODE_LIST) {
			if (depth == WRITE_DEPTH_MAX)
				return -EFBIG;
			open[depth] = node;
			next[depth++] = 0;
			ok = emit_begin(e, node);
		} else {
			ok = emit_scalar(e, node);
		}
		while (ok && depth && next[depth - 1] == open[depth - 1]->count)
			ok = emit_end(e, open[--depth]);
		if (!ok)
			return -EIO;
		if (!depth)
			return 0;
		node = open[depth - 1]->entries[next[depth - 1]].value;
		if (open[depth - 1]->kind == NODE_MAP &&
		    !emit_scalar(e, open[depth - 1]->entries[next[depth - 1]].key))
			return -EIO;
		next[depth - 1]++;
	}
}

int node_write(struct node_doc *doc, FILE *out)
{
	yaml_emitter_t emitter;
	yaml_event_t event;
	int r = -EIO;

	check(yaml_emitter_initialize(&emitter));
	yaml_emitter_set_output_file(&emitter, out);
	yaml_emitter_set_unicode(&emitter, 1);
	yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING);
	if (!yaml_emitter_emit(&emitter, &event))
		goto done;
	yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1);
	if (!yaml_emitter_emit(&emitter, &event))
		goto done;
	r = emit_tree(&emitter, doc->root);
	if (r < 0)
		goto done;
	yaml_document_end_event_initialize(&event, 1);
	if (yaml_emitter_emit(&emitter, &event)) {
		yaml_stream_end_event_initialize(&event);
		yaml_emitter_emit(&emitter, &event);
	}
	r = ferror(out) ? -EIO : 0;
done:
	yaml_emitter_delete(&emitter);
	return err_trace(r);
}
