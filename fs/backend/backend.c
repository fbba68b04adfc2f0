/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/origin.h"
#include "fs/backend/creds.h"
#include "fs/backend/endpoint.h"
#include "fs/backend/file.h"
#include "fs/backend/mem.h"
#include "fs/backend/oss.h"
#include "fs/backend/read_only.h"
#include "fs/backend/retry.h"
#include "fs/backend/retry_step.h"
#include "fs/backend/trace.h"
#include "fs/base/suggest.h"

/* ---- sources -------------------------------------------------------------------------- */

#define FORMS "oss://bucket[/prefix], file:///path or nfs://server/export"

/* Host or bucket, then the rest after its '/'. */
static int split(const char *source, const char *rest, struct backend_source *out,
		 const char **path, struct why *why)
{
	size_t n = strcspn(rest, "/");

	if (!n || n >= sizeof(out->bucket))
		return why_set(why, err_origin(-EINVAL), "%s: %s", source,
			       out->kind == BACKEND_OSS
				       ? "no bucket, write oss://bucket/prefix"
				       : "no server, write nfs://server/export");
	memcpy(out->bucket, rest, n);
	out->bucket[n] = '\0';
	*path = rest[n] ? rest + n + 1 : "";
	return 0;
}

static int parse_oss(const char *source, const char *rest, struct backend_source *out,
		     struct why *why)
{
	const char *path;
	size_t n;
	int r = split(source, rest, out, &path, why);

	if (r < 0)
		return r;
	if (!endpoint_bucket_ok(out->bucket))
		return why_set(why, err_origin(-EINVAL),
			       "%s: a bucket's name is 3 to 63 of a-z, 0-9 and '-'",
			       source);
	n = strlen(path);
	if (n + 2 > sizeof(out->prefix) || *path == '/')
		return why_set(why, err_origin(-EINVAL),
			       *path == '/'
				       ? "%s: a key does not start with '/'"
				       : "%.100s…: the prefix is longer than 1022 bytes",
			       source);
	memcpy(out->prefix, path, n + 1);
	if (n && path[n - 1] != '/')
		strcpy(out->prefix + n, "/");
	return 0;
}

static int parse_path(const char *source, const char *path, struct backend_source *out,
		      struct why *why)
{
	if (*path != '/')
		return why_set(why, err_origin(-EINVAL),
			       "%s: the path must be absolute, write file:///path",
			       source);
	if (strlen(path) >= sizeof(out->prefix))
		return why_set(why, err_origin(-EINVAL), "%s: the path is too long",
			       source);
	strcpy(out->prefix, path);
	return 0;
}

static int parse_unknown(const char *source, struct why *why)
{
	static const char *const schemes[] = {"oss", "file", "nfs"};
	const char *colon = strchr(source, ':'), *near = NULL;
	char scheme[16];

	if (*source == '/')
		return why_set(why, err_origin(-EINVAL),
			       "%s: for a directory write file://%s", source, source);
	if (colon && colon - source < (ptrdiff_t)sizeof(scheme)) {
		snprintf(scheme, sizeof(scheme), "%.*s", (int)(colon - source), source);
		near = suggest_nearest(scheme, schemes, 3, sizeof(*schemes));
	}
	if (near)
		return why_set(why, err_origin(-EINVAL),
			       "%s: unknown kind of source, did you mean %s://?", source,
			       near);
	return why_set(why, err_origin(-EINVAL), "%s: a source is " FORMS, source);
}

int backend_parse(const char *source, struct backend_source *out, struct why *why)
{
	struct backend_source s = {0};
	const char *path;
	int r;

	if (!strncmp(source, "oss://", 6)) {
		s.kind = BACKEND_OSS;
		r = parse_oss(source, source + 6, &s, why);
	} else if (!strncmp(source, "file://", 7)) {
		s.kind = BACKEND_FILE;
		r = parse_path(source, source + 7, &s, why);
	} else if (!strncmp(source, "nfs://", 6)) {
		s.kind = BACKEND_NFS;
		r = split(source, source + 6, &s, &path, why);
		if (r == 0 && !*path)
			r = why_set(why, err_origin(-EINVAL),
				    "%s: no export, write nfs://server/export", source);
		else if (r == 0)
			r = parse_path(source, path - 1, &s, why);
	} else if (!strcmp(source, "mem:")) {
		s.kind = BACKEND_MEM;
		r = 0;
	} else {
		r = parse_unknown(source, why);
	}
	if (r == 0)
		*out = s;
	return r;
}

/* ---- origins -------------------------------------------------------------------------- */

static const char *or_env(const char *value, const char *name)
{
	if (!value || !*value)
		value = getenv(name);
	return value && *value ? value : NULL;
}

/* What the configuration says of a bucket, with credentials opened: oss->creds is the
 * caller's. `e` holds the texts that `oss` points to. */
static int configure_oss(const struct backend_config *config,
			 const struct backend_source *s, struct endpoint *e,
			 struct oss_config *oss, struct why *why)
{
	int r = endpoint_resolve(or_env(config->endpoint, "OSS_ENDPOINT"),
				 or_env(config->region, "OSS_REGION"), config->addressing,
				 e, why);

	*oss = (struct oss_config){
		.tls = e->tls,
		.host = e->host,
		.region = e->region,
		.addressing = e->addressing,
		.signature = config->signature,
		.bucket = s->bucket,
		.prefix = s->prefix,
		.ca_file = config->ca_file,
		.read_only = config->read_only,
		.connections_max = config->connections_max,
		.timeout_ms = config->timeout_ms,
	};
	if (r >= 0)
		r = creds_open_for(s->bucket, config->credentials, &oss->creds, why);
	if (r < 0)
		return err_trace(r);
	if (!e->region[0] && creds_is_anonymous(oss->creds))
		oss->signature =
			SIGNATURE_V1; /* nothing is signed: no region is needed */
	if (!e->region[0] && oss->signature == SIGNATURE_V4) {
		oss->creds = creds_close(oss->creds);
		return why_set(why, err_origin(-EINVAL),
			       "endpoint %s gives no region: add --region (for example "
			       "cn-hangzhou)",
			       e->host);
	}
	return 0;
}

static int open_oss(const struct backend_config *config, const struct backend_source *s,
		    struct origin **out, struct creds **creds, struct why *why)
{
	struct endpoint e = {0};
	struct oss_config oss;
	int r = configure_oss(config, s, &e, &oss, why);

	if (r < 0)
		return err_trace(r);
	r = oss_origin_open(&oss, out, why);
	if (r < 0)
		oss.creds = creds_close(oss.creds);
	*creds = oss.creds;
	return err_trace(r);
}

int backend_create_bucket(const struct backend_config *config, struct why *why)
{
	struct backend_source s;
	struct endpoint e = {0};
	struct oss_config oss;
	int r = backend_parse(config->source, &s, why);

	if (r == 0 && s.kind != BACKEND_OSS)
		r = why_set(why, err_origin(-EINVAL), "%s: only oss:// has buckets",
			    config->source);
	if (r == 0)
		r = configure_oss(config, &s, &e, &oss, why);
	if (r < 0)
		return err_trace(r);
	r = oss_bucket_create(&oss, why);
	creds_close(oss.creds);
	return err_trace(r);
}

/* `creds` belongs to the store, NULL when it needs none. */
static int open_store(const struct backend_config *config, const struct backend_source *s,
		      struct origin **out, struct creds **creds, struct why *why)
{
	switch (s->kind) {
	case BACKEND_FILE:
		return file_origin_open(s->prefix, config->read_only, out, why);
	case BACKEND_MEM:
		return mem_origin_new(out);
	case BACKEND_OSS:
		return open_oss(config, s, out, creds, why);
	case BACKEND_NFS:
		return why_set(why, err_origin(-ENOTSUP),
			       "%s: mount the export and name it as file:///mount/point",
			       config->source);
	}
	return err_origin(-EINVAL);
}

int backend_open(const struct backend_config *config, struct origin **out,
		 struct why *why)
{
	struct backend_source source;
	struct retry_policy policy;
	struct creds *creds = NULL;
	struct origin *o;
	int r = backend_parse(config->source, &source, why);

	if (r == 0)
		r = open_store(config, &source, &o, &creds, why);
	if (r < 0)
		return err_trace(r);
	retry_policy_init(&policy, config->retry_budget_ms);
	r = retry_origin_new(o, creds, &policy, &o);
	if (r == 0 && config->read_only)
		r = read_only_origin_new(o, &o);
	if (r == 0)
		r = trace_origin_new(o, &o);
	if (r < 0)
		return why_set(why, r, "%s: %s", config->source, strerror(-r));
	*out = o;
	return 0;
}
