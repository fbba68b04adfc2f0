/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_bundle.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "fs/base/json.h"
#include "runner/engine.h"
#include "runner/runc_rootfs.h"

#define CPU_PERIOD_US 100000
#define CPU_QUOTA_MIN_US 1000 /* the kernel's */
#define PIDS_DEFAULT 4096
#define NOFILE_MAX 65536

static void put_list(struct buf *b, const char *name, const char *const *list)
{
	json_begin_array(b, name);
	for (; *list; list++)
		json_put_string(b, NULL, *list);
	json_end_array(b);
}

/* Root in the container may own and change files of any user, and become one; no more. */
static void put_capabilities(struct buf *b)
{
	static const char *const sets[] = {"bounding", "effective", "permitted"};
	static const char *const names[] = {
		"CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",
		"CAP_FSETID", "CAP_KILL",         "CAP_NET_BIND_SERVICE",
		"CAP_SETGID", "CAP_SETUID",       NULL};

	json_begin_object(b, "capabilities");
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
		put_list(b, sets[i], names);
	json_end_object(b);
}

static void put_limit(struct buf *b, const char *type, uint64_t value)
{
	json_begin_object(b, NULL);
	json_put_string(b, "type", type);
	json_put_uint(b, "soft", value);
	json_put_uint(b, "hard", value);
	json_end_object(b);
}

/* Never above our own hard limits: to raise one takes CAP_SYS_RESOURCE, which even root
 * need not have. */
static void put_limits(struct buf *b)
{
	struct rlimit files = {.rlim_max = 1024};

	getrlimit(RLIMIT_NOFILE, &files);
	json_begin_array(b, "rlimits");
	put_limit(b, "RLIMIT_NOFILE",
		  files.rlim_max < NOFILE_MAX ? files.rlim_max : NOFILE_MAX);
	put_limit(b, "RLIMIT_CORE", 0);
	json_end_array(b);
}

static void put_process(struct buf *b, const struct engine_container *c)
{
	json_begin_object(b, "process");
	json_put_bool(b, "terminal", false);
	json_begin_object(b, "user");
	json_put_uint(b, "uid", 0);
	json_put_uint(b, "gid", 0);
	json_end_object(b);
	json_begin_array(b, "args");
	json_put_string(b, NULL, RUNC_INIT_PATH);
	for (const char *const *a = c->argv; *a; a++)
		json_put_string(b, NULL, *a);
	json_end_array(b);
	put_list(b, "env", c->env);
	json_put_string(b, "cwd", c->workdir ? c->workdir : "/");
	put_capabilities(b);
	put_limits(b);
	json_put_bool(b, "noNewPrivileges", true);
	json_end_object(b);
}

static void put_mount(struct buf *b, const char *type, const char *source,
		      const char *target, const char *const *options)
{
	json_begin_object(b, NULL);
	json_put_string(b, "destination", target);
	json_put_string(b, "type", type);
	json_put_string(b, "source", source);
	put_list(b, "options", options);
	json_end_object(b);
}

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void put_system_mounts(struct buf *b, const struct engine_container *c)
{
	char size[40];

	put_mount(b, "proc", "proc", "/proc", OPTIONS("nosuid", "noexec", "nodev"));
	put_mount(b, "tmpfs", "tmpfs", "/dev",
		  OPTIONS("nosuid", "strictatime", "mode=755", "size=65536k"));
	put_mount(b, "devpts", "devpts", "/dev/pts",
		  OPTIONS("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620",
			  "gid=5"));
	/* Data loaders pass batches through it, so it may be as large as the limit, against
	 * which it counts anyway. */
	if (c->memory_bytes)
		snprintf(size, sizeof(size), "size=%llu",
			 (unsigned long long)c->memory_bytes);
	else
		snprintf(size, sizeof(size), "size=50%%");
	put_mount(b, "tmpfs", "shm", "/dev/shm",
		  OPTIONS("nosuid", "noexec", "nodev", "mode=1777", size));
	put_mount(b, "mqueue", "mqueue", "/dev/mqueue",
		  OPTIONS("nosuid", "noexec", "nodev"));
	put_mount(b, "sysfs", "sysfs", "/sys",
		  OPTIONS("nosuid", "noexec", "nodev", "ro"));
	/* Runtimes read their limits there. */
	put_mount(b, "cgroup", "cgroup", "/sys/fs/cgroup",
		  OPTIONS("nosuid", "noexec", "nodev", "relatime", "ro"));
}

static void put_mounts(struct buf *b, const struct runc_bundle *bundle)
{
	const struct engine_container *c = bundle->container;

	json_begin_array(b, "mounts");
	put_system_mounts(b, c);
	if (bundle->hosts)
		put_mount(b, "bind", bundle->hosts, "/etc/hosts",
			  OPTIONS("bind", "rprivate", "ro", "nosuid", "nodev", "noexec"));
	for (size_t i = 0; i < c->mount_count; i++) {
		const struct engine_mount *m = &c->mounts[i];

		put_mount(b, "bind", m->source, m->target,
			  OPTIONS("rbind", m->slave ? "rslave" : "rprivate",
				  m->read_only ? "ro" : "rw", "nosuid", "nodev"));
	}
	json_end_array(b);
}

static void put_resources(struct buf *b, const struct runc_bundle *bundle)
{
	const struct engine_container *c = bundle->container;

	json_begin_object(b, "resources");
	json_begin_array(b, "devices"); /* runc adds null, zero, random, tty ... */
	json_begin_object(b, NULL);
	json_put_bool(b, "allow", false);
	json_put_string(b, "access", "rwm");
	json_end_object(b);
	json_end_array(b);
	if (c->memory_bytes) {
		json_begin_object(b, "memory");
		json_put_uint(b, "limit", c->memory_bytes);
		if (bundle->support.swap) /* memory and swap together: so none */
			json_put_uint(b, "swap", c->memory_bytes);
		json_end_object(b);
	}
	if (c->cpu_millis) {
		uint64_t quota = c->cpu_millis * (CPU_PERIOD_US / 1000);

		json_begin_object(b, "cpu");
		json_put_uint(b, "quota",
			      quota < CPU_QUOTA_MIN_US ? CPU_QUOTA_MIN_US : quota);
		json_put_uint(b, "period", CPU_PERIOD_US);
		json_end_object(b);
	}
	if (bundle->support.pids) {
		json_begin_object(b, "pids");
		json_put_uint(b, "limit", c->pids_max ? c->pids_max : PIDS_DEFAULT);
		json_end_object(b);
	}
	json_end_object(b);
}

static void put_rule(struct buf *b, const char *const *names, uint64_t error)
{
	json_begin_object(b, NULL);
	put_list(b, "names", names);
	json_put_string(b, "action", "SCMP_ACT_ERRNO");
	json_put_uint(b, "errnoRet", error);
}

/* Not a wall of its own (capabilities and namespaces are): it takes away those parts of the
 * kernel in which holes were found again and again and which training does not need. */
static void put_seccomp(struct buf *b)
{
	static const char *const denied[] = {"acct",
					     "add_key",
					     "bpf",
					     "delete_module",
					     "finit_module",
					     "fsconfig",
					     "fsmount",
					     "fsopen",
					     "fspick",
					     "init_module",
					     "io_uring_enter",
					     "io_uring_register",
					     "io_uring_setup",
					     "kexec_file_load",
					     "kexec_load",
					     "keyctl",
					     "lookup_dcookie",
					     "mount",
					     "mount_setattr",
					     "move_mount",
					     "nfsservctl",
					     "open_by_handle_at",
					     "open_tree",
					     "perf_event_open",
					     "pivot_root",
					     "quotactl",
					     "quotactl_fd",
					     "reboot",
					     "request_key",
					     "setns",
					     "swapoff",
					     "swapon",
					     "umount",
					     "umount2",
					     "userfaultfd",
					     "vmsplice",
					     NULL};
	static const char *const namespaces[] = {"clone", "unshare", NULL};
	static const char *const clone3[] = {"clone3", NULL};

	json_begin_object(b, "seccomp");
	json_put_string(b, "defaultAction", "SCMP_ACT_ALLOW");
#if defined(__x86_64__)
	put_list(b, "architectures",
		 OPTIONS("SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"));
#elif defined(__aarch64__)
	put_list(b, "architectures", OPTIONS("SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"));
#endif
	json_begin_array(b, "syscalls");
	put_rule(b, denied, 1); /* EPERM */
	json_end_object(b);
	put_rule(b, namespaces, 1);
	json_begin_array(b, "args");
	json_put_raw(b, NULL,
		     "{\"index\":0,\"value\":268435456,\"valueTwo\":268435456,"
		     "\"op\":\"SCMP_CMP_MASKED_EQ\"}"); /* CLONE_NEWUSER */
	json_end_array(b);
	json_end_object(b);
	/* Its flags lie in memory, out of a filter's sight; libraries fall back on
	 * clone when they hear ENOSYS. */
	put_rule(b, clone3, 38);
	json_end_object(b);
	json_end_array(b);
	json_end_object(b);
}

static void put_linux(struct buf *b, const struct runc_bundle *bundle)
{
	/* No "network" and no "cgroup": the network is that in which runc runs; the path of
	 * the control group says nothing that is secret. */
	static const char *const namespaces[] = {"pid", "ipc", "uts", "mount", NULL};
	static const char *const masked[] = {"/proc/acpi",
					     "/proc/asound",
					     "/proc/kcore",
					     "/proc/keys",
					     "/proc/latency_stats",
					     "/proc/timer_list",
					     "/proc/timer_stats",
					     "/proc/sched_debug",
					     "/proc/scsi",
					     "/sys/firmware",
					     "/sys/devices/virtual/powercap",
					     "/sys/fs/fuse",
					     "/sys/kernel/debug",
					     NULL};
	static const char *const read_only[] = {"/proc/bus",           "/proc/fs",
						"/proc/irq",           "/proc/sys",
						"/proc/sysrq-trigger", NULL};

	json_begin_object(b, "linux");
	json_put_string(b, "cgroupsPath", bundle->cgroup);
	put_resources(b, bundle);
	json_begin_array(b, "namespaces");
	for (const char *const *n = namespaces; *n; n++) {
		json_begin_object(b, NULL);
		json_put_string(b, "type", *n);
		json_end_object(b);
	}
	json_end_array(b);
	put_list(b, "maskedPaths", masked);
	put_list(b, "readonlyPaths", read_only);
	if (bundle->seccomp)
		put_seccomp(b);
	json_end_object(b);
}

void runc_bundle_format(const struct runc_bundle *bundle, struct buf *out)
{
	json_begin_object(out, NULL);
	json_put_string(out, "ociVersion", "1.0.2");
	put_process(out, bundle->container);
	json_begin_object(out, "root");
	json_put_string(out, "path", bundle->rootfs);
	json_put_bool(out, "readonly", false);
	json_end_object(out);
	json_put_string(out, "hostname", bundle->container->hostname);
	put_mounts(out, bundle);
	put_linux(out, bundle);
	json_end_object(out);
}
