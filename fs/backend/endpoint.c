/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/err.h"

#define DOMAIN ".aliyuncs.com"

static bool is_word(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= '0' && s[i] <= '9') &&
		    s[i] != '-')
			return false;
	return n > 0;
}

bool endpoint_bucket_ok(const char *bucket)
{
	size_t n = strlen(bucket);

	return n >= 3 && n <= 63 && is_word(bucket, n) && bucket[0] != '-' &&
	       bucket[n - 1] != '-';
}

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool ends_with(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && strcmp(s + n - m, suffix) == 0;
}

/* Host without port and brackets. */
static void bare_host(const char *host, char out[256])
{
	const char *end;

	if (*host == '[') {
		end = strchr(++host, ']');
	} else {
		end = strrchr(host, ':');
	}
	snprintf(out, 256, "%.*s", (int)(end ? (size_t)(end - host) : strlen(host)),
		 host);
}

/* "oss-R", "oss-R-internal", "s3.oss-R", "R.oss" before the domain. "": carries none. */
static void region_of_host(const char *host, char region[64])
{
	char name[256];
	const char *start = name;
	size_t n;

	region[0] = '\0';
	bare_host(host, name);
	if (!ends_with(name, DOMAIN))
		return;
	n = strlen(name) - strlen(DOMAIN);
	name[n] = '\0';
	if (starts_with(start, "s3."))
		start += 3;
	if (starts_with(start, "oss-")) {
		start += 4;
		if (starts_with(start, "accelerate"))
			return;
		if (ends_with(start, "-internal"))
			name[n - strlen("-internal")] = '\0';
	} else if (ends_with(start, ".oss")) {
		name[n - strlen(".oss")] = '\0';
	} else {
		return;
	}
	if (is_word(start, strlen(start)) && strlen(start) < 64)
		strcpy(region, start);
}

static bool is_address_or_plain_name(const char *host)
{
	char name[256];
	struct in6_addr six;
	struct in_addr four;

	bare_host(host, name);
	return !strchr(name, '.') || inet_pton(AF_INET, name, &four) == 1 ||
	       inet_pton(AF_INET6, name, &six) == 1;
}

static bool port_ok(const char *host)
{
	const char *colon = *host == '[' ? strchr(host, ']') : host;
	char *end;
	long port;

	colon = colon ? strchr(colon, ':') : NULL;
	if (!colon)
		return true;
	port = strtol(colon + 1, &end, 10);
	return colon[1] >= '0' && colon[1] <= '9' && *end == '\0' && port > 0 &&
	       port < 65536;
}

static int parse_endpoint(const char *endpoint, struct endpoint *out, struct why *why)
{
	const char *host = endpoint;
	const char *scheme_end = strstr(endpoint, "://");
	size_t n;

	out->tls = true;
	if (strchr(endpoint, '@'))
		return why_set(why, err_origin(-EINVAL),
			       "endpoint: give host:port without user and password");
	if (scheme_end) {
		host = scheme_end + 3;
		out->tls = starts_with(endpoint, "https://");
		if (!out->tls && !starts_with(endpoint, "http://"))
			return why_set(
				why, err_origin(-EINVAL),
				"endpoint %s: only http:// and https:// are spoken",
				endpoint);
	}
	n = strlen(host);
	if (n && host[n - 1] == '/')
		n--;
	if (!n || n >= sizeof(out->host))
		return why_set(why, err_origin(-EINVAL), "endpoint %s: no host name",
			       endpoint);
	memcpy(out->host, host, n);
	out->host[n] = '\0';
	for (char *c = out->host; *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
	if (strspn(out->host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != n ||
	    !port_ok(out->host))
		return why_set(why, err_origin(-EINVAL),
			       "endpoint %s: give host or host:port, without a path",
			       endpoint);
	return 0;
}

static int parse_region(const char *region, struct endpoint *out, struct why *why)
{
	if (starts_with(region, "oss-"))
		region += 4;
	if (!is_word(region, strlen(region)) || strlen(region) >= sizeof(out->region))
		return why_set(why, err_origin(-EINVAL),
			       "region %s: give its id, for example cn-hangzhou", region);
	strcpy(out->region, region);
	return 0;
}

int endpoint_resolve(const char *endpoint, const char *region,
		     enum backend_addressing addressing, struct endpoint *out,
		     struct why *why)
{
	struct endpoint e = {.tls = true};
	int r = 0;

	if (region)
		r = parse_region(region, &e, why);
	if (r == 0 && endpoint)
		r = parse_endpoint(endpoint, &e, why);
	if (r < 0)
		return r;
	if (!endpoint && !region)
		return why_set(why, err_origin(-EINVAL),
			       "no endpoint and no region: add --region (for example "
			       "cn-hangzhou) or --endpoint");
	if (!endpoint)
		snprintf(e.host, sizeof(e.host), "oss-%s" DOMAIN, e.region);
	if (!region)
		region_of_host(e.host, e.region);
	e.addressing = addressing;
	if (addressing == ADDRESSING_AUTO)
		e.addressing = is_address_or_plain_name(e.host) ? ADDRESSING_PATH
								: ADDRESSING_VIRTUAL;
	*out = e;
	return 0;
}
