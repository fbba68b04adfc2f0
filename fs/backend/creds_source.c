/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/creds_source.h"

#include <assert.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/creds_file.h"
#include "fs/backend/creds_http.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"

#define SYSTEM_PASSWD "/etc/passwd-ossfs"

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
		return why_set(why, err_origin(-EINVAL), "%s is longer than %zu bytes",
			       name, out_size - 1);
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
		return r < 0 ? r
			     : creds_set_check(set, "credentials in the environment",
					       why);
	}
	return why_set(why, err_origin(-ENOENT),
		       "no credentials in the environment: set OSS_ACCESS_KEY_ID and "
		       "OSS_ACCESS_KEY_SECRET");
}

/* ---- files ---------------------------------------------------------------------------- */

/* Our own: the JSON that services give, or one line ID:SECRET or ID:SECRET:TOKEN. */
static int parse_own(char *text, size_t n, const char *path, struct creds_reply *out,
		     struct why *why)
{
	char *start = text + strspn(text, " \t\r\n"), *secret, *token;
	struct creds_set *set = &out->set;

	if (*start == '{')
		return creds_parse_json(text, n, path, clock_real_ns() / 1000000000, out,
					why);
	start[strcspn(start, " \t\r\n")] = '\0';
	secret = strchr(start, ':');
	if (!secret)
		return why_set(why, err_origin(-EINVAL),
			       "%s: expected ID:SECRET, ID:SECRET:TOKEN or JSON", path);
	*secret++ = '\0';
	token = strchr(secret, ':');
	if (token)
		*token++ = '\0';
	if (strlen(start) >= sizeof(set->id) || strlen(secret) >= sizeof(set->secret) ||
	    (token && strlen(token) >= sizeof(set->token)))
		return why_set(why, err_origin(-EINVAL), "%s: a value is too long", path);
	strcpy(set->id, start);
	strcpy(set->secret, secret);
	strcpy(set->token, token ? token : "");
	return creds_set_check(set, path, why);
}

static int use_ossutil(struct creds_ossutil *config, const char *path,
		       struct creds_reply *out, struct why *why)
{
	if (!strcasecmp(config->mode, "EcsRamRole"))
		return creds_load_role(config->role, out, why);
	if (!config->set.id[0] && config->service[0])
		return creds_load_uri(config->service, out, why);
	if (config->mode[0] && strcasecmp(config->mode, "AK") != 0 &&
	    strcasecmp(config->mode, "StsToken") != 0)
		return why_set(why, err_origin(-ENOTSUP),
			       "%s: mode %s is not known here, use AK, StsToken or "
			       "EcsRamRole",
			       path, config->mode);
	out->set = config->set;
	return creds_set_check(&out->set, path, why);
}

static int parse_file(const struct creds_source *source, char *text, size_t n,
		      struct creds_reply *out, struct why *why)
{
	struct creds_ossutil config;
	int r;

	if (source->kind == CREDS_FILE)
		return parse_own(text, n, source->where, out, why);
	if (source->kind == CREDS_PASSWD)
		return creds_parse_passwd(text, n, source->where, source->bucket,
					  &out->set, why);
	r = creds_parse_ossutil(text, n, source->where, source->profile, &config, why);
	if (r == 0)
		r = use_ossutil(&config, source->where, out, why);
	explicit_bzero(&config, sizeof(config));
	return r;
}

static int load_file(const struct creds_source *source, struct creds_reply *out,
		     struct why *why)
{
	char *text = malloc(CREDS_FILE_MAX + 1);
	size_t n = 0;
	int r;

	if (!text)
		return err_origin(-ENOMEM);
	r = creds_file_read(source->where, text, &n, why);
	if (r == 0)
		r = parse_file(source, text, n, out, why);
	explicit_bzero(text, CREDS_FILE_MAX + 1);
	free(text);
	return r;
}

/* ---- references ----------------------------------------------------------------------- */

static const struct kind {
	const char *name; /* of the reference, up to the colon */
	bool needs_where, may_where;
	const char *text; /* for people; `where` follows */
} kinds[] = {
	[CREDS_ANONYMOUS] = {"anonymous", false, false, "anonymous"},
	[CREDS_ENV] = {"env", false, false, "environment"},
	[CREDS_FILE] = {"file", true, true, "file "},
	[CREDS_OSSUTIL] = {"ossutil", true, true, "ossutil config "},
	[CREDS_PASSWD] = {"passwd", true, true, "password file "},
	[CREDS_RAM_ROLE] = {"ram-role", false, true, "RAM role "},
	[CREDS_URI] = {"uri", true, true, "credentials URI"},
};
static_assert(sizeof(kinds) / sizeof(*kinds) == CREDS_KIND_N, "kinds of references");

static bool is_url(const char *s)
{
	return !strncmp(s, "http://", 7) || !strncmp(s, "https://", 8);
}

static int source_set(struct creds_source *out, enum creds_kind kind, const char *where,
		      struct why *why)
{
	char *profile;

	*out = (struct creds_source){.kind = kind};
	if (strlen(where) >= sizeof(out->where))
		return why_set(why, err_origin(-EINVAL), "credentials: %s: too long",
			       kinds[kind].name);
	strcpy(out->where, where);
	profile = kind == CREDS_OSSUTIL ? strrchr(out->where, '#') : NULL;
	if (profile) {
		*profile++ = '\0';
		if (strlen(profile) >= sizeof(out->profile))
			return why_set(why, err_origin(-EINVAL),
				       "credentials: the profile's name is too long");
		strcpy(out->profile, profile);
	}
	if (kind == CREDS_URI && !is_url(where))
		return why_set(why, err_origin(-EINVAL),
			       "credentials: a URI starts with http:// or https://");
	/* A URI may hold a secret of its own. */
	snprintf(out->text, sizeof(out->text), "%s%s", kinds[kind].text,
		 kind == CREDS_URI || is_url(where) ? "" : out->where);
	return 0;
}

int creds_source_parse(const char *reference, struct creds_source *out, struct why *why)
{
	const char *colon = strchr(reference, ':');
	size_t n = colon ? (size_t)(colon - reference) : strlen(reference);
	const char *where = colon ? colon + 1 : "";

	for (int i = 0; i < CREDS_KIND_N; i++) {
		if (strlen(kinds[i].name) != n ||
		    strncmp(kinds[i].name, reference, n) != 0)
			continue;
		if (kinds[i].needs_where && !*where)
			return why_set(why, err_origin(-EINVAL),
				       "credentials: write %s:%s", kinds[i].name,
				       i == CREDS_URI ? "URL" : "PATH");
		if (colon && !kinds[i].may_where)
			return why_set(why, err_origin(-EINVAL),
				       "credentials: nothing follows %s", kinds[i].name);
		return source_set(out, (enum creds_kind)i, where, why);
	}
	/* It may be a secret that was pasted here: do not repeat it. */
	return why_set(
		why, err_origin(-EINVAL),
		"credentials: a reference is env, file:PATH, ossutil:PATH[#PROFILE], "
		"passwd:PATH, ram-role[:NAME], uri:URL or anonymous");
}

int creds_source_load(const struct creds_source *source, struct creds_reply *out,
		      struct why *why)
{
	*out = (struct creds_reply){0};
	switch (source->kind) {
	case CREDS_ANONYMOUS:
		return 0;
	case CREDS_ENV:
		return load_env(out, why);
	case CREDS_FILE:
	case CREDS_OSSUTIL:
	case CREDS_PASSWD:
		return load_file(source, out, why);
	case CREDS_RAM_ROLE:
		return is_url(source->where) ? creds_load_uri(source->where, out, why)
					     : creds_load_role(source->where, out, why);
	default:
		return creds_load_uri(source->where, out, why);
	}
}

bool creds_source_renewable(const struct creds_source *source)
{
	return source->kind > CREDS_ENV;
}

/* ---- the look-up order ---------------------------------------------------------------- */

static void home_path(char out[PATH_MAX], const char *name)
{
	const char *home = env_get("HOME");
	struct passwd pw, *found = NULL;
	char space[4096];

	if (!home && getpwuid_r(geteuid(), &pw, space, sizeof(space), &found) == 0 &&
	    found)
		home = found->pw_dir;
	snprintf(out, PATH_MAX, "%s/%s", home ? home : "/nonexistent", name);
}

/* The file the variable names, or the one in the home directory, if it is there. */
static bool find_file(const char *variable, const char *name, char out[PATH_MAX])
{
	if (env_get(variable)) {
		snprintf(out, PATH_MAX, "%s", env_get(variable));
		return true;
	}
	home_path(out, name);
	return access(out, F_OK) == 0;
}

static int find(struct creds_source *source, struct why *why)
{
	char path[PATH_MAX], with_profile[PATH_MAX + 65];

	for (size_t i = 0; i < sizeof(env_names) / sizeof(*env_names); i++)
		if (env_get(env_names[i].id) || env_get(env_names[i].secret))
			return source_set(source, CREDS_ENV, "", why);
	if (env_get("ALIBABA_CLOUD_CREDENTIALS_URI"))
		return source_set(source, CREDS_URI,
				  env_get("ALIBABA_CLOUD_CREDENTIALS_URI"), why);
	if (find_file("OSSUTIL_CONFIG_FILE", ".ossutilconfig", path)) {
		const char *profile = env_get("OSSUTIL_PROFILE");

		/* A '#' in the path is not the last one then. */
		snprintf(with_profile, sizeof(with_profile), "%s#%.63s", path,
			 profile ? profile : "");
		return source_set(source, CREDS_OSSUTIL, with_profile, why);
	}
	if (find_file("OSS_CREDENTIAL_FILE", ".passwd-ossfs", path))
		return source_set(source, CREDS_PASSWD, path, why);
	if (access(SYSTEM_PASSWD, F_OK) == 0)
		return source_set(source, CREDS_PASSWD, SYSTEM_PASSWD, why);
	if (creds_has_metadata()) {
		const char *role = env_get("ALIBABA_CLOUD_ECS_METADATA");

		return source_set(source, CREDS_RAM_ROLE, role ? role : "", why);
	}
	return why_set(
		why, err_origin(-ENOENT),
		"no credentials found: set OSS_ACCESS_KEY_ID and "
		"OSS_ACCESS_KEY_SECRET, or write ~/.ossutilconfig or ~/.passwd-ossfs");
}

int creds_source_find(const char *bucket, struct creds_source *source,
		      struct creds_reply *out, struct why *why)
{
	int r = find(source, why);

	if (r < 0)
		return r;
	snprintf(source->bucket, sizeof(source->bucket), "%s", bucket ? bucket : "");
	return creds_source_load(source, out, why);
}
