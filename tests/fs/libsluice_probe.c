/* SPDX-License-Identifier: Apache-2.0 */
/* Uses libsluice as a foreign program would: copies d/big to copies/of/big through both
 * roles and looks at what happens on the way. */
#include <sluice.h>

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int seen;

static int see(void *arg, const char *name, const struct sluice_stat *st)
{
	(void)arg;
	if (!strcmp(name, "a") && S_ISREG(st->mode) && st->size == 6)
		seen |= 1;
	if (!strcmp(name, "d") && S_ISDIR(st->mode))
		seen |= 2;
	return 0;
}

static void must(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: %s", what, sluice_error());
}

static void expect(int is, int wanted, const char *what)
{
	if (is != wanted)
		errx(1, "%s: %d, not %d (%s)", what, is, wanted, sluice_error());
}

static void copy(struct sluice *in, struct sluice *out)
{
	static char data[65536];
	struct sluice_file *from, *to;
	uint64_t at = 0;
	ssize_t n;

	must(sluice_open(in, "d/big", O_RDONLY, 0, &from), "open");
	must(sluice_mkdir(out, "copies", 0755), "mkdir");
	must(sluice_mkdir(out, "copies/of", 0755), "mkdir");
	must(sluice_open(out, "copies/of/tmp", O_WRONLY | O_CREAT | O_EXCL, 0644, &to),
	     "create");
	while ((n = sluice_read(from, data, sizeof(data), at)) > 0) {
		must(sluice_write(to, data, (size_t)n, at), "write");
		at += (uint64_t)n;
	}
	must((int)n, "read");
	expect(sluice_write(from, data, 1, 0), -EBADF, "write to a file of input");
	must(sluice_sync(to), "sync");
	must(sluice_close(to), "close");
	must(sluice_close(from), "close");
	must(sluice_rename(out, "copies/of/tmp", "copies/of/big"), "rename");
}

int main(int argc, char **argv)
{
	struct sluice_options options = SLUICE_OPTIONS_INIT;
	struct sluice *in, *out;
	struct sluice_file *file;
	struct sluice_stat st;

	if (argc != 4)
		errx(2, "usage: probe SOURCE CACHE STATE");
	options.cache_dir = argv[2];
	options.state_dir = argv[3];
	expect(sluice_open_input("nonsense", &options, &in), -EINVAL,
	       "a source like that");
	if (!*sluice_error())
		errx(1, "no sentence for a bad source");
	must(sluice_open_input(argv[1], &options, &in), "input");
	must(sluice_open_output(argv[1], &options, &out), "output");

	must(sluice_list(in, "", see, NULL), "list");
	expect(seen, 3, "entries seen");
	must(sluice_stat(in, "d/big", &st), "stat");
	expect((int)st.size, 1000000, "size");
	expect(sluice_stat(in, "d/none", &st), -ENOENT, "stat of nothing");
	expect(sluice_stat(in, "d/../a", &st), -EINVAL, "stat through ..");
	expect(sluice_mkdir(in, "x", 0755), -EROFS, "mkdir in input");
	expect(sluice_open(in, "a", O_WRONLY, 0, &file), -EROFS, "writing to input");

	copy(in, out);
	must(sluice_open(out, "gone", O_WRONLY | O_CREAT, 0644, &file), "create");
	must(sluice_close(file), "close");
	must(sluice_remove(out, "gone"), "remove");
	expect(sluice_flush(out, 30000), 0, "flush");
	sluice_done(out);
	sluice_done(in);
	sluice_done(NULL);
	return 0;
}
