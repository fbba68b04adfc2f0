/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_oss.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/backend/creds.h"
#include "fs/base/check.h"

void lib_oss_start(struct lib_oss *o, void (*change)(struct oss_config *config))
{
	struct oss_config config = {.region = "cn-test",
				    .addressing = ADDRESSING_PATH,
				    .bucket = "b",
				    .prefix = "",
				    .connections_max = 4,
				    .timeout_ms = 5000};
	struct why why = {""};

	memset(o, 0, sizeof(*o));
	o->server = httpd_start(NULL, NULL);
	config.host = httpd_url(o->server) + strlen("http://");
	setenv("OSS_ACCESS_KEY_ID", "test-id", 1);
	setenv("OSS_ACCESS_KEY_SECRET", "test-secret", 1);
	unsetenv("OSS_SESSION_TOKEN");
	if (change)
		change(&config);
	if (!config.creds)
		check(creds_open("env", &config.creds, &why) == 0);
	check(oss_origin_open(&config, &o->origin, &why) == 0);
}

void lib_oss_finish(struct lib_oss *o)
{
	origin_free(o->origin);
	buf_fini(&o->got);
	check(httpd_finish(o->server));
}

static int sink(void *arg, uint64_t off, const void *data, size_t n)
{
	struct lib_oss *o = arg;

	check(off == o->req.off + o->got.len);
	buf_append(&o->got, data, n);
	return 0;
}

static int call(struct lib_oss *o, const struct origin_req *req)
{
	o->req = *req;
	buf_reset(&o->got);
	return origin_call(o->origin, &o->req);
}

int lib_oss_get(struct lib_oss *o, const char *key, uint64_t off, uint64_t len,
		const char *if_match)
{
	return call(o, &(struct origin_req){.op = ORIGIN_GET,
					    .key = key,
					    .off = off,
					    .len = len,
					    .if_match = if_match,
					    .sink = sink,
					    .sink_arg = o});
}

int lib_oss_stat(struct lib_oss *o, const char *key)
{
	return call(o, &(struct origin_req){.op = ORIGIN_STAT, .key = key});
}

int lib_oss_put(struct lib_oss *o, const char *key, const char *text)
{
	return call(o, &(struct origin_req){.op = ORIGIN_PUT,
					    .key = key,
					    .body = {.data = text, .len = strlen(text)}});
}

static int note(void *arg, const char *key, size_t key_len,
		const struct origin_attr *attr)
{
	struct lib_oss *o = arg;

	check(!attr->is_dir || key[key_len - 1] == '/');
	buf_append(&o->got, key, key_len);
	buf_putc(&o->got, ' ');
	return 0;
}

int lib_oss_list(struct lib_oss *o, const char *prefix, const char *after,
		 const char *until, bool recursive)
{
	return call(o, &(struct origin_req){.op = ORIGIN_LIST,
					    .key = prefix,
					    .list = {.after = after,
						     .until = until,
						     .recursive = recursive,
						     .entry = note,
						     .entry_arg = o}});
}

int lib_oss_end(struct lib_oss *o, const char *key, const struct origin_part *parts,
		size_t count)
{
	uint64_t size = 0;

	for (size_t i = 0; i < count; i++)
		size += parts[i].size;
	return call(o, &(struct origin_req){.op = ORIGIN_MULTI_END,
					    .key = key,
					    .upload_id = "U",
					    .parts = parts,
					    .part_count = count,
					    .size = size});
}

void lib_oss_error(struct lib_oss *o, const char *expect, const char *status,
		   const char *code, const char *inside, const char *header)
{
	struct buf xml = BUF_INIT, lines = BUF_INIT;

	buf_printf(&xml,
		   "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>%s</Code>"
		   "<Message>The words of the store.</Message>"
		   "<RequestId>66C2FF09FDF07830343C72EC</RequestId>%s</Error>",
		   code, inside ? inside : "");
	buf_printf(&lines, "x-oss-request-id: 66C2FF09FDF07830343C72EC\r\n%s",
		   header ? header : "");
	httpd_reply(o->server, expect, status, lines.data, xml.data, xml.len);
	buf_fini(&xml);
	buf_fini(&lines);
}

void lib_oss_head(struct lib_oss *o, const char *expect, uint64_t size, uint64_t crc64)
{
	struct buf lines = BUF_INIT;

	buf_printf(&lines,
		   "Content-Length: %" PRIu64 "\r\nETag: \"E\"\r\n"
		   "x-oss-hash-crc64ecma: %" PRIu64 "\r\n",
		   size, crc64);
	httpd_reply(o->server, expect, "200 OK", lines.data, NULL, 0);
	buf_fini(&lines);
}

const char *lib_oss_header(struct lib_oss *o, size_t n, const char *name)
{
	static char text[4096];

	return httpd_header(httpd_get(o->server, n), name, text, sizeof(text));
}
