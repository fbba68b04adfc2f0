/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_target.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fs/base/err.h"
#include "tools/ossd_code.h"

/* The bucket in front of a suffix, its length in *n; NULL: the host is no bucket's. */
static const char *bucket_of_host(const char *host, const char *const *suffixes,
				  size_t suffix_count, size_t *n)
{
	size_t length = host ? strcspn(host, ":") : 0;

	if (length == 0 || *host == '[')
		return NULL;
	for (size_t i = 0; i < suffix_count; i++) {
		size_t tail = strlen(suffixes[i]);

		if (length > tail + 1 && host[length - tail - 1] == '.' &&
		    !strncasecmp(host + length - tail, suffixes[i], tail)) {
			*n = length - tail - 1;
			return host;
		}
	}
	return NULL;
}

int ossd_decode(struct buf *out, const char *s, size_t n)
{
	while (n) {
		const char *plus = memchr(s, '+', n);
		size_t piece = plus ? (size_t)(plus - s) : n;
		int r = oss_decode(out, s, piece);

		if (r < 0)
			return err_trace(r);
		if (!plus)
			break;
		buf_putc(out, ' ');
		s += piece + 1;
		n -= piece + 1;
	}
	return err_trace(buf_error(out));
}

static int set_bucket(struct ossd_target *t, const char *name, size_t n)
{
	if (n >= sizeof(t->bucket))
		return OSSD_E_INVALID_BUCKET_NAME;
	memcpy(t->bucket, name, n);
	t->bucket[n] = '\0';
	return ossd_bucket_name_valid(t->bucket) ? 0 : OSSD_E_INVALID_BUCKET_NAME;
}

static int set_key(struct buf *key, const char *encoded, size_t n)
{
	if (n == 0)
		return 0;
	if (ossd_decode(key, encoded, n) < 0 || !ossd_key_valid(key->data, key->len))
		return OSSD_E_INVALID_OBJECT_NAME;
	return 0;
}

/* Decodes into t->text; the offset of the string in *at. */
static int put_text(struct ossd_target *t, const char *s, size_t n, size_t *at)
{
	*at = t->text.len;
	if (ossd_decode(&t->text, s, n) < 0)
		return OSSD_E_INVALID_ARGUMENT;
	if (t->text.len > *at && memchr(t->text.data + *at, '\0', t->text.len - *at))
		return OSSD_E_INVALID_ARGUMENT;
	buf_putc(&t->text, '\0');
	return 0;
}

static int parse_query(struct ossd_target *t, const char *s)
{
	size_t names[OSSD_QUERY_MAX], values[OSSD_QUERY_MAX];
	int r;

	while (*s) {
		size_t n = strcspn(s, "&"), name = strcspn(s, "=&"), i = t->query_count;
		const char *value = name < n ? s + name + 1 : s + n;

		if (n > 0) {
			if (i == OSSD_QUERY_MAX)
				return OSSD_E_INVALID_ARGUMENT;
			r = put_text(t, s, name, &names[i]);
			if (r == 0)
				r = put_text(t, value, (size_t)(s + n - value),
					     &values[i]);
			if (r)
				return r;
			t->query_count++;
		}
		s += n;
		s += *s == '&';
	}
	/* Only now does the text stay where it is. */
	for (size_t i = 0; i < t->query_count; i++)
		t->query[i] = (struct oss_pair){t->text.data + names[i],
						t->text.data + values[i]};
	return 0;
}

/* Past "http://host" of the absolute form. */
static const char *skip_authority(const char *raw)
{
	const char *rest = strncasecmp(raw, "http://", 7) == 0    ? raw + 7
			   : strncasecmp(raw, "https://", 8) == 0 ? raw + 8
								  : NULL;

	return rest ? rest + strcspn(rest, "/?") : raw;
}

int ossd_target_parse(struct ossd_target *t, const char *raw, const char *host,
		      const char *const *suffixes, size_t suffix_count)
{
	const char *path = skip_authority(raw), *question = strchr(path, '?');
	size_t n = question ? (size_t)(question - path) : strlen(path), bucket_len = 0;
	const char *bucket;
	int r = 0;

	*t = (struct ossd_target){.bucket = "", .path = path, .path_len = n};
	if (n && *path == '/') {
		path++;
		n--;
	}
	bucket = bucket_of_host(host, suffixes, suffix_count, &bucket_len);
	if (!bucket) {
		t->path_style = true;
		bucket = path;
		bucket_len = 0;
		while (bucket_len < n && path[bucket_len] != '/')
			bucket_len++;
		path += bucket_len;
		n -= bucket_len;
		if (n) { /* the '/' behind the bucket */
			path++;
			n--;
		}
	}
	if (bucket_len || n)
		r = set_bucket(t, bucket, bucket_len);
	if (r == 0)
		r = set_key(&t->key, path, n);
	if (r == 0 && question)
		r = parse_query(t, question + 1);
	return r;
}

void ossd_target_fini(struct ossd_target *t)
{
	buf_fini(&t->key);
	buf_fini(&t->text);
}

const char *ossd_target_query(const struct ossd_target *t, const char *name)
{
	for (size_t i = 0; i < t->query_count; i++)
		if (!strcmp(t->query[i].name, name))
			return t->query[i].value;
	return NULL;
}

int ossd_target_parse_source(const char *header, char bucket[OSSD_BUCKET_SIZE],
			     struct buf *key)
{
	const char *slash, *end;

	header += *header == '/';
	slash = strchr(header, '/');
	if (!slash || slash == header || slash - header >= OSSD_BUCKET_SIZE)
		return OSSD_E_INVALID_ARGUMENT;
	snprintf(bucket, OSSD_BUCKET_SIZE, "%.*s", (int)(slash - header), header);
	if (!ossd_bucket_name_valid(bucket))
		return OSSD_E_INVALID_BUCKET_NAME;
	end = strstr(slash, "?versionId=");
	if (!end)
		end = slash + strlen(slash);
	if (end == slash + 1)
		return OSSD_E_INVALID_ARGUMENT;
	return set_key(key, slash + 1, (size_t)(end - slash - 1));
}
