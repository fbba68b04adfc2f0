/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of /output share. Only fs/output*.c include this. What they do with the
 * bytes of files is in output_content.h.
 *
 * A node has a desired state (its place in the tree, its acknowledged version, its
 * attributes) and a stored state (the object that holds it, if any). The parts above
 * change the desired state and write it to the journal; the reconciler (output_sync.c)
 * makes the store follow.
 *
 *   output.c          start and stop          output_log.c     journal records, replay
 *   output_node.c     the table of nodes      output_store.c   what the store shows
 *   output_forget.c   … and who leaves it     output_list.c    asking it, by directory
 *   output_name.c     names and attributes                     and by name
 *   output_dir.c      listings                output_rename.c  moves
 *   output_file.c     open files              output_content.c versions and their bytes
 *   output_flush.c    close and fsync         output_look.c    attributes
 *   output_plan.c     what a node needs next  output_sync.c    when it is done
 *   output_task.c     the request             output_result.c  what came of it
 *   output_fetch.c    what an object holds    output_status.c  progress, drain
 *   output_time.c     times of open files
 *   output_watch.c    looks at open files     output_ahead.c   sends large ones early
 *   output_detour.c   uploads that go on to a former name
 *   output_receipt.c  what was stored, file by file
 *   output_source.c   renamed directories     output_walk.c    their objects become nodes
 *
 * Lock order: node->acking -> node->io -> output->lock -> journal, stage, uploader. No lock
 * but the first two is held across disk input or output, and none but these across a request;
 * they are held across the fetch of the very content that its readers and writers wait for.
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
#include "cache/patch_table.h"
#include "cache/record.h"
#include "cache/stage.h"
#include "cache/uploader.h"
#include "fs/base/list.h"
#include "fs/base/lock.h"
#include "fs/base/path.h"
#include "fs/name_set.h"
#include "fs/output.h"

#define OUTPUT_NODES_MAX 100000  /* clean nodes beyond this are forgotten */
#define OUTPUT_SOURCES_MAX 10000 /* prefixes of renamed directories */
#define OUTPUT_WALK_AHEAD                                                                \
	4000 /* their objects taken in and not moved, see output_walk.c */
#define OUTPUT_RETAIN_MAX 256          /* staged files kept for the next open … */
#define OUTPUT_RETAIN_BYTES (1u << 30) /* … and their bytes */
#define OUTPUT_FETCH_MAX (4u << 20)    /* smaller objects are read whole, and verified */
#define OUTPUT_COPY_SIZE (64u << 20)   /* copied within the store by one request */

/* The object that holds a node's content. */
struct stored {
	char *key; /* NULL: there is none */
	char etag[ORIGIN_ETAG_MAX];
	uint64_t size;
	uint64_t crc64;
	bool has_crc64;
	int64_t mtime_ns;
	uint64_t version; /* of the node's contents */
	bool appendable;  /* an object that can be appended to */
	bool unsure; /* a request of ours whose answer is not known may have replaced it */
};

/* A multipart upload that was begun and neither completed nor aborted; or an append whose
 * answer is not known, to the object that the contents need bytes of: `key`, `version`, and
 * the `size` and `crc64` that the object has if it was carried out. */
struct resume {
	char *key;
	char upload_id[ORIGIN_UPLOAD_ID_MAX]; /* "": it may exist, its id is not known */
	uint64_t version, size, part_size;
	int64_t begun_ns;
	bool ending; /* all parts are recorded; it may be complete */
	bool append;
	bool detour; /* it goes on although its file has another key by now */
	uint64_t crc64;
	bool early; /* begun before the version was made: the object has neither its time
		     * nor, perhaps, these */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct upload_sent *parts; /* acknowledged ones, in no order */
	size_t part_count;
};

#define OUTPUT_CLEAN UINT64_MAX

enum node_queue {
	QUEUE_NONE,
	QUEUE_READY,
	QUEUE_WAITING,
	QUEUE_BLOCKED, /* until a prefix is free */
	QUEUE_DOOMED,  /* to be deleted, with others in one request */
	QUEUE_FLYING
};

struct task;

/* The upload of a file that is still being written (output_ahead.c). */
struct ahead {
	struct node *file;       /* its `ahead` is this … */
	struct node *upload;     /* … and this one's: garbage that has the `resume` */
	struct content *content; /* of the file when it was begun; a reference */
	uint64_t size;           /* bytes that were sent, or are being */
	uint64_t want;           /* … and are to be */
	uint64_t rank;           /* in the order in which they were begun */
	uint64_t not_before_ms;
	uint32_t attempts;
};

/* What was seen of an open file (output_watch.c). */
struct watch {
	uint64_t since_ms; /* it has been open */
	uint64_t look_ms;  /* when to look again */
	uint32_t wait_ms;
	uint64_t end;         /* of what was written in sequence */
	uint64_t written_out; /* of what was started on its way to the disk */
};

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
	int64_t live_mtime_ns; /* what the file system of `live` made of mtime_ns */
	uint64_t size;         /* while nothing is live */

	uint64_t lookups; /* the kernel's references; node_look() */
	bool spared; /* … which it was asked to let go of, and has not used since */
	uint32_t kept_by; /* listings that someone reads, and that it is a line of */
	struct handover_node *kept; /* what the next daemon gets; NULL: nothing */
	uint32_t holds;             /* ours, across unlocked stretches */
	uint32_t opens, writers, random_writers;
	bool passthrough; /* since some open: written behind our back */

	/* Content. `live` changes only with `io` held for writing. */
	pthread_mutex_t acking; /* one acknowledgement at a time: whoever finds nothing to
				 * acknowledge relies on the one before */
	pthread_rwlock_t io;
	struct content *live;    /* what reads and writes see; pinned while opens > 0 */
	atomic_bool changed;     /* live differs from the acknowledged version */
	_Atomic uint64_t frozen; /* bytes of live that belong to a version on its way */
	bool raced; /* bytes of `live`, which has no patch, may be younger than what was
		     * sent of a version */
	struct content *acked; /* the version that is to reach the store; NULL: it has.
				  Carried: never the same as `live` */
	struct content
		*saved; /* what was its object, for those who have it open, after its
				* name was taken; until it is closed */
	bool forsaken;  /* … that could not be had */
	struct patch *recovered; /* of `acked`, while the journal is replayed … */
	bool sparse_lost;        /* … and whether it needs one */
	uint64_t acked_size;
	struct lost { /* an acknowledged version whose bytes are damaged, as its record has it */
		uint32_t flags; /* 0: there is none */
		uint64_t content, size;
	} lost;
	bool unsettled; /* `live` is the store's or has a copy, the durable journal still
			   names it */
	uint64_t version; /* of the last acknowledgement */
	struct seal {
		uint64_t version; /* … whose bytes these are; 0: not known */
		uint64_t size, crc64;
		int64_t mtime_ns, ctime_ns;
		bool whole; /* crc64 is that of all bytes; else the times must tell */
	} seal;
	int error;         /* a sync failed and the bytes could not be saved */
	bool carried;      /* during replay: the version is in a DATA record */
	bool publish;      /* send although it is open for writing */
	bool lingers;      /* … because it stays open */
	bool unverified;   /* stored attributes are the listing's, not the object's … */
	struct look *look; /* … which is being asked */
	uint8_t foreseen;  /* … or was, for a reader who has not come yet: his number */

	struct stored stored;
	uint64_t stored_epoch;  /* output->epoch when `stored` last changed */
	uint64_t seen;          /* the last listing of its directory that showed it */
	uint32_t stored_change; /* counts replacements by others: readers get ESTALE */
	bool outdated;          /* … while it was open: `live` is not what is stored */
	bool displaced;         /* stored where its path is not */
	bool guest; /* stored at its path, where what nobody claims is another directory's:
		     * the journal has to say whose it is */
	bool gone;  /* deleted from the store; its key stays claimed for a while */
	bool meta_dirty;      /* attributes are newer than the store's */
	uint32_t meta_change; /* counts changes of attributes */
	bool born;    /* below its path the store holds nothing that has no node */
	bool passing; /* taken in to be moved: of no use when that is done */
	bool counted; /* … and not done: output->walk_count */

	/* Directories. */
	bool marker;            /* wants an object of its own */
	struct source *sources; /* where its children still are; oldest first */
	bool listed; /* all that the store held at listed_ms is in `children` or `left` */
	uint64_t listed_ms, stale_until_ms;
	struct name_set *left; /* names without a node that the store may have; or NULL */
	uint32_t departures;   /* counts names that have left */
	struct refresh *refresh; /* it is being listed */
	uint32_t openings;       /* nobody leaves it meanwhile */

	/* Journal. */
	bool journaled;
	uint32_t journaled_children;
	uint64_t seq; /* of its last record */

	/* Reconciler. */
	enum node_queue queue;
	struct list queued; /* in the list of that name in output, or lingering */
	int64_t pending_ns; /* real time since which something is to be done; 0: clean */
	uint64_t pending_seq; /* journal sequence of the oldest change the store lacks;
				 OUTPUT_CLEAN: none */
	uint64_t acked_seq;   /* journal sequence of `acked` */
	uint64_t not_before_ms;
	uint32_t attempts;
	struct task *task; /* in flight */
	struct resume *resume;
	char *why;         /* of the last failed attempt; NULL: none, or no memory */
	bool maybe_sent;   /* its path's key may hold it although we were not told */
	bool refused;      /* … which waiting will not cure */
	bool unappendable; /* an append was refused: the next version replaces the object */
	bool uncopyable;   /* … a copy of an object that was appended to */
	bool drain;        /* a drain has yet to publish it */
	struct list writing;   /* output->writing, while writers > 0 */
	struct watch watch;    /* … and what was seen of it */
	struct ahead *ahead;   /* of a file, or of garbage for one */
	uint32_t ahead_lost;   /* uploads ahead given up since it was opened */
	struct node *detour;   /* of a file: what keeps the key that its upload still goes
				* to; of that: the file */
	uint64_t published_ms; /* when it was last looked at for publication */
	struct list retained; /* output->retained, while live is kept for the next open */
};

/* A prefix of the store whose keys, unless claimed, belong below a directory that is
 * elsewhere by now (output_source.c). */
struct source {
	UT_hash_handle hh; /* output->sources */
	struct node *node;
	struct source *next;          /* node->sources */
	uint64_t id;                  /* never twice */
	char after[PATH_KEY_MAX + 1]; /* keys up to this one are claimed */
	bool wanted;                  /* nodes are blocked by it */
	uint64_t turn;                /* of the walk when it was looked at last */
	uint64_t not_before_ms;
	uint32_t attempts;
	char prefix[];
};

/* Where the store may hold unclaimed children of one directory: objects move from any of
 * these to the last only, so that whoever lists them in this order misses none. */
struct prefixes {
	char **items;
	size_t count;
	bool own; /* the last is the directory's own path; else that holds none */
};

/* How many objects of displaced nodes, and of guests, lie below a prefix of the store. */
struct displaced {
	UT_hash_handle hh;
	uint64_t count;
	char prefix[];
};

struct output {
	struct output_config config;
	int state_fd, journal_fd, stage_fd, quarantine_fd, lock_fd;
	struct journal *journal;
	struct journal_report recovered;
	struct stage *stage;
	struct patch_table *patches; /* in the hand-over; NULL: there is none */
	struct uploader *uploader;

	struct lock lock;       /* all below, and the nodes but where said */
	pthread_cond_t changed; /* something was stored, or failed */
	pthread_cond_t work;    /* the sync thread has something to look at */
	pthread_cond_t drained; /* less is pending; now and then while much is */
	struct node *nodes;     /* by ino; the oldest first */
	struct node *hand;      /* where output_spare() goes on; NULL: at the first */
	uint64_t spared_count;
	uint64_t freed_count;                /* since node_many_freed() said so */
	uint64_t barren_nodes, barren_moved; /* it finds nothing while there are fewer */
	void (*on_over)(void *arg);
	void *on_over_arg;
	struct node *claims;         /* by stored.key: whose object that is */
	struct displaced *displaced; /* by prefix */
	struct node *root;
	uint64_t next_ino;
	uint64_t epoch;          /* moves when something is stored or deleted by us */
	uint64_t last_refresh;   /* of any directory */
	uint32_t listings;       /* in progress: garbage lingers meanwhile */
	uint64_t listings_epoch; /* `epoch` when the oldest may have begun */
	struct list lingering;   /* queued: garbage whose object is gone */

	struct list ready, waiting, blocked, doomed;
	uint64_t doomed_count,
		doomed_since_ms; /* since the oldest is there, or a batch left */
	struct list flying;      /* tasks in flight */
	struct task *busy_keys, *busy_sources; /* … by key, and by what they read */
	struct list writing;                   /* nodes open for writing */
	pthread_cond_t watch_cond;             /* an earlier look is due, or stop */
	uint64_t watch_until_ms;    /* the watcher sleeps until then; 0: it is awake */
	uint64_t ahead_rank;        /* of the last upload ahead */
	uint64_t bytes_ahead;       /* sent before a version had them */
	uint32_t in_flight, window; /* without deletes */
	uint32_t deletes_flying;
	uint32_t drains; /* that wait */
	uint32_t
		wake_below; /* with fewer in flight the sync thread is woken for more; 0: it
				looks again by itself in a moment */
	uint64_t acked_ms; /* when a small file was acknowledged last */
	bool unblocked;    /* a task ended that others may wait for */
	uint64_t pending_count;
	unsigned int descriptor_waiters; /* output_room.c */
	uint64_t bytes_pending;
	struct list retained;
	uint64_t retained_count, retained_bytes;

	struct source *sources; /* by prefix */
	uint64_t last_source;
	uint64_t walk_count; /* nodes taken in and not yet moved */
	uint64_t walk_turn;
	struct origin_req *walk_req; /* in flight */
	pthread_cond_t walk_cond; /* a source is there, or fewer are counted, or stop */
	pthread_t walk_thread;
	bool walk_started;

	uint64_t quiet_until_ms; /* the last process may have requests under way */
	bool stopping;
	pthread_t sync_thread, watch_thread;
	bool sync_started, watch_started;

	struct handover_totals *totals;
	uint64_t moved; /* counts parts and files that reached the store */
	struct why last_failure;
	struct ledger *ledger; /* output_receipt.c */
	uint64_t hidden_keys;
	/* From the last daemon, until they are taken: staged files by node of the hand-over,
	 * open files by slot. */
	struct content **restored;
	struct output_file **files;
	uint32_t restored_count, file_count;

	struct looks *looks; /* output_look.c */

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
/* Its path, its key, or the sources around these may have changed. */
void node_update_displaced(struct output *o, struct node *n);
/* The next node below `top` in preorder, or NULL. */
struct node *node_next_below(struct node *top, struct node *n);
uint64_t displaced_below(struct output *o, const char *prefix);
void node_attr(struct output *o, struct node *n, struct tree_attr *attr);
void node_hold(struct node *n);
void node_release(struct output *o, struct node *n);
void node_free(struct output *o, struct node *n); /* at the end of all */
/* Remembers why the last attempt failed; NULL: it did not. Copied. */
void node_set_why(struct node *n, const char *why);
void resume_free(struct node *n);

/* Adds to (or takes from) the kernel's references. */
void node_look(struct output *o, struct node *n, int64_t by);

/* ---- output_forget.c: with the lock held ----------------------------------------------- */

/* Frees it when nothing needs it. */
void node_settle(struct output *o, struct node *n);
/* The kernel has used it, or has let go of it. */
void node_unspare(struct output *o, struct node *n);
/* Whether so many have gone that heap_trim() is due, which is the caller's then. */
bool node_many_freed(struct output *o);
/* How many clean nodes there should be at most. */
uint64_t node_max_count(const struct output *o);
/* Whether there are as many, or more. */
bool node_are_many(const struct output *o);
/* Whether the name may be one that has left the directory. */
bool node_has_left(const struct node *dir, const char *name);
/* Whether the directory has neither a node nor, perhaps, a name without one. */
bool node_is_empty(const struct node *dir);
/* Calls whoever has the kernel let go of nodes, when it is time for that. */
void node_note_over(struct output *o);

/* ---- output_handover.c: with the lock held, nothing without a hand-over ---------------- */

void kept_attr(struct node *n);
void kept_place(struct output *o, struct node *n);    /* where it is, at once */
void kept_move(struct output *o, struct node *n);     /* … with the next transaction */
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

/* ---- output_receipt.c: with the lock held ---------------------------------------------- */

int receipt_begin(struct output *o);
void receipt_end(struct output *o);
/* The key has this object now, which is ours; or has none of ours any more. */
void receipt_note(struct output *o, const char *key, const struct stored *s);
void receipt_forget(struct output *o, const char *key);

/* ---- output_log.c: with the lock held ------------------------------------------------- */

/* The bytes of an acknowledged version that the journal carries. */
void log_data(struct buf *b, const struct node *n);
/* n->resume. */
void log_resume(struct buf *b, const struct node *n);

/* A transaction: records gather, log_commit() appends them and returns the sequence. */
struct log_batch {
	struct output *output;
	struct buf *records;
};
void log_node(struct output *o, struct buf *b, struct node *n);
void log_found(struct output *o, struct node *n); /* no more lost: there are others */
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

/* What a listing is for. */
enum store_want {
	STORE_NAMES, /* look-ups: a name may be in `left` */
	STORE_EXACT, /* is it empty: what is in `left` is there */
	STORE_ALL,   /* `left` is empty: all have a node */
};
/* output_list.c. Makes the listing of a directory fresh. TREE_E_WAIT with TREE_NOWAIT. */
int store_refresh(struct output *o, struct node *dir, enum store_want want,
		  unsigned int flags);
/* output_list.c. The child of that name, from memory where that is fresh, and held.
 * -ENOENT. */
int store_lookup(struct output *o, uint64_t parent, const char *name, unsigned int flags,
		 struct node **out);
/* output_look.c. The object's own mode, owner, time. TREE_E_WAIT with TREE_NOWAIT. */
int store_attributes(struct output *o, struct node *n, unsigned int flags);
/* Lock held. While a listing runs, keys that are deleted stay claimed. */
void store_listing_begin(struct output *o);
void store_listing_end(struct output *o);
/* Lock held: nodes of what the store holds; NULL when there is no memory or the path is too
 * long. A directory without an object of its own; a file. */
struct node *store_new_dir(struct output *o, struct node *dir, const char *name);
struct node *store_new_file(struct output *o, struct node *dir, const char *name,
			    const char *key, const struct origin_attr *attr);
/* Lock held: the directory has an object of its own, and keeps one wherever it goes. */
int store_take_marker(struct output *o, struct node *dir, const char *key,
		      const struct origin_attr *attr);
/* Lock held: what a listing or an answer says of the node's object. */
void store_take_attributes(struct output *o, struct node *n, const struct origin_attr *a);

/* ---- output_source.c: with the lock held ----------------------------------------------- */

/* The source that an unclaimed key belongs to; NULL: it belongs to the path it spells. */
struct source *source_of_key(struct output *o, const char *key);
/* What would have its keys without it. */
struct source *source_around(struct output *o, const struct source *s);
bool source_is_home(const struct source *s);
/* The source because of which nothing may be put at the key yet, or NULL: an object that
 * is there may belong to another path. */
struct source *source_blocks(struct output *o, const char *key);
/* The source because of which a request may not put anything at the key yet, or NULL: as
 * above, or because the store has real directories and this would be one. */
struct source *source_in_the_way(struct output *o, const char *key);
/* Whether keys below the prefix belong to a source of a longer one. */
bool source_is_below(struct output *o, const char *prefix);
/* -EBUSY: too many. */
int source_add(struct output *o, struct node *n, const char *prefix);
void source_drop(struct output *o, struct source *s);
void source_drop_all(struct output *o, struct node *n);
int source_prefixes(struct output *o, const struct node *dir, struct prefixes *p);
void prefixes_fini(struct prefixes *p);
bool prefixes_equal(const struct prefixes *a, const struct prefixes *b);
/* What is the directory's by its path becomes its wherever it goes. Changes nothing yet. */
int source_keep(struct output *o, struct node *dir);
/* Forgets sources that say nothing new. */
void source_come_home(struct output *o, struct node *dir);

/* ---- output_walk.c --------------------------------------------------------------------- */

int walk_start(struct output *o);
void walk_stop(struct output *o);
/* Lock held: a node that was found away from its path is ours to move from now on. */
void walk_own(struct output *o, struct buf *b, struct node *n);
/* Lock held: the node counts among those that are to be moved, or does not any more. */
void walk_count(struct output *o, struct node *n, bool counted);

/* ---- output_fetch.c: without the lock -------------------------------------------------- */

/* Lock held: what an answer says beyond the listing of the object that we know. */
void store_learn(struct node *n, const struct origin_attr *a);
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

/* How many names have left the directory, before it is asked for one that is to be made. */
uint32_t name_departures(struct output *o, uint64_t parent);
/* A new file of that name with the staged file `c` (taken on success), open once. -EEXIST.
 * NAME_AGAIN: since those departures, it may have been made, stored and forgotten. */
enum {
	NAME_AGAIN = 2 /* beside TREE_E_WAIT */
};
int name_create(struct output *o, uint64_t parent, const char *name, mode_t mode,
		struct output_owner owner, uint32_t departures, struct content *c,
		struct node **out);

int name_check(const char *name); /* whether it can be one: -EINVAL, -ENAMETOOLONG */
/* The node of that number, held; takes the lock. -ESTALE. */
int name_hold(struct output *o, uint64_t ino, struct node **out);

/* Steps of a change of names, with the lock held, for output_rename.c, too. */

/* Whether the store can hold it where it is: what it cannot is refused before anything is
 * acknowledged. */
int name_check_key(const struct output *o, const struct node *n);
/* A request may have put an object at the key of a node at or below `top`, or may yet,
 * without our being told: a lost answer, a crash. Before the path leaves the key, what may
 * be there becomes garbage; when the answer comes after all, the node takes it back. */
int name_leave_traces(struct output *o, struct buf *b, struct node *top);
/* A directory that exists only because of what is in it must not vanish with that. */
void name_keep_dir(struct output *o, struct buf *b, struct node *dir);
/* The node has no name in `dir` any more; what the store holds of it is to vanish. The
 * caller commits, then puts `*drop`. */
void name_remove(struct output *o, struct buf *b, struct node *n, struct node *dir,
		 struct content **drop);
void name_touch(struct node *dir); /* its times are now */
/* Appends what was gathered and remembers up to where `n` has to be synced. */
int name_commit(struct output *o, struct buf *b, struct node *n);

/* ---- output_plan.c: with the lock held ------------------------------------------------- */

enum sync_op {
	SYNC_NONE,  /* the store is as desired */
	SYNC_LATER, /* something else has to happen first */
	SYNC_BLOCKED, /* … a renamed directory's objects have to be known: source_in_the_way() */
	SYNC_CONTENT, /* send the acknowledged version */
	SYNC_SMALL,   /* send a marker or a link */
	SYNC_COPY,    /* move the object: copy, then the old key is garbage */
	SYNC_META,    /* attributes: copy onto itself */
	SYNC_DELETE,
	SYNC_FETCH,   /* bring the content home: its key is in someone's way */
	SYNC_FILL,    /* … what a sparse content lacks of it */
	SYNC_RELEASE, /* … give up its object, for the bytes are here; no request */
	SYNC_FINISH,  /* complete an upload that was superseded but may be complete */
	SYNC_ABANDON, /* give up an unfinished multipart upload */
	SYNC_AHEAD,   /* parts of what is still being written; never planned */
	SYNC_OP_N
};
const char *sync_op_name(enum sync_op op);
enum sync_op plan_node(struct output *o, struct node *n,
		       char key[static PATH_KEY_MAX + 1]);
/* Whether it has lost its name and is open, and its object is all there is of it. */
bool plan_is_missed(const struct node *n);
/* Whether bytes of its contents are only in the object that it has in the store. */
bool plan_needs_object(const struct node *n);
bool plan_is_barred(struct output *o, const char *key); /* no file can be there now */
/* Whether the journal must know the node, by its own state. */
bool plan_is_dirty(const struct node *n);
/* Whether the version that is to be published may yet be changed, by writers out of sight:
 * it is not sent before content_publish() has made it a copy. */
bool plan_lacks_copy(const struct node *n);
/* Whether all that is left to do is to delete its object. */
bool plan_is_doomed(const struct node *n);

/* ---- output_sync.c --------------------------------------------------------------------- */

int sync_start(struct output *o);
void sync_stop(struct output *o);
/* Lock held: something about the node may need doing. */
void sync_queue(struct output *o, struct node *n);
void sync_move(struct output *o, struct node *n, enum node_queue queue);
/* Lock held: the object of that key, if there is one, is to vanish. */
int sync_make_garbage(struct output *o, struct buf *b, const char *key);
void sync_unblock(struct output *o); /* lock held: a source has gone */
void sync_kick(struct output *o);    /* lock held: forget all waiting times */
void sync_landed(struct output *o);  /* lock held: a task ended; wakes who cares */
void sync_cancel(struct output *o, struct node *n);    /* lock held */
bool sync_key_busy(struct output *o, const char *key); /* lock held */
/* Lock held: which attributes (enum output_set) the store need not be told, now: the time of
 * an object that is appended to is that of the last append. */
unsigned int sync_untold(const struct node *n);
/* Lock held: bytes of `c` that the request in flight sends. */
uint64_t sync_task_uses(const struct node *n, const struct content *c);
/* Nodes that something is to be done about, in flight or not: every one once. Lock held. */
void sync_each(struct output *o, bool (*fn)(void *arg, struct node *n), void *arg);

/* ---- output_watch.c -------------------------------------------------------------------- */

int watch_start(struct output *o);
void watch_stop(struct output *o); /* o->stopping is set */
/* Lock held: the first opens it for writing, the last one is gone. */
void watch_open(struct output *o, struct node *n, uint64_t now);
void watch_close(struct output *o, struct node *n);

/* ---- output_ahead.c: with the lock held ------------------------------------------------- */

/* Sends what an open file has of whole parts behind its writer. Returns where what was
 * written in sequence and may be left alone ends; 0: it is no large file. */
uint64_t ahead_look(struct output *o, struct node *n);
/* As above, also the last whole parts: a version is about to be made. */
void ahead_flush(struct output *o, struct node *n);
/* Something about the file has changed: parts that fly may be the last, or useless. */
void ahead_review(struct output *o, struct node *n);
void ahead_cancel(struct output *o, struct node *n);
/* Whether parts of it fly. */
bool ahead_is_busy(const struct node *n);
/* The version is about to be sent to `key`: what was sent ahead becomes a part of that, at
 * this key or the one it was begun for, or is given up. n->ahead is not NULL. */
void ahead_take(struct output *o, struct node *n, const char *key);
/* Whether the object that n->resume has become lacks attributes of the file. */
bool ahead_lacks_attributes(const struct output *o, const struct node *n);
void ahead_forget(struct node *n); /* at the end of all */

/* ---- output_detour.c: with the lock held ------------------------------------------------ */

/* Whether parts of the node's file were sent ahead to the key, so that it needs a claim
 * before the path changes. */
bool detour_may_begin(const struct node *n, const char *key);
/* The node's path, `key` until now, is about to change: its upload goes on to there if enough
 * of it was sent. The key has a claim. */
void detour_begin(struct output *o, struct node *n, const char *key);
/* The upload was one ahead, begun before the path changed, and is n->resume now. */
void detour_take_ahead(struct output *o, struct node *n);
/* Whether the key is still kept for the node's upload. */
bool detour_keeps(struct output *o, const struct node *n, const char *key);
/* After the journal has been replayed. */
void detour_restore(struct output *o, struct node *n);
/* Whether n->resume is to go on although its key is not that of the path. */
bool detour_is_on(struct output *o, const struct node *n);
/* Whether an upload may yet make an object at the key of this garbage, and needs it. */
bool detour_is_near(struct output *o, const struct node *keeper);
void detour_end(struct node *n); /* of either node; when the claim changes */
