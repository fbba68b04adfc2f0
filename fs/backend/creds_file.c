/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/creds_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

#define SYSTEM_PASSWD "/etc/passwd-ossfs"
#define LINE_MAX_BYTES 8192
#define INHERIT_MAX 8

/* ---- modes ---------------------------------------------------------------------------- */

static int check_mode(const char *path, const struct stat *st, struct why *why)
{
	bool is_system = !strcmp(path, SYSTEM_PASSWD);
	mode_t group = is_system ? S_IWGRP : S_IRWXG;

	if (!S_ISREG(st->st_mode))
		return why_set(why, err_origin(-EINVAL), "%s is not a file", path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return why_set(
			why, err_origin(-EACCES),
			"%s belongs to uid %u: credentials must belong to uid %u or "
			"root",
			path, st->st_uid, geteuid());
	if (st->st_mode & (S_IRWXO | group))
		return why_set(why, err_origin(-EACCES),
			       "%s can be %s by others: run chmod %s %s", path,
			       st->st_mode & (S_IWOTH | S_IWGRP) ? "written" : "read",
			       is_system ? "640" : "600", path);
	if (st->st_mode & (S_IXUSR | S_IXGRP))
		return why_set(why, err_origin(-EACCES),
			       "%s is executable: run chmod %s %s", path,
			       is_system ? "640" : "600", path);
	return 0;
}

int creds_file_read(const char *path, char *text, size_t *n, struct why *why)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t got;
	int r;

	if (fd < 0) {
		r = -errno;
		return why_set(why, err_origin(r), "%s: %s", path, strerror(-r));
	}
	if (fstat(fd, &st) < 0)
		return err_origin(-errno);
	r = check_mode(path, &st, why);
	if (r < 0)
		return r;
	got = io_pread(fd, text, CREDS_FILE_MAX + 1, 0);
	if (got < 0)
		return why_set(why, (int)got, "%s: %s", path, strerror((int)-got));
	if (got > CREDS_FILE_MAX)
		return why_set(why, err_origin(-EINVAL),
			       "%s is too large for credentials", path);
	text[got] = '\0';
	*n = (size_t)got;
	return 0;
}

/* ---- lines ---------------------------------------------------------------------------- */

struct lines {
	const char *next, *end, *path;
	int number;
	char text[LINE_MAX_BYTES]; /* trimmed; holds secrets */
};

static void lines_fini(struct lines *l)
{
	explicit_bzero(l->text, sizeof(l->text));
}

/* The next line that says something: 1; the end: 0; -EINVAL. */
static int lines_next(struct lines *l, struct why *why)
{
	while (l->next < l->end) {
		const char *start = l->next;
		const char *stop = memchr(start, '\n', (size_t)(l->end - start));
		size_t n;

		l->next = stop ? stop + 1 : l->end;
		stop = stop ? stop : l->end;
		l->number++;
		while (stop > start && strchr(" \t\r", stop[-1]))
			stop--;
		while (start < stop && strchr(" \t", *start))
			start++;
		n = (size_t)(stop - start);
		if (n >= sizeof(l->text) || memchr(start, '\0', n))
			return why_set(why, err_origin(-EINVAL),
				       "%s:%d: not a line of text", l->path, l->number);
		if (!n || *start == '#' || *start == ';')
			continue;
		memcpy(l->text, start, n);
		l->text[n] = '\0';
		return 1;
	}
	return 0;
}

static int line_error(const struct lines *l, struct why *why, const char *what)
{
	return why_set(why, err_origin(-EINVAL), "%s:%d: %s", l->path, l->number, what);
}

static int copy_value(const struct lines *l, char *out, size_t out_size,
		      const char *value, struct why *why)
{
	size_t n = strlen(value);

	if (n >= out_size)
		return line_error(l, why, "the value is too long");
	memcpy(out, value, n + 1);
	return 0;
}

/* ---- ossfs ---------------------------------------------------------------------------- */

struct passwd_state {
	struct creds_set found; /* the default pair */
	bool has_default, has_bucket;
};

/* One line "ID:SECRET" or "BUCKET:ID:SECRET". */
static int passwd_line(struct lines *l, const char *bucket, struct passwd_state *state,
		       struct creds_set *of_bucket, struct why *why)
{
	char *first = strchr(l->text, ':');
	char *second = first ? strchr(first + 1, ':') : NULL;
	struct creds_set *to = &state->found;
	const char *id = l->text, *secret;
	int r;

	if (!first || (second && strchr(second + 1, ':')))
		return line_error(l, why, "expected ID:SECRET or BUCKET:ID:SECRET");
	*first = '\0';
	secret = first + 1;
	if (second) {
		*second = '\0';
		if (!bucket || strcmp(bucket, l->text) != 0)
			return 0;
		if (state->has_bucket)
			return line_error(l, why, "a second line for this bucket");
		state->has_bucket = true;
		to = of_bucket;
		id = first + 1;
		secret = second + 1;
	} else if (state->has_default) {
		return line_error(l, why, "a second default pair");
	} else {
		state->has_default = true;
	}
	r = copy_value(l, to->id, sizeof(to->id), id, why);
	return r < 0 ? r : copy_value(l, to->secret, sizeof(to->secret), secret, why);
}

/* One line of the pair form: 1 when it is one. */
static int passwd_pair(struct lines *l, struct passwd_state *state, struct why *why)
{
	struct creds_set *set = &state->found;
	const char *value = strchr(l->text, '=');
	int r;

	if (!value)
		return 0;
	if (!strncmp(l->text, "OSSAccessKeyId=", 15))
		r = copy_value(l, set->id, sizeof(set->id), value + 1, why);
	else if (!strncmp(l->text, "OSSSecretKey=", 13))
		r = copy_value(l, set->secret, sizeof(set->secret), value + 1, why);
	else
		return 0;
	state->has_default = set->id[0] && set->secret[0];
	return r < 0 ? r : 1;
}

static int passwd_lines(struct lines *l, const char *bucket, struct passwd_state *state,
			struct creds_set *of_bucket, struct why *why)
{
	int r;

	while ((r = lines_next(l, why)) > 0) {
		if (l->text[0] == '[')
			return line_error(l, why,
					  "a line may not start with '[': this is not an "
					  "INI file");
		if (strpbrk(l->text, " \t"))
			return line_error(l, why, "a blank inside the line");
		r = passwd_pair(l, state, why);
		if (r == 0)
			r = passwd_line(l, bucket, state, of_bucket, why);
		if (r < 0)
			break;
	}
	return r;
}

int creds_parse_passwd(const char *text, size_t n, const char *path, const char *bucket,
		       struct creds_set *out, struct why *why)
{
	_cleanup_(lines_fini) struct lines l = {text, text + n, path, 0, ""};
	struct passwd_state state = {0};
	struct creds_set of_bucket = {0};
	int r = passwd_lines(&l, bucket, &state, &of_bucket, why);

	if (r == 0 && !state.has_bucket && !state.found.id[0] && !state.found.secret[0])
		r = why_set(why, err_origin(-EINVAL), "%s: no line ID:SECRET%s%s", path,
			    bucket && *bucket ? ", nor one for bucket " : "",
			    bucket ? bucket : "");
	if (r == 0)
		*out = state.has_bucket ? of_bucket : state.found;
	creds_set_wipe(&of_bucket);
	explicit_bzero(&state, sizeof(state));
	return r < 0 ? r : creds_set_check(out, path, why);
}

/* ---- ossutil -------------------------------------------------------------------------- */

/* "access-key-id", "accessKeyID", "access_key_id": all the same. */
static bool is_key(const char *text, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (c == '-' || c == '_')
			continue;
		if (c >= 'A' && c <= 'Z')
			c = (char)(c - 'A' + 'a');
		if (c != *key++)
			return false;
	}
	return *key == '\0';
}

struct ossutil_state {
	struct creds_ossutil *out;
	char source[64]; /* of source-profile */
	bool found;      /* the section */
};

/* A value that an inheriting profile has set already stays. */
static int set_once(const struct lines *l, char *out, size_t out_size, const char *value,
		    struct why *why)
{
	return *out ? 0 : copy_value(l, out, out_size, value, why);
}

static int ossutil_value(const struct lines *l, struct ossutil_state *state,
			 struct why *why)
{
	struct creds_ossutil *out = state->out;
	const char *equals = strchr(l->text, '='), *value;
	size_t n;

	if (!equals)
		return line_error(l, why, "expected name = value");
	for (n = (size_t)(equals - l->text); n && strchr(" \t", l->text[n - 1]); n--)
		;
	value = equals + 1 + strspn(equals + 1, " \t");
	if (is_key(l->text, n, "accesskeyid"))
		return set_once(l, out->set.id, sizeof(out->set.id), value, why);
	if (is_key(l->text, n, "accesskeysecret"))
		return set_once(l, out->set.secret, sizeof(out->set.secret), value, why);
	if (is_key(l->text, n, "ststoken"))
		return set_once(l, out->set.token, sizeof(out->set.token), value, why);
	if (is_key(l->text, n, "mode"))
		return set_once(l, out->mode, sizeof(out->mode), value, why);
	if (is_key(l->text, n, "ecsrolename"))
		return set_once(l, out->role, sizeof(out->role), value, why);
	if (is_key(l->text, n, "sourceprofile"))
		return copy_value(l, state->source, sizeof(state->source), value, why);
	return 0;
}

/* "[default]", "[profile NAME]", "[NAME]". */
static bool is_section(const char *line, const char *name)
{
	size_t n = strlen(line), m = strlen(name);

	if (n < 2 || line[n - 1] != ']')
		return false;
	line++;
	n -= 2;
	if (n > 8 && !strncmp(line, "profile ", 8)) {
		line += 8;
		n -= 8;
		while (n && *line == ' ') {
			line++;
			n--;
		}
	}
	return n == m && !strncmp(line, name, n);
}

static int ossutil_section(const char *text, size_t n, const char *path, const char *name,
			   struct ossutil_state *state, struct why *why)
{
	_cleanup_(lines_fini) struct lines l = {text, text + n, path, 0, ""};
	bool inside = false;
	int r;

	state->found = false;
	state->source[0] = '\0';
	while ((r = lines_next(&l, why)) > 0) {
		if (l.text[0] == '[') {
			inside = is_section(l.text, name);
			state->found |= inside;
		} else if (inside) {
			r = ossutil_value(&l, state, why);
			if (r < 0)
				return r;
		}
	}
	return r;
}

/* Version 1's way to name a service that gives credentials. */
static int ossutil_service(const char *text, size_t n, const char *path,
			   struct creds_ossutil *out, struct why *why)
{
	_cleanup_(lines_fini) struct lines l = {text, text + n, path, 0, ""};
	bool inside = false;
	int r;

	while ((r = lines_next(&l, why)) > 0) {
		if (l.text[0] == '[')
			inside = is_section(l.text, "AkService");
		else if (inside && !strncmp(l.text, "ecsAk=", 6))
			return copy_value(&l, out->service, sizeof(out->service),
					  l.text + 6, why);
	}
	return r;
}

int creds_parse_ossutil(const char *text, size_t n, const char *path, const char *profile,
			struct creds_ossutil *out, struct why *why)
{
	struct ossutil_state state = {.out = out};
	char name[64];
	int r;

	*out = (struct creds_ossutil){0};
	snprintf(name, sizeof(name), "%s", *profile ? profile : "default");
	r = ossutil_section(text, n, path, name, &state, why);
	if (r == 0 && !state.found && !*profile)
		r = ossutil_section(text, n, path, "Credentials", &state, why);
	if (r == 0 && !state.found)
		return why_set(why, err_origin(-EINVAL), "%s: no profile %s", path, name);
	for (int i = 0; r == 0 && state.source[0]; i++) {
		if (i == INHERIT_MAX)
			return why_set(why, err_origin(-EINVAL),
				       "%s: source-profile goes in a circle", path);
		memcpy(name, state.source, sizeof(name));
		r = ossutil_section(text, n, path, name, &state, why);
		if (r == 0 && !state.found)
			return why_set(why, err_origin(-EINVAL), "%s: no profile %s",
				       path, name);
	}
	return r < 0 ? r : ossutil_service(text, n, path, out, why);
}
