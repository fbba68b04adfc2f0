/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/log.h"
#include "fs/cmd.h"
#include "fs/config.h"
#include "fs/daemon.h"
#include "fs/holder.h"
#include "fs/mounts.h"
#include "fs/serve.h"

#define ANSWER_TIMEOUT_S 30

/* Whether `path` lies in `dir` or is it. */
static bool is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) &&
	       (path[n] == '/' || !path[n] || !strcmp(dir, "/"));
}

static int check_dirs(const struct config *config, struct why *why)
{
	const char *paths[] = {config->cache_path, config->state_path, config->log_path,
			       config->record_path};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		if (!is_in(paths[i], config->dir))
			continue;
		why_set(why, -EINVAL,
			"%s lies under the mount point, which will hide it: choose "
			"another "
			"--cache-dir, --state-dir, --record or mount point",
			paths[i]);
		return EXIT_CONFIG;
	}
	return EXIT_OK;
}

static void *look(void *arg)
{
	struct stat st;

	return stat(arg, &st) < 0 ? (void *)(intptr_t)errno : NULL;
}

/* One request through the mount, from a thread of its own: a stat that is not answered
 * cannot be interrupted. */
static int wait_for_answer(char *dir, struct why *why)
{
	struct timespec until;
	pthread_t thread;
	void *error;

	if (pthread_create(&thread, NULL, look, dir))
		return EXIT_INTERNAL;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ANSWER_TIMEOUT_S;
	if (pthread_timedjoin_np(thread, &error, &until)) {
		why_set(why, -ETIMEDOUT,
			"%s does not answer after %d s; \"sluice umount --force %s\" "
			"frees "
			"it",
			dir, ANSWER_TIMEOUT_S, dir);
		return EXIT_UNAVAILABLE;
	}
	if (error) {
		why_set(why, -EIO, "%s was mounted but answers: %s", dir,
			strerror((int)(intptr_t)error));
		return EXIT_UNAVAILABLE;
	}
	return EXIT_OK;
}

static bool is_held(const struct config *config)
{
	return config->restart == CONFIG_ON ||
	       (config->restart == CONFIG_AUTO && !config->foreground);
}

static int run_mount(const struct config *config, int report)
{
	return is_held(config) ? holder_run(config, report)
			       : serve_run(config, report, NULL);
}

static int go(struct config *config, struct why *why)
{
	int report = -1, code = EXIT_OK, r;

	r = serve_check_dir(config->dir, why);
	if (r == EXIT_OK)
		r = check_dirs(config, why);
	if (r != EXIT_OK)
		return r;
	if (config->foreground)
		return run_mount(config, -1);
	r = daemon_fork(&report, &code, why);
	if (r < 0)
		return EXIT_INTERNAL;
	if (r == DAEMON_E_PARENT)
		return code == EXIT_OK ? wait_for_answer(config->dir, why) : code;
	_exit(run_mount(config, report));
}

int cmd_mount_config(struct config *config, const char *source, const char *dir)
{
	struct why why = {""};
	int r;

	r = config_complete(config, source, &why);
	if (r == 0 && config->role == CONFIG_ROLE_NONE)
		r = why_set(&why, -EINVAL,
			    "which role? --role input reads the source, --role output "
			    "writes to it");
	if (r == 0)
		r = cmd_log_init(config, &why);
	if (r < 0)
		return cmd_fail(EXIT_USAGE, &why);
	r = mounts_path(dir, config->dir, &why);
	if (r < 0)
		return cmd_fail(r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG, &why);
	r = go(config, &why);
	return *why.text ? cmd_fail(r, &why) : r;
}

static int run(void *options, int argc, char **argv)
{
	(void)argc;
	return cmd_mount_config(options, argv[0], argv[1]);
}

const struct command cmd_mount = {
	.name = "mount",
	.args = "SOURCE DIR",
	.summary = "show a source as a directory",
	.examples = "  sluice mount oss://data/images /input --role input --region "
		    "cn-hangzhou\n"
		    "  sluice mount oss://results/run-7 /output --role output --region "
		    "cn-hangzhou\n"
		    "  sluice mount file:///srv/data /input --role input --immutable\n",
	.options = config_specs,
	.options_size = sizeof(struct config),
	.args_min = 2,
	.args_max = 2,
	.run = run,
};

/* ---- mount(8) -------------------------------------------------------------------------- */

enum mount_exit {
	MOUNT_USAGE = 1,
	MOUNT_SYSTEM = 2,
	MOUNT_FAILED = 32
};

static int mount_code(int exit_code)
{
	switch (exit_code) {
	case EXIT_OK:
		return 0;
	case EXIT_USAGE:
		return MOUNT_USAGE;
	case EXIT_INTERNAL:
		return MOUNT_SYSTEM;
	default:
		return MOUNT_FAILED;
	}
}

static int helper_usage(void)
{
	fprintf(stderr, "usage: mount.sluice SOURCE DIR [-sfnv] [-o OPTIONS]\n"
			"       mount -t sluice SOURCE DIR -o role=input,...\n");
	return MOUNT_USAGE;
}

int cmd_mount_helper(int argc, char **argv)
{
	char *source = NULL, *dir = NULL;
	struct config *config = calloc(1, sizeof(*config));
	struct why why = {""};
	bool fake = false;
	int none = 0, option, r = 0;

	if (!config || opt_parse(config_specs, config, &none, NULL, &why) < 0)
		return MOUNT_SYSTEM;
	while (r == 0 && (option = getopt(argc, argv, "sfnvN:o:t:")) != -1) {
		if (option == 'f')
			fake = true;
		else if (option == 'o')
			r = config_apply_list(config, optarg, &why);
		else if (option == '?')
			return helper_usage();
	}
	if (r < 0) {
		cmd_fail(EXIT_USAGE, &why);
		return MOUNT_USAGE;
	}
	if (argc - optind != 2)
		return helper_usage();
	source = argv[optind];
	dir = argv[optind + 1];
	r = fake ? EXIT_OK : cmd_mount_config(config, source, dir);
	free(config);
	return mount_code(r);
}
