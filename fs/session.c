/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root mounts with mount(2) and hands libfuse the descriptor: no set-user-id helper in the
 * way, and flags and options are exactly ours. Others go through fusermount3.
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
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "fs/fuse_api.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/mounts.h"

#define URING_PARAMETER "/sys/module/fuse/parameters/enable_uring"
#define URING_DEPTH 8 /* requests in flight per core; each holds 1 MiB */
#define CAP_SYS_ADMIN_BIT 21
#define OVERLAY_MAGIC 0x794c7630
#define REQUEST_MAX (1u << 20)

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
	struct loop *loop; /* with a hand-over and without rings */
	bool mounted;      /* in our name space, as far as we did not take it out */
	bool by_helper;    /* fusermount3 mounted it */
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

static int open_device(const struct session *s)
{
	return s->config.handover ? fcntl(s->config.handover->fd, F_DUPFD_CLOEXEC, 0)
				  : open("/dev/fuse", O_RDWR | O_CLOEXEC);
}

static int mount_directly(struct session *s, struct why *why)
{
	const struct session_config *c = &s->config;
	unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME;
	_cleanup_(close_fdp) int fd = open_device(s);
	bool mounted = c->handover && c->handover->generation > 1;
	char options[160], path[32];

	if (fd < 0)
		return why_set(why, -errno, "/dev/fuse: %s", strerror(errno));
	flags |= c->read_only ? MS_RDONLY : 0;
	flags |= c->no_exec ? MS_NOEXEC : 0;
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=%u,group_id=%u,default_permissions%s", fd,
		 (unsigned int)geteuid(), (unsigned int)getegid(),
		 c->allow_other ? ",allow_other" : "");
	if (!mounted && mount(c->source, c->dir, MOUNTS_TYPE, flags, options) < 0)
		return why_set(why, -errno, "%s: cannot mount: %s", c->dir,
			       strerror(errno));
	s->mounted = true;
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	if (fuse_session_mount(s->fuse, path) < 0)
		return why_set(why, -EIO, "%s: libfuse refused the mount", c->dir);
	steal_fd(&fd); /* the session's now */
	return 0;
}

static int mount_by_helper(struct session *s, struct why *why)
{
	if (fuse_session_mount(s->fuse, s->config.dir) < 0)
		return why_set(why, -EPERM, "%s: fusermount3 could not mount it",
			       s->config.dir);
	s->mounted = s->by_helper = true;
	return 0;
}

/* The options for libfuse; those of the mount itself only matter to fusermount3. */
static int make_args(const struct session *s, bool uring, struct fuse_args *args)
{
	const struct session_config *c = &s->config;
	_cleanup_(buf_fini) struct buf b = BUF_INIT;

	buf_puts(&b, "-odefault_permissions,subtype=sluice,fsname=");
	for (const char *p = c->source; *p; p++) {
		if (*p == ',' || *p == '\\')
			buf_putc(&b, '\\');
		buf_putc(&b, *p);
	}
	if (c->read_only)
		buf_puts(&b, ",ro");
	if (c->no_exec)
		buf_puts(&b, ",noexec");
	if (c->allow_other)
		buf_puts(&b, ",allow_other");
	if (uring)
		buf_printf(&b, ",io_uring,io_uring_q_depth=%d", URING_DEPTH);
	if (buf_error(&b) < 0 || fuse_opt_add_arg(args, "sluice") < 0 ||
	    fuse_opt_add_arg(args, b.data) < 0)
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
	r = make_args(s, uring, &args);
	if (r == 0) {
		s->fuse = fuse_session_new(&args, ops, sizeof(*ops), user);
		if (!s->fuse)
			r = why_set(why, -EINVAL, "libfuse refused the options");
	}
	fuse_opt_free_args(&args);
	if (r == 0 && config->handover && !uring)
		r = loop_new(s->fuse, config->handover, config->loop_threads, &s->loop);
	if (r == 0) {
		*out = s; /* the init operation may come before we return */
		r = geteuid() == 0 ? mount_directly(s, why) : mount_by_helper(s, why);
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
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
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

/* The library's own loop; at the end it also stops the threads of the rings. */
static int library_loop(struct session *s)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	if (!config)
		return err_origin(-ENOMEM);
	fuse_loop_cfg_set_max_threads(config, s->config.loop_threads);
	fuse_loop_cfg_set_idle_threads(config, s->config.loop_threads);
	r = fuse_session_loop_mt(s->fuse, config);
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

int session_unmount(struct session *s)
{
	if (!s->mounted)
		return 0;
	if (s->by_helper) {
		/* Only the helper may; it detaches, and what is in use lives on until it
		 * is closed. */
		session_detach(s);
		return 0;
	}
	if (umount2(s->config.dir, UMOUNT_NOFOLLOW) < 0) {
		if (errno == EBUSY)
			return SESSION_E_BUSY;
		if (errno != EINVAL) /* somebody else unmounted it */
			return err_origin(-errno);
	}
	s->mounted = false;
	return 0;
}

void session_forget_name(struct session *s, uint64_t parent, const char *name)
{
	/* -ENOENT and the like: it is not there any more, nothing to do. */
	(void)!fuse_lowlevel_notify_inval_entry(s->fuse, parent, name, strlen(name));
}

void session_detach(struct session *s)
{
	struct mounts_entry entry;
	bool known = mounts_find(s->config.dir, &entry) == 0 &&
		     !strcmp(entry.type, MOUNTS_TYPE);

	if (s->by_helper)
		fuse_session_unmount(s->fuse);
	else if (s->mounted)
		umount2(s->config.dir, MNT_DETACH | UMOUNT_NOFOLLOW);
	s->mounted = false;
	fuse_session_exit(s->fuse);
	if (s->loop)
		loop_wake(s->loop);
	if (known && mounts_abort(entry.minor) < 0)
		log_debug(LOG_FUSE, "connection not aborted minor=%u", entry.minor);
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
