/* SPDX-License-Identifier: Apache-2.0 */
/* The side of the control socket on which the commands are. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
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

/* timeout_ms UINT64_MAX: none. */
int client_send(struct client *c, const char *command, uint64_t timeout_ms);

/* A request as JSON text, with a descriptor (borrowed; -1: none). */
int client_send_json(struct client *c, const char *request, int fd);

/* The next line, which the caller decrefs. CLIENT_E_END when the other end is gone,
 * -ETIMEDOUT when nothing comes for `silence_ms`. */
int client_read(struct client *c, uint64_t silence_ms, json_t **out);

/* Reads progress until the result; draws it when standard error is a terminal and `quiet`
 * is not set. *result is the caller's. Errors as client_read(). */
int client_follow(struct client *c, bool quiet, json_t **result);
