/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads what a mount left behind, without mounting. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/lock.h"
#include "fs/cmd.h"
#include "fs/config.h"
#include "fs/daemon.h"
#include "fs/output.h"
#include "fs/progress.h"
#include "fs/receipt.h"
#include "fs/stack.h"

#define REDRAW_MS 200

struct recover_options {
	const char *state_dir;
	uint64_t deadline_ms;
	const char *credentials;
	bool json;
};

static const struct opt_spec specs[] = {
	{"state-dir", 0, OPT_STRING, offsetof(struct recover_options, state_dir), NULL, 0,
	 0, "DIR", "what the mount had as its --state-dir", NULL},
	{"deadline", 0, OPT_DURATION, offsetof(struct recover_options, deadline_ms), "0",
	 0, 0, "TIME", "try so long at most; 0: no limit", NULL},
	{"credentials", 0, OPT_STRING, offsetof(struct recover_options, credentials),
	 NULL, 0, 0, "REF", "use these instead of what the mount was given", NULL},
	{"json", 0, OPT_FLAG, offsetof(struct recover_options, json), NULL, 0, 0, NULL,
	 "print the receipt as JSON", NULL},
	{0},
};

struct drain {
	struct output *output;
	uint64_t deadline_ms;
	struct lock lock; /* done */
	pthread_cond_t changed;
	bool done;
	int result;
	struct receipt *receipt; /* NULL: there is none */
};

static void *run_drain(void *arg)
{
	struct drain *d = arg;
	int r = output_drain(d->output, d->deadline_ms, &d->receipt);

	lock_take(&d->lock);
	d->result = r;
	d->done = true;
	pthread_cond_signal(&d->changed);
	lock_drop(&d->lock);
	return NULL;
}

static void show(struct progress *bar, struct output *output)
{
	struct progress_amount amount;
	struct output_progress p = {0};

	output_progress(output, &p);
	amount = (struct progress_amount){
		.files_done = p.files_stored + p.files_moved,
		.bytes_done = p.bytes_stored,
		.files_left = p.files_pending,
		.bytes_left = p.bytes_pending,
		.moving = p.moving,
	};
	progress_show(bar, &amount);
}

static int drain(struct drain *d, bool quiet)
{
	struct progress bar;
	pthread_t thread;

	lock_init(&d->lock);
	lock_cond_init(&d->changed);
	if (pthread_create(&thread, NULL, run_drain, d))
		return err_origin(-EAGAIN);
	progress_init(&bar, quiet);
	lock_take(&d->lock);
	while (!d->done) {
		lock_wait(&d->lock, &d->changed, clock_mono_ms() + REDRAW_MS);
		show(&bar, d->output);
	}
	lock_drop(&d->lock);
	progress_end(&bar);
	pthread_join(thread, NULL);
	pthread_cond_destroy(&d->changed);
	lock_fini(&d->lock);
	return d->result;
}

static int keep_files(void *files, const char *text, size_t n)
{
	return err_trace(receipt_keep(files, text, n));
}

/* The object; the elements of its member "files" go to the file, which may be NULL. */
static json_t *take_receipt(const struct receipt *receipt, FILE *files)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	uint64_t unread = 0;

	if (!files || receipt_files(receipt, keep_files, files, &unread) != 0)
		fprintf(stderr, "sluice: no room for the list of files: %s\n",
			strerror(errno));
	receipt_object(receipt, unread, &b);
	return buf_error(&b) < 0 ? NULL : json_loadb(b.data, b.len, 0, NULL);
}

/* As the control socket would have said it. */
static int report(const struct drain *d, bool as_json, const char *dir)
{
	_cleanup_(fclosep) FILE *files = tmpfile();
	json_t *receipt = d->receipt ? take_receipt(d->receipt, files) : NULL;
	json_t *result = json_object();
	json_int_t damaged;
	int code;

	json_object_set_new(result, "result",
			    json_string(d->result == 0                  ? "ok"
					: d->result == OUTPUT_E_PENDING ? "pending"
									: "error"));
	if (d->result < 0)
		json_object_set_new(result, "message", json_string(strerror(-d->result)));
	if (receipt)
		json_object_set_new(result, "receipt", receipt);
	code = cmd_print_drained(result, files, as_json, dir);
	damaged = json_integer_value(
		json_object_get(json_object_get(result, "receipt"), "damaged"));
	if (code == EXIT_OK && damaged > 0) {
		fprintf(stderr,
			"sluice: the journal in %s was damaged in %lld places: what it "
			"named there may not be stored; see quarantine/ and lost+found\n",
			dir, (long long)damaged);
		code = EXIT_INTERNAL;
	}
	json_decref(result);
	return code;
}

static int recover(struct config *config, const struct recover_options *options)
{
	struct drain d = {0};
	struct stack stack;
	struct why why = {""};
	int r;

	d.deadline_ms = options->deadline_ms ? clock_mono_ms() + options->deadline_ms
					     : UINT64_MAX;
	r = stack_open(config, NULL, d.deadline_ms, &stack, &why);
	if (r != 0)
		return cmd_fail(r, &why);
	d.output = stack.output;
	d.result = drain(&d, options->json);
	r = report(&d, options->json, config->state_path);
	stack_close(&stack);
	receipt_free(d.receipt);
	return r;
}

static int run(void *arg, int argc, char **argv)
{
	const struct recover_options *options = arg;
	struct config *config;
	struct why why = {""};
	int none = 0, r;

	(void)argc;
	(void)argv;
	daemon_harden();
	if (!options->state_dir) {
		why_set(&why, -EINVAL,
			"--state-dir is needed: the state directory of the mount");
		return cmd_fail(EXIT_USAGE, &why);
	}
	config = calloc(1, sizeof(*config));
	if (!config)
		return EXIT_INTERNAL;
	r = opt_parse(config_specs, config, &none, NULL, &why);
	if (r == 0)
		r = config_load(config, options->state_dir, &why);
	if (r < 0) {
		config_fini(config);
		free(config);
		return cmd_fail(EXIT_CONFIG, &why);
	}
	/* The mount's own, or none: never those of whoever recovers it. */
	unsetenv("OSS_ENDPOINT");
	unsetenv("OSS_REGION");
	config->role = CONFIG_OUTPUT;
	config->state_dir = options->state_dir;
	if (options->credentials)
		config->credentials = options->credentials;
	r = config_complete(config, config->source, &why);
	r = r < 0 ? cmd_fail(EXIT_CONFIG, &why) : recover(config, options);
	config_fini(config);
	free(config);
	return r;
}

const struct command cmd_recover = {
	.name = "recover",
	.args = "",
	.summary = "upload what a mount left behind, without mounting",
	.examples = "  sluice recover --state-dir /var/lib/sluice/oss-results-1f2e3d4c\n",
	.options = specs,
	.options_size = sizeof(struct recover_options),
	.args_min = 0,
	.args_max = 0,
	.run = run,
};
