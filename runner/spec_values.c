/* SPDX-License-Identifier: Apache-2.0 */
/* How one value of the job file is read: text to data, or a mistake that says what to
 * write instead. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/exit.h"
#include "fs/base/suggest.h"
#include "fs/base/units.h"
#include "fs/base/xalloc.h"
#include "runner/spec_fields.h"

static const char alnum[] =
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

const char *field_scalar(struct binder *b, struct node *node, const char *path)
{
	if (node->kind == NODE_SCALAR)
		return node->text;
	field_mistake(b, node, "%s takes a single value, not a %s", path,
		      node->kind == NODE_MAP ? "map" : "list");
	return NULL;
}

void field_bind_text(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	if (!text)
		return;
	if (strlen(text) < f->min || (f->max && strlen(text) > f->max))
		field_mistake(b, node, "%s must have %d to %d characters", path,
			      (int)f->min, (int)f->max);
	else if (strpbrk(text, "\n\r\t") || *text == '-')
		field_mistake(b, node,
			      "%s must be one line that does not begin with \"-\"", path);
	else
		*(const char **)to = text;
}

void field_bind_name(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	size_t n = text ? strlen(text) : 0;

	(void)f;
	if (!text)
		return;
	if (n == 0 || n > SPEC_NAME_MAX || strspn(text + strspn(text, alnum), "-") == n ||
	    *text == '-')
		goto refuse;
	for (const char *c = text; *c; c++)
		if (*c != '-' && !strchr(alnum, *c))
			goto refuse;
	*(const char **)to = text;
	return;
refuse:
	field_mistake(b, node,
		      "\"%.80s\" cannot be a job's name: use 1 to %d letters, digits and "
		      "hyphens, not beginning with a hyphen",
		      text, SPEC_NAME_MAX);
}

/* Relative to the job file's directory; rewritten in the document, so that spec_write() gives a file
 * that means the same elsewhere. */
void field_bind_file(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	if (!*text || strchr(text, '\n')) {
		field_mistake(b, node, "%s must be a path", path);
		return;
	}
	if (*text != '/') {
		/* A --set is typed in the shell's directory, not in the file's. */
		const char *base = node->place.line ? b->base_dir : b->cwd;
		char *absolute = xasprintf("%s/%s", base,
					   strncmp(text, "./", 2) ? text : text + 2);

		free(node->text);
		node->text = absolute;
	}
	*(const char **)to = node->text;
}

static bool has_dot_component(const char *path)
{
	while (*path) {
		size_t n = strcspn(path, "/");

		if ((n == 1 && path[0] == '.') || (n == 2 && !strncmp(path, "..", 2)))
			return true;
		path += n + (path[n] == '/');
	}
	return false;
}

void field_bind_target(struct binder *b, const struct field *f, struct node *node,
		       const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	if (*text != '/' || has_dot_component(text) || strstr(text, "//") ||
	    strchr(text, '\n'))
		field_mistake(
			b, node,
			"%s must be an absolute path without \".\" and \"..\", such "
			"as /code",
			path);
	else
		*(const char **)to = text;
}

void field_bind_image(struct binder *b, const struct field *f, struct node *node,
		      const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	if (!text)
		return;
	if (!strcmp(text, "host"))
		*(const char **)to = text;
	else if (strchr(text, '/') == text || !strncmp(text, "./", 2) ||
		 !strncmp(text, "../", 3))
		field_bind_file(b, f, node, path, to);
	else
		field_mistake(
			b, node,
			"%s: \"%.80s\" is no image of this engine: write \"host\" or "
			"the path of a directory that holds a root file system",
			path, text);
}

static bool is_bucket(const char *name, size_t n)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	return n >= 3 && n <= 63 && strspn(name, allowed) >= n && *name != '-' &&
	       name[n - 1] != '-';
}

/* NULL when it is good, else what to write. */
static const char *source_fault(const char *text)
{
	const char *rest = strstr(text, "://");

	if (!rest) {
		if (!*text || *text == '-' || strspn(text, alnum) + 0 == 0 ||
		    strpbrk(text, "/:@ \n"))
			return "write oss://bucket/prefix, nfs://server/export, "
			       "file:///path or the name of a volume";
		return NULL;
	}
	rest += 3;
	if (strpbrk(rest, "\n\r"))
		return "remove the line break";
	if (!strncmp(text, "oss://", 6))
		return is_bucket(rest, strcspn(rest, "/"))
			       ? NULL
			       : "a bucket's name has 3 to 63 lower-case letters, digits "
				 "and "
				 "hyphens: oss://bucket/prefix";
	if (!strncmp(text, "file://", 7))
		return *rest == '/' ? NULL : "give an absolute path: file:///data/set";
	if (!strncmp(text, "nfs://", 6))
		return *rest && *rest != '/' && strchr(rest, '/')
			       ? NULL
			       : "give server and export: nfs://server/export";
	return "known kinds are oss://, nfs:// and file://";
}

void field_bind_source(struct binder *b, const struct field *f, struct node *node,
		       const char *path, void *to)
{
	const char *text = field_scalar(b, node, path), *fault;

	(void)f;
	if (!text)
		return;
	fault = source_fault(text);
	if (fault)
		field_mistake(b, node, "%s: \"%.80s\" is no source: %s", path, text,
			      fault);
	else
		*(const char **)to = text;
}

static bool is_http(const char *url)
{
	return !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
}

/* "user:password@" before the host. */
static bool has_login(const char *url)
{
	const char *host = strstr(url, "://") + 3;

	return memchr(host, '@', strcspn(host, "/?#")) != NULL;
}

void field_bind_url(struct binder *b, const struct field *f, struct node *node,
		    const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	if (strpbrk(text, " \t\n\r\"'") || *text == '-' || !*text)
		field_mistake(b, node, "%s is no address: write https://host", path);
	else if (strstr(text, "://") && !is_http(text))
		field_mistake(b, node, "%s must begin with http:// or https://", path);
	else if (strstr(text, "://") && has_login(text))
		field_mistake(b, node,
			      "%s must not hold credentials: use the key "
			      "\"credentials\"",
			      path);
	else
		*(const char **)to = text;
}

void field_bind_git(struct binder *b, const struct field *f, struct node *node,
		    const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	if (!is_http(text))
		field_mistake(b, node,
			      "%s: only http and https repositories can be fetched (not "
			      "ssh): write https://host/path.git",
			      path);
	else if (strpbrk(text, " \t\n\r"))
		field_mistake(b, node, "%s must not hold blanks", path);
	else if (has_login(text))
		field_mistake(b, node,
			      "%s must not hold credentials: use code.user and "
			      "code.password: {file: PATH}",
			      path);
	else if (!strstr(text, "://")[3])
		field_mistake(b, node, "%s names no host: write https://host/path.git",
			      path);
	else
		*(const char **)to = text;
}

void field_bind_commit(struct binder *b, const struct field *f, struct node *node,
		       const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	size_t n;

	(void)f;
	if (!text)
		return;
	n = strlen(text);
	if (n < 7 || n > 64 || strspn(text, "0123456789abcdef") != n)
		field_mistake(
			b, node,
			"%s must be a commit's hash: 7 to 64 lower-case hexadecimal "
			"digits",
			path);
	else
		*(const char **)to = text;
}

/* Where credentials are, not what they are; anything else may be a secret and is not shown. */
void field_bind_reference(struct binder *b, const struct field *f, struct node *node,
			  const char *path, void *to)
{
	static const char *const whole[] = {"env", "anonymous", "ram-role"};
	static const char *const prefixes[] = {
		"file:/",    "ossutil:/",   "passwd:/",
		"ram-role:", "uri:http://", "uri:https://"};
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++)
		if (!strcmp(text, whole[i]))
			*(const char **)to = text;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(text, prefixes[i], strlen(prefixes[i])))
			*(const char **)to = text;
	if (!*(const char **)to)
		field_mistake(b, node,
			      "%s must say where the credentials are: env, file:/PATH, "
			      "ossutil:/PATH, passwd:/PATH, ram-role[:NAME], uri:URL or "
			      "anonymous",
			      path);
}

void field_bind_word(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	int index = -1;

	field_bind_choice(b, f, node, path, &index);
	if (index >= 0)
		*(const char **)to = f->names[index];
}

void field_bind_choice(struct binder *b, const struct field *f, struct node *node,
		       const char *path, void *to)
{
	const char *text = field_scalar(b, node, path), *near;
	char all[160] = "";
	size_t i;

	if (!text)
		return;
	for (i = 0; f->names[i]; i++) {
		if (!strcmp(f->names[i], text)) {
			*(int *)to = (int)i;
			return;
		}
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
			 i ? ", " : "", f->names[i]);
	}
	near = suggest_nearest(text, f->names, i, sizeof(*f->names));
	if (near)
		field_mistake(b, node, "%s: unknown \"%.40s\", did you mean \"%s\"?",
			      path, text, near);
	else
		field_mistake(b, node, "%s: unknown \"%.40s\", must be one of %s", path,
			      text, all);
}

void field_bind_bool(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);

	(void)f;
	if (!text)
		return;
	if (!strcmp(text, "true") || !strcmp(text, "yes"))
		*(int *)to = 1;
	else if (!strcmp(text, "false") || !strcmp(text, "no"))
		*(int *)to = 0;
	else
		field_mistake(b, node, "%s must be true or false, not \"%.40s\"", path,
			      text);
}

int field_parse_uint(const char *text, uint64_t *value)
{
	size_t n = strlen(text);

	if (n == 0 || n > 18 || strspn(text, "0123456789") != n)
		return -EINVAL;
	*value = strtoull(text, NULL, 10);
	return 0;
}

void field_bind_uint(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	uint64_t value;

	if (!text)
		return;
	if (field_parse_uint(text, &value) < 0)
		field_mistake(b, node, "%s: \"%.40s\" is not a whole number", path, text);
	else if (value < f->min || value > f->max)
		field_mistake(b, node, "%s must be from %d to %d, not %.40s", path,
			      (int)f->min, (int)f->max, text);
	else
		*(uint64_t *)to = value;
}

#define CPU_MILLIS_MIN 10
#define CPU_CORES_MAX 100000

void field_bind_cpu(struct binder *b, const struct field *f, struct node *node,
		    const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	uint64_t millis = 0;
	double cores;
	size_t n;

	(void)f;
	if (!text)
		return;
	n = strlen(text);
	if (n > 1 && n < 12 && text[n - 1] == 'm' &&
	    strspn(text, "0123456789") == n - 1) {
		millis = strtoull(text, NULL, 10);
	} else if (n > 0 && n < 12 && strspn(text, "0123456789.") == n &&
		   strchr(text, '.') == strrchr(text, '.') && strcmp(text, ".") != 0) {
		cores = strtod(text, NULL);
		millis = cores > CPU_CORES_MAX ? UINT64_MAX
					       : (uint64_t)(cores * 1000 + .5);
	} else {
		field_mistake(
			b, node,
			"%s: \"%.40s\" is not a number of cores: write 2, 0.5 or 500m",
			path, text);
		return;
	}
	if (millis < CPU_MILLIS_MIN || millis / 1000 > CPU_CORES_MAX)
		field_mistake(b, node, "%s must be from 0.01 to %d cores, not %.40s",
			      path, CPU_CORES_MAX, text);
	else
		*(uint64_t *)to = millis;
}

void field_bind_size(struct binder *b, const struct field *f, struct node *node,
		     const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	char least[16];
	uint64_t bytes;

	if (!text)
		return;
	if (units_parse_size(text, &bytes) < 0)
		field_mistake(b, node,
			      "%s: \"%.40s\" is not a size: write it like 512M or 2GiB",
			      path, text);
	else if (bytes < f->min)
		field_mistake(b, node,
			      "%s: \"%.40s\" is less than %s: write it with a unit, like "
			      "512M or 2GiB",
			      path, text,
			      units_format_size(least, sizeof(least), f->min));
	else
		*(uint64_t *)to = bytes;
}

void field_bind_duration(struct binder *b, const struct field *f, struct node *node,
			 const char *path, void *to)
{
	const char *text = field_scalar(b, node, path);
	char most[24];
	uint64_t ms;

	if (!text)
		return;
	if (units_parse_duration(text, &ms) < 0)
		field_mistake(b, node,
			      "%s: \"%.40s\" is not a duration: write it like 30s or 5m",
			      path, text);
	else if (f->max && ms > f->max)
		field_mistake(b, node, "%s: \"%.40s\" is more than %s", path, text,
			      units_format_duration(most, sizeof(most), f->max));
	else
		*(uint64_t *)to = ms;
}
