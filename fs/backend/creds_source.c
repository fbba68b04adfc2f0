/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/creds_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/err.h"

/* ---- what a set must be --------------------------------------------------------------- */

/* Printable ASCII without blanks: it goes into request headers. */
static bool is_header_safe(const char *s)
{
	for (; *s; s++)
		if (*s <= 0x20 || *s >= 0x7f)
			return false;
	return true;
}

int creds_set_check(const struct creds_set *set, const char *what, struct why *why)
{
	const char *fault = NULL;

	if (!set->id[0])
		fault = "the access key id is empty";
	else if (!set->secret[0])
		fault = "the access key secret is missing";
	else if (!is_header_safe(set->id))
		fault = "the access key id holds a blank or a control character";
	else if (!is_header_safe(set->secret))
		fault = "the access key secret holds a blank or a control character";
	else if (!is_header_safe(set->token))
		fault = "the security token holds a blank or a control character";
	return fault ? why_set(why, err_origin(-EINVAL), "%s: %s", what, fault) : 0;
}

/* ---- environment ---------------------------------------------------------------------- */

static const struct env_names {
	const char *id, *secret, *token;
} env_names[] = {
	{"OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"},
	{"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
	 "ALIBABA_CLOUD_SECURITY_TOKEN"},
};

static const char *env_get(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int env_copy(char *out, size_t out_size, const char *name, struct why *why)
{
	const char *value = env_get(name);

	if (value && strlen(value) >= out_size)
		return why_set(why, err_origin(-EINVAL), "%s is longer than %zu bytes", name,
			       out_size - 1);
	strcpy(out, value ? value : "");
	return 0;
}

static int load_env(struct creds_reply *out, struct why *why)
{
	for (size_t i = 0; i < sizeof(env_names) / sizeof(*env_names); i++) {
		const struct env_names *n = &env_names[i];
		struct creds_set *set = &out->set;
		int r;

		if (!env_get(n->id) && !env_get(n->secret))
			continue;
		if (!env_get(n->id) || !env_get(n->secret))
			return why_set(why, err_origin(-EINVAL),
				       "%s is set but %s is not: set both",
				       env_get(n->id) ? n->id : n->secret,
				       env_get(n->id) ? n->secret : n->id);
		r = env_copy(set->id, sizeof(set->id), n->id, why);
		if (r == 0)
			r = env_copy(set->secret, sizeof(set->secret), n->secret, why);
		if (r == 0)
			r = env_copy(set->token, sizeof(set->token), n->token, why);
		return r < 0 ? r : creds_set_check(set, "credentials in the environment", why);
	}
	return why_set(why, err_origin(-ENOENT),
		       "no credentials in the environment: set OSS_ACCESS_KEY_ID and "
		       "OSS_ACCESS_KEY_SECRET");
}

/* ---- references ----------------------------------------------------------------------- */

int creds_source_parse(const char *reference, struct creds_source *out, struct why *why)
{
	*out = (struct creds_source){0};
	if (!strcmp(reference, "env")) {
		out->kind = CREDS_ENV;
		strcpy(out->text, "environment");
		return 0;
	}
	if (!strcmp(reference, "anonymous")) {
		out->kind = CREDS_ANONYMOUS;
		strcpy(out->text, "anonymous");
		return 0;
	}
	return why_set(why, err_origin(-EINVAL), "credentials: unknown reference");
}

int creds_source_load(const struct creds_source *source, struct creds_reply *out,
		      struct why *why)
{
	*out = (struct creds_reply){0};
	return source->kind == CREDS_ANONYMOUS ? 0 : load_env(out, why);
}

int creds_source_find(struct creds_source *source, struct creds_reply *out,
		      struct why *why)
{
	int r = creds_source_parse("env", source, why);

	return r < 0 ? r : creds_source_load(source, out, why);
}

bool creds_source_renewable(const struct creds_source *source)
{
	return source->kind > CREDS_ENV;
}
