/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket of a mount: one JSON line in, JSON lines out.
 *
 *   {"command":"status"}                      -> the status object
 *   {"command":"flush","timeout_ms":N}        -> {"progress":{...}} several times a second,
 *                                                then {"result":"ok"|"pending"|"error",
 *                                                "message":TEXT,"receipt":{...}}
 *   {"command":"stop","timeout_ms":N}         -> the same, then the mount is gone; "busy"
 *                                                when it is in use. The connection closes
 *                                                when the process has ended; with
 *                                                "elsewhere":TEXT it serves on there
 *   both with "files":true                    -> before the result lines that begin with
 *                                                {"files":[ and make one array together: the
 *                                                member of the receipt that may be long
 *
 *   {"command":"warm","wait":BOOL}            -> takes the descriptor that comes with it (a
 *                                                list of keys, order.h); with "wait" progress
 *                                                as above; the receipt is the job
 *   {"command":"warm-cancel","id":N}          -> ends a job, or all (0)
 *
 * timeout_ms absent: no limit. Who leaves while it waits for uploads has asked for nothing.
 * When more wait, or call, than can be answered: {"result":"error","message":"busy: ..."} to
 * whatever was asked; to "status" only when more call. The socket lies in a directory of mode 0700, and callers
 * other than root and the owner of the mount are sent away.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct buf;
struct control;
struct receipt;
struct why;

#define CONTROL_LINE_MAX 4096 /* of a request */
#define CONTROL_PROGRESS_MS 200
#define CONTROL_FILES "{\"files\":["

/* What the mount answers. Called from several threads at once. */
struct control_ops {
	void (*status)(void *arg, struct buf *b);   /* appends one object */
	void (*progress)(void *arg, struct buf *b); /* appends one object */
	/* Blocks until all is stored or the deadline (clock_mono_ms()), or until *given_up,
	 * which it looks at several times a second. 0 or CONTROL_E_PENDING with a receipt for
	 * the caller to free, or a negative errno. */
	int (*flush)(void *arg, uint64_t deadline_ms, const atomic_bool *given_up,
		     struct receipt **receipt);
	/* Takes the mount out of the name space. 0, CONTROL_E_BUSY or a negative errno.
	 * After 0 the owner comes to control_finish() soon, unless it is
	 * CONTROL_E_ELSEWHERE: it is mounted there, too, which is appended. */
	int (*unmount)(void *arg, uint64_t deadline_ms, struct buf *elsewhere);
	/* Begins to fetch what the file names; takes fd. Negative errno with a sentence. */
	int (*warm)(void *arg, int fd, uint64_t *id, struct why *why);
	/* Waits for the end of a job or until_ms; appends it, an object. 0: over and complete;
	 * CONTROL_E_PENDING: over, not complete; CONTROL_E_BUSY: not over. */
	int (*warm_wait)(void *arg, uint64_t id, uint64_t until_ms, struct buf *job);
	int (*warm_cancel)(void *arg, uint64_t id); /* -ESRCH */
};
enum {
	CONTROL_E_PENDING = 1,
	CONTROL_E_BUSY,
	CONTROL_E_ELSEWHERE
};

/* What control_start() may be given instead of making it: while some process has it open,
 * callers wait for who listens next. Negative errno. */
int control_socket(void);

/* Listens for `dir` in run_dir (made when missing) at the socket `fd` (borrowed; -1: at a
 * new one). -EADDRINUSE with a sentence when a living process serves this mount point
 * already. */
int control_start(const char *run_dir, const char *dir, int fd,
		  const struct control_ops *ops, void *arg, struct control **out,
		  struct why *why);

/* Tells callers of "stop" how it ended: result 0, CONTROL_E_PENDING or a negative errno;
 * `receipt` is taken, NULL: there is none. Takes no new callers from now on. */
void control_finish(struct control *c, int result, struct receipt *receipt);

/* Removes the socket. 0, or CONTROL_E_BUSY when a flush is still waiting: then what `ops`
 * stand on must stay until the process exits. Connections of "stop" close with the
 * process. */
int control_stop(struct control *c);

/* Removes the socket's name only: before an exit that waits for nothing. */
void control_unlink(struct control *c);

/* The other end, by the socket's name (mounts.h). Answers a connected descriptor, or a
 * negative errno: -ECONNREFUSED or -ENOENT when nobody listens there. */
int control_connect(const char *run_dir, const char *name);
