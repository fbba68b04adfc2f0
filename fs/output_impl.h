/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of /output share. Only fs/output*.c include this.
 *
 * A node has a desired state (its place in the tree, its acknowledged version, its
 * attributes) and a stored state (the object that holds it, if any). The parts above
 * change the desired state and write it to the journal; the reconciler (output_sync.c)
 * makes the store follow.
 *
 *   output.c          start and stop          output_log.c     journal records, replay
 *   output_node.c     the table of nodes      output_store.c   what the store shows
 *   output_name.c     names and attributes    output_dir.c     listings
 *   output_file.c     open files              output_content.c versions and their bytes
 *   output_flush.c    close and fsync
 *   output_plan.c     what a node needs next  output_sync.c    when it is done
 *   output_task.c     the request             output_result.c  what came of it
 *   output_fetch.c    what an object holds    output_status.c  progress, drain, receipt
 *
 * Lock order: node->io -> output->lock -> journal, stage, uploader. No lock but node->io
 * is held across disk input or output, and none but node->io across a request; io is held
 * across the fetch of the very content that its readers and writers wait for.
 */
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include <uthash.h>

#include "cache/journal.h"
#include "cache/origin.h"
#include "cache/origin_posix.h"
#include "cache/patch.h"
#include "cache/record.h"
#include "cache/stage.h"
#include "cache/uploader.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"
#include "fs/output.h"

#define OUTPUT_NODES_KEEP 100000       /* clean nodes beyond this are forgotten */
#define OUTPUT_RETAIN_MAX 256          /* staged files kept for the next open … */
#define OUTPUT_RETAIN_BYTES (1u << 30) /* … and their bytes */
#define OUTPUT_FETCH_MAX (4u << 20)    /* smaller objects are read whole, and verified */
#define OUTPUT_COPY_SIZE (64u << 20)   /* copied within the store by one request */
#define OUTPUT_RECEIPT_MAX 1000000     /* files that a receipt names one by one */

/* The object that holds a node's content. */
struct stored {
	char *key; /* NULL: there is none */
	char etag[ORIGIN_ETAG_MAX];
	uint64_t size;
	uint64_t crc64;
	bool has_crc64;
	int64_t mtime_ns;
	uint64_t version; /* of the node's contents */
};

/* A multipart upload that was begun and neither completed nor aborted. */
struct resume {
	char *key;
	char upload_id[ORIGIN_UPLOAD_ID_MAX]; /* "": it may exist, its id is not known */
	uint64_t version, size, part_size;
	int64_t begun_ns;
	bool ending;               /* all parts are recorded; it may be complete */
	struct upload_sent *parts; /* acknowledged ones, in no order */
	size_t part_count;
};

#define OUTPUT_CLEAN UINT64_MAX

enum node_queue {
	QUEUE_NONE,
	QUEUE_READY,
	QUEUE_WAITING,
	QUEUE_FLYING
};

struct task;

struct node {
	uint64_t ino;
	UT_hash_handle by_ino;  /* output->nodes */
	UT_hash_handle by_name; /* parent->children */
	UT_hash_handle by_key;  /* output->claims, while stored.key is set */
	enum record_kind kind;
	struct node *parent; /* NULL: the root, or it has no name any more */
	struct node *children;
	char *name;
	char *target; /* of a symbolic link */
	mode_t mode;  /* with S_IFMT */
	uid_t uid;
	gid_t gid;
	int64_t mtime_ns, ctime_ns;
	uint64_t size; /* while nothing is live */

	uint64_t lookups;           /* the kernel's references; node_look() */
	struct handover_node *kept; /* what the next daemon gets; NULL: nothing */
	uint32_t holds;             /* ours, across unlocked stretches */
	uint32_t opens, writers, random_writers;
	bool passthrough; /* since some open: written behind our back */

	/* Content. `live` changes only with `io` held for writing. */
	pthread_rwlock_t io;
	struct content *live;    /* what reads and writes see; pinned while opens > 0 */
	atomic_bool changed;     /* live differs from the acknowledged version */
	_Atomic uint64_t frozen; /* bytes of live that belong to a version on its way */
	atomic_bool raced;       /* a write met the acknowledgement of the version */
	struct content *acked;   /* the version that is to reach the store; NULL: it has.
				  Carried: never the same as `live` */
	struct patch *recovered; /* of `acked`, while the journal is replayed … */
	bool sparse_lost;        /* … and whether it needs one */
	uint64_t acked_size;
	bool unsettled; /* `live` is the store's or has a copy, the durable journal still
			   names it */
	uint64_t version; /* of the last acknowledgement */
	struct seal {
		uint64_t version; /* … whose bytes these are; 0: not known */
		uint64_t size, crc64;
		int64_t mtime_ns, ctime_ns;
		bool whole; /* crc64 is that of all bytes; else the times must tell */
	} seal;
	int error;       /* a sync failed and the bytes could not be saved */
	bool carried;    /* during replay: the version is in a DATA record */
	bool publish;    /* send although it is open for writing */
	bool unverified; /* stored attributes are the listing's, not the object's */

	struct stored stored;
	uint64_t stored_epoch;  /* output->epoch when `stored` last changed */
	uint32_t stored_change; /* counts replacements by others: readers get ESTALE */
	bool outdated;          /* … while it was open: `live` is not what is stored */
	bool displaced;         /* stored where its path is not */
	bool gone;       /* deleted from the store; its key stays claimed for a while */
	bool meta_dirty; /* attributes are newer than the store's */
	uint32_t meta_change; /* counts changes of attributes */
	bool born;            /* made here: nothing below is in the store but by us */

	/* Directories. */
	bool marker; /* wants an object of its own */
	bool listed; /* all that the store held at listed_ms is in `children` */
	uint64_t listed_ms, stale_until_ms;

	/* Journal. */
	bool journaled;
	uint32_t journaled_children;
	uint64_t seq; /* of its last record */

	/* Reconciler. */
	enum node_queue queue;
	struct list queued; /* output->ready or ->waiting */
	int64_t pending_ns; /* real time since which something is to be done; 0: clean */
	uint64_t pending_seq; /* journal sequence of the oldest change the store lacks;
				 OUTPUT_CLEAN: none */
	uint64_t acked_seq;   /* journal sequence of `acked` */
	uint64_t not_before_ms;
	uint32_t attempts;
	struct task *task; /* in flight */
	struct resume *resume;
	struct why why;        /* of the last failed attempt */
	bool maybe_sent;       /* its path\'s key may hold it although we were not told */
	bool refused;          /* … which waiting will not cure */
	bool drain;            /* a drain has yet to publish it */
	struct list writing;   /* output->writing, while writers > 0 */
	uint64_t published_ms; /* when it was last looked at for publication */
	struct list retained; /* output->retained, while live is kept for the next open */
};

/* How many displaced objects lie below a prefix of the store. */
struct displaced {
	UT_hash_handle hh;
	uint64_t count;
	char prefix[];
};

/* One line of the receipt. */
struct delivered {
	UT_hash_handle hh;
	uint64_t size, crc64;
	char etag[ORIGIN_ETAG_MAX];
	char key[];
};

struct output {
	struct output_config config;
	int state_fd, journal_fd, stage_fd, quarantine_fd, lock_fd;
	struct journal *journal;
	struct journal_report recovered;
	struct stage *stage;
	struct uploader *uploader;

	struct lock lock;            /* all below, and the nodes but where said */
	pthread_cond_t changed;      /* something was stored, failed, or queued */
	struct node *nodes;          /* by ino */
	struct node *claims;         /* by stored.key: whose object that is */
	struct displaced *displaced; /* by prefix */
	struct node *root;
	uint64_t next_ino;
	uint64_t epoch;        /* moves when something is stored or deleted by us */
	uint32_t listings;     /* in progress: garbage lingers meanwhile */
	struct list lingering; /* queued: garbage whose object is gone */

	struct list ready, waiting;
	struct list flying;          /* tasks in flight */
	struct list writing;         /* nodes open for writing */
	pthread_cond_t publish_cond; /* stop */
	uint32_t in_flight, window;
	uint32_t drains;   /* that wait */
	bool yielding;     /* the sync thread looks again by itself in a moment */
	uint64_t acked_ms; /* when a small file was acknowledged last */
	bool unblocked;    /* a task ended that others may wait for */
	uint64_t pending_count;
	uint64_t bytes_pending;
	struct list retained;
	uint64_t retained_count, retained_bytes;

	bool stopping;
	pthread_t sync_thread, publish_thread;
	bool sync_started, publish_started;

	uint64_t files_stored, bytes_stored, failures;
	uint64_t moved; /* counts parts and files that reached the store */
	struct why last_failure;
	struct delivered *receipt;
	uint64_t receipt_count;
	uint64_t hidden_keys;
	/* From the last daemon, until they are taken: staged files by node of the hand-over,
	 * open files by slot. */
	struct content **restored;
	struct output_file **files;
	uint32_t restored_count, file_count;

	uint64_t lost_contents; /* acknowledged versions whose staged file is damaged */
	uint64_t ahead;         /* journal sequence that any request has to wait for */
};

static inline bool may_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

struct output_file {
	struct output *output;
	struct node *node;
	int flags;              /* of open(2) */
	uint32_t stored_change; /* of the node when it was opened */
};

/* ---- output_node.c: the table; all with the lock held -------------------------------- */

struct node *node_new(struct output *o, enum record_kind kind, uint64_t ino);
struct node *node_find(struct output *o, uint64_t ino);
struct node *node_child(struct node *dir, const char *name);
/* -ENOMEM, or -ENAMETOOLONG when its key would be too long. */
int node_link(struct output *o, struct node *dir, struct node *n, const char *name);
void node_unlink(struct output *o, struct node *n);
/* The key that the node's path asks for; directories end in '/'. -ENAMETOOLONG. */
int node_key(const struct node *n, char out[static PATH_KEY_MAX + 1]);
struct node *node_at_key(struct output *o,
			 const char *key);                  /* the linked node, or NULL */
struct node *node_claim(struct output *o, const char *key); /* whose object it is */
/* Sets the object that holds the node; whoever had the key loses it. key NULL: none. */
int node_set_stored(struct output *o, struct node *n, const char *key,
		    const struct origin_attr *attr);
void node_update_displaced(struct output *o, struct node *n);
/* The next node below `top` in preorder, or NULL. */
struct node *node_next_below(struct node *top, struct node *n);
uint64_t displaced_below(struct output *o, const char *prefix);
void node_attr(struct output *o, struct node *n, struct tree_attr *attr);
/* Frees it when nothing needs it. */
void node_settle(struct output *o, struct node *n);
void node_hold(struct node *n);
void node_release(struct output *o, struct node *n);
void node_free(struct output *o, struct node *n); /* at the end of all */
void resume_free(struct node *n);

/* Adds to (or takes from) the kernel's references. */
void node_look(struct output *o, struct node *n, int64_t by);

/* ---- output_handover.c: with the lock held, nothing without a hand-over ---------------- */

void kept_attr(struct node *n);
void kept_place(struct output *o, struct node *n);
void kept_live(struct node *n, struct content *live); /* before the old one goes */
void kept_lookups(struct output *o, struct node *n);
void kept_forget(struct output *o, struct node *n);
void kept_next_ino(struct output *o);
/* At start, in this order; without the lock. */
int handover_restore_contents(struct output *o);
int handover_restore_nodes(struct output *o);
int handover_restore_files(struct output *o);
/* output_file.c: an open file that was open; mode: enum backing_mode. */
int file_restore(struct output *o, uint64_t ino, int flags, int mode,
		 struct output_file **out);

/* ---- output_log.c: with the lock held ------------------------------------------------- */

/* The bytes of an acknowledged version that the journal carries. */
void log_data(struct buf *b, const struct node *n);

/* A transaction: records gather, log_commit() appends them and returns the sequence. */
struct log_batch {
	struct output *output;
	struct buf *records;
};
void log_node(struct output *o, struct buf *b, struct node *n);
/* Appends; every failure is -ENOMEM. `*seq` gets the sequence to sync; no request leaves
 * before that is durable. */
int log_commit(struct output *o, struct buf *b, uint64_t *seq);
/* The same for a change that concerns requests of `n` alone; sets n->seq. */
int log_commit_own(struct output *o, struct buf *b, struct node *n);
void log_snapshot(void *output, struct buf *b); /* takes the lock itself */
int log_replay(void *output, const struct record *r);
/* After the last record: ties the tree together. */
int log_finish(struct output *o);

/* ---- output_store.c: without the lock -------------------------------------------------- */

/* Makes the listing of a directory fresh. TREE_E_WAIT with TREE_NOWAIT. */
int store_refresh(struct output *o, struct node *dir, unsigned int flags);
/* The child of that name, from memory where that is fresh, and held. -ENOENT. */
int store_lookup(struct output *o, uint64_t parent, const char *name, unsigned int flags,
		 struct node **out);
/* All that the store holds below the directory becomes nodes. */
int store_load_tree(struct output *o, struct node *dir);
/* Lock held: what a listing or an answer says of the node's object. */
void store_take_attributes(struct output *o, struct node *n, const struct origin_attr *a);

/* ---- output_fetch.c: without the lock -------------------------------------------------- */

/* The object's own mode, owner, time. TREE_E_WAIT with TREE_NOWAIT. */
int store_attributes(struct output *o, struct node *n, unsigned int flags);
/* Content of a stored object into memory or a staged file. */
int store_read(struct output *o, struct output_file *file, uint64_t off, void *p,
	       size_t n, size_t *got);
int store_fetch(struct output *o, struct node *n, struct content **out);
/* A staged file that stands for the node's object without holding its bytes. Only where
 * store_has_base() (lock held) says so. */
bool store_has_base(struct output *o, const struct node *n);
int store_base(struct output *o, struct node *n, struct content **out);
/* Brings home what the first `end` bytes of a sparse content lack; pinned. */
int store_complete(struct output *o, struct node *n, struct content *c, uint64_t end);
/* Whether what a sparse content lacks can still be had. Lock held. */
bool store_base_is_there(const struct node *n, struct content *c);

/* ---- output_name.c ---------------------------------------------------------------------- */

/* A new file of that name with the staged file `c` (taken on success), open once. */
int name_create(struct output *o, uint64_t parent, const char *name, mode_t mode,
		struct output_owner owner, struct content *c, struct node **out);

/* ---- output_content.c: without the lock ------------------------------------------------ */

/* The acknowledgement: syncs the bytes, makes them a version, syncs the record. */
int content_ack(struct output *o, struct node *n);
/* As content_ack(), without any wait: `*seq` is to become durable. TREE_E_WAIT: it is not a
 * small file, or something is in the way. */
int content_carry(struct output *o, struct node *n, uint64_t *seq);
/* Whether the last version has the bytes that are there now. */
bool content_is_saved(struct output *o, struct node *n);
/* As content_ack(), but the version may be sent while the file stays open. */
int content_publish(struct output *o, struct node *n);
/* Readies `live` for a change of bytes from `off` on; io is held for writing. */
int content_prepare(struct output *o, struct node *n, uint64_t off);
int content_truncate(struct output *o, struct node *n, uint64_t size);
int content_open(struct output *o,
		 struct node *n); /* first open: live is there, pinned */
void content_close(struct output *o, struct node *n);         /* last close */
void content_update_frozen(struct node *n);                   /* lock held */
void content_drop_retained(struct output *o, struct node *n); /* lock held */
/* Keeps the bytes of a closed, delivered file for whoever opens it next. Lock held. */
void content_retain(struct output *o, struct node *n);
/* ---- output_patch.c: contents and their object ------------------------------------------ */

/* Makes something live of a file whose bytes are in the store, or nowhere yet; io is held
 * for writing. */
int content_make_live(struct output *o, struct node *n);
/* As ftruncate(2), of a sparse `live`. */
int content_truncate_sparse(struct output *o, struct node *n, uint64_t size);
/* A sparse file of too many pieces gets what it lacks, durably. */
int content_unscatter(struct output *o, struct node *n, struct content *c);
/* `copy` was made of `from` while the object of both may have become another. Lock held. */
void content_follow_rebase(struct content *copy, struct content *from);
/* The node's object is `n->stored` now and was `etag`, with the same bytes where the
 * contents refer to it. Lock held. */
void content_rebase(struct node *n, const char *etag);
/* Its object holds the first n->stored.size bytes of `c`. Lock held. */
void content_remember(struct output *o, struct node *n, struct content *c);
/* Waits for space as long as the uploader may free some. -ENOSPC. */
int content_wait_room(struct output *o, uint64_t n);
/* A new staged file, pinned; waits for space likewise. */
int content_create(struct output *o, struct content **c);

/* ---- output_plan.c: with the lock held ------------------------------------------------- */

enum sync_op {
	SYNC_NONE,    /* the store is as desired */
	SYNC_LATER,   /* something else has to happen first */
	SYNC_CONTENT, /* send the acknowledged version */
	SYNC_SMALL,   /* send a marker or a link */
	SYNC_COPY,    /* move the object: copy, then the old key is garbage */
	SYNC_META,    /* attributes: copy onto itself */
	SYNC_DELETE,
	SYNC_FETCH,   /* bring the content home: its key is in someone's way */
	SYNC_FILL,    /* … what a sparse content lacks of it */
	SYNC_FINISH,  /* complete an upload that was superseded but may be complete */
	SYNC_ABANDON, /* give up an unfinished multipart upload */
	SYNC_OP_N
};
const char *sync_op_name(enum sync_op op);
enum sync_op plan_node(struct output *o, struct node *n,
		       char key[static PATH_KEY_MAX + 1]);
/* Whether bytes of its contents are only in the object that it has in the store. */
bool plan_needs_object(const struct node *n);
/* Whether the journal must know the node, by its own state. */
bool plan_is_dirty(const struct node *n);

/* ---- output_sync.c --------------------------------------------------------------------- */

int sync_start(struct output *o);
void sync_stop(struct output *o);
/* Lock held: something about the node may need doing. */
void sync_queue(struct output *o, struct node *n);
void sync_move(struct output *o, struct node *n, enum node_queue queue);
/* Lock held: the object of that key, if there is one, is to vanish. */
int sync_make_garbage(struct output *o, struct buf *b, const char *key);
void sync_kick(struct output *o); /* lock held: forget all waiting times */
void sync_cancel(struct output *o, struct node *n);    /* lock held */
bool sync_key_busy(struct output *o, const char *key); /* lock held */
struct node *sync_task_node(struct list *flying);
/* Lock held: bytes of `c` that the request in flight sends. */
uint64_t sync_task_uses(const struct node *n, const struct content *c);
