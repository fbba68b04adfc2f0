/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "fs/base/units.h"
#include "fs/client.h"
#include "fs/cmd.h"
#include "fs/mounts.h"
#include "fs/order.h"
#include "fs/progress.h"

#define SILENCE_MS 30000 /* progress comes several times a second */
#define MOUNTS_MAX 64

struct warm_options {
	const char *list, *from, *mount;
	bool all, wait, json, cancel;
};

static const struct opt_spec specs[] = {
	{"list", 0, OPT_STRING, offsetof(struct warm_options, list), NULL, 0, 0, "FILE",
	 "fetch what its lines name, below the mount point; -: standard input", NULL},
	{"from", 0, OPT_STRING, offsetof(struct warm_options, from), NULL, 0, 0, "FILE",
	 "fetch in the order that \"mount --record\" wrote there, ahead of the readers",
	 NULL},
	{"all", 0, OPT_FLAG, offsetof(struct warm_options, all), NULL, 0, 0, NULL,
	 "fetch everything", NULL},
	{"mount", 0, OPT_STRING, offsetof(struct warm_options, mount), NULL, 0, 0, "DIR",
	 "mount point; default: the one the paths lie in, or the only one", NULL},
	{"wait", 0, OPT_FLAG, offsetof(struct warm_options, wait), NULL, 0, 0, NULL,
	 "return when it is done, with progress on a terminal", NULL},
	{"cancel", 0, OPT_FLAG, offsetof(struct warm_options, cancel), NULL, 0, 0, NULL,
	 "end what is being fetched by earlier calls", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct warm_options, json), NULL, 0, 0, NULL,
	 "print the job as JSON", NULL},
	{0},
};

/* ---- which mount, which keys ----------------------------------------------------------- */

struct inputs {
	char *dirs[MOUNTS_MAX];
	size_t count;
};

/* Whose sockets lie where ours would. */
static bool is_ours(const char *dir)
{
	char run_dir[PATH_MAX], name[MOUNTS_SOCKET_NAME_MAX], path[PATH_MAX];

	mounts_socket_name(dir, name);
	return mounts_run_dir(run_dir, sizeof(run_dir), NULL) == 0 &&
	       path_join(path, sizeof(path), run_dir, name) == 0 && !access(path, F_OK);
}

static int add_input(void *arg, const struct mounts_entry *entry)
{
	struct inputs *in = arg;

	if (entry->read_only && in->count < MOUNTS_MAX && is_ours(entry->dir))
		in->dirs[in->count++] = strdup(entry->dir);
	return 0;
}

/* Adds a path's components to `out`, "." and ".." taken by their letters: a mount is not
 * touched. false: it does not fit. */
static bool append_path(char *out, size_t size, const char *path)
{
	size_t at = strlen(out);

	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 2 && !strncmp(path, "..", 2)) {
			while (at && out[--at] != '/')
				;
			out[at] = '\0';
		} else if (n && !(n == 1 && *path == '.')) {
			if (at + n + 2 > size)
				return false;
			out[at++] = '/';
			memcpy(out + at, path, n);
			at += n;
			out[at] = '\0';
		}
		path += n + (path[n] == '/');
	}
	return true;
}

/* The path below `dir`, "" for itself; NULL: elsewhere. */
static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (strncmp(path, dir, n) != 0 || (path[n] && path[n] != '/'))
		return NULL;
	return path[n] ? path + n + 1 : path + n;
}

static const char *find_input(const struct inputs *in, const char *path)
{
	const char *best = NULL;

	for (size_t i = 0; i < in->count; i++)
		if (in->dirs[i] && below(path, in->dirs[i]) &&
		    (!best || strlen(in->dirs[i]) > strlen(best)))
			best = in->dirs[i];
	return best;
}

/* As it is written; else with its links followed. */
static bool absolute(const struct inputs *in, const char *given, char out[PATH_MAX])
{
	char cwd[PATH_MAX] = "", real[PATH_MAX];

	*out = '\0';
	if (*given != '/' &&
	    (!getcwd(cwd, sizeof(cwd)) || !append_path(out, PATH_MAX, cwd)))
		return false;
	if (!append_path(out, PATH_MAX, given))
		return false;
	if (!find_input(in, out) && realpath(given, real))
		memcpy(out, real, sizeof(real));
	return true;
}

static int choose_mount(const struct warm_options *o, const struct inputs *in, int argc,
			char **argv, char dir[PATH_MAX], struct why *why)
{
	char path[PATH_MAX];
	const char *found = NULL;

	if (o->mount)
		return err_trace(mounts_path(o->mount, dir, why));
	for (int i = 0; i < argc && !found; i++)
		if (absolute(in, argv[i], path))
			found = find_input(in, path);
	if (!found && in->count == 1)
		found = in->dirs[0];
	if (!found)
		return why_set(why, err_origin(-ENOENT),
			       in->count ? "which mount is meant? say it with --mount"
					 : "no input of sluice is mounted here");
	snprintf(dir, PATH_MAX, "%s", found);
	return 0;
}

/* One argument as a key: where it is, or below the mount point. */
static int add_key(const struct inputs *in, const char *given, const char *dir,
		   struct buf *list, struct why *why)
{
	char path[PATH_MAX];
	const char *key = NULL;
	int fault;

	if (absolute(in, given, path))
		key = below(path, dir);
	if (!key && *given != '/') {
		snprintf(path, sizeof(path), "%s", dir);
		if (append_path(path, sizeof(path), given))
			key = below(path, dir);
	}
	if (!key || !*given)
		return why_set(why, err_origin(-EINVAL), "%s: not below %s", given, dir);
	fault = *key ? path_key_check(key, strlen(key)) : PATH_OK;
	if (fault != PATH_OK)
		return why_set(why, err_origin(-EINVAL), "%s: %s", given,
			       path_fault_name(fault));
	order_put(list, *key ? key : ".");
	return 0;
}

/* ---- the list -------------------------------------------------------------------------- */

/* A file without a name; the descriptor is the caller's. */
static int temporary(void)
{
	FILE *f = tmpfile();
	int fd = f ? dup(fileno(f)) : -1;

	if (f)
		fclose(f);
	return fd < 0 ? err_origin(-errno) : fd;
}

/* What cannot be read at a position, such as a pipe, is copied first. */
static int copy_pipe(int from)
{
	_cleanup_(close_fdp) int to = temporary();
	char data[65536];
	ssize_t n;
	int r = to;

	while (r >= 0 && (n = read(from, data, sizeof(data))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		r = n < 0 ? err_origin(-errno) : io_write(to, data, (size_t)n);
	}
	return r < 0 ? err_trace(r) : steal_fd(&to);
}

static int open_list(const char *path, bool recorded, struct why *why)
{
	_cleanup_(close_fdp) int fd =
		!strcmp(path, "-") ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return why_set(why, err_origin(-errno), "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode)) {
		r = S_ISDIR(st.st_mode) ? err_origin(-EISDIR) : copy_pipe(fd);
		if (r < 0)
			return why_set(why, r, "%s: %s", path, strerror(-r));
		close_fdp(&fd);
		fd = r;
	}
	if (recorded && order_is_recorded(fd) != 1)
		return why_set(why, err_origin(-EINVAL),
			       "%s: no order that \"sluice mount --record\" wrote", path);
	return steal_fd(&fd);
}

static int make_list(const struct warm_options *o, const struct inputs *in, int argc,
		     char **argv, const char *dir, struct why *why)
{
	_cleanup_(buf_fini) struct buf list = BUF_INIT;
	_cleanup_(close_fdp) int fd = -1;
	int r = 0;

	if (o->list || o->from)
		return err_trace(open_list(o->list ? o->list : o->from, o->from, why));
	buf_puts(&list, ORDER_LIST_HEAD);
	if (o->all)
		order_put(&list, ".");
	for (int i = 0; i < argc && r == 0 && !o->all; i++)
		r = add_key(in, argv[i], dir, &list, why);
	if (r == 0)
		r = buf_error(&list);
	if (r < 0)
		return err_trace(r);
	fd = temporary();
	r = fd < 0 ? fd : io_write(fd, list.data, list.len);
	return r < 0 ? why_set(why, r, "temporary file: %s", strerror(-r))
		     : steal_fd(&fd);
}

/* ---- the job --------------------------------------------------------------------------- */

static uint64_t number(const json_t *o, const char *name)
{
	json_int_t n = json_integer_value(json_object_get(o, name));

	return n > 0 ? (uint64_t)n : 0;
}

static void show(struct progress *bar, const json_t *job)
{
	uint64_t done = number(job, "files_done"), all = number(job, "files_total");
	uint64_t bytes = number(job, "bytes_done"), total = number(job, "bytes_total");
	struct progress_amount amount = {.files_done = done, .bytes_done = bytes};

	/* Of a list only the number of files is known before the end. */
	if (!total && done && all > done)
		total = (uint64_t)((double)bytes / (double)done * (double)all);
	if (all < done || total < bytes || !all) {
		progress_count(bar, done, bytes);
		return;
	}
	amount.files_left = all - done;
	amount.bytes_left = total - bytes;
	progress_show(bar, &amount);
}

static int follow(struct client *c, bool quiet, json_t **result)
{
	struct progress bar;
	json_t *line = NULL;
	int r;

	progress_init(&bar, quiet);
	while ((r = client_read(c, SILENCE_MS, &line)) == 0) {
		if (!json_object_get(line, "progress"))
			break;
		show(&bar, json_object_get(line, "progress"));
		json_decref(line);
	}
	progress_end(&bar);
	*result = r == 0 ? line : NULL;
	return r;
}

static void print_incomplete(const json_t *job, const char *dir)
{
	const json_t *problem, *problems = json_object_get(job, "problems");
	uint64_t wrong = number(job, "files_failed") + number(job, "files_missing") +
			 number(job, "lines_bad");
	char text[256], size[24];
	size_t i;

	json_array_foreach(problems, i, problem)
	{
		const char *s = json_string_value(problem);

		fprintf(stderr, "sluice: %s\n",
			log_escape(text, sizeof(text), s ? s : "?"));
	}
	if (wrong > json_array_size(problems))
		fprintf(stderr, "sluice: ... and %" PRIu64 " more\n",
			wrong - json_array_size(problems));
	if (number(job, "files_not_fitting")) {
		units_format_size(size, sizeof(size), number(job, "bytes_not_fitting"));
		fprintf(stderr,
			"sluice: %s: %" PRIu64 " files (%s) do not fit into the cache "
			"beside the rest; mount with a larger --cache-size\n",
			dir, number(job, "files_not_fitting"), size);
	}
	if (json_is_true(json_object_get(job, "ahead_of_readers")))
		fprintf(stderr,
			"sluice: %s: the cache is filled; what follows in the order is "
			"fetched as files of it are read\n",
			dir);
}

static int code_of(const json_t *job)
{
	const char *state = json_string_value(json_object_get(job, "state"));
	uint64_t error = number(job, "errno");
	bool pending = number(job, "files_failed") || number(job, "files_missing") ||
		       number(job, "files_not_fitting");

	if (state && !strcmp(state, "failed"))
		return error == EACCES || error == EKEYEXPIRED ? EXIT_REFUSED
							       : EXIT_UNAVAILABLE;
	if (!pending && state && !strcmp(state, "done") && number(job, "lines_bad"))
		return EXIT_USAGE;
	return EXIT_PENDING;
}

static int report(const json_t *result, const struct warm_options *o, const char *dir)
{
	const char *word = json_string_value(json_object_get(result, "result"));
	const char *message = json_string_value(json_object_get(result, "message"));
	const json_t *job = json_object_get(result, "receipt");
	const char *error = json_string_value(json_object_get(job, "error"));

	if (o->json && job) {
		json_dumpf(job, stdout, JSON_COMPACT);
		putchar('\n');
	}
	if (word && !strcmp(word, "ok")) {
		if (!o->wait && job && !o->json)
			fprintf(stderr,
				"sluice: %s: job %" PRIu64
				" fetches it; \"sluice status %s\" shows how far\n",
				dir, number(job, "id"), dir);
		return EXIT_OK;
	}
	if (word && !strcmp(word, "pending")) {
		print_incomplete(job, dir);
		if (error)
			fprintf(stderr, "sluice: %s: %s\n", dir, error);
		return code_of(job);
	}
	fprintf(stderr, "sluice: %s: %s\n", dir, message ? message : "no answer");
	return EXIT_CONFIG;
}

static int call(const struct warm_options *o, const char *dir, int list)
{
	struct client *c = NULL;
	struct why why = {""};
	json_t *result = NULL;
	int r = client_open(dir, &c, &why);

	if (r == CLIENT_E_NOBODY)
		why_set(&why, -ENOENT, "%s: no mount of sluice is served there", dir);
	if (r != 0)
		return cmd_fail(r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG, &why);
	r = client_send_json(c,
			     o->cancel ? "{\"command\":\"warm-cancel\"}"
			     : o->wait ? "{\"command\":\"warm\",\"wait\":true}"
				       : "{\"command\":\"warm\"}",
			     list);
	if (r == 0)
		r = follow(c, o->json, &result);
	client_close(c);
	if (r != 0) {
		why_set(&why, r, "%s: its process does not answer; \"sluice status %s\"",
			dir, dir);
		return cmd_fail(EXIT_UNAVAILABLE, &why);
	}
	r = report(result, o, dir);
	json_decref(result);
	return r;
}

static int check_usage(const struct warm_options *o, int argc, struct why *why)
{
	int ways = (o->list != NULL) + (o->from != NULL) + o->all + o->cancel;

	if (ways > 1)
		return why_set(why, err_origin(-EINVAL),
			       "only one of --list, --from, --all and --cancel");
	if (!ways && !argc)
		return why_set(why, err_origin(-EINVAL),
			       "what is to be fetched? PATH, --list, --from or --all");
	if (ways && argc && (argc > 1 || o->mount))
		return why_set(why, err_origin(-EINVAL),
			       "with --list, --from, --all and --cancel only the mount "
			       "point may be named");
	return 0;
}

static int run(void *arg, int argc, char **argv)
{
	struct warm_options *o = arg;
	_cleanup_(close_fdp) int list = -1;
	struct inputs in = {.count = 0};
	struct why why = {""};
	char dir[PATH_MAX];
	int r = check_usage(o, argc, &why);

	if (r < 0)
		return cmd_fail(EXIT_USAGE, &why);
	if (argc && (o->list || o->from || o->all || o->cancel))
		o->mount = argv[0];
	mounts_each(add_input, &in);
	r = choose_mount(o, &in, argc, argv, dir, &why);
	if (r < 0) {
		r = cmd_fail(EXIT_CONFIG, &why);
	} else {
		list = o->cancel ? -1 : make_list(o, &in, argc, argv, dir, &why);
		r = list < 0 && !o->cancel ? cmd_fail(EXIT_USAGE, &why)
					   : call(o, dir, list);
	}
	for (size_t i = 0; i < in.count; i++)
		free(in.dirs[i]);
	return r;
}

const struct command cmd_warm = {
	.name = "warm",
	.args = "[PATH...]",
	.summary = "fetch files and trees into the cache before they are read",
	.examples =
		"  sluice warm /input/train --wait\n"
		"  find /input -name '*.jpg' | sluice warm --list -\n"
		"  sluice mount oss://data /input --role input --record /var/tmp/order\n"
		"  sluice warm --from /var/tmp/order\n",
	.options = specs,
	.options_size = sizeof(struct warm_options),
	.args_min = 0,
	.args_max = -1,
	.run = run,
};
