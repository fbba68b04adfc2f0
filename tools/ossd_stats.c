/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"
#include "fs/base/lock.h"
#include "fs/base/xalloc.h"

#define NAMES_MAX 128

struct counters {
	struct {
		char name[64];
		uint64_t count;
	} items[NAMES_MAX];
	size_t used;
};

struct ossd_stats {
	struct lock lock; /* covers all */
	struct counters requests, errors, statuses;
	uint64_t total, bytes_in, bytes_out, in_flight, in_flight_max, connections;
};

struct ossd_stats *ossd_stats_new(void)
{
	struct ossd_stats *stats = xcalloc(1, sizeof(*stats));

	lock_init(&stats->lock);
	return stats;
}

struct ossd_stats *ossd_stats_free(struct ossd_stats *stats)
{
	if (!stats)
		return NULL;
	lock_fini(&stats->lock);
	free(stats);
	return NULL;
}

static void count(struct counters *c, const char *name)
{
	size_t i = 0;

	while (i < c->used && strcmp(c->items[i].name, name) != 0)
		i++;
	if (i == NAMES_MAX)
		i--; /* a test that invents so many codes reads the last one as "others" */
	if (i == c->used) {
		snprintf(c->items[i].name, sizeof(c->items[i].name), "%s", name);
		c->used++;
	}
	c->items[i].count++;
}

void ossd_stats_begin(struct ossd_stats *stats, const char *op)
{
	lock_scope(&stats->lock);
	count(&stats->requests, op);
	stats->total++;
	stats->in_flight++;
	if (stats->in_flight > stats->in_flight_max)
		stats->in_flight_max = stats->in_flight;
}

void ossd_stats_end(struct ossd_stats *stats, int status, const char *code,
		    uint64_t bytes_in, uint64_t bytes_out)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", status);
	lock_scope(&stats->lock);
	if (*code)
		count(&stats->errors, code);
	count(&stats->statuses, number);
	stats->bytes_in += bytes_in;
	stats->bytes_out += bytes_out;
	stats->in_flight--;
}

void ossd_stats_connection(struct ossd_stats *stats)
{
	lock_scope(&stats->lock);
	stats->connections++;
}

static void format_counters(struct buf *out, const char *name, const struct counters *c)
{
	json_begin_object(out, name);
	for (size_t i = 0; i < c->used; i++)
		json_put_uint(out, c->items[i].name, c->items[i].count);
	json_end_object(out);
}

void ossd_stats_format(struct ossd_stats *stats, struct buf *out)
{
	lock_scope(&stats->lock);
	json_begin_object(out, NULL);
	format_counters(out, "requests", &stats->requests);
	json_put_uint(out, "total", stats->total);
	format_counters(out, "errors", &stats->errors);
	format_counters(out, "statuses", &stats->statuses);
	json_put_uint(out, "bytes_in", stats->bytes_in);
	json_put_uint(out, "bytes_out", stats->bytes_out);
	json_put_uint(out, "in_flight", stats->in_flight);
	json_put_uint(out, "in_flight_max", stats->in_flight_max);
	json_put_uint(out, "connections", stats->connections);
	json_end_object(out);
}

void ossd_stats_reset(struct ossd_stats *stats)
{
	lock_scope(&stats->lock);
	stats->requests.used = stats->errors.used = stats->statuses.used = 0;
	memset(stats->requests.items, 0, sizeof(stats->requests.items));
	memset(stats->errors.items, 0, sizeof(stats->errors.items));
	memset(stats->statuses.items, 0, sizeof(stats->statuses.items));
	stats->total = stats->bytes_in = stats->bytes_out = stats->connections = 0;
	stats->in_flight_max = stats->in_flight;
}
