/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount of /output whose daemons die, without FUSE. Three processes: the test is programs,
 * kernel and store; one holds the memory that is handed over and makes daemons; the daemon
 * has the tree. What a daemon had not answered is asked again; what it had asked of the store
 * lands all the same, perhaps late.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache/origin.h"
#include "fs/tree.h"

struct buf;
struct handover;

#define MOUNT_LANES 4 /* calls at a time */
#define MOUNT_STORE_LANES 8
#define MOUNT_FILES_MAX 256
#define MOUNT_SETTLE_MS 30

enum call_op {
	CALL_LOOKUP,
	CALL_FORGET,
	CALL_OPEN,
	CALL_CREATE,
	CALL_READ,
	CALL_WRITE,
	CALL_FSYNC,
	CALL_FLUSH,
	CALL_RELEASE,
	CALL_TRUNCATE,
	CALL_RENAME,
	CALL_UNLINK,
	CALL_RMDIR,
	CALL_MKDIR,
	CALL_COUNT,
	CALL_DRAIN
};

/* A request, and its reply; `len` bytes follow. */
struct call {
	enum call_op op;
	bool again;  /* the last daemon may have done it */
	bool passed; /* opened, and a descriptor follows */
	int result, flags, count;
	uint32_t slot, set;
	uint64_t request, ino, ino2, off, size, len;
	struct tree_attr attr;
	char name[64], name2[64];
};

/* What the daemon is told at its start, in memory that all have. */
struct mount_orders {
	unsigned int generation;
	struct origin like; /* the store, for what it can do */
	uint64_t ttl_ms, nodes_max, carry_max, publish_interval_ms;
	uint64_t part_size, fetch_max;
	uint32_t walk_ahead;
	bool passes, appends;
	uint64_t resent[MOUNT_LANES];
	unsigned int resent_count;
};

struct mount {
	struct origin *origin; /* the store; borrowed */
	uint64_t seed;         /* for messages */
	char dir[64], state[80], path[80];
	struct mount_orders *orders;
	struct handover *handover; /* the holder's */
	int holder_socket, listener;
	pid_t holder, daemon;
	int lanes[MOUNT_LANES];
	pthread_mutex_t mutex; /* all below */
	pthread_cond_t moved;
	bool dead;         /* the daemon, and there is no other yet */
	unsigned int busy; /* lanes with a call under way */
	uint64_t last_request, started_ms;
	struct mount_server *servers;
};

/* In any thread and process: there is no way on. */
#define give_up(...)                                                                     \
	do {                                                                             \
		print_error(__VA_ARGS__);                                                \
		print_error("\n");                                                       \
		_exit(1);                                                                \
	} while (0)

/* Makes the holder: no other thread of this process lives. Then fill in orders, and begin. */
void mount_init(struct mount *s, uint64_t seed);
void mount_fini(struct mount *s);

/* The first daemon, to which nothing is handed over but the state directory. */
void mount_begin(struct mount *s, struct origin *origin);
void mount_end(struct mount *s); /* it is killed */

/* Kills the daemon and starts the next one. From one thread at a time. */
void mount_kill(struct mount *s);

/* Asks the daemon, and the next one if it dies meanwhile; one thread for each lane. `in` are
 * c->len bytes. `out` (or NULL) gets those of the reply, *fd what was passed. */
int mount_ask(struct mount *s, int lane, struct call *c, const void *in, struct buf *out,
	      int *fd);

/* lib_daemon.c: the process of the daemon. */
void mount_daemon(struct mount *s) __attribute__((noreturn));
