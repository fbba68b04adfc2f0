/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the read benchmarks: the same accesses on any directory.
 *
 *   reader seq FILE BLOCK PASSES              read() from start to end, PASSES times
 *   reader random FILE BLOCK COUNT THREADS    pread() at random aligned offsets
 *   reader mmap FILE PASSES                   reads all of it through memory
 *   reader files LIST THREADS PASSES          open, read whole, close each path of LIST,
 *                                             in its order
 *   reader dir DIR THREADS                    the same for the files of DIR, after and in
 *                                             the order of a listing
 *   reader list DIR                           every entry of DIR and its attributes
 *
 * Prints one JSON line: bytes (list: entries), seconds, CPU seconds of this process.
 */
#include "tests/bench/bench.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BUFFER (256u << 10)

struct work {
	const char *path;
	off_t size;
	size_t block;
	long count; /* reads, or files, of all threads together */
	struct bench_lines list;
	atomic_long next;
	atomic_llong bytes;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		bench_fail(path);
	return fd;
}

static void *random_reads(void *arg)
{
	struct work *w = arg;
	uint64_t blocks = (uint64_t)w->size / w->block;
	char *p = malloc(w->block);
	int fd = open_file(w->path);
	long i;

	while (p && blocks && (i = atomic_fetch_add(&w->next, 1)) < w->count) {
		ssize_t r = pread(fd, p, w->block,
				  (off_t)(mix((uint64_t)i) % blocks * w->block));

		if (r != (ssize_t)w->block)
			bench_fail(w->path);
		atomic_fetch_add(&w->bytes, r);
	}
	close(fd);
	free(p);
	return NULL;
}

static long long read_whole(const char *path, char *p, size_t n)
{
	int fd = open_file(path);
	long long total = 0;
	ssize_t r;

	while ((r = read(fd, p, n)) > 0)
		total += r;
	if (r < 0)
		bench_fail(path);
	close(fd);
	return total;
}

static void *list_reads(void *arg)
{
	struct work *w = arg;
	char *p = malloc(FILE_BUFFER);
	long i;

	while (p && (i = atomic_fetch_add(&w->next, 1)) < w->count)
		atomic_fetch_add(&w->bytes, read_whole(w->list.items[i % w->list.count],
						       p, FILE_BUFFER));
	free(p);
	return NULL;
}

static void sequential(struct work *w, int passes)
{
	char *p = malloc(w->block);

	for (int i = 0; p && i < passes; i++)
		w->bytes += read_whole(w->path, p, w->block);
	free(p);
}

static void read_mapped(struct work *w, int passes)
{
	size_t words = (size_t)w->size / sizeof(uint64_t);
	uint64_t sum = 0;

	for (int i = 0; i < passes; i++) {
		int fd = open_file(w->path);
		uint64_t *p = mmap(NULL, (size_t)w->size, PROT_READ, MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			bench_fail(w->path);
		for (size_t k = 0; k < words; k++)
			sum += p[k];
		munmap(p, (size_t)w->size);
		close(fd);
		w->bytes += w->size;
	}
	if (sum == 1) /* the loop must not be optimised away */
		puts("");
}

static void list_names(struct work *w)
{
	DIR *dir = opendir(w->path);
	struct dirent *entry;

	if (!dir)
		bench_fail(w->path);
	while ((entry = readdir(dir))) {
		char path[4096];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", w->path, entry->d_name);
		bench_add_line(&w->list, strdup(path));
	}
	closedir(dir);
}

/* What `ls -l` asks for, without its formatting. */
static void list_directory(struct work *w)
{
	DIR *dir = opendir(w->path);
	struct dirent *entry;
	struct stat st;

	if (!dir)
		bench_fail(w->path);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			bench_fail(entry->d_name);
		w->bytes++;
	}
	closedir(dir);
}

static bool measure(struct work *w, int argc, char **argv)
{
	const char *mode = argv[1];

	if (!strcmp(mode, "seq") && argc == 5) {
		sequential(w, atoi(argv[4]));
	} else if (!strcmp(mode, "random") && argc == 6) {
		w->count = atol(argv[4]);
		bench_threads(atoi(argv[5]), random_reads, w);
	} else if (!strcmp(mode, "mmap") && argc == 4) {
		read_mapped(w, atoi(argv[3]));
	} else if (!strcmp(mode, "files") && argc == 5) {
		w->count = w->list.count * atol(argv[4]);
		bench_threads(atoi(argv[3]), list_reads, w);
	} else if (!strcmp(mode, "dir") && argc == 4) {
		list_names(w);
		w->count = w->list.count;
		bench_threads(atoi(argv[3]), list_reads, w);
	} else if (!strcmp(mode, "list") && argc == 3) {
		list_directory(w);
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct work w = {.path = argc > 2 ? argv[2] : ""};
	struct stat st = {0};
	double began;

	if (argc > 2 && !strcmp(argv[1], "files"))
		bench_read_lines(&w.list, w.path);
	else if (argc > 2 && stat(w.path, &st) < 0)
		bench_fail(w.path);
	w.size = st.st_size;
	w.block = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	began = bench_now();
	if (argc < 3 || !measure(&w, argc, argv)) {
		fprintf(stderr, "usage: see the head of reader.c\n");
		return 64;
	}
	bench_report(w.bytes, began);
	return 0;
}
