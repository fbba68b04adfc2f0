/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/suggest.h"
#include "fs/base/xalloc.h"
#include "runner/spec_fields.h"

void *spec_block(struct spec *spec, size_t count, size_t size)
{
	void *block = xcalloc(count, size);

	spec->blocks = xrealloc(spec->blocks, spec->block_count + 1, sizeof(void *));
	return spec->blocks[spec->block_count++] = block;
}

struct spec *spec_free(struct spec *spec)
{
	if (!spec)
		return NULL;
	for (size_t i = 0; i < spec->block_count; i++)
		free(spec->blocks[i]);
	free(spec->blocks);
	node_doc_free(spec->doc);
	free(spec);
	return NULL;
}

/* ---- maps by their tables --------------------------------------------------------------- */

static void unknown_key(struct binder *b, const struct field *table, struct node *key,
			const char *path)
{
	const char *near;
	size_t count = 0;

	while (table[count].name)
		count++;
	near = suggest_nearest(key->text, &table->name, count, sizeof(*table));
	if (near)
		field_mistake(b, key, "unknown key \"%.60s\"%s%s, did you mean \"%s\"?",
			      key->text, *path ? " in " : "", path, near);
	else
		field_mistake(
			b, key,
			"unknown key \"%.60s\"%s%s: \"runner check --fields\" lists "
			"the known ones",
			key->text, *path ? " in " : "", path);
}

static const struct field *find_field(const struct field *table, const char *name)
{
	for (; table->name; table++)
		if (!strcmp(table->name, name))
			return table;
	return NULL;
}

void field_bind_table(struct binder *b, const struct field *table, struct node *map,
		      const char *path, void *to)
{
	for (size_t i = 0; i < map->count; i++) {
		struct node *key = map->entries[i].key, *value = map->entries[i].value;
		const struct field *f = find_field(table, key->text);
		char name[FIELD_PATH_MAX];

		if (!f) {
			unknown_key(b, table, key, path);
			continue;
		}
		snprintf(name, sizeof(name), "%s%s%s", path, *path ? "." : "", f->name);
		if (value->kind == NODE_NULL)
			field_mistake(b, key,
				      "%s has no value: write one, or remove the key",
				      name);
		else
			f->bind(b, f, value, name, (char *)to + f->offset);
	}
}

void field_bind_map(struct binder *b, const struct field *f, struct node *node,
		    const char *path, void *to)
{
	const struct field *only =
		f->shorthand ? find_field(f->child, f->shorthand) : NULL;

	if (node->kind == NODE_MAP)
		field_bind_table(b, f->child, node, path, to);
	else if (node->kind == NODE_SCALAR && only)
		only->bind(b, only, node, path, (char *)to + only->offset);
	else
		field_mistake(b, node, "%s takes a map of keys and values", path);
}

/* Never shows the value: it may be the secret itself. */
void field_bind_secret(struct binder *b, const struct field *f, struct node *node,
		       const char *path, void *to)
{
	struct spec_secret *secret = to;

	if (node->kind != NODE_MAP) {
		field_mistake(b, node,
			      "%s must not stand here in clear: give {file: PATH} or "
			      "{env: NAME}",
			      path);
		return;
	}
	field_bind_table(b, f->child, node, path, to);
	if (secret->file && secret->env)
		field_mistake(b, node, "%s: give either file or env", path);
}

static bool is_role_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strlen(name);

	return n >= 1 && n <= SPEC_ROLE_NAME_MAX && strchr(letters, *name) &&
	       strspn(name, allowed) == n;
}

void field_bind_roles(struct binder *b, const struct field *f, struct node *node,
		      const char *path, void *to)
{
	struct spec *spec = b->spec;

	(void)to;
	if (node->kind != NODE_MAP) {
		field_mistake(b, node, "%s takes a map: worker: {count: 2}", path);
		return;
	}
	for (size_t i = 0; i < node->count; i++) {
		struct node *key = node->entries[i].key, *value = node->entries[i].value;
		struct spec_role *role = &spec->roles[spec->role_count];
		char name[FIELD_PATH_MAX];

		if (spec->role_count == SPEC_ROLES_MAX) {
			field_mistake(b, key, "more than %d roles", SPEC_ROLES_MAX);
			return;
		}
		if (!is_role_name(key->text)) {
			field_mistake(b, key,
				      "\"%.40s\" cannot be a role's name: use 1 to %d "
				      "lower-case letters and digits, a letter first",
				      key->text, SPEC_ROLE_NAME_MAX);
			continue;
		}
		*role = (struct spec_role){.name = key->text, .count = 1, .service = -1};
		spec->role_count++;
		snprintf(name, sizeof(name), "%s.%s", path, key->text);
		if (value->kind == NODE_MAP)
			field_bind_table(b, f->child, value, name, role);
		else if (value->kind != NODE_NULL)
			field_mistake(b, value, "%s takes a map: {count: 2}", name);
	}
}

/* ---- the whole file --------------------------------------------------------------------- */

static void bind(struct spec *spec, const char *base_dir, struct mistakes *m)
{
	char cwd[PATH_MAX];
	struct binder b = {spec, m, base_dir, getcwd(cwd, sizeof(cwd)) ? cwd : "/"};
	struct node *root = node_root(spec->doc);

	spec->framework = FRAMEWORK_CUSTOM;
	spec->grace_ms = 30000;
	if (root->kind != NODE_MAP) {
		field_mistake(&b, root,
			      "a job file is a map that begins with \"name: …\"");
		return;
	}
	field_bind_table(&b, spec_fields, root, "", spec);
	spec_check(spec, m);
}

int spec_parse(const char *source, const char *text, size_t n, const char *base_dir,
	       const char *const *sets, size_t set_count, struct spec **out,
	       struct mistakes *m)
{
	size_t before = m->count;
	struct node_doc *doc;
	struct spec *spec;
	int r;

	r = node_parse(source, text, n, &doc, m);
	if (r < 0)
		return err_trace(r);
	spec = xcalloc(1, sizeof(*spec));
	spec->doc = doc;
	for (size_t i = 0; i < set_count; i++)
		node_set(doc, sets[i], m); /* what is wrong is in the mistakes */
	bind(spec, base_dir, m);
	if (m->count > before) {
		spec_free(spec);
		return err_origin(-EINVAL);
	}
	*out = spec;
	return 0;
}

int spec_load(const char *path, const char *const *sets, size_t set_count,
	      struct spec **out, struct mistakes *m)
{
	_cleanup_(buf_fini) struct buf text = BUF_INIT;
	char absolute[PATH_MAX];
	char *slash;
	int r;

	r = io_read_file(AT_FDCWD, path, NODE_TEXT_MAX, &text);
	if (r == 0 && !realpath(path, absolute))
		r = err_origin(-errno);
	if (r < 0) {
		mistakes_add(m, (struct mistake_place){.source = path}, EXIT_USAGE,
			     "cannot be read: %s",
			     r == -EFBIG ? "larger than 1 MiB, not a job file"
					 : strerror(-r));
		return err_trace(r);
	}
	slash = strrchr(absolute, '/');
	slash[slash == absolute] = '\0';
	return spec_parse(path, text.data ? text.data : "", text.len, absolute, sets,
			  set_count, out, m);
}

struct mistake_place spec_place(const struct spec *spec, const char *format, ...)
{
	char path[FIELD_PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	return node_nearest(spec->doc, path)->place;
}

int spec_write(const struct spec *spec, FILE *out)
{
	return node_write(spec->doc, out);
}

size_t spec_replica_count(const struct spec *spec)
{
	size_t count = 0;

	for (size_t i = 0; i < spec->role_count; i++)
		count += spec->roles[i].count;
	return count;
}
