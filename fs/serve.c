/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Up:    stack, control socket, mount, "it serves" to the caller, loop.
 * Down:  something takes the mount away, the loop ends, what is staged is drained, the
 *        callers of "stop" learn how it ended, everything is closed.
 *
 *   serving -> draining -> stopping
 *
 * Who takes it away: control "stop" (drains first, refuses when the mount is in use),
 * SIGTERM and SIGINT (drain first, then detach even from what uses it), umount(8) (nothing
 * before; the drain comes after).
 *
 * A second SIGTERM ends the process at once. That is safe at any moment, as kill -9 is:
 * what was acknowledged is in the journal.
 *
 * Threads: main runs the loop and the way down; one waits for signals; one drains after a
 * signal; control.c, ops.c and the trees have theirs. All signals are blocked in all but the
 * second.
 */
#include "fs/serve.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/origin.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/config.h"
#include "fs/control.h"
#include "fs/daemon.h"
#include "fs/handover.h"
#include "fs/heap.h"
#include "fs/input.h"
#include "fs/mounts.h"
#include "fs/ops.h"
#include "fs/output.h"
#include "fs/receipt.h"
#include "fs/session.h"
#include "fs/stack.h"
#include "fs/warm.h"

#define LOOP_THREADS_MAX 8 /* that take requests of /input, which they never block on */

#define STOP_GRACE_S 1

enum serve_state {
	SERVE_SERVING,
	SERVE_DRAINING,
	SERVE_STOPPING,
	SERVE_STATE_N
};
static const char *const state_names[] = {"serving", "draining", "stopping"};
_Static_assert(sizeof(state_names) / sizeof(*state_names) == SERVE_STATE_N,
	       "state names");

struct serve {
	const struct config *config;
	struct stack stack;
	struct control *control;
	struct ops *ops;
	struct session *session;
	struct handover *handover; /* NULL: no holder */
	char run_dir[PATH_MAX];
	int64_t started_ns;
	_Atomic int state;
	_Atomic uint64_t deadline_ms; /* of the last drain; clock_mono_ms() */
	pthread_t signal_thread;
	pthread_t stop_thread; /* when stop_started */
	_Atomic bool stop_started;
	_Atomic bool signals_over; /* before the SIGUSR1 that ends signal_thread */
	sigset_t signals;
};

/* ---- what control asks ----------------------------------------------------------------- */

static void put_progress(struct serve *s, struct buf *b)
{
	struct output_progress p = {0};

	if (s->stack.output)
		output_progress(s->stack.output, &p);
	json_put_uint(b, "files_pending", p.files_pending);
	json_put_uint(b, "bytes_pending", p.bytes_pending);
	json_put_uint(b, "files_open", p.files_open);
	json_put_uint(b, "files_stored", p.files_stored);
	json_put_uint(b, "bytes_stored", p.bytes_stored);
	json_put_uint(b, "files_moved", p.files_moved);
	json_put_uint(b, "moving", p.moving);
	json_put_uint(b, "bytes_in_flight", p.bytes_in_flight);
	json_put_uint(b, "oldest_pending_ms", p.oldest_pending_ms);
	json_put_uint(b, "failures", p.failures);
	json_put_string(b, "last_failure",
			*p.last_failure.text ? p.last_failure.text : NULL);
}

static void put_input(struct serve *s, struct buf *b)
{
	struct input_stats st;

	input_stats(s->stack.input, &st);
	json_begin_object(b, "input");
	json_put_uint(b, "reads", st.reads);
	json_put_uint(b, "bytes_read", st.bytes_read);
	json_put_uint(b, "hits", st.hits);
	json_put_uint(b, "bytes_hit", st.bytes_hit);
	json_put_uint(b, "bytes_fetched", st.bytes_fetched);
	json_put_uint(b, "hidden_keys", st.hidden_keys);
	json_put_uint(b, "stale", st.stale);
	json_put_uint(b, "files_open", st.files_open);
	json_begin_object(b, "detail");
	input_status_json(s->stack.input, b);
	json_end_object(b);
	json_end_object(b);
	warm_json(input_warm(s->stack.input), b);
	json_begin_object(b, "cache");
	json_put_string(b, "dir", s->config->cache_path);
	cache_status_json(s->stack.cache, b);
	json_end_object(b);
}

static void put_output(struct serve *s, struct buf *b)
{
	json_begin_object(b, "output");
	put_progress(s, b);
	json_put_string(b, "state_dir", s->config->state_path);
	json_begin_object(b, "detail");
	output_status_json(s->stack.output, b);
	json_end_object(b);
	json_end_object(b);
}

static void put_store(struct serve *s, struct buf *b)
{
	struct origin *o = s->stack.origin;
	struct origin_stats st = {0};
	uint64_t requests = 0;

	if (o->ops->stats)
		o->ops->stats(o, &st);
	for (int i = 0; i < ORIGIN_OP_N; i++)
		requests += st.requests[i];
	json_begin_object(b, "store");
	json_put_uint(b, "requests", requests);
	json_put_uint(b, "failures", st.failures);
	json_put_uint(b, "retries", st.retries);
	json_put_uint(b, "bytes_in", st.bytes_in);
	json_put_uint(b, "bytes_out", st.bytes_out);
	json_put_uint(b, "crc_mismatches", st.crc_mismatches);
	json_end_object(b);
}

/* Why nobody would take over from this process, or NULL. */
static const char *no_restart(const struct serve *s)
{
	const struct handover *h = s->handover;

	if (!h)
		return s->config->restart == CONFIG_OFF ? "switched off"
		       : s->config->foreground          ? "in the foreground"
							: "no address space for it";
	if (getppid() != h->holder)
		return "its holder is gone";
	if (atomic_load(&h->rings))
		return "the kernel cannot send again what came over io_uring";
	return atomic_load(&h->resends) ? NULL : "needs Linux 6.9";
}

static void put_restart(struct serve *s, struct buf *b)
{
	const struct handover *h = s->handover;

	const char *why = no_restart(s);

	json_begin_object(b, "restart");
	json_put_bool(b, "used", !why);
	if (why)
		json_put_string(b, "why", why);
	if (h) {
		json_put_int(b, "holder", getppid() == h->holder ? h->holder : 0);
		json_put_uint(b, "count", h->generation - 1);
		json_put_int(b, "last", h->restarted_ns / 1000000000);
		json_put_bool(b, "locked", !atomic_load(&h->unlocked));
	}
	json_end_object(b);
}

static void on_status(void *arg, struct buf *b)
{
	struct serve *s = arg;

	json_begin_object(b, NULL);
	json_put_uint(b, "version", 1);
	json_put_string(b, "dir", s->config->dir);
	json_put_string(b, "source", s->config->source);
	json_put_string(b, "role", config_role[s->config->role]);
	json_put_string(b, "state", state_names[atomic_load(&s->state)]);
	json_put_int(b, "pid", getpid());
	json_put_int(b, "since", s->started_ns / 1000000000);
	json_put_string(b, "log", s->config->foreground ? NULL : s->config->log_path);
	put_restart(s, b);
	json_begin_object(b, "fuse");
	session_status_json(s->session, b);
	ops_status_json(s->ops, b);
	json_end_object(b);
	if (s->stack.input)
		put_input(s, b);
	else
		put_output(s, b);
	put_store(s, b);
	ops_last_error_json(s->ops, b);
	json_end_object(b);
}

static void on_progress(void *arg, struct buf *b)
{
	json_begin_object(b, NULL);
	put_progress(arg, b);
	json_end_object(b);
}

/* Waits for the uploads; input has none. The receipt may be NULL. */
static int drain(struct serve *s, uint64_t deadline_ms, const atomic_bool *given_up,
		 struct receipt **receipt)
{
	_cleanup_(buf_fini) struct buf object = BUF_INIT;
	int r;

	if (!s->stack.output) {
		buf_puts(&object, "{\"status\":\"stored\",\"pending\":[]");
		return receipt ? receipt_new(&object, NULL, receipt) : 0;
	}
	r = output_drain_unless(s->stack.output, deadline_ms, given_up, receipt);
	return r == OUTPUT_E_PENDING ? CONTROL_E_PENDING : err_trace(r);
}

static int on_flush(void *arg, uint64_t deadline_ms, const atomic_bool *given_up,
		    struct receipt **receipt)
{
	return drain(arg, deadline_ms, given_up, receipt);
}

static int on_unmount(void *arg, uint64_t deadline_ms, struct buf *elsewhere)
{
	struct serve *s = arg;
	char where[256];
	int r;

	atomic_store(&s->deadline_ms, deadline_ms);
	r = session_unmount(s->session);
	if (r == SESSION_E_BUSY)
		return CONTROL_E_BUSY;
	if (r != SESSION_E_ELSEWHERE)
		return err_trace(r);
	atomic_store(&s->deadline_ms, 0); /* who asked does not wait for the end */
	session_elsewhere(s->session, where, sizeof(where));
	log_info("unmounted, and served on elsewhere by=\"%s\"", where);
	buf_puts(elsewhere, where);
	return CONTROL_E_ELSEWHERE;
}

static int on_warm(void *arg, int fd, uint64_t *id, struct why *why)
{
	struct serve *s = arg;

	if (!s->stack.input) {
		close(fd);
		return why_set(why, err_origin(-EINVAL),
			       "an output has no cache to be filled");
	}
	return warm_start(input_warm(s->stack.input), fd, s->config->dir, id, why);
}

static int on_warm_wait(void *arg, uint64_t id, uint64_t until_ms, struct buf *job)
{
	struct serve *s = arg;
	struct warm *w = input_warm(s->stack.input);
	int r = warm_wait(w, id, until_ms);

	if (warm_job_json(w, id, job) != 0)
		return err_origin(-ESRCH);
	if (r == WARM_E_RUNS)
		return CONTROL_E_BUSY;
	return warm_complete(w, id) ? 0 : CONTROL_E_PENDING;
}

static int on_warm_cancel(void *arg, uint64_t id)
{
	struct serve *s = arg;

	return s->stack.input && warm_cancel(input_warm(s->stack.input), id) == 0
		       ? 0
		       : err_origin(-ESRCH);
}

/* ---- signals --------------------------------------------------------------------------- */

static uint64_t drain_deadline(const struct serve *s)
{
	uint64_t ms = s->config->drain_deadline_ms;

	return ms ? clock_mono_ms() + ms : UINT64_MAX;
}

/* After the first SIGTERM. */
static void *stop_gently(void *arg)
{
	struct serve *s = arg;
	char users[256];
	int r;

	atomic_store(&s->deadline_ms, drain_deadline(s));
	if (drain(s, atomic_load(&s->deadline_ms), NULL, NULL) != 0)
		log_warn("not everything is uploaded; it stays for the next mount");
	r = session_unmount(s->session);
	if (r == SESSION_E_BUSY)
		mounts_users(s->config->dir, users, sizeof(users));
	else if (r == SESSION_E_ELSEWHERE)
		session_elsewhere(s->session, users, sizeof(users));
	if (r > 0) {
		log_warn("unmounted while in use by=\"%s\"", users);
		session_detach(s->session);
	}
	return NULL;
}

static void set_phase(struct serve *s, enum handover_phase phase)
{
	if (s->handover)
		atomic_store(&s->handover->phase, phase);
}

/* The second: nothing is waited for. */
static void stop_now(struct serve *s)
{
	struct output_progress p = {0};

	log_warn("stopping at once");
	set_phase(s, HANDOVER_ENDING);
	session_detach(s->session);
	if (s->stack.output)
		output_progress(s->stack.output, &p);
	control_unlink(s->control);
	_exit(p.files_pending || p.files_open ? EXIT_PENDING : EXIT_OK);
}

static void *wait_for_signals(void *arg)
{
	struct serve *s = arg;
	bool stopping = false;

	for (;;) {
		int sig;

		if (sigwait(&s->signals, &sig))
			continue;
		if (sig == SIGUSR1) {
			if (atomic_load(&s->signals_over))
				return NULL;
			continue; /* anybody's */
		}
		if (sig == SIGHUP) {
			if (!s->config->foreground)
				daemon_reopen_log(s->config->log_path);
			continue;
		}
		if (stopping)
			stop_now(s);
		stopping = true;
		log_info("draining because of a signal signal=%d", sig);
		atomic_store(&s->state, SERVE_DRAINING);
		if (s->handover)
			atomic_store(&s->handover->draining, true);
		if (pthread_create(&s->stop_thread, NULL, stop_gently, s) == 0)
			atomic_store(&s->stop_started, true);
		else
			session_detach(s->session);
	}
}

static int start_signals(struct serve *s)
{
	return -pthread_create(&s->signal_thread, NULL, wait_for_signals, s);
}

/* ---- up -------------------------------------------------------------------------------- */

int serve_check_dir(const char *dir, struct why *why)
{
	_cleanup_(closedirp) DIR *d = NULL;
	struct mounts_entry entry;
	struct dirent *e;

	/* Asked before the directory is touched: a dead mount answers with errors. */
	if (mounts_find(dir, &entry) == 0 && !strcmp(entry.type, MOUNTS_TYPE)) {
		why_set(why, -EBUSY,
			"%s: %s is mounted there; \"sluice umount %s\" first", dir,
			entry.source, dir);
		return EXIT_CONFIG;
	}
	d = opendir(dir);
	if (!d) {
		why_set(why, -errno, "%s: %s; the mount point must be an empty directory",
			dir, strerror(errno));
		return errno == EACCES ? EXIT_REFUSED : EXIT_CONFIG;
	}
	while ((e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		why_set(why, -ENOTEMPTY,
			"%s: not empty; mount on an empty directory, such as a new one",
			dir);
		return EXIT_CONFIG;
	}
	return EXIT_OK;
}

static bool choose(int when, bool otherwise)
{
	return when == CONFIG_ON || (when == CONFIG_AUTO && otherwise);
}

static int open_session(struct serve *s, struct why *why)
{
	const struct config *c = s->config;
	bool input = c->role == CONFIG_INPUT;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN) / 2;
	const struct session_config session = {
		.dir = c->dir,
		.source = c->source,
		.handover = s->handover,
		.local_dir = input ? c->cache_path : c->state_path,
		.read_only = input || c->read_only,
		.no_exec = c->no_exec,
		.allow_other = choose(c->allow_other, geteuid() == 0),
		.passthrough_wanted = c->passthrough != CONFIG_OFF,
		.uring_wanted = c->io_uring != CONFIG_OFF,
		.uring_enable = c->io_uring == CONFIG_ON,
		.readdirplus_always = input,
		.loop_threads = !input                    ? (unsigned int)c->threads
				: cpus < 1                ? 1
				: cpus > LOOP_THREADS_MAX ? LOOP_THREADS_MAX
							  : (unsigned int)cpus,
	};
	const struct ops_config ops = {
		.input = s->stack.input,
		.output = s->stack.output,
		.handover = s->handover,
		.ttl_ms = c->immutable ? UINT64_MAX : c->ttl_ms,
		.immutable = c->immutable && input,
		.profile = (enum ops_profile)c->profile,
		.thread_count = (unsigned int)c->threads,
	};
	int r;

	r = ops_new(&ops, &s->ops);
	if (r < 0) {
		why_set(why, r, "workers: %s", strerror(-r));
		return EXIT_INTERNAL;
	}
	r = session_open(&session, input ? &ops_input_table : &ops_output_table, s->ops,
			 &s->session, why);
	if (r < 0)
		return r == -EPERM || r == -EACCES ? EXIT_REFUSED : EXIT_CONFIG;
	ops_set_session(s->ops, s->session);
	r = ops_restore(s->ops);
	if (r < 0) {
		why_set(why, r, "open files: %s", strerror(-r));
		return EXIT_INTERNAL;
	}
	return EXIT_OK;
}

/* What another source left to be uploaded must not end up in this one. */
static int check_state_owner(const struct config *c, struct why *why)
{
	struct config *saved = calloc(1, sizeof(*saved));
	int code = EXIT_OK;

	if (!saved)
		return EXIT_INTERNAL;
	if (config_load(saved, c->state_path, NULL) == 0 &&
	    strcmp(saved->source, c->source) != 0) {
		why_set(why, -EEXIST,
			"%s: this is the state of %s; choose another --state-dir",
			c->state_path, saved->source);
		code = EXIT_CONFIG;
	}
	config_fini(saved);
	free(saved);
	return code;
}

static bool takes_over(const struct serve *s)
{
	return s->handover && s->handover->generation > 1;
}

static int come_up(struct serve *s, struct why *why)
{
	static const struct control_ops control = {
		.status = on_status,
		.progress = on_progress,
		.flush = on_flush,
		.unmount = on_unmount,
		.warm = on_warm,
		.warm_wait = on_warm_wait,
		.warm_cancel = on_warm_cancel,
	};
	_cleanup_(close_fdp) int state_fd = -1;
	int r;

	r = mounts_run_dir(s->run_dir, sizeof(s->run_dir), why);
	if (r < 0)
		return EXIT_CONFIG;
	r = s->handover ? handover_begin(s->handover) : 0;
	if (r < 0) {
		why_set(why, r, "hand-over: %s", strerror(-r));
		return EXIT_INTERNAL;
	}
	if (s->config->role == CONFIG_OUTPUT || !s->config->foreground) {
		state_fd = io_open_private_dir(s->config->state_path, why);
		if (state_fd < 0)
			return state_fd == -EPERM || state_fd == -EACCES ? EXIT_REFUSED
									 : EXIT_CONFIG;
	}
	if (s->config->role == CONFIG_OUTPUT) {
		r = check_state_owner(s->config, why);
		if (r != 0)
			return r;
	}
	r = stack_open(s->config, s->handover, UINT64_MAX, &s->stack, why);
	if (r != 0)
		return r;
	if (s->config->role == CONFIG_OUTPUT) {
		r = config_save(s->config);
		if (r < 0) {
			why_set(why, r, "%s: %s", s->config->state_path, strerror(-r));
			return EXIT_CONFIG;
		}
	}
	r = open_session(s, why);
	if (r != 0)
		return r;
	/* Last: its threads look at all that is above. */
	r = control_start(s->run_dir, s->config->dir,
			  s->handover ? s->handover->control_fd : -1, &control, s,
			  &s->control, why);
	if (r < 0)
		return EXIT_CONFIG;
	r = start_signals(s);
	if (r < 0) {
		why_set(why, r, "signal thread: %s", strerror(-r));
		return EXIT_INTERNAL;
	}
	return EXIT_OK;
}

/* ---- down ------------------------------------------------------------------------------ */

/* Ends the threads that signals started. One that drains with a longer deadline than
 * ours was is left to the end of the process: CONTROL_E_BUSY. */
static int end_signals(struct serve *s)
{
	struct timespec until;

	atomic_store(&s->signals_over, true);
	pthread_kill(s->signal_thread, SIGUSR1);
	pthread_join(s->signal_thread, NULL);
	if (!atomic_load(&s->stop_started))
		return 0;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_GRACE_S;
	return pthread_timedjoin_np(s->stop_thread, NULL, &until) ? CONTROL_E_BUSY : 0;
}

/* Everything but the signal thread, which may not have been started. */
static void take_down(struct serve *s)
{
	s->ops = ops_free(s->ops); /* its workers are done with the session then */
	s->session = session_free(s->session);
	stack_close(&s->stack);
}

/* After the loop: what is staged goes up, callers learn it. Returns the exit code. */
static int come_down(struct serve *s)
{
	struct receipt *receipt = NULL;
	uint64_t deadline_ms = atomic_load(&s->deadline_ms);
	int r;

	atomic_store(&s->state, SERVE_STOPPING);
	set_phase(s, HANDOVER_ENDING);
	r = drain(s, deadline_ms ? deadline_ms : drain_deadline(s), NULL, &receipt);
	if (r != 0)
		log_warn("ended with uploads pending; \"sluice recover --state-dir %s\" "
			 "or "
			 "the next mount finishes them",
			 s->config->state_path);
	else
		log_info("ended dir=\"%s\"", s->config->dir);
	control_finish(s->control, r, receipt);
	if (control_stop(s->control) == CONTROL_E_BUSY ||
	    end_signals(s) == CONTROL_E_BUSY)
		_exit(r == 0 ? EXIT_OK : EXIT_PENDING);
	take_down(s);
	return r == 0 ? EXIT_OK : EXIT_PENDING;
}

/* In a daemon that takes over, everything of the mount stays for the next try. */
static int give_in(struct serve *s, int code, int report, const struct why *why)
{
	if (takes_over(s)) {
		log_error("cannot take over: %s", why->text);
		_exit(code);
	}
	if (s->control) {
		control_finish(s->control, -ECANCELED, NULL);
		control_stop(s->control);
	}
	take_down(s);
	if (report < 0)
		fprintf(stderr, "sluice: %s\n", why->text);
	daemon_report(report, code, why);
	return code;
}

/* It serves: who waits for that is told. */
static void announce(struct serve *s, int report)
{
	log_set_level(LOG_INFO);
	log_info("%s source=\"%s\" dir=\"%s\" role=%s",
		 takes_over(s) ? "serves again" : "mounted", s->config->source,
		 s->config->dir, config_role[s->config->role]);
	set_phase(s, HANDOVER_SERVING);
	if (s->handover && !takes_over(s))
		kill(s->handover->holder, SIGUSR1);
	daemon_report(report, EXIT_OK, NULL);
	/* The signal that the last daemon was told. */
	if (takes_over(s) && atomic_load(&s->handover->draining))
		kill(getpid(), SIGTERM);
}

int serve_run(const struct config *config, int report, struct handover *handover)
{
	struct serve s = {
		.config = config, .handover = handover, .started_ns = clock_real_ns()};
	struct why why = {""};
	int r;

	daemon_harden();
	if (config->role == CONFIG_OUTPUT)
		heap_own();
	sigemptyset(&s.signals);
	sigaddset(&s.signals, SIGTERM);
	sigaddset(&s.signals, SIGINT);
	sigaddset(&s.signals, SIGHUP);
	sigaddset(&s.signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s.signals, NULL);
	r = come_up(&s, &why);
	if (r == 0 && !config->foreground && !takes_over(&s) &&
	    daemon_detach(config->log_path, &why) < 0)
		r = EXIT_CONFIG;
	if (r != 0)
		return give_in(&s, r, report, &why);
	announce(&s, report);
	r = session_loop(s.session);
	if (r < 0)
		log_error("the FUSE loop ended error=%d", -r);
	return come_down(&s);
}
