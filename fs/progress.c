/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/units.h"

#define WIDTH_MAX 120
#define BAR_WIDTH 20
#define REDRAW_MS 100

void progress_init(struct progress *p, bool quiet)
{
	*p = (struct progress){.on = !quiet && isatty(STDERR_FILENO)};
}

static int terminal_width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col < 20)
		return 80;
	return w.ws_col < WIDTH_MAX ? w.ws_col : WIDTH_MAX;
}

void progress_format(char *out, int width, const struct progress_amount *amount,
		     uint64_t elapsed_ms)
{
	char done[24], all[24], rate[24], eta[32] = "", more[64] = "", line[320];
	char bar[BAR_WIDTH + 1];
	uint64_t per_s = elapsed_ms ? amount->bytes_done * 1000 / elapsed_ms : 0;
	uint64_t bytes_all = amount->bytes_done + amount->bytes_left;
	int full =
		bytes_all ? (int)(amount->bytes_done * BAR_WIDTH / bytes_all) : BAR_WIDTH;

	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < full ? '#' : '.';
	bar[BAR_WIDTH] = '\0';
	units_format_size(done, sizeof(done), amount->bytes_done);
	units_format_size(all, sizeof(all), bytes_all);
	units_format_size(rate, sizeof(rate), per_s);
	if (amount->moving)
		snprintf(more, sizeof(more),
			 " and more in %" PRIu64 " renamed director%s", amount->moving,
			 amount->moving == 1 ? "y" : "ies");
	else if (per_s)
		units_format_duration(eta, sizeof(eta),
				      amount->bytes_left * 1000 / per_s);
	snprintf(line, sizeof(line),
		 "[%s] %s of %s, %" PRIu64 " of %" PRIu64 " files%s, %s/s%s%s", bar, done,
		 all, amount->files_done, amount->files_done + amount->files_left, more,
		 rate, *eta ? ", ETA " : "", eta);
	snprintf(out, (size_t)width + 1, "%s", line);
}

/* Whether to draw now. */
static bool due(struct progress *p, uint64_t files_done, uint64_t bytes_done)
{
	uint64_t now = clock_mono_ms();

	if (!p->on)
		return false;
	if (!p->begun) {
		p->begun = true;
		p->start_ms = now;
		p->files_base = files_done;
		p->bytes_base = bytes_done;
	} else if (now - p->last_ms < REDRAW_MS) {
		return false;
	}
	p->last_ms = now;
	return true;
}

static void draw(const char *line)
{
	fprintf(stderr, "\r\033[K%s", line);
	fflush(stderr);
}

void progress_show(struct progress *p, const struct progress_amount *amount)
{
	struct progress_amount since = *amount;
	char line[WIDTH_MAX + 1];

	if (!due(p, amount->files_done, amount->bytes_done))
		return;
	since.files_done -= p->files_base;
	since.bytes_done -= p->bytes_base;
	progress_format(line, terminal_width() - 1, &since, p->last_ms - p->start_ms);
	draw(line);
}

void progress_count(struct progress *p, uint64_t files_done, uint64_t bytes_done)
{
	char line[WIDTH_MAX + 1], done[24], rate[24];
	uint64_t elapsed_ms;

	if (!due(p, files_done, bytes_done))
		return;
	elapsed_ms = p->last_ms - p->start_ms;
	units_format_size(done, sizeof(done), bytes_done);
	units_format_size(rate, sizeof(rate),
			  elapsed_ms ? (bytes_done - p->bytes_base) * 1000 / elapsed_ms
				     : 0);
	snprintf(line, (size_t)terminal_width(), "%" PRIu64 " files, %s, %s/s",
		 files_done, done, rate);
	draw(line);
}

void progress_end(struct progress *p)
{
	if (p->begun)
		fputc('\n', stderr);
	p->begun = false;
}
