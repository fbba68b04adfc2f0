/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over every file of the folders named, and over deterministic
 * mutations of each (every byte flipped, every prefix cut, up to a bound), so that the
 * corpus goes on finding things in builds without libFuzzer. Prints the number of inputs.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/io.h"
#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (1 << 20)
#define MUTATIONS_MAX 2048 /* of one file */

static unsigned long inputs;

/* In an allocation of just that size, so that the sanitizers see one byte too many. */
static void run(const void *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static void run_mutations(struct buf *b)
{
	size_t step = b->len / (MUTATIONS_MAX / 2) + 1;

	for (size_t i = 0; i < b->len; i += step) {
		char was = b->data[i];

		b->data[i] = (char)(was ^ (1 << i % 8));
		run(b->data, b->len);
		b->data[i] = was;
		run(b->data, i);
	}
}

static int run_folder(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int files = 0;

	if (!dir) {
		perror(path);
		return -1;
	}
	while ((entry = readdir(dir))) {
		struct buf b = BUF_INIT;

		if (entry->d_name[0] == '.')
			continue;
		if (io_read_file(dirfd(dir), entry->d_name, INPUT_MAX, &b) < 0) {
			perror(entry->d_name);
			closedir(dir);
			return -1;
		}
		run(b.data, b.len);
		run_mutations(&b);
		buf_fini(&b);
		files++;
	}
	closedir(dir);
	return files;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (run_folder(argv[i]) <= 0) {
			fprintf(stderr, "%s: no corpus\n", argv[i]);
			return 1;
		}
	}
	printf("%lu inputs\n", inputs);
	return inputs == 0;
}
