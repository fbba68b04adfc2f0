/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "fs/backend/creds_file.h"
#include "fs/base/err.h"

/* Copies a string member and wipes it where it stood. Missing: "". */
static int take(json_t *object, const char *name, char *out, size_t out_size,
		const char *what, struct why *why)
{
	json_t *value = json_object_get(object, name);
	size_t n = json_string_length(value);

	out[0] = '\0';
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value) || n >= out_size)
		return why_set(why, err_origin(-EINVAL),
			       "%s: %s is not a string of under "
			       "%zu bytes",
			       what, name, out_size);
	memcpy(out, json_string_value(value), n + 1);
	explicit_bzero((void *)(uintptr_t)json_string_value(value), n);
	return 0;
}

/* "2025-01-01T06:00:00Z" */
static int parse_time(const char *text, int64_t *s)
{
	struct tm tm = {0};
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);

	if (!end || *end)
		return err_origin(-EINVAL);
	*s = timegm(&tm);
	return 0;
}

static int read_members(json_t *object, const char *what, int64_t now_s,
			struct creds_reply *out, struct why *why)
{
	char code[64], expiration[64];
	int64_t expires = 0;
	int r = take(object, "Code", code, sizeof(code), what, why);

	if (r == 0 && code[0] && strcmp(code, "Success") != 0)
		return why_set(why, err_origin(-EIO), "%s answers with code %s", what,
			       code);
	if (r == 0)
		r = take(object, "AccessKeyId", out->set.id, sizeof(out->set.id), what,
			 why);
	if (r == 0)
		r = take(object, "AccessKeySecret", out->set.secret,
			 sizeof(out->set.secret), what, why);
	if (r == 0)
		r = take(object, "SecurityToken", out->set.token, sizeof(out->set.token),
			 what, why);
	if (r == 0)
		r = take(object, "Expiration", expiration, sizeof(expiration), what, why);
	if (r == 0)
		r = creds_set_check(&out->set, what, why);
	if (r < 0 || !expiration[0])
		return r;
	if (parse_time(expiration, &expires) < 0)
		return why_set(why, err_origin(-EINVAL),
			       "%s: Expiration is not like 2025-01-01T06:00:00Z", what);
	out->lifetime_s = expires - now_s;
	if (out->lifetime_s <= 0)
		return why_set(why, err_origin(-EKEYEXPIRED),
			       "%s gives credentials that expired %lld s ago", what,
			       (long long)-out->lifetime_s);
	return 0;
}

int creds_parse_json(const char *text, size_t n, const char *what, int64_t now_s,
		     struct creds_reply *out, struct why *why)
{
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	int r;

	*out = (struct creds_reply){0};
	/* The parser's own words may quote what it met. */
	if (!json_is_object(root)) {
		json_decref(root);
		return why_set(why, err_origin(-EINVAL), "%s: not a JSON object", what);
	}
	r = read_members(root, what, now_s, out, why);
	json_decref(root);
	if (r < 0)
		explicit_bzero(out, sizeof(*out));
	return r;
}
