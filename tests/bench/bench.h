/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs of the benchmarks share: clocks, one line of JSON, an end on errors. */
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 64

static inline double bench_clock(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double bench_now(void)
{
	return bench_clock(CLOCK_MONOTONIC);
}

/* Bytes (or items), wall-clock seconds since `began`, CPU seconds of this process. */
static inline void bench_report(long long bytes, double began)
{
	printf("{\"bytes\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n", bytes,
	       bench_now() - began, bench_clock(CLOCK_PROCESS_CPUTIME_ID));
}

static inline void bench_fail(const char *what)
{
	perror(what);
	exit(1);
}

static inline void bench_threads(int count, void *(*run)(void *), void *arg)
{
	pthread_t threads[THREADS_MAX];

	if (count < 1 || count > THREADS_MAX) {
		fprintf(stderr, "from 1 to %d threads\n", THREADS_MAX);
		exit(64);
	}
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, run, arg))
			bench_fail("pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

/* Bytes that do not compress and cost little to make; the caller's to free. */
static inline char *bench_noise(size_t n)
{
	char *p = malloc(n);
	unsigned int x = 2463534242u;

	if (!p)
		bench_fail("malloc");
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		p[i] = (char)x;
	}
	return p;
}

struct bench_lines {
	char **items;
	long count;
};

/* Takes `line`. */
static inline void bench_add_line(struct bench_lines *lines, char *line)
{
	lines->items = realloc(lines->items, (size_t)(lines->count + 1) * sizeof(char *));
	if (!lines->items || !line)
		bench_fail("realloc");
	lines->items[lines->count++] = line;
}

/* The lines of a file, without their ends. */
static inline void bench_read_lines(struct bench_lines *lines, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	if (!f)
		bench_fail(path);
	while ((n = getline(&line, &size, f)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		bench_add_line(lines, line);
		line = NULL;
		size = 0;
	}
	free(line);
	fclose(f);
}
