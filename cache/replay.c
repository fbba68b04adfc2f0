/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published segment with the highest generation is the journal. Others with it are
 * left-overs of a crash around the rename: an unpublished one is removed, an older one is
 * removed once its successor proved to be whole, and read first when it did not.
 *
 * A segment with damage is copied to the quarantine before anything replaces it.
 */
#include "cache/replay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/journal.h"
#include "cache/segment.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define SEGMENTS_MAX 16 /* two after a crash; more means someone put them there */

struct segments {
	uint64_t generations[SEGMENTS_MAX]; /* of the published ones, ascending */
	size_t count;
	uint64_t highest; /* of all names */
};

static void add_generation(struct segments *s, uint64_t generation)
{
	size_t i = s->count++;

	for (; i > 0 && s->generations[i - 1] > generation; i--)
		s->generations[i] = s->generations[i - 1];
	s->generations[i] = generation;
}

static int find_segments(int dirfd, struct segments *s)
{
	int copy = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;

	if (!dir) {
		int r = -errno;

		if (copy >= 0)
			close(copy);
		return err_origin(r);
	}
	while ((e = readdir(dir))) {
		unsigned long long generation;
		char ext[4];

		if (strlen(e->d_name) != 20 ||
		    sscanf(e->d_name, "%16llx.%3s", &generation, ext) != 2)
			continue;
		if (generation > s->highest)
			s->highest = generation;
		if (strcmp(ext, "new") == 0)
			unlinkat(dirfd, e->d_name, 0);
		else if (strcmp(ext, "wal") == 0 && s->count < SEGMENTS_MAX)
			add_generation(s, generation);
	}
	return 0;
}

struct scan {
	const struct journal_config *config;
	struct journal_report *report;
	bool has_snapshot; /* the end of the snapshot was seen */
};

static int count_only(void *arg, const struct record *r)
{
	(void)arg;
	(void)r;
	return 0;
}

static int deliver(void *arg, const char *payload, size_t n)
{
	struct scan *scan = arg;

	while (n > 0) {
		struct record record;
		int r = record_decode(&payload, &n, &record);

		if (r < 0) {
			/* The checksum holds, so this is not damage by the disk; what
			 * follows in the frame cannot be found. Count it as damage. */
			scan->report->damaged++;
			return 0;
		}
		scan->report->records++;
		scan->report->closed = record.type == RECORD_CLOSED;
		if (record.type == RECORD_SNAPSHOT)
			scan->has_snapshot = true;
		else if (record.type != RECORD_CLOSED)
			r = scan->config->replay(scan->config->arg, &record);
		if (r < 0)
			return err_trace(r);
	}
	return 0;
}

/* A copy, not a rename: the journal must exist until its successor is published. */
static int quarantine(const struct journal_config *config, uint64_t generation,
		      struct journal_report *report)
{
	char name[SEGMENT_NAME_MAX];
	_cleanup_(close_fdp) int from = -1;
	_cleanup_(close_fdp) int to = -1;
	char block[65536];
	uint64_t at = 0;

	segment_name(name, generation, "wal");
	snprintf(report->quarantined, sizeof(report->quarantined), "%s.%lld", name,
		 (long long)(clock_real_ns() / 1000000));
	from = openat(config->dirfd, name, O_RDONLY | O_CLOEXEC);
	to = openat(config->quarantine_fd, report->quarantined,
		    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (from < 0 || to < 0)
		return err_origin(-errno);
	for (;;) {
		ssize_t n = io_pread(from, block, sizeof(block), at);
		int r;

		if (n < 0)
			return err_trace((int)n);
		if (n == 0)
			break;
		r = io_pwrite(to, block, (size_t)n, at);
		if (r < 0)
			return err_trace(r);
		at += (uint64_t)n;
	}
	if (fsync(to) < 0)
		return err_origin(-errno);
	return err_trace(io_fsync_dir(config->quarantine_fd));
}

static int check_source(const struct journal_config *config,
			const struct segment_report *segment, struct why *why)
{
	if (!segment->has_header)
		return 0;
	if (segment->version == 0 || segment->version > SEGMENT_VERSION_MAX)
		return why_set(
			why, err_origin(-EINVAL),
			"state was written by a newer version (journal format %u): "
			"use that version, or another --state-dir",
			segment->version);
	if (strcmp(segment->source, config->source) != 0)
		return why_set(why, err_origin(-EINVAL),
			       "state belongs to %s, not to %s: use another --state-dir",
			       segment->source, config->source);
	return 0;
}

static int replay_segment(const struct journal_config *config, uint64_t generation,
			  struct journal_report *report, struct why *why)
{
	struct scan scan = {.config = config, .report = report};
	struct segment_report segment;
	int r = segment_scan(config->dirfd, generation, deliver, &scan, &segment);

	if (r < 0)
		return why_set(why, err_trace(r), "cannot read the journal: %s",
			       strerror(-r));
	r = check_source(config, &segment, why);
	if (r < 0)
		return r;
	/* Publishing comes after the sync, so a snapshot without its end was damaged. */
	if (!(scan.has_snapshot && segment.has_header) && segment.damaged == 0)
		segment.damaged++;
	report->damaged += segment.damaged;
	report->torn_bytes += segment.torn_bytes;
	if (report->damaged == 0 && segment.torn_bytes == 0)
		return 0;
	r = quarantine(config, generation, report);
	if (r < 0)
		return why_set(why, r, "cannot set the damaged journal aside: %s",
			       strerror(-r));
	if (report->damaged > 0)
		log_error("journal is damaged places=%llu records=%llu quarantine=%s",
			  (unsigned long long)report->damaged,
			  (unsigned long long)report->records, report->quarantined);
	else
		log_warn("journal ends in a torn record bytes=%llu quarantine=%s",
			 (unsigned long long)segment.torn_bytes, report->quarantined);
	return 0;
}

/* Whether the segment can stand alone. Reads it without delivering. */
static int is_whole(const struct journal_config *config, uint64_t generation, bool *whole)
{
	struct journal_report ignored = {0};
	struct journal_config counting = *config;
	struct scan scan = {.config = &counting, .report = &ignored};
	struct segment_report segment;
	int r;

	counting.replay = count_only;
	r = segment_scan(config->dirfd, generation, deliver, &scan, &segment);
	*whole = r == 0 && scan.has_snapshot && segment.has_header;
	return err_trace(r);
}

int replay_journal(const struct journal_config *config, uint64_t *generation,
		   struct journal_report *report, struct why *why)
{
	struct segments segments = {.count = 0};
	size_t first;
	int r = find_segments(config->dirfd, &segments);

	*report = (struct journal_report){0};
	if (r < 0)
		return why_set(why, r, "cannot list the journal: %s", strerror(-r));
	*generation = segments.highest;
	report->fresh = segments.count == 0;
	if (report->fresh)
		return 0;
	/* Older ones only when the newest cannot stand alone; records are whole states, so
	 * the newer ones win. */
	for (first = segments.count - 1; first > 0; first--) {
		bool whole = false;

		r = is_whole(config, segments.generations[first], &whole);
		if (r < 0)
			return why_set(why, r, "cannot read the journal: %s",
				       strerror(-r));
		if (whole)
			break;
	}
	for (size_t i = first; i < segments.count; i++) {
		r = replay_segment(config, segments.generations[i], report, why);
		if (r < 0)
			return r;
	}
	return 0;
}

void replay_sweep(int dirfd, uint64_t generation)
{
	struct segments segments = {.count = 0};
	char name[SEGMENT_NAME_MAX];

	if (find_segments(dirfd, &segments) < 0)
		return;
	for (size_t i = 0; i < segments.count; i++) {
		if (segments.generations[i] >= generation)
			continue;
		segment_name(name, segments.generations[i], "wal");
		unlinkat(dirfd, name, 0);
	}
}
