/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/metrics.h"

#include <limits.h>
#include <string.h>

#include "fs/base/log.h"

/* A family: one member of the status, or all members of one as series with a label. */
struct metric {
	const char *name;
	const char *type;  /* "counter", "gauge" */
	const char *help;  /* one sentence, no backslash, no line break */
	const char *path;  /* of the member: "output.detail.stage.used" */
	const char *label; /* of a member's members; NULL: the member is the number */
	double scale;      /* from the status' unit to the base unit; 0: 1 */
};

static const struct metric metrics[] = {
	{"sluice_start_time_seconds", "gauge",
	 "When the serving process took the mount, since the epoch.", "since", NULL, 0},
	{"sluice_restarts_total", "counter",
	 "Serving processes that died and were replaced.", "restart.count", NULL, 0},
	{"sluice_errors_total", "counter",
	 "Requests that ended with an error of store or disk (EIO, ESTALE, ENOSPC).",
	 "fuse.errors", NULL, 0},
	{"sluice_opens_total", "counter", "Files opened, by how the kernel reads them.",
	 "fuse.opens", "mode", 0},
	{"sluice_requests_total", "counter", "Requests of the kernel to an input mount.",
	 "fuse.requests", "op", 0},
	{"sluice_deferred_requests_total", "counter",
	 "Requests that waited for the store or the disk on a worker.", "fuse.deferred",
	 NULL, 0},

	{"sluice_store_requests_total", "counter", "Requests sent to the store.",
	 "store.requests", NULL, 0},
	{"sluice_store_failures_total", "counter",
	 "Requests to the store that failed for good.", "store.failures", NULL, 0},
	{"sluice_store_retries_total", "counter", "Requests that were sent again.",
	 "store.retries", NULL, 0},
	{"sluice_store_received_bytes_total", "counter", "Bytes received from the store.",
	 "store.bytes_in", NULL, 0},
	{"sluice_store_sent_bytes_total", "counter", "Bytes sent to the store.",
	 "store.bytes_out", NULL, 0},
	{"sluice_store_crc_mismatches_total", "counter",
	 "Answers whose checksum was wrong.", "store.crc_mismatches", NULL, 0},

	{"sluice_reads_total", "counter", "Reads that came to the process of the mount.",
	 "input.reads", NULL, 0},
	{"sluice_read_bytes_total", "counter", "Bytes of these reads.",
	 "input.bytes_read", NULL, 0},
	{"sluice_stale_total", "counter",
	 "Reads refused because the object was replaced.", "input.stale", NULL, 0},
	{"sluice_open_files", "gauge", "Files that are open.", "input.files_open", NULL,
	 0},
	{"sluice_hidden_keys", "gauge", "Keys that cannot be shown as paths.",
	 "input.hidden_keys", NULL, 0},
	{"sluice_cache_hits_total", "counter", "Pieces of reads found in the cache.",
	 "cache.hits", NULL, 0},
	{"sluice_cache_misses_total", "counter", "Pieces that had to be fetched.",
	 "cache.misses", NULL, 0},
	{"sluice_cache_hit_bytes_total", "counter", "Bytes found in the cache.",
	 "cache.bytes_hit", NULL, 0},
	{"sluice_cache_fetched_bytes_total", "counter", "Bytes fetched into the cache.",
	 "cache.bytes_fetched", NULL, 0},
	{"sluice_cache_prefetched_bytes_total", "counter",
	 "Bytes of these that nobody had asked for yet.", "cache.bytes_prefetched", NULL,
	 0},
	{"sluice_cache_evicted_bytes_total", "counter", "Bytes evicted from the cache.",
	 "cache.bytes_evicted", NULL, 0},
	{"sluice_cache_damaged_total", "counter",
	 "Pages and records of the cache that failed their checksum.", "cache.damaged",
	 NULL, 0},
	{"sluice_cache_wrong_shown_total", "counter",
	 "Objects of which a wrong byte may have been read before it was found.",
	 "cache.wrong_shown", NULL, 0},
	{"sluice_cache_bypassed_total", "counter",
	 "Times the cache's disk could not be used.", "cache.bypassed", NULL, 0},
	{"sluice_cache_bytes", "gauge", "Bytes in the cache, of all mounts together.",
	 "cache.size_used", NULL, 0},
	{"sluice_cache_limit_bytes", "gauge", "Bytes that the cache may have.",
	 "cache.size_max", NULL, 0},
	{"sluice_memory_bytes", "gauge", "Memory in buffers.", "cache.memory_used", NULL,
	 0},
	{"sluice_memory_limit_bytes", "gauge", "Memory that buffers may have.",
	 "cache.memory_max", NULL, 0},

	{"sluice_pending_files", "gauge", "Files not in the store yet.",
	 "output.files_pending", NULL, 0},
	{"sluice_pending_bytes", "gauge", "Bytes not in the store yet.",
	 "output.bytes_pending", NULL, 0},
	{"sluice_oldest_pending_seconds", "gauge",
	 "How long the oldest change has been waiting for the store.",
	 "output.oldest_pending_ms", NULL, 1e-3},
	{"sluice_in_flight_bytes", "gauge", "Bytes being uploaded.",
	 "output.bytes_in_flight", NULL, 0},
	{"sluice_writable_open_files", "gauge", "Files of an output mount that are open.",
	 "output.files_open", NULL, 0},
	{"sluice_stored_files_total", "counter", "Files uploaded and verified.",
	 "output.files_stored", NULL, 0},
	{"sluice_stored_bytes_total", "counter", "Bytes of these.", "output.bytes_stored",
	 NULL, 0},
	{"sluice_upload_failures_total", "counter",
	 "Attempts to bring the store up to date that failed and will be repeated.",
	 "output.failures", NULL, 0},
	{"sluice_stage_bytes", "gauge", "Local disk taken by what is not uploaded.",
	 "output.detail.stage.used", NULL, 0},
	{"sluice_stage_available_bytes", "gauge",
	 "Local disk that writers may still take.", "output.detail.stage.available", NULL,
	 0},
	{"sluice_journal_bytes", "gauge", "Size of the journal.",
	 "output.detail.journal.bytes", NULL, 0},
	{"sluice_journal_commits_total", "counter", "Syncs of the journal.",
	 "output.detail.journal.commits", NULL, 0},
	{"sluice_journal_failures_total", "counter", "Syncs of the journal that failed.",
	 "output.detail.journal.failures", NULL, 0},
	{"sluice_lost_contents", "gauge",
	 "Acknowledged files whose staged bytes were missing at the start.",
	 "output.detail.recovered.lost_contents", NULL, 0},
};

/* A value between the quotes of a label. */
static void put_label(struct buf *out, const char *name, const char *value)
{
	char shown[PATH_MAX];

	buf_printf(out, "%s=\"", name);
	for (value = log_escape(shown, sizeof(shown), value); *value; value++) {
		if (*value == '"' || *value == '\\')
			buf_printf(out, "\\%c", *value);
		else
			buf_putc(out, *value);
	}
	buf_putc(out, '"');
}

static const char *mount_of(const json_t *status)
{
	const char *dir = json_string_value(json_object_get(status, "dir"));

	return dir ? dir : "";
}

static void put_series(struct buf *out, const char *name, const json_t *status,
		       const char *label, const char *value)
{
	buf_printf(out, "%s{", name);
	put_label(out, "mount", mount_of(status));
	if (label) {
		buf_putc(out, ',');
		put_label(out, label, value);
	}
	buf_puts(out, "} ");
}

static void put_head(struct buf *out, const char *name, const char *type,
		     const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* NULL when the status has none. */
static json_t *member(const json_t *o, const char *path)
{
	json_t *value = NULL;
	char name[64];

	for (; *path; o = value) {
		size_t n = strcspn(path, ".");

		if (n >= sizeof(name))
			return NULL;
		memcpy(name, path, n);
		name[n] = '\0';
		value = json_object_get(o, name);
		path += n + (path[n] == '.');
	}
	return value;
}

static void put_number(struct buf *out, const json_t *value, double scale)
{
	if (scale != 0)
		buf_printf(out, "%.17g\n", json_number_value(value) * scale);
	else
		buf_printf(out, "%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
}

static void put_values(struct buf *out, const struct metric *m, const json_t *status)
{
	json_t *value = member(status, m->path), *each;
	const char *key;

	if (!m->label) {
		if (!json_is_number(value))
			return;
		put_series(out, m->name, status, NULL, NULL);
		put_number(out, value, m->scale);
		return;
	}
	json_object_foreach(value, key, each)
	{
		/* A sum of the others. */
		if (!json_is_number(each) || !strcmp(key, "total"))
			continue;
		put_series(out, m->name, status, m->label, key);
		put_number(out, each, m->scale);
	}
}

static void put_family(struct buf *out, const struct metric *m, const json_t *mounts)
{
	size_t begun = out->len, head, i;
	const json_t *status;

	put_head(out, m->name, m->type, m->help);
	head = out->len;
	json_array_foreach(mounts, i, status) put_values(out, m, status);
	if (out->len == head)
		out->len = begun; /* no mount has it */
}

static void put_text_label(struct buf *out, const json_t *status, const char *name)
{
	const char *value = json_string_value(json_object_get(status, name));

	buf_putc(out, ',');
	put_label(out, name, value ? value : "");
}

/* Another user's: nothing can be said of it. */
static bool is_unknown(const json_t *status)
{
	const char *state = json_string_value(json_object_get(status, "state"));

	return state && !strcmp(state, "unknown");
}

void metrics_write(struct buf *out, const json_t *mounts)
{
	const json_t *status;
	size_t i;

	put_head(out, "sluice_build_info", "gauge", "The version of this program.");
	buf_printf(out, "sluice_build_info{version=\"%s\"} 1\n", VERSION);
	put_head(out, "sluice_up", "gauge",
		 "Whether the process of the mount is there and answers.");
	json_array_foreach(mounts, i, status)
	{
		if (is_unknown(status))
			continue;
		put_series(out, "sluice_up", status, NULL, NULL);
		buf_printf(out, "%d\n", json_object_get(status, "pid") != NULL);
	}
	put_head(out, "sluice_mount_info", "gauge", "What is mounted.");
	json_array_foreach(mounts, i, status)
	{
		buf_puts(out, "sluice_mount_info{");
		put_label(out, "mount", mount_of(status));
		put_text_label(out, status, "source");
		put_text_label(out, status, "role");
		buf_puts(out, "} 1\n");
	}
	for (i = 0; i < sizeof(metrics) / sizeof(*metrics); i++)
		put_family(out, &metrics[i], mounts);
}
