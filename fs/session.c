/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root mounts with mount(2): no set-user-id helper in the way, and flags and options are
 * exactly ours. Others have fusermount3 do it. Either way libfuse gets the descriptor.
 *
 * open -> mounted -> looping -> gone (unmounted here, by umount(8), or aborted)
 *
 * Failure modes: what the library, the kernel or our rights lack is noted with a reason
 * and done without. A loop that ends with an error leaves a dead mount point behind, which
 * session_free() detaches.
 */
#include "fs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/fuse_api.h"
#include "fs/fusermount.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/mounts.h"

#define URING_PARAMETER "/sys/module/fuse/parameters/enable_uring"
#define URING_DEPTH 8 /* requests in flight per core; each holds 1 MiB */
#define CAP_SYS_ADMIN_BIT 21
#define OVERLAY_MAGIC 0x794c7630
#define REQUEST_MAX (1u << 20)
#define LAST_MOUNT_MS 1000 /* that a connection may outlive its last mount */
#define WAKE_MS 10         /* between signals to a loop that is to end … */
#define WAKES_MAX 100      /* … so often */

/* A way of serving that not every machine has. */
struct feature {
	atomic_bool used;
	const char *why; /* why not; literal */
};

struct session {
	struct fuse_session *fuse;
	struct session_config config;
	struct feature passthrough, write_back, uring;
	bool readdirplus, direct_mmap;
	struct loop *loop;   /* with a hand-over and without rings */
	bool mounted;        /* in our name space, as far as we did not take it out */
	unsigned int minor;  /* names the connection, once it was taken out */
	atomic_bool by_name; /* the kernel does not know NOTIFY_PRUNE */
	atomic_bool looping; /* `looper` is in the library's loop */
	pthread_t looper;
};

/* linux/fuse.h of 6.18: a header with this code, this, inode numbers. */
#define NOTIFY_PRUNE 9
struct prune {
	uint32_t count;
	uint32_t padding;
	uint64_t spare;
};

#if FUSE_HAS_PASSTHROUGH
static bool have_admin(void)
{
	_cleanup_(fclosep) FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long long caps;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			return caps >> CAP_SYS_ADMIN_BIT & 1;
	return false;
}
#endif

static char read_parameter(void)
{
	_cleanup_(close_fdp) int fd = open(URING_PARAMETER, O_RDONLY | O_CLOEXEC);
	char c = 0;

	return fd >= 0 && read(fd, &c, 1) == 1 ? c : 0;
}

/* Whether to ask the library for io_uring; notes the reason when not. */
static bool decide_uring(struct session *s)
{
	char enabled;

	if (!s->config.uring_wanted) {
		s->uring.why = "switched off";
		return false;
	}
	if (s->config.handover && s->config.handover->wanted) {
		s->uring.why = "the mount is to outlive its process: the kernel cannot "
			       "send again what a ring held";
		return false;
	}
	if (!FUSE_HAS_URING) {
		s->uring.why =
			"libfuse has no io_uring that takes replies from any thread";
		return false;
	}
	enabled = read_parameter();
	if (enabled == 'N' && s->config.uring_enable) {
		_cleanup_(close_fdp) int fd = open(URING_PARAMETER, O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, "Y", 1) == 1)
			enabled = 'Y';
	}
	if (enabled != 'Y') {
		s->uring.why = enabled ? "kernel parameter fuse.enable_uring is N"
				       : "kernel has no FUSE over io_uring";
		return false;
	}
	s->uring.why = "kernel did not offer it";
	return true;
}

static void library_log(enum fuse_log_level level, const char *format, va_list args)
{
	char text[256];

	vsnprintf(text, sizeof(text), format, args);
	text[strcspn(text, "\n")] = '\0';
	if (level <= FUSE_LOG_WARNING)
		log_warn("libfuse: %s", text);
	else
		log_debug(LOG_FUSE, "libfuse: %s", text);
}

static int mount_as_root(struct session *s, int *out, struct why *why)
{
	const struct session_config *c = &s->config;
	unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME;
	_cleanup_(close_fdp) int fd = c->handover
					      ? fcntl(c->handover->fd, F_DUPFD_CLOEXEC, 0)
					      : open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[160];

	if (fd < 0)
		return why_set(why, -errno, "/dev/fuse: %s", strerror(errno));
	flags |= c->read_only ? MS_RDONLY : 0;
	flags |= c->no_exec ? MS_NOEXEC : 0;
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s", fd,
		 (unsigned int)geteuid(), (unsigned int)getegid(),
		 c->allow_other ? ",allow_other" : "");
	if (mount(c->source, c->dir, MOUNTS_TYPE, flags, options) < 0)
		return why_set(why, -errno, "%s: cannot mount: %s", c->dir,
			       strerror(errno));
	s->mounted = true;
	*out = steal_fd(&fd);
	return 0;
}

/* For fusermount3, which adds nosuid and nodev. */
static void put_options(const struct session_config *c, struct buf *b)
{
	buf_puts(b, "default_permissions,noatime,subtype=sluice,fsname=");
	for (const char *p = c->source; *p; p++) {
		if (*p == ',' || *p == '\\')
			buf_putc(b, '\\');
		buf_putc(b, *p);
	}
	if (c->read_only)
		buf_puts(b, ",ro");
	if (c->no_exec)
		buf_puts(b, ",noexec");
	if (c->allow_other)
		buf_puts(b, ",allow_other");
}

/* Through a pair of sockets, the holder's if there is one: it finds the connection there. */
static int mount_as_user(struct session *s, int *out, struct why *why)
{
	const struct session_config *c = &s->config;
	_cleanup_(buf_fini) struct buf options = BUF_INIT;
	_cleanup_(close_fdp) int from = -1, to = -1;
	int pair[2], r;

	put_options(c, &options);
	if (buf_error(&options) < 0)
		return err_trace(buf_error(&options));
	if (c->handover)
		memcpy(pair, c->handover->pair, sizeof(pair));
	else if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return why_set(why, -errno, "socketpair: %s", strerror(errno));
	from = pair[0];
	to = pair[1];
	r = fusermount_mount(c->dir, options.data, pair, why);
	if (r < 0)
		return err_trace(r);
	s->mounted = true;
	if (fusermount_see(pair, out) != 0)
		return why_set(why, -EIO, "%s: fusermount3 gave no connection", c->dir);
	return 0;
}

static int mount_session(struct session *s, struct why *why)
{
	const struct handover *h = s->config.handover;
	_cleanup_(close_fdp) int fd = -1;
	char path[32];
	int r;

	if (h && h->generation > 1) {
		s->mounted = true;
		fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
		r = fd < 0 ? why_set(why, -errno, "connection: %s", strerror(errno)) : 0;
	} else {
		r = geteuid() == 0 ? mount_as_root(s, &fd, why)
				   : mount_as_user(s, &fd, why);
	}
	if (r < 0)
		return err_trace(r);
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	if (fuse_session_mount(s->fuse, path) < 0)
		return why_set(why, -EIO, "%s: libfuse refused the mount", s->config.dir);
	steal_fd(&fd); /* the session's now */
	return 0;
}

static int make_args(bool uring, struct fuse_args *args)
{
	char option[64];

	snprintf(option, sizeof(option), "-oio_uring,io_uring_q_depth=%d", URING_DEPTH);
	if (fuse_opt_add_arg(args, "sluice") < 0 ||
	    (uring && fuse_opt_add_arg(args, option) < 0))
		return err_origin(-ENOMEM);
	return 0;
}

int session_open(const struct session_config *config, const struct fuse_lowlevel_ops *ops,
		 void *user, struct session **out, struct why *why)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct session *s = calloc(1, sizeof(*s));
	bool uring;
	int r;

	if (!s)
		return err_origin(-ENOMEM);
	s->config = *config;
	s->passthrough.why = s->write_back.why = "not asked yet";
	fuse_set_log_func(library_log);
	uring = decide_uring(s);
	if (config->handover)
		atomic_store(&config->handover->rings, uring);
	r = make_args(uring, &args);
	if (r == 0) {
		s->fuse = fuse_session_new(&args, ops, sizeof(*ops), user);
		if (!s->fuse)
			r = why_set(why, -EINVAL, "libfuse refused the options");
	}
	fuse_opt_free_args(&args);
	if (r == 0 && config->handover && !uring)
		r = loop_new(s->fuse, config->handover, config->loop_threads,
			     !config->read_only, &s->loop);
	if (r == 0) {
		*out = s; /* the init operation may come before we return */
		r = mount_session(s, why);
	}
	if (r < 0) {
		*out = NULL;
		session_free(s);
		return err_trace(r);
	}
	return 0;
}

static bool ask(struct fuse_conn_info *conn, uint64_t flag)
{
#if FUSE_HAS_PASSTHROUGH
	return fuse_set_feature_flag(conn, flag);
#else
	if (!(conn->capable & flag))
		return false;
	conn->want |= (unsigned int)flag;
	return true;
#endif
}

static void decline(struct fuse_conn_info *conn, uint64_t flag)
{
#if FUSE_HAS_PASSTHROUGH
	fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned int)flag;
#endif
}

static void negotiate_passthrough(struct session *s, struct fuse_conn_info *conn)
{
	if (!s->config.passthrough_wanted) {
		s->passthrough.why = "switched off";
		return;
	}
#if FUSE_HAS_PASSTHROUGH
	struct statfs st;

	if (!have_admin()) {
		s->passthrough.why = "needs CAP_SYS_ADMIN";
		return;
	}
	if (!ask(conn, FUSE_CAP_PASSTHROUGH)) {
		s->passthrough.why = "kernel has none";
		return;
	}
	/* Each level of stacking that we claim is one less for an overlay above us: claim
	 * one only when our own files lie on an overlay. */
	conn->max_backing_stack_depth =
		statfs(s->config.local_dir, &st) == 0 && st.f_type == OVERLAY_MAGIC;
	s->passthrough.used = true;
#else
	(void)conn;
	s->passthrough.why = "libfuse is older than 3.17";
#endif
}

/* It cannot go with passthrough: the kernel then refuses backing files. */
static void negotiate_write_back(struct session *s, struct fuse_conn_info *conn)
{
	decline(conn, FUSE_CAP_WRITEBACK_CACHE);
	if (s->config.read_only)
		s->write_back.why = "read-only";
	else if (s->passthrough.used)
		s->write_back.why = "passthrough is better";
	else if (!ask(conn, FUSE_CAP_WRITEBACK_CACHE))
		s->write_back.why = "kernel has none";
	else
		s->write_back.used = true;
}

void session_negotiate(struct session *s, struct fuse_conn_info *conn)
{
	ask(conn, FUSE_CAP_PARALLEL_DIROPS);
	ask(conn, FUSE_CAP_CACHE_SYMLINKS);
	s->readdirplus = ask(conn, FUSE_CAP_READDIRPLUS);
	if (s->config.readdirplus_always)
		decline(conn, FUSE_CAP_READDIRPLUS_AUTO);
#if FUSE_HAS_KILL_SUIDGID
	/* Else every write asks for security.capability, passed through or not. */
	ask(conn, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
#if FUSE_HAS_PASSTHROUGH
	s->direct_mmap = ask(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#endif
	negotiate_passthrough(s, conn);
	negotiate_write_back(s, conn);
	conn->max_write = REQUEST_MAX;
	conn->time_gran = 1;
}

bool session_passes_through(const struct session *s)
{
	return atomic_load_explicit(&s->passthrough.used, memory_order_relaxed);
}

bool session_writes_back(const struct session *s)
{
	return atomic_load_explicit(&s->write_back.used, memory_order_relaxed);
}

bool session_maps_direct(const struct session *s)
{
	return s->direct_mmap;
}

void session_saw_uring(struct session *s)
{
	if (atomic_load_explicit(&s->uring.used, memory_order_relaxed))
		return;
	atomic_store(&s->uring.used, true);
}

static void on_wake(int sig)
{
	(void)sig;
}

/* Before 3.17 the library looks whether its loop is to end only when a request comes or a
 * signal interrupts its wait; the first one may come just before that. */
static void wake_library(struct session *s)
{
	for (int i = 0; i < WAKES_MAX && atomic_load(&s->looping); i++) {
		pthread_kill(s->looper, SIGUSR2);
		clock_sleep_ms(WAKE_MS);
	}
}

/* The library's own loop; at the end it also stops the threads of the rings. */
static int library_loop(struct session *s)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	const struct sigaction wake = {.sa_handler = on_wake};
	sigset_t set;
	int r;

	if (!config)
		return err_origin(-ENOMEM);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaction(SIGUSR2, &wake, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	s->looper = pthread_self();
	atomic_store(&s->looping, true);
	fuse_loop_cfg_set_max_threads(config, s->config.loop_threads);
	fuse_loop_cfg_set_idle_threads(config, s->config.loop_threads);
	r = fuse_session_loop_mt(s->fuse, config);
	atomic_store(&s->looping, false);
	fuse_loop_cfg_destroy(config);
	return r < 0 ? err_origin(r) : 0;
}

int session_loop(struct session *s)
{
	int r;

	if (!s->loop)
		return err_trace(library_loop(s));
	r = loop_run(s->loop);
	return err_trace(r);
}

/* It ends with its last mount, before the system call that takes that away returns, but for
 * who looks at it just then. */
static bool is_connected(const struct session *s, int wait_ms)
{
	struct pollfd p = {.fd = fuse_session_fd(s->fuse)};

	return poll(&p, 1, wait_ms) == 0;
}

int session_unmount(struct session *s)
{
	struct mounts_entry entry;
	int r = 0;

	if (s->mounted && mounts_find(s->config.dir, &entry) == 0 &&
	    !strcmp(entry.type, MOUNTS_TYPE)) {
		s->minor = entry.minor;
		r = mounts_remove(s->config.dir, false);
	}
	if (r != 0)
		return r == MOUNTS_E_BUSY ? SESSION_E_BUSY : err_trace(r);
	s->mounted = false;
	return is_connected(s, LAST_MOUNT_MS) ? SESSION_E_ELSEWHERE : 0;
}

void session_elsewhere(const struct session *s, char *out, size_t size)
{
	*out = '\0';
	if (s->minor)
		mounts_elsewhere(s->minor, out, size);
}

void session_forget_name(struct session *s, uint64_t parent, const char *name)
{
	/* -ENOENT and the like: it is not there any more, nothing to do. */
	(void)!fuse_lowlevel_notify_inval_entry(s->fuse, parent, name, strlen(name));
}

bool session_forgets_files(struct session *s)
{
	return !atomic_load(&s->by_name);
}

int session_forget_files(struct session *s, const uint64_t *inos, size_t n)
{
	size_t size = n * sizeof(*inos);
	struct prune prune = {.count = (uint32_t)n};
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + sizeof(prune) + size),
		.error = NOTIFY_PRUNE,
	};
	struct iovec iov[] = {{&head, sizeof(head)},
			      {&prune, sizeof(prune)},
			      {(void *)(uintptr_t)inos, size}};

	if (!session_forgets_files(s))
		return SESSION_E_BY_NAME;
	if (writev(fuse_session_fd(s->fuse), iov, 3) < 0 && errno == EINVAL) {
		atomic_store(&s->by_name, true);
		return SESSION_E_BY_NAME;
	}
	return 0;
}

void session_forget_content(struct session *s, uint64_t ino)
{
	(void)!fuse_lowlevel_notify_inval_inode(s->fuse, ino, 0, 0);
}

void session_detach(struct session *s)
{
	_cleanup_(close_fdp) int abort_fd = -1;
	struct mounts_entry entry;

	/* Before the number is free for another mount. */
	if (!s->mounted && s->minor && is_connected(s, 0))
		abort_fd = mounts_abort_open_connection(s->minor);
	else if (mounts_find(s->config.dir, &entry) == 0 &&
		 !strcmp(entry.type, MOUNTS_TYPE))
		abort_fd = mounts_abort_open(&entry);
	if (s->mounted && mounts_remove(s->config.dir, true) < 0)
		log_warn("mount left dir=\"%s\"", s->config.dir);
	s->mounted = false;
	fuse_session_exit(s->fuse);
	if (s->loop)
		loop_wake(s->loop);
	if (abort_fd < 0 || mounts_abort(abort_fd) < 0)
		log_debug(LOG_FUSE, "connection not aborted dir=%s", s->config.dir);
	wake_library(s);
}

struct session *session_free(struct session *s)
{
	if (!s)
		return NULL;
	if (s->mounted)
		session_detach(s);
	if (s->fuse)
		fuse_session_destroy(s->fuse);
	loop_free(s->loop);
	free(s);
	return NULL;
}

static void put_feature(struct buf *b, const char *name, const struct feature *f)
{
	bool used = atomic_load(&f->used);

	json_begin_object(b, name);
	json_put_bool(b, "used", used);
	if (!used)
		json_put_string(b, "why", f->why);
	json_end_object(b);
}

void session_status_json(const struct session *s, struct buf *b)
{
	json_put_string(b, "libfuse", fuse_pkgversion());
	put_feature(b, "passthrough", &s->passthrough);
	put_feature(b, "write_back", &s->write_back);
	put_feature(b, "io_uring", &s->uring);
	json_put_bool(b, "interrupts",
		      FUSE_HAS_URING_INTERRUPT || !atomic_load(&s->uring.used));
	json_put_bool(b, "readdirplus", s->readdirplus);
}
