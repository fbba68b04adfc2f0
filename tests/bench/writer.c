/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the write benchmarks: the same writes into any directory.
 *
 *   writer one FILE SIZE BLOCK fsync|nosync        one file, to close
 *   writer files DIR COUNT SIZE THREADS fsync|nosync
 *   writer append FILE SIZE TIMES PAUSE_MS         appends to one file kept open
 *   writer rename FROM TO                          until stat of TO says it is there
 *
 * With fsync a file is synced before close: what a native file system must do to promise
 * what close() on /output promises. Prints one JSON line: bytes, seconds, CPU seconds.
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct work {
	const char *dir;
	long count;
	size_t size;
	bool sync;
	char *data;
	atomic_long next;
};

/* The same block again and again. */
static void write_file(const char *path, const char *block, size_t size,
		       size_t block_size, bool sync)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		bench_fail(path);
	for (size_t at = 0; at < size; at += block_size) {
		size_t n = size - at < block_size ? size - at : block_size;

		if (write(fd, block, n) != (ssize_t)n)
			bench_fail(path);
	}
	if (sync && fsync(fd) < 0)
		bench_fail(path);
	if (close(fd) < 0)
		bench_fail(path);
}

static void *write_files(void *arg)
{
	struct work *w = arg;
	char path[4096];
	long i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->count) {
		snprintf(path, sizeof(path), "%s/%06ld", w->dir, i);
		write_file(path, w->data, w->size, w->size, w->sync);
	}
	return NULL;
}

static void append(const char *path, const char *data, size_t size, long times,
		   long pause_ms)
{
	const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0)
		bench_fail(path);
	for (long i = 0; i < times; i++) {
		if (write(fd, data, size) != (ssize_t)size)
			bench_fail(path);
		nanosleep(&pause, NULL);
	}
	if (close(fd) < 0)
		bench_fail(path);
}

static void move(const char *from, const char *to)
{
	struct stat st;

	if (rename(from, to) < 0)
		bench_fail(from);
	while (stat(to, &st) < 0)
		if (errno != ENOENT)
			bench_fail(to);
}

static long long measure(int argc, char **argv, double *began)
{
	const char *mode = argv[1];

	if (!strcmp(mode, "one") && argc == 6) {
		size_t size = strtoul(argv[3], NULL, 10);
		size_t block = strtoul(argv[4], NULL, 10);
		char *data = bench_noise(block);

		*began = bench_now();
		write_file(argv[2], data, size, block, !strcmp(argv[5], "fsync"));
		free(data);
		return (long long)size;
	}
	if (!strcmp(mode, "files") && argc == 7) {
		struct work w = {.dir = argv[2],
				 .count = atol(argv[3]),
				 .size = strtoul(argv[4], NULL, 10),
				 .sync = !strcmp(argv[6], "fsync")};

		w.data = bench_noise(w.size);
		*began = bench_now();
		bench_threads(atoi(argv[5]), write_files, &w);
		free(w.data);
		return w.count * (long long)w.size;
	}
	if (!strcmp(mode, "append") && argc == 6) {
		size_t size = strtoul(argv[3], NULL, 10);
		char *data = bench_noise(size);

		append(argv[2], data, size, atol(argv[4]), atol(argv[5]));
		free(data);
		return (long long)size * atol(argv[4]);
	}
	if (!strcmp(mode, "rename") && argc == 4) {
		move(argv[2], argv[3]);
		return 1;
	}
	return -1;
}

int main(int argc, char **argv)
{
	double began = bench_now();
	long long bytes = argc > 1 ? measure(argc, argv, &began) : -1;

	if (bytes < 0) {
		fprintf(stderr, "usage: see the head of writer.c\n");
		return 64;
	}
	bench_report(bytes, began);
	return 0;
}
