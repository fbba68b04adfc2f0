/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the write benchmarks: the same writes into any directory.
 *
 *   writer one FILE SIZE BLOCK fsync|nosync        one file, to close
 *   writer files DIR COUNT SIZE THREADS fsync|nosync
 *   writer append FILE SIZE TIMES PAUSE_MS         appends to a file kept open, flushing each
 *
 * With fsync the file is synced before close: what a native file system must do to promise
 * what close() on /output promises. Prints one JSON line: bytes, seconds, CPU seconds.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64

struct work {
	const char *dir;
	long count;
	size_t size;
	bool sync;
	atomic_long next;
};

static double seconds_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static char *noise(size_t n)
{
	char *p = malloc(n);
	unsigned int x = 2463534242u;

	if (!p)
		fail("malloc");
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		p[i] = (char)x;
	}
	return p;
}

static void write_file(const char *path, const char *p, size_t size, size_t block,
		       bool sync)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		fail(path);
	for (size_t at = 0; at < size; at += block) {
		size_t n = size - at < block ? size - at : block;

		if (write(fd, p, n) != (ssize_t)n)
			fail(path);
	}
	if (sync && fsync(fd) < 0)
		fail(path);
	if (close(fd) < 0)
		fail(path);
}

static void *write_files(void *arg)
{
	struct work *w = arg;
	char *p = noise(w->size), path[4096];
	long i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->count) {
		snprintf(path, sizeof(path), "%s/%06ld", w->dir, i);
		write_file(path, p, w->size, w->size, w->sync);
	}
	free(p);
	return NULL;
}

static void append(const char *path, size_t size, long times, long pause_ms)
{
	const struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	char *p = noise(size);

	if (fd < 0)
		fail(path);
	for (long i = 0; i < times; i++) {
		if (write(fd, p, size) != (ssize_t)size || fsync(fd) < 0)
			fail(path);
		nanosleep(&pause, NULL);
	}
	if (close(fd) < 0)
		fail(path);
	free(p);
}

int main(int argc, char **argv)
{
	double began = seconds_of(CLOCK_MONOTONIC);
	long long bytes = 0;

	if (argc == 6 && !strcmp(argv[1], "one")) {
		size_t size = strtoul(argv[3], NULL, 10);
		size_t block = strtoul(argv[4], NULL, 10);
		char *p = noise(block);

		began = seconds_of(CLOCK_MONOTONIC);
		write_file(argv[2], p, size, block, !strcmp(argv[5], "fsync"));
		bytes = (long long)size;
	} else if (argc == 7 && !strcmp(argv[1], "files")) {
		struct work w = {.dir = argv[2],
				 .count = atol(argv[3]),
				 .size = strtoul(argv[4], NULL, 10),
				 .sync = !strcmp(argv[6], "fsync")};
		pthread_t threads[THREADS_MAX];
		int n = atoi(argv[5]);

		if (n < 1 || n > THREADS_MAX)
			return 64;
		for (int i = 0; i < n; i++)
			if (pthread_create(&threads[i], NULL, write_files, &w))
				fail("pthread_create");
		for (int i = 0; i < n; i++)
			pthread_join(threads[i], NULL);
		bytes = w.count * (long long)w.size;
	} else if (argc == 6 && !strcmp(argv[1], "append")) {
		append(argv[2], strtoul(argv[3], NULL, 10), atol(argv[4]), atol(argv[5]));
		bytes = atoll(argv[3]) * atol(argv[4]);
	} else {
		fprintf(stderr, "usage: see the head of writer.c\n");
		return 64;
	}
	printf("{\"bytes\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n", bytes,
	       seconds_of(CLOCK_MONOTONIC) - began, seconds_of(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
