/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the read benchmarks: the same accesses on any directory.
 *
 *   reader seq FILE BLOCK              read() from start to end
 *   reader random FILE BLOCK COUNT THREADS    pread() at random aligned offsets
 *   reader mmap FILE                   touches every page in order
 *   reader files LIST THREADS          open, read whole, close each path of LIST, in order
 *   reader stat LIST THREADS           lstat each path of LIST
 *
 * Prints one JSON line: bytes (or items), seconds, CPU seconds of this process.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64

struct work {
	const char *path;
	size_t block;
	long count; /* per run, shared by the threads */
	char **list;
	long list_count;
	int stat_only;
	off_t size;
	atomic_long next;
	atomic_llong bytes;
	atomic_long failures;
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

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static void *random_reads(void *arg)
{
	struct work *w = arg;
	char *p = malloc(w->block);
	int fd = open(w->path, O_RDONLY | O_CLOEXEC);
	uint64_t blocks = (uint64_t)w->size / w->block;
	long i;

	if (fd < 0 || !p || !blocks)
		fail(w->path);
	while ((i = atomic_fetch_add(&w->next, 1)) < w->count) {
		ssize_t r = pread(fd, p, w->block,
				  (off_t)(mix((uint64_t)i) % blocks * w->block));

		if (r < 0)
			fail(w->path);
		atomic_fetch_add(&w->bytes, r);
	}
	close(fd);
	free(p);
	return NULL;
}

static long long read_whole(const char *path, char *p, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long long total = 0;
	ssize_t r;

	if (fd < 0)
		return -1;
	while ((r = read(fd, p, n)) > 0)
		total += r;
	close(fd);
	return r < 0 ? -1 : total;
}

static void *list_reads(void *arg)
{
	struct work *w = arg;
	size_t n = 256 << 10;
	char *p = malloc(n);
	long i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->list_count) {
		struct stat st;
		long long r = w->stat_only ? lstat(w->list[i], &st)
					   : read_whole(w->list[i], p, n);

		if (r < 0)
			fail(w->list[i]);
		atomic_fetch_add(&w->bytes, w->stat_only ? 1 : r);
	}
	free(p);
	return NULL;
}

static void in_threads(struct work *w, int count, void *(*run)(void *))
{
	pthread_t threads[THREADS_MAX];

	if (count < 1 || count > THREADS_MAX)
		count = 1;
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, run, w))
			fail("pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void map_and_touch(struct work *w)
{
	int fd = open(w->path, O_RDONLY | O_CLOEXEC);
	const volatile unsigned char *p;
	unsigned int sum = 0;

	p = fd < 0 ? MAP_FAILED
		   : mmap(NULL, (size_t)w->size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		fail(w->path);
	for (off_t i = 0; i < w->size; i += 4096)
		sum += p[i];
	atomic_fetch_add(&w->bytes, w->size);
	w->failures = sum == 0xffffffff; /* the loop must not be optimised away */
	close(fd);
}

static void read_list(struct work *w, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[4096];

	if (!f)
		fail(path);
	while (fgets(line, sizeof(line), f)) {
		w->list = realloc(w->list, (size_t)(w->list_count + 1) * sizeof(char *));
		line[strcspn(line, "\n")] = '\0';
		w->list[w->list_count++] = strdup(line);
	}
	fclose(f);
}

static void measure(struct work *w, int argc, char **argv)
{
	const char *mode = argv[1];
	int threads = 1;

	if (!strcmp(mode, "seq") && argc == 4) {
		char *p = malloc(w->block);

		w->bytes = read_whole(w->path, p, w->block);
		if (w->bytes < 0)
			fail(w->path);
		free(p);
	} else if (!strcmp(mode, "random") && argc == 6) {
		w->count = atol(argv[4]);
		threads = atoi(argv[5]);
		in_threads(w, threads, random_reads);
	} else if (!strcmp(mode, "mmap") && argc == 3) {
		map_and_touch(w);
	} else if ((!strcmp(mode, "files") || !strcmp(mode, "stat")) && argc == 4) {
		w->stat_only = mode[0] == 's';
		in_threads(w, atoi(argv[3]), list_reads);
	} else {
		fprintf(stderr, "usage: see the head of reader.c\n");
		exit(64);
	}
}

int main(int argc, char **argv)
{
	struct work w = {.path = argc > 2 ? argv[2] : ""};
	struct stat st = {0};
	double began;

	if (argc < 3)
		return 64;
	if (!strcmp(argv[1], "files") || !strcmp(argv[1], "stat"))
		read_list(&w, w.path);
	else if (stat(w.path, &st) < 0)
		fail(w.path);
	w.size = st.st_size;
	w.block = argc > 3 ? strtoul(argv[3], NULL, 10) : 1 << 20;
	began = seconds_of(CLOCK_MONOTONIC);
	measure(&w, argc, argv);
	printf("{\"bytes\":%lld,\"seconds\":%.6f,\"cpu\":%.6f}\n", (long long)w.bytes,
	       seconds_of(CLOCK_MONOTONIC) - began, seconds_of(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
