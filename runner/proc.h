/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes without a shell. A child gets exactly the descriptors named here as 0,
 * 1 and 2 and nothing else, default signal handling, and the argument vector as given: no
 * secret belongs in it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;
struct why;

struct proc_options {
	const char *const *argv; /* argv[0] an absolute path; ends with NULL */
	const char *const *env;  /* ends with NULL; NULL: ours */
	int in, out, err;        /* borrowed; -1: /dev/null */
	bool new_session;        /* out of reach of the terminal's Ctrl-C */
};

/* The absolute path of a program: $PATH, then /usr/sbin, /sbin, /usr/local/sbin, which a
 * plain user's PATH lacks. -ENOENT. `out` has PATH_MAX bytes. */
int proc_find(const char *program, char *out) __attribute__((warn_unused_result));

/* Starts it. *pid must be given to proc_wait() once. A program that cannot be executed
 * is an error here (its errno), not a child that ends with 127. */
int proc_spawn(const struct proc_options *o, pid_t *pid)
	__attribute__((warn_unused_result));

/* Waits for the end: *status is the exit code, or 128+n for signal n. PROC_E_TIMEOUT
 * after timeout_ms (UINT64_MAX: for ever): the child still runs and is still to be waited
 * for. */
enum {
	PROC_E_TIMEOUT = 1
};
int proc_wait(pid_t pid, uint64_t timeout_ms, int *status)
	__attribute__((warn_unused_result));

/* SIGTERM, and SIGKILL after grace_ms; waits. */
void proc_end(pid_t pid, uint64_t grace_ms);

/* spawn + wait: standard output and error of the child (at most PROC_OUTPUT_MAX bytes of
 * them) are appended to `output` when not NULL; o->out and o->err are ignored then. A
 * child that runs longer than timeout_ms is killed: -ETIMEDOUT. */
#define PROC_OUTPUT_MAX 65536
int proc_run(const struct proc_options *o, struct buf *output, uint64_t timeout_ms,
	     int *status) __attribute__((warn_unused_result));

/* For code of our own between fork() and exec (safe there): becomes the program, or
 * writes the errno as a negative int to `report` (an O_CLOEXEC pipe) and exits. */
void proc_become(const struct proc_options *o, int report) __attribute__((noreturn));
void proc_close_from(int first_fd);

/* The exit code, or 128+n, of what waitpid() gave. */
int proc_status(int wait_status);
