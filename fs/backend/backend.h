/* SPDX-License-Identifier: Apache-2.0 */
/* From a source as the user writes it to an origin with its layers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct origin;
struct why;

enum backend_kind {
	BACKEND_OSS,
	BACKEND_FILE,
	BACKEND_MEM,
	BACKEND_NFS
};

/* "oss://bucket[/prefix]", "file:///path", "mem:" taken apart, as they stand: nothing is
 * decoded. -EINVAL with a sentence. Pure. */
struct backend_source {
	enum backend_kind kind;
	char bucket[64];   /* OSS: bucket; NFS: host */
	char prefix[1024]; /* OSS: "" or "a/b/"; FILE, NFS: the path */
};
int backend_parse(const char *source, struct backend_source *out, struct why *why);

enum backend_addressing {
	ADDRESSING_AUTO,
	ADDRESSING_VIRTUAL,
	ADDRESSING_PATH,
	ADDRESSING_CNAME
};
enum backend_signature {
	SIGNATURE_V4,
	SIGNATURE_V1
};

struct backend_config {
	const char *source;
	/* host[:port] or URL; NULL: OSS_ENDPOINT, or from the region */
	const char *endpoint;
	/* "cn-hangzhou"; NULL: OSS_REGION, or from the endpoint */
	const char *region;
	enum backend_addressing addressing;
	enum backend_signature signature;
	/* Reference: "env", "file:PATH", "ossutil:PATH[#PROFILE]", "passwd:PATH",
	 * "ram-role[:NAME]", "uri:URL", "anonymous"; NULL: the look-up order (README.md) */
	const char *credentials;
	const char *ca_file;      /* NULL: the system's */
	bool read_only;           /* writes are refused here, before any request */
	uint32_t connections_max; /* 0: 32 */
	uint64_t timeout_ms;      /* of one request without progress; 0: 30 s */
	uint64_t retry_budget_ms; /* 0: 60 s; UINT64_MAX: for ever (uploads) */
};

/* Builds origin + retry + trace. Does not talk to the store: send ORIGIN_PROBE for that.
 * -EINVAL / -ENOENT / -EACCES with a sentence for what cannot work (bad URL, no region, no
 * credentials, credential file readable by others). May wait for a metadata service. */
int backend_open(const struct backend_config *config, struct origin **out,
		 struct why *why);

/* Creates the bucket of an oss:// source. One that is ours already is success; somebody
 * else's is -EEXIST. One try. */
int backend_create_bucket(const struct backend_config *config, struct why *why);
