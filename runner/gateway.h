/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage gateway as a process: `sluice mount`, `flush`, `umount`, `recover`. The runner
 * never links it, and never puts a credential on its command line.
 */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct signals;
struct spec_store;
struct why;

#define GATEWAY_WORDS_MAX 2100

/* A command line; the words are owned. */
struct gateway_command {
	char *words[GATEWAY_WORDS_MAX + 1]; /* NULL at the end */
	size_t count;
};

/* Beside the runner's own program, then in $PATH. -ENOENT with a sentence. */
int gateway_find(char out[PATH_MAX], struct why *why);

/* Where one mount of the gateway is and keeps its things; borrowed. */
struct gateway_place {
	const char *dir;       /* the mount point */
	const char *state_dir; /* output that is not stored yet */
	const char *log_file;
};

void gateway_mount_command(struct gateway_command *c, const char *program,
			   const struct spec_store *store, const char *role,
			   const struct gateway_place *place);
void gateway_command_init(struct gateway_command *c, const char *program,
			  const char *verb);
void gateway_add(struct gateway_command *c, const char *word);
void gateway_command_fini(struct gateway_command *c);

/* How a command ended that was run to its end. */
struct gateway_result {
	int exit_code;      /* 128+n for signal n */
	struct why *why;    /* what it said last on its standard error; borrowed */
	struct buf *output; /* its standard output; borrowed; NULL: not wanted */
};

/* Runs it with the store's credentials in its environment. What it writes to standard
 * error goes to `err_fd` when that is not -1, else into result->why. Returns 0 when it has
 * ended by itself, whatever its exit code; -ETIMEDOUT; -ECANCELED when a request to stop
 * came meanwhile (`signals` NULL: none is looked for): the process has been ended then. */
int gateway_run(const struct gateway_command *c, const struct spec_store *store,
		struct signals *signals, uint64_t timeout_ms, int err_fd,
		struct gateway_result *result);
