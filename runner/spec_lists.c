/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the job file that are lists or maps of the user's own: ports, commands, pairs. */
#include <stdio.h>
#include <string.h>

#include "fs/base/exit.h"
#include "runner/spec_fields.h"

/* `to` is role->ports, and role->port_count follows it. */
void field_bind_ports(struct binder *b, const struct field *f, struct node *node,
		      const char *path, void *to)
{
	struct spec_role *role = (struct spec_role *)((char *)to - f->offset);
	size_t count = node->kind == NODE_LIST ? node->count : 1;

	if (node->kind == NODE_MAP || count == 0 || count > SPEC_PORTS_MAX) {
		field_mistake(b, node, "%s takes a port or a list of 1 to %d ports", path,
			      SPEC_PORTS_MAX);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct node *item =
			node->kind == NODE_LIST ? node->entries[i].value : node;
		uint64_t port;

		if (item->kind != NODE_SCALAR ||
		    field_parse_uint(item->text, &port) < 0 || port < 1 || port > 65535) {
			field_mistake(b, item, "%s: a port is a number from 1 to 65535",
				      path);
			return;
		}
		role->ports[i] = port;
	}
	role->port_count = count;
}

void field_bind_command(struct binder *b, const struct field *f, struct node *node,
			const char *path, void *to)
{
	struct spec_command *command = to;
	const char **argv;

	(void)f;
	if (node->kind == NODE_MAP || (node->kind == NODE_LIST && node->count == 0) ||
	    (node->kind == NODE_LIST && node->count > SPEC_WORDS_MAX) ||
	    (node->kind == NODE_SCALAR && !node->text[strspn(node->text, " \t\n")])) {
		field_mistake(b, node, "%s takes a line for the shell or a list of words",
			      path);
		return;
	}
	if (node->kind == NODE_SCALAR) {
		argv = spec_block(b->spec, 4, sizeof(*argv));
		argv[0] = "/bin/sh";
		argv[1] = "-c";
		argv[2] = node->text;
		*command = (struct spec_command){argv, 3};
		return;
	}
	argv = spec_block(b->spec, node->count + 1, sizeof(*argv));
	for (size_t i = 0; i < node->count; i++) {
		struct node *word = node->entries[i].value;

		if (word->kind == NODE_MAP || word->kind == NODE_LIST) {
			field_mistake(b, word,
				      "%s: word %zu is not a text: put it in quotes",
				      path, i + 1);
			return;
		}
		argv[i] = word->kind == NODE_NULL ? "" : word->text;
	}
	if (!*argv[0]) {
		field_mistake(b, node, "%s: the first word names the program", path);
		return;
	}
	*command = (struct spec_command){argv, node->count};
}

void field_bind_pairs(struct binder *b, const struct field *f, struct node *node,
		      const char *path, void *to)
{
	struct spec_pairs *pairs = to;

	(void)f;
	if (node->kind != NODE_MAP || node->count > SPEC_PAIRS_MAX) {
		field_mistake(b, node, "%s takes a map of at most %d names and values",
			      path, SPEC_PAIRS_MAX);
		return;
	}
	pairs->items = spec_block(b->spec, node->count, sizeof(*pairs->items));
	for (size_t i = 0; i < node->count; i++) {
		struct node *value = node->entries[i].value;
		char name[FIELD_PATH_MAX];
		const char *text = "";

		snprintf(name, sizeof(name), "%s.%s", path, node->entries[i].key->text);
		if (value->kind != NODE_NULL)
			text = field_scalar(b, value, name);
		if (text)
			pairs->items[pairs->count++] = (struct spec_pair){
				node->entries[i].key->text, text, value->quoted};
	}
}
