/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process 1 of every container: starts the command, hands signals on, collects the dead,
 * and ends as the command ended.
 *
 * Without it the command itself would be process 1, for which the kernel drops every
 * signal that has no handler (SIGTERM to `sh -c` or to most Python programs does nothing),
 * and nobody would collect orphans.
 *
 * It runs in images of which nothing is known, so it uses no library at all: a static
 * program of a few kilobytes whose bytes are part of the runner (init_image.c).
 *
 * Exit status: the command's; 128+n when signal n ended it; 127 no such command, 126 it
 * cannot be executed.
 */
#include <linux/errno.h>
#include <linux/signal.h>
#include <linux/wait.h>
#include <stdint.h>
#include <sys/syscall.h>

#define PATH_BYTES 4096

#if defined(__x86_64__)
__asm__(".globl _start\n"
	"_start:\n"
	"	xor %ebp, %ebp\n"
	"	mov %rsp, %rdi\n"
	"	and $-16, %rsp\n"
	"	call init_main\n"
	"	hlt\n");

static long call4(long n, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
__asm__(".globl _start\n"
	"_start:\n"
	"	mov x29, xzr\n"
	"	mov x0, sp\n"
	"	bl init_main\n");

static long call4(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
			 : "memory");
	return x0;
}
#else
#error "init: system calls of this machine are not known"
#endif

void init_main(long *stack) __attribute__((noreturn));

static void quit(int status)
{
	for (;;)
		call4(SYS_exit_group, status, 0, 0, 0);
}

static uint64_t length(const char *s)
{
	uint64_t n = 0;

	while (s[n])
		n++;
	return n;
}

static void say(const char *s)
{
	call4(SYS_write, 2, (long)s, (long)length(s), 0);
}

static void set_signal_mask(uint64_t mask)
{
	call4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof(mask));
}

/* The value of PATH, or the usual one. */
static const char *search_path(char **env)
{
	for (; *env; env++) {
		const char *e = *env;

		if (e[0] == 'P' && e[1] == 'A' && e[2] == 'T' && e[3] == 'H' &&
		    e[4] == '=')
			return e + 5;
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* "dir/name" of the first n bytes of dir; 0 when it does not fit. */
static int join(char out[PATH_BYTES], const char *dir, uint64_t n, const char *name)
{
	uint64_t m = length(name), at = 0;

	if (n + m + 2 > PATH_BYTES)
		return 0;
	for (uint64_t i = 0; i < n; i++)
		out[at++] = dir[i];
	if (n)
		out[at++] = '/';
	for (uint64_t i = 0; i <= m; i++)
		out[at++] = name[i];
	return 1;
}

/* Returns only when nothing could be executed: the errno that says most. */
static long execute(char **argv, char **env)
{
	const char *dirs = search_path(env), *c = argv[0];
	long best = -ENOENT;
	char path[PATH_BYTES];

	for (; *c; c++)
		if (*c == '/')
			return call4(SYS_execve, (long)argv[0], (long)argv, (long)env, 0);
	while (*dirs) {
		uint64_t n = 0;
		long r;

		while (dirs[n] && dirs[n] != ':')
			n++;
		if (join(path, dirs, n, argv[0])) {
			r = call4(SYS_execve, (long)path, (long)argv, (long)env, 0);
			if (r != -ENOENT && r != -ENOTDIR)
				best = r;
		}
		dirs += n;
		dirs += *dirs == ':';
	}
	return best;
}

static void run_command(char **argv, char **env)
{
	long r;

	call4(SYS_setsid, 0, 0, 0, 0);
	set_signal_mask(0);
	r = execute(argv, env);
	say("cannot run ");
	say(argv[0]);
	say(r == -ENOENT    ? ": no such command\n"
	    : r == -EACCES  ? ": permission denied\n"
	    : r == -ENOEXEC ? ": not a program (a script without #! ?)\n"
			    : ": the system cannot execute it\n");
	quit(r == -ENOENT ? 127 : 126);
}

/* Collects everything that has ended; leaves with the command's status when it has. */
static void reap(long command)
{
	for (;;) {
		int status = 0;
		long pid = call4(SYS_wait4, -1, (long)&status, WNOHANG, 0);

		if (pid == -EINTR)
			continue;
		if (pid <= 0)
			return;
		if (pid == command)
			quit(status & 0x7f ? 128 + (status & 0x7f)
					   : (status >> 8) & 0xff);
	}
}

void init_main(long *stack)
{
	int argc = (int)stack[0];
	char **argv = (char **)(stack + 1), **env = argv + argc + 1;
	const uint64_t all = ~0ull;
	long command;

	if (argc < 2)
		quit(126);
	set_signal_mask(all);
	command = call4(SYS_clone, SIGCHLD, 0, 0, 0);
	if (command == 0)
		run_command(argv + 1, env);
	if (command < 0) {
		say("cannot start a process: the limit of processes?\n");
		quit(126);
	}
	for (;;) {
		long s = call4(SYS_rt_sigtimedwait, (long)&all, 0, 0, sizeof(all));

		if (s == SIGCHLD)
			reap(command);
		else if (s > 0 && call4(SYS_kill, -command, s, 0, 0))
			call4(SYS_kill, command, s, 0, 0); /* not in its session yet */
	}
}
