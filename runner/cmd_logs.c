/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/opt.h"
#include "fs/base/xalloc.h"
#include "runner/logs.h"
#include "runner/logs_term.h"
#include "runner/view.h"

#define POLL_MS 100
#define CHUNK 65536
#define DRAIN_MS 10000

struct logs_options {
	bool follow;
	bool raw;
	const char *only;
	uint64_t tail;
};

static const struct opt_spec options[] = {
	{"follow", 'f', OPT_FLAG, offsetof(struct logs_options, follow), NULL, 0, 0, NULL,
	 "go on until the job is over", NULL},
	{"container", 'c', OPT_STRING, offsetof(struct logs_options, only), NULL, 0, 0,
	 "ROLE[-INDEX]", "only this container, or all of this role", NULL},
	{"tail", 'n', OPT_UINT, offsetof(struct logs_options, tail), NULL, 0, 1000000000,
	 "LINES", "only the last lines of each container [all]", NULL},
	{"raw", 0, OPT_FLAG, offsetof(struct logs_options, raw), NULL, 0, 0, NULL,
	 "the bytes as they are, without names in front", NULL},
	{0},
};

/* One container's log and how far it has been shown. */
struct source {
	char name[SPEC_ROLE_NAME_MAX + 16];
	int fd; /* -1: no log yet */
	uint64_t at;
	struct buf line; /* the beginning of a line whose end has not come */
};

struct follower {
	const struct logs_options *options;
	struct view *view;
	struct logs_term *term; /* NULL: raw */
	struct source *sources;
	size_t count;
	bool failed; /* standard output is gone */
};

static void show_line(struct follower *f, struct source *s, const char *text, size_t n)
{
	if (n && text[n - 1] == '\r')
		n--;
	logs_term_add(f->term, s->name, text, n);
}

static void show(struct follower *f, struct source *s, const char *text, size_t n)
{
	if (!f->term) {
		f->failed |= io_write(STDOUT_FILENO, text, n) < 0;
		return;
	}
	while (n) {
		const char *end = memchr(text, '\n', n);
		size_t piece = end ? (size_t)(end - text) : n;

		buf_append(&s->line, text, piece);
		if (end || s->line.len > LOGS_LINE_MAX) {
			show_line(f, s, s->line.data ? s->line.data : "", s->line.len);
			buf_reset(&s->line);
		}
		piece += end != NULL;
		text += piece;
		n -= piece;
	}
}

/* Shows what is new. Returns whether there was anything. */
static bool advance(struct follower *f, struct source *s)
{
	static char chunk[CHUNK];
	bool any = false;

	while (s->fd >= 0 && !f->failed) {
		ssize_t n = io_pread(s->fd, chunk, sizeof(chunk), s->at);

		if (n <= 0)
			break;
		show(f, s, chunk, (size_t)n);
		s->at += (uint64_t)n;
		any = true;
	}
	return any;
}

/* Back from the end to where the last `lines` lines begin. */
static uint64_t tail_of(int fd, uint64_t lines)
{
	struct stat st;
	uint64_t at, seen = 0;
	char c;

	if (!lines || fstat(fd, &st) < 0)
		return 0;
	for (at = (uint64_t)st.st_size; at > 0; at--) {
		if (io_pread(fd, &c, 1, at - 1) != 1)
			return 0;
		/* The newline at the very end closes the last line. */
		if (c == '\n' && at < (uint64_t)st.st_size && ++seen == lines)
			return at;
	}
	return 0;
}

static void open_source(struct follower *f, struct source *s)
{
	char path[PATH_MAX];

	if (s->fd >= 0)
		return;
	job_path(f->view->job, path, "logs/%s.log", s->name);
	s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (s->fd >= 0)
		s->at = tail_of(s->fd, f->options->tail);
}

static bool is_wanted(const struct logs_options *o, const struct status_replica *r,
		      const char *name)
{
	return !o->only || !strcmp(o->only, r->role) || !strcmp(o->only, name);
}

static int open_sources(struct follower *f)
{
	const struct status *s = &f->view->status;

	f->sources = xcalloc(s->replica_count, sizeof(*f->sources));
	for (size_t i = 0; i < s->replica_count; i++) {
		struct source *source = &f->sources[f->count];

		snprintf(source->name, sizeof(source->name), "%s-%u", s->replicas[i].role,
			 s->replicas[i].index);
		if (!is_wanted(f->options, &s->replicas[i], source->name))
			continue;
		source->fd = -1;
		f->count++;
	}
	if (f->count)
		return EXIT_OK;
	fprintf(stderr,
		"runner: %s has no container \"%s\": \"runner status %s\" shows them\n",
		f->view->job->name, f->options->only ? f->options->only : "",
		f->view->job->name);
	return EXIT_CONFIG;
}

static void pump(struct follower *f)
{
	for (;;) {
		/* Looked at before reading: what comes before the end is not missed. */
		bool over = !f->options->follow || !f->view->held;
		bool any = false;

		for (size_t i = 0; i < f->count && !f->failed; i++) {
			open_source(f, &f->sources[i]);
			any |= advance(f, &f->sources[i]);
		}
		if (f->failed || (over && !any))
			return;
		if (!any)
			clock_sleep_ms(POLL_MS);
		view_refresh(f->view);
	}
}

static int show_logs(struct view *v, const struct logs_options *o)
{
	struct follower f = {.options = o, .view = v};
	int code = open_sources(&f);

	if (code == EXIT_OK && !o->raw && logs_term_new(&f.term, STDOUT_FILENO) < 0)
		code = EXIT_INTERNAL;
	if (code == EXIT_OK)
		pump(&f);
	for (size_t i = 0; i < f.count; i++) {
		struct source *s = &f.sources[i];

		if (f.term && s->line.len)
			show_line(&f, s, s->line.data, s->line.len);
		buf_fini(&s->line);
		close_fdp(&s->fd);
	}
	if (f.term)
		logs_term_drain(f.term, clock_mono_ms() + DRAIN_MS);
	logs_term_free(f.term);
	free(f.sources);
	return code;
}

static int run(void *options_, int argc, char **argv)
{
	struct view v;
	int code;

	code = view_open(argc ? argv[0] : NULL, &v);
	if (code)
		return code;
	if (v.readable) {
		code = show_logs(&v, options_);
	} else {
		fprintf(stderr, "runner: %s has no logs yet\n", v.job->name);
		code = EXIT_UNAVAILABLE;
	}
	view_close(&v);
	return code;
}

const struct command cmd_logs = {
	.name = "logs",
	.args = "[NAME]",
	.summary = "show what a job's containers have written",
	.examples = "  runner logs -f\n"
		    "  runner logs fashion --container worker-1 --tail 20\n",
	.options = options,
	.options_size = sizeof(struct logs_options),
	.args_min = 0,
	.args_max = 1,
	.run = run,
};
