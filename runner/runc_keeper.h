/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: one small process per container that is the parent of the container's first
 * process. It exists because
 *  - only a parent learns the true exit status, and runc's `create` leaves none;
 *  - somebody must end the container when the runner dies, whatever the runner dies of:
 *    the keeper notices because the socket between them closes.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct why;

struct runc_keeper_options {
	const char *const *create; /* argv of `runc create` */
	const char *const *remove; /* argv of `runc delete --force`, for when we die */
	const char *pid_file;      /* written by create */
	int mount_ns, net_ns;      /* borrowed: runc runs in them */
	int log_fd;                /* borrowed: the container's output */
};

enum runc_keeper_event {
	RUNC_KEEPER_CREATED = 1, /* value: process id */
	RUNC_KEEPER_FAILED,      /* value: exit status of runc, or a negative errno */
	RUNC_KEEPER_EXITED       /* value: exit code, or 128+n */
};

struct runc_keeper_message {
	int event;
	int value;
};

/* Starts it. *sock receives its messages, then end of file when it ends; when the
 * caller shuts down writing on it (or dies), the keeper kills the container and ends. */
int runc_keeper_start(const struct runc_keeper_options *o, pid_t *pid, int *sock)
	__attribute__((warn_unused_result));

/* Waits until there is a message or clock_mono_ms() == deadline_ms. */
void runc_keeper_poll(int sock, uint64_t deadline_ms);

/* The next message. The end of the keeper counts as one, without an event. */
enum {
	RUNC_KEEPER_E_TIMEOUT = 1
};
int runc_keeper_receive(int sock, uint64_t timeout_ms, struct runc_keeper_message *m)
	__attribute__((warn_unused_result));
