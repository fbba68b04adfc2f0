/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /input and /output: mounted by the gateway, and the way back. The way back of output is
 * what makes a job's end true: everything is in the store, or the person is told what is
 * not and how to get it there.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/units.h"
#include "runner/gateway.h"
#include "runner/job.h"
#include "runner/mnt.h"
#include "runner/plan.h"
#include "runner/run.h"
#include "runner/signals.h"
#include "runner/step.h"

#define MOUNT_TIMEOUT_MS 300000
#define UMOUNT_TIMEOUT_MS 60000
#define UMOUNT_DEADLINE "1" /* seconds; what could be flushed has been */
#define HURRIED_DEADLINE "2"
/* The gateway keeps its own deadline; this is for one that does not answer at all. */
#define FLUSH_EXTRA_MS 60000

static int mount(struct run *r, const struct gateway_command *c,
		 const struct spec_store *store, struct why *why)
{
	struct gateway_result result = {.why = why};
	int e = gateway_run(c, store, r->signals, MOUNT_TIMEOUT_MS, -1, &result);

	if (e < 0) {
		r->step_code = e == -ETIMEDOUT ? EXIT_UNAVAILABLE : 0;
		if (!*why->text)
			why_set(why, 0, "the gateway did not answer in time");
		return err_trace(e);
	}
	if (result.exit_code == 0)
		return 0;
	r->step_code = result.exit_code;
	if (!*why->text)
		why_set(why, 0, "sluice mount ended with exit code %d", result.exit_code);
	return err_origin(-EIO);
}

int step_mount_input(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	return mount(r, &r->plan->mount_input, &r->plan->spec->input, why);
}

static int make_state_dir(const struct plan *p, struct why *why)
{
	int e = io_mkdir_p(p->output_state_dir, 0700);

	if (e < 0)
		return why_set(why, err_trace(e), "%.200s: %s", p->output_state_dir,
			       strerror(-e));
	return 0;
}

int step_mount_output(struct run *r, const struct step *step, struct why *why)
{
	int e = make_state_dir(r->plan, why);

	(void)step;
	if (e == 0)
		e = mount(r, &r->plan->mount_output, &r->plan->spec->output, why);
	if (e == 0) {
		r->status.output = OUTPUT_OPEN;
		run_save(r);
	}
	return err_trace(e);
}

/* ---- the way back ------------------------------------------------------------------------- */

/* By the gateway, and past it when it does not answer any more. */
static int unmount(struct run *r, const char *dir, const struct spec_store *store,
		   struct why *why)
{
	struct gateway_command c;
	struct gateway_result result = {.why = why};

	if (!mnt_is_mounted(dir))
		return 0;
	gateway_command_init(&c,
			     r->plan->spec->output.source ? r->plan->mount_output.words[0]
							  : r->plan->mount_input.words[0],
			     "umount");
	gateway_add(&c, dir);
	gateway_add(&c, "--deadline");
	gateway_add(&c, UMOUNT_DEADLINE);
	gateway_run(&c, store, NULL, UMOUNT_TIMEOUT_MS, -1, &result);
	gateway_command_fini(&c);
	if (!mnt_is_mounted(dir))
		return 0;
	return err_trace(mnt_unshare(dir, why));
}

int step_unmount_input(struct run *r, const struct step *step, struct why *why)
{
	(void)step;
	return err_trace(unmount(r, r->plan->input_dir, &r->plan->spec->input, why));
}

/* Keeps what the gateway said of its last flush, and takes the sums out of it. */
static void take_receipt(struct run *r, const struct buf *json)
{
	json_t *root;
	int e;

	if (!json->len || buf_error(json) < 0)
		return;
	e = io_replace_file(r->job->dirfd, "receipt.json", json->data, json->len, 0600);
	if (e < 0)
		run_say(r, "the receipt cannot be kept: %s", strerror(-e));
	root = json_loadb(json->data, json->len, 0, NULL);
	r->receipt.pending = json_integer_value(json_object_get(root, "files_pending"));
	r->receipt.damaged = json_integer_value(json_object_get(root, "damaged"));
	json_decref(root);
}

/* One call of flush or recover. Returns its exit code, or a negative errno. */
static int run_drain(struct run *r, struct gateway_command *c, bool hurried,
		     struct why *why)
{
	const struct spec_store *store = &r->plan->spec->output;
	_cleanup_(buf_fini) struct buf json = BUF_INIT;
	struct gateway_result result = {.why = why, .output = &json};
	uint64_t limit = UINT64_MAX;
	char deadline[32];
	int e;

	if (hurried)
		snprintf(deadline, sizeof(deadline), HURRIED_DEADLINE);
	else
		snprintf(deadline, sizeof(deadline), "%llums",
			 (unsigned long long)store->flush_deadline_ms);
	if (hurried || store->flush_deadline_ms) {
		gateway_add(c, "--deadline");
		gateway_add(c, deadline);
		limit = FLUSH_EXTRA_MS + (hurried ? 0 : store->flush_deadline_ms);
	}
	/* Its progress is worth seeing where somebody looks. */
	e = gateway_run(c, store, hurried ? NULL : r->signals, limit,
			r->progress && isatty(STDERR_FILENO) ? STDERR_FILENO : -1,
			&result);
	take_receipt(r, &json);
	return e < 0 ? err_trace(e) : result.exit_code;
}

static int drain(struct run *r, const char *verb, const char *option, const char *dir,
		 struct why *why)
{
	bool hurried = r->signals->count > 1;

	for (;;) {
		struct gateway_command c;
		int e;

		gateway_command_init(&c, r->plan->mount_output.words[0], verb);
		if (option)
			gateway_add(&c, option);
		gateway_add(&c, dir);
		if (!option)
			gateway_add(&c, "--json");
		e = run_drain(r, &c, hurried, why);
		gateway_command_fini(&c);
		if (e != -ECANCELED || hurried)
			return e;
		hurried = r->signals->count > 1;
		run_say(r,
			hurried ? "leaving the rest of the output for later"
				: "the output is still being stored; interrupt again to "
				  "leave the rest for later");
	}
}

static void note_pending(struct run *r, const char *reason)
{
	char count[40] = "some output";

	if (r->receipt.pending > 0)
		snprintf(count, sizeof(count), "%lld file%s of the output",
			 (long long)r->receipt.pending,
			 r->receipt.pending == 1 ? "" : "s");
	if (*reason)
		run_say(r, "the output: %s", reason);
	r->status.output = OUTPUT_PENDING;
	/* The path last and whole where it fits: it is to be copied. */
	why_set(&r->status.output_message, 0,
		"%s not in the store yet; finish with: sluice recover --state-dir %.160s",
		count, r->plan->output_state_dir);
}

static void note_stored(struct run *r, bool unmounted)
{
	const struct plan *p = r->plan;

	r->status.output = OUTPUT_STORED;
	r->status.output_message.text[0] = '\0';
	if (r->receipt.damaged > 0)
		why_set(&r->status.output_message, 0,
			"%lld damaged entries were set aside in %.160s",
			(long long)r->receipt.damaged, p->output_state_dir);
	/* Nothing is pending there: a folder that the runner chose goes with the job. */
	else if (unmounted && !p->spec->output.state_dir)
		io_remove_tree(AT_FDCWD, p->output_state_dir);
}

/* A gateway that was killed leaves its mount dead and its work on disk. */
static bool recover(struct run *r, struct why *why)
{
	struct why last = {""};

	if (access(r->plan->output_state_dir, F_OK) < 0)
		return true;
	run_say(r, "the gateway of /output is gone; storing what it left");
	if (drain(r, "recover", "--state-dir", r->plan->output_state_dir, &last) == 0)
		return true;
	if (*last.text)
		*why = last;
	return false;
}

/* The gateway has said how it stands, so nothing is gained by asking again. */
static bool is_verdict(int code)
{
	return code == EXIT_OK || code == EXIT_PENDING || code == -ETIMEDOUT ||
	       code == -ECANCELED;
}

int step_flush_output(struct run *r, const struct step *step, struct why *why)
{
	const struct plan *p = r->plan;
	struct why reason = {""};
	int code = -ENOTCONN, e;

	(void)step;
	if (mnt_is_mounted(p->output_dir)) {
		run_say(r, "storing what is left of /output");
		code = drain(r, "flush", NULL, p->output_dir, &reason);
	} else if (r->status.output == OUTPUT_NONE) {
		/* Never mounted. What an earlier run could not store keeps it there. */
		if (!p->spec->output.state_dir)
			rmdir(p->output_state_dir);
		return 0;
	}
	e = unmount(r, p->output_dir, &p->spec->output, why);
	if (e == 0 && !is_verdict(code) && recover(r, &reason))
		code = EXIT_OK;
	if (code != EXIT_OK)
		note_pending(r, reason.text);
	else
		note_stored(r, e == 0);
	return err_trace(e);
}
