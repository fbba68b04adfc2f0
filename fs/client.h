/* SPDX-License-Identifier: Apache-2.0 */
/* The side of the control socket on which the commands are. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct client;
struct why;

/* Connects to whoever serves `dir` (a canonical path). CLIENT_E_NOBODY: no process does. */
enum {
	CLIENT_E_NOBODY = 1,
	CLIENT_E_END
};
int client_open(const char *dir, struct client **out, struct why *why);
/* By the name of its socket. */
int client_open_socket(const char *run_dir, const char *name, struct client **out);
struct client *client_close(struct client *c); /* takes NULL, returns NULL */
pid_t client_peer(const struct client *c);     /* 0: unknown */

/* timeout_ms UINT64_MAX: none. `files`: the receipt shall name them (client_files()). Also 0
 * when the other end is gone: reading tells. */
int client_send(struct client *c, const char *command, uint64_t timeout_ms, bool files);

/* A request as JSON text, with a descriptor (borrowed; -1: none). */
int client_send_json(struct client *c, const char *request, int fd);

/* The next line, which the caller decrefs. CLIENT_E_END when the other end is gone,
 * -ETIMEDOUT when nothing comes for `silence_ms`. */
int client_read(struct client *c, uint64_t silence_ms, json_t **out);

/* Reads progress until the result; draws it when standard error is a terminal and `quiet`
 * is not set. *result is the caller's. Errors as client_read(). */
int client_follow(struct client *c, bool quiet, json_t **result);

/* The elements of the receipt's member "files", the client's. NULL:
 * there are none, or no room for them, which then was said on standard error. */
FILE *client_files(struct client *c);

/* Sends `command` to whoever serves `dir` and follows it to its result, as the above. A
 * daemon that dies meanwhile has another one behind it, which is asked anew; with
 * CLIENT_E_NOBODY none was there, also at the second time. *c (NULL: not connected yet) is
 * the connection at the end, the caller's. `json`: nothing is drawn, and the receipt names
 * the files. Errors without a sentence are the connection's. */
int client_run(const char *dir, const char *command, uint64_t timeout_ms, bool json,
	       struct client **c, json_t **result, struct why *why);
