/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/creds_http.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/creds_file.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

#define METADATA "http://100.100.100.200"
#define TOKEN_PATH "/latest/api/token"
#define ROLE_PATH "/latest/meta-data/ram/security-credentials/"
#define TOKEN_TTL "X-aliyun-ecs-metadata-token-ttl-seconds: 300"
#define TOKEN_HEADER "X-aliyun-ecs-metadata-token: "

enum {
	METADATA_CONNECT_MS = 1000,
	METADATA_MS = 5000,
	URI_CONNECT_MS = 5000,
	URI_MS = 10000
};

struct exchange {
	long connect_ms, total_ms;
	bool put;
	char header[1024]; /* "": none */
	/* Results. */
	char *body; /* CREDS_FILE_MAX + 1, NUL-terminated; may hold secrets */
	size_t len;
	long status;
	int64_t date_s; /* the server's clock; ours when it does not say */
};

static int exchange_init(struct exchange *x, long connect_ms, long total_ms)
{
	*x = (struct exchange){.connect_ms = connect_ms, .total_ms = total_ms};
	x->body = malloc(CREDS_FILE_MAX + 1);
	return x->body ? 0 : err_origin(-ENOMEM);
}

static void exchange_fini(struct exchange *x)
{
	if (x->body)
		explicit_bzero(x->body, x->len);
	free(x->body);
	explicit_bzero(x->header, sizeof(x->header));
}

static size_t receive(char *data, size_t size, size_t n, void *arg)
{
	struct exchange *x = arg;

	n *= size;
	if (n > CREDS_FILE_MAX - x->len)
		return 0;
	memcpy(x->body + x->len, data, n);
	x->len += n;
	return n;
}

static void init_curl(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void read_result(CURL *curl, struct exchange *x)
{
	struct curl_header *date;

	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &x->status);
	x->date_s = clock_real_ns() / INT64_C(1000000000);
	if (curl_easy_header(curl, "Date", 0, CURLH_HEADER, -1, &date) == CURLHE_OK) {
		time_t t = curl_getdate(date->value, NULL);

		if (t > 0)
			x->date_s = t;
	}
	x->body[x->len] = '\0';
}

static int perform(struct exchange *x, const char *url, const char *what, struct why *why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct curl_slist *headers = NULL;
	CURLcode code;
	CURL *curl;

	pthread_once(&once, init_curl);
	curl = curl_easy_init();
	if (!curl)
		return err_origin(-ENOMEM);
	x->len = 0;
	if (x->header[0])
		headers = curl_slist_append(headers, x->header);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, x->connect_ms);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, x->total_ms);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, x);
	if (x->put)
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "PUT");
	code = curl_easy_perform(curl);
	if (code == CURLE_OK)
		read_result(curl, x);
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	if (code == CURLE_OK)
		return 0;
	return why_set(
		why,
		err_origin(code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -ECONNREFUSED),
		"%s: %s", what, curl_easy_strerror(code));
}

/* ---- metadata service ----------------------------------------------------------------- */

static bool env_true(const char *name)
{
	const char *value = getenv(name);

	return value && !strcasecmp(value, "true");
}

static const char *metadata_base(void)
{
	const char *base = getenv("SLUICE_METADATA_ENDPOINT");

	return base && *base ? base : METADATA;
}

bool creds_has_metadata(void)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	const char *role = getenv("ALIBABA_CLOUD_ECS_METADATA");

	if (env_true("ALIBABA_CLOUD_ECS_METADATA_DISABLED"))
		return false;
	if ((role && *role) || getenv("SLUICE_METADATA_ENDPOINT"))
		return true;
	return io_read_file(AT_FDCWD, "/sys/class/dmi/id/product_name", 256, &b) == 0 &&
	       b.len && strstr(b.data, "Alibaba Cloud");
}

/* Without the hardened mode the service has no token to give; anything else that goes wrong
 * is no reason to do without one. */
static int get_token(struct exchange *x, const char *what, struct why *why)
{
	char url[512];
	int r;

	if (snprintf(url, sizeof(url), "%s" TOKEN_PATH, metadata_base()) >=
	    (int)sizeof(url))
		return err_origin(-ENAMETOOLONG);
	x->put = true;
	strcpy(x->header, TOKEN_TTL);
	r = perform(x, url, what, why);
	x->put = false;
	x->header[0] = '\0';
	if (r < 0)
		return r;
	x->body[strcspn(x->body, "\r\n \t")] = '\0';
	if (x->status == 200 && x->body[0] &&
	    strlen(x->body) < sizeof(x->header) - sizeof(TOKEN_HEADER)) {
		snprintf(x->header, sizeof(x->header), TOKEN_HEADER "%s", x->body);
		return 0;
	}
	if (x->status != 404 && x->status != 405 && x->status != 403)
		return why_set(why, err_origin(-EIO), "%s: no token, status %ld", what,
			       x->status);
	if (env_true("ALIBABA_CLOUD_IMDSV1_DISABLED"))
		return why_set(
			why, err_origin(-EACCES),
			"%s gives no token, and ALIBABA_CLOUD_IMDSV1_DISABLED forbids "
			"to do without",
			what);
	return 0;
}

static bool role_ok(const char *role)
{
	size_t n = strlen(role);

	return n && n <= 64 &&
	       strspn(role, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			    "0123456789.@_-") == n;
}

static int get_path(struct exchange *x, const char *name, const char *what,
		    struct why *why)
{
	char url[512];

	if (snprintf(url, sizeof(url), "%s" ROLE_PATH "%s", metadata_base(), name) >=
	    (int)sizeof(url))
		return err_origin(-ENAMETOOLONG);
	return perform(x, url, what, why);
}

static int find_role(struct exchange *x, char role[65], const char *what, struct why *why)
{
	int r = get_path(x, "", what, why);

	if (r < 0)
		return r;
	if (x->status == 404)
		return why_set(
			why, err_origin(-ENOENT),
			"no RAM role is attached to this instance: attach one, or give "
			"credentials another way");
	if (x->status != 200)
		return why_set(why, err_origin(-EIO), "%s: status %ld", what, x->status);
	x->body[strcspn(x->body, "\r\n \t")] = '\0';
	if (!role_ok(x->body))
		return why_set(why, err_origin(-EIO), "%s: not the name of a role", what);
	strcpy(role, x->body);
	return 0;
}

int creds_load_role(const char *role, struct creds_reply *out, struct why *why)
{
	_cleanup_(exchange_fini) struct exchange x;
	const char *what = "metadata service";
	char name[65];
	int r = exchange_init(&x, METADATA_CONNECT_MS, METADATA_MS);

	if (r == 0)
		r = get_token(&x, what, why);
	if (r == 0 && *role && !role_ok(role))
		r = why_set(why, err_origin(-EINVAL), "ram-role: not the name of a role");
	else if (r == 0 && *role)
		strcpy(name, role);
	else if (r == 0)
		r = find_role(&x, name, what, why);
	if (r == 0)
		r = get_path(&x, name, what, why);
	if (r < 0)
		return err_trace(r);
	if (x.status != 200)
		return why_set(why, err_origin(x.status == 404 ? -ENOENT : -EIO),
			       "%s: no credentials for role %s, status %ld", what, name,
			       x.status);
	return creds_parse_json(x.body, x.len, what, x.date_s, out, why);
}

/* ---- URI ------------------------------------------------------------------------------ */

int creds_load_uri(const char *url, struct creds_reply *out, struct why *why)
{
	_cleanup_(exchange_fini) struct exchange x;
	const char *what = "credentials URI";
	int r = exchange_init(&x, URI_CONNECT_MS, URI_MS);

	if (r == 0)
		r = perform(&x, url, what, why);
	if (r < 0)
		return err_trace(r);
	if (x.status != 200)
		return why_set(why, err_origin(-EIO), "%s: status %ld", what, x.status);
	return creds_parse_json(x.body, x.len, what, x.date_s, out, why);
}
