/* SPDX-License-Identifier: Apache-2.0 */
/* The schema of the job file as tables, and how one value is read. Private to spec*.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runner/mistakes.h"
#include "runner/node.h"
#include "runner/spec.h"

#define FIELD_PATH_MAX 160 /* "roles.worker.env.NAME", for messages; longer is cut */

struct binder {
	struct spec *spec;
	struct mistakes *mistakes;
	const char *base_dir; /* relative paths of the file start here */
	const char *cwd;      /* those of --set here */
};

struct field;

/* Reads `node` (never null) into `to`; what is wrong goes to the mistakes. */
typedef void (*field_fn)(struct binder *b, const struct field *f, struct node *node,
			 const char *path, void *to);

struct field {
	const char *name;
	field_fn bind;
	size_t offset;             /* in the struct that the table describes */
	const char *type;          /* for --fields */
	const char *help;          /* one line: lower case, no full stop */
	uint64_t min, max;         /* numbers; lengths of texts */
	const char *const *names;  /* choices, NULL at the end */
	const struct field *child; /* maps */
	const char *shorthand;     /* maps: a bare value means this field of the child */
};

extern const struct field spec_fields[];      /* struct spec */
extern const struct field spec_role_fields[]; /* struct spec_role */

/* Binds each entry of `map` by the table; unknown keys are mistakes. */
void field_bind_table(struct binder *b, const struct field *table, struct node *map,
		      const char *path, void *to);

void field_bind_map(struct binder *, const struct field *, struct node *, const char *,
		    void *);
void field_bind_secret(struct binder *, const struct field *, struct node *, const char *,
		       void *);
void field_bind_roles(struct binder *, const struct field *, struct node *, const char *,
		      void *);
void field_bind_name(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_text(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_file(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_target(struct binder *, const struct field *, struct node *, const char *,
		       void *);
void field_bind_image(struct binder *, const struct field *, struct node *, const char *,
		      void *);
void field_bind_source(struct binder *, const struct field *, struct node *, const char *,
		       void *);
void field_bind_url(struct binder *, const struct field *, struct node *, const char *,
		    void *);
void field_bind_git(struct binder *, const struct field *, struct node *, const char *,
		    void *);
void field_bind_commit(struct binder *, const struct field *, struct node *, const char *,
		       void *);
void field_bind_reference(struct binder *, const struct field *, struct node *,
			  const char *, void *);
/* As a choice, but kept as the word. */
void field_bind_word(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_choice(struct binder *, const struct field *, struct node *, const char *,
		       void *);
void field_bind_bool(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_uint(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_cpu(struct binder *, const struct field *, struct node *, const char *,
		    void *);
void field_bind_size(struct binder *, const struct field *, struct node *, const char *,
		     void *);
void field_bind_duration(struct binder *, const struct field *, struct node *,
			 const char *, void *);
void field_bind_ports(struct binder *, const struct field *, struct node *, const char *,
		      void *);
void field_bind_command(struct binder *, const struct field *, struct node *,
			const char *, void *);
void field_bind_pairs(struct binder *, const struct field *, struct node *, const char *,
		      void *);

/* Zeroed memory that lives as long as the spec. */
void *spec_block(struct spec *spec, size_t count, size_t size);

/* The scalar's text, or NULL and a mistake when it is a map or a list. */
const char *field_scalar(struct binder *b, struct node *node, const char *path);

/* Digits only: strtoull would take signs and blanks. -EINVAL. */
int field_parse_uint(const char *text, uint64_t *value);

#define field_mistake(b, node, ...)                                                      \
	mistakes_add((b)->mistakes, (node)->place, EXIT_USAGE, __VA_ARGS__)

/* Rules over several fields: roles of the framework, counts, placeholders, names that are
 * reserved. Fills defaults that depend on others. */
void spec_check(struct spec *spec, struct mistakes *m);
