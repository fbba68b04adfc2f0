/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a slow store must do: the one table of the data path.
 *
 * A request is data: an operation, its arguments, its results. An origin has one entry
 * point that takes a request and, later and on any thread, calls its `done` exactly once.
 * Layers (retry, trace, fault) are origins that hold another one: they look at the
 * request, pass it on, and look again when it is done.
 *
 * Keys are relative to the source ("oss://bucket/prefix" + key), never start with '/', and
 * are bytes, not text; at most PATH_KEY_MAX of them. Keys of one source sort by unsigned
 * bytes. A directory is a prefix: "a/b/". An object whose key ends in '/' marks a directory
 * that may be empty. Origins that have real directories (file, nfs) create parents as
 * needed and remove what they created when it empties, so that all origins look alike:
 * STAT and GET of "a" do not find the directory "a/", STAT of "a/" finds its marker only.
 *
 * A symbolic link is an object with S_IFLNK in its mode; its content is the target, and
 * GET gives it. Origins never follow links, neither to an object nor on the way to it.
 *
 * Ownership: everything a request points to is the caller's and stays untouched until
 * `done`. The request itself may be freed or submitted again inside `done`: layers leave
 * layer[] zero behind, stores set every result that belongs to the operation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/base/err.h"

#define ORIGIN_ETAG_MAX 128 /* with the quotes removed, NUL included */
#define ORIGIN_UPLOAD_ID_MAX 256
#define ORIGIN_REQUEST_ID_MAX 64
#define ORIGIN_CONTENT_TYPE_MAX 128
#define ORIGIN_TO_END UINT64_MAX
#define ORIGIN_PART_COUNT_MAX 10000
#define ORIGIN_PART_SIZE_MAX (5ull << 30)
#define ORIGIN_KEY_COUNT_MAX 1000 /* of one DELETE_MANY */

enum origin_op {
	/* Does the source answer, and may we use it? No arguments. */
	ORIGIN_PROBE,
	/* key, [if_match], [want_meta] -> attr. */
	ORIGIN_STAT,
	/* key, off, len > 0, [if_match], sink -> attr (of the whole object), received. A
	 * range that reaches past the end is cut; one that starts at or past it delivers
	 * nothing and succeeds (attr may be empty then). What attr says of a CRC-64 is there
	 * before the first byte. */
	ORIGIN_GET,
	/* key = prefix ("" or any bytes), list.* -> entries through list.entry in byte
	 * order, list.truncated, list.next. An entry is a key or, unless recursive, a common
	 * prefix "a/"; `after` and `until` compare with the entry itself, so that "a/" as
	 * `after` skips all below it. The marker equal to the prefix is an entry like
	 * any other. No such prefix: success without entries. */
	ORIGIN_LIST,
	/* key, body, [meta], [if_none_match], [expect_crc64] -> attr.etag, .crc64, .size.
	 * Atomic: readers see the old or the new object. */
	ORIGIN_PUT,
	/* key, body, off = length the object must have (0 creates it), [meta when creating]
	 * -> off = new length, attr.etag, .crc64 of the whole. Another length is -ESTALE,
	 * with off = the real one. An object that cannot be appended to is -ENOTSUP. */
	ORIGIN_APPEND,
	/* key <- source, [if_match of the source], [meta; NULL keeps the source's]
	 * -> attr.etag. The same key for both replaces the meta in place. */
	ORIGIN_COPY,
	/* key; a key that is not there is success. */
	ORIGIN_DELETE,
	/* keys, key_count <= ORIGIN_KEY_COUNT_MAX, [keys_gone]; what is not there is success.
	 * 0 means that every one of them is gone; after a failure keys_gone says which are. */
	ORIGIN_DELETE_MANY,
	/* key, [meta], [size; 0: not known yet] -> upload_id_result. */
	ORIGIN_MULTI_BEGIN,
	/* key, upload_id, part, body, off = offset in the object -> part_result. The same
	 * part again replaces it. Parts may come in any order and in parallel. */
	ORIGIN_MULTI_PART,
	/* key, upload_id, part, source, off (in source), len, target_off, [if_match of the
	 * source] -> part_result. */
	ORIGIN_MULTI_COPY,
	/* key, upload_id, parts (part_results, ascending, without gaps in the object),
	 * part_count, size, [if_none_match], [expect_crc64] -> attr.etag, .crc64, .size. */
	ORIGIN_MULTI_END,
	/* key, upload_id; one that is not there is success. */
	ORIGIN_MULTI_ABORT,
	/* key = prefix, list.after, .count_max -> unfinished uploads through list.entry:
	 * attr.etag is the upload id, attr.mtime_ns its start. */
	ORIGIN_MULTI_LIST,
	ORIGIN_OP_N
};
const char *origin_op_name(enum origin_op op);

/* Results a request may end with besides 0 and negative errno values. The errno values
 * have fixed meanings here, and this is the one place where callers may match on them:
 *   -ENOENT      no such key, upload or bucket (why says which)
 *   -ESTALE      if_match did not match, or APPEND: another version is there
 *   -EEXIST      if_none_match, and something is there
 *   -EACCES      the store refuses these credentials or this operation
 *   -EKEYEXPIRED credentials are expired or were refused, and are being renewed
 *   -ETIMEDOUT   the deadline passed
 *   -ECANCELED   origin_cancel()
 *   -EBADMSG     what arrived fails its checksum or length
 *   -EAGAIN      the store asks to slow down or has a passing fault
 *   -ECONNRESET, -ECONNREFUSED, -EHOSTUNREACH   the connection failed
 *   -EINVAL, -ENOTSUP, -EFBIG, -ENOSPC, -EROFS, -EIO   permanent
 */
bool origin_is_transient(int r); /* worth trying again without a change */

struct origin_attr {
	uint64_t size;
	int64_t mtime_ns;           /* LastModified, or x-oss-meta mtime when asked */
	char etag[ORIGIN_ETAG_MAX]; /* version of the content; "": the store has none */
	uint64_t crc64;             /* of the whole object, when has_crc64 */
	bool has_crc64;
	bool is_dir;    /* a common prefix, or a marker "a/" */
	bool has_posix; /* the four below come from the store */
	mode_t mode;    /* with S_IFMT when has_posix */
	uid_t uid;
	gid_t gid;
	bool is_symlink;    /* GET gives the target */
	bool is_appendable; /* STAT, GET: APPEND can extend it; false: unknown, too */
};

/* User metadata that travels with an object: names without "x-oss-meta-", lower case.
 * "mode", "uid", "gid", "mtime" are ossfs's (protocol.md §5.4); an origin with real files
 * applies these to them. */
struct origin_meta {
	const char *const (*pairs)[2]; /* name, value; no CR, LF or NUL */
	size_t count;
	const char *content_type; /* NULL: the origin guesses from the key */
};

/* Bytes to send. Readable any number of times, so that a retry can start over. */
struct origin_body {
	const void *data; /* in memory; or NULL and */
	int fd;           /* a file read with pread from fd_off on; ignored beside data */
	uint64_t fd_off;
	uint64_t len;
};

/* Called in order with successive bytes; never with n == 0. A retry calls it again from
 * `off` of the first byte not yet delivered: nothing is delivered twice. A negative return
 * ends the request with that errno. Runs on the origin's thread: must not block on the
 * network; may write to a local file. */
typedef int (*origin_sink_fn)(void *arg, uint64_t off, const void *data, size_t n);

/* One listed key. `key` is relative to the source; attr->is_dir for common prefixes (key
 * ends in '/'). Negative return ends the listing with that errno. */
typedef int (*origin_entry_fn)(void *arg, const char *key, size_t key_len,
			       const struct origin_attr *attr);

struct origin_part {
	uint32_t number; /* 1-based */
	uint64_t size;
	uint64_t crc64; /* MULTI_PART: summed while the body was read, and compared with
			 * what the store says; MULTI_COPY: the store's word, 0: none */
	char etag[ORIGIN_ETAG_MAX];
};

struct origin_req;
typedef void (*origin_done_fn)(struct origin_req *req);

struct origin_req {
	enum origin_op op;
	const char *key;      /* NUL-terminated */
	const char *source;   /* COPY, MULTI_COPY: the key copied from */
	uint64_t off, len;    /* GET: range; len ORIGIN_TO_END: to the end */
	uint64_t size;        /* MULTI_BEGIN, MULTI_END: of the whole object */
	uint64_t target_off;  /* MULTI_COPY: where the part starts in the new object */
	const char *if_match; /* ETag the object must have; NULL: any */
	bool if_none_match;   /* PUT, MULTI_END: fail with EEXIST instead of replacing */
	bool want_meta;       /* STAT: fill has_posix and friends; may cost a request */
	const struct origin_meta *meta;
	struct origin_body body;
	origin_sink_fn sink;
	void *sink_arg;
	struct {
		const char *after;  /* keys greater than this one; NULL: from the start */
		const char *until;  /* keys less than this one; NULL: to the end */
		bool recursive;     /* false: delimiter '/', common prefixes as dirs */
		uint32_t count_max; /* entries of this call; 0: one page of the store */
		origin_entry_fn entry;
		void *entry_arg;
		bool truncated;  /* result: more follow after `next` */
		char next[1024]; /* result: pass as `after` of the next call */
	} list;
	const char *const *keys; /* DELETE_MANY */
	size_t key_count;
	bool *keys_gone; /* … by key, false before: set for what is surely gone; or NULL */
	const char *upload_id; /* MULTI_PART, MULTI_COPY, MULTI_END, MULTI_ABORT */
	uint32_t part;         /* 1-based */
	const struct origin_part *parts;
	size_t part_count;
	uint64_t expect_crc64; /* PUT, MULTI_END: of the whole object; checked before it
				* becomes visible, -EBADMSG */
	bool has_expect_crc64;
	bool background;      /* nobody waits for it: others' requests go first */
	uint64_t deadline_ms; /* clock_mono_ms(); 0: the origin's own default */
	origin_done_fn done;
	void *user; /* the caller's */

	/* Results, valid in and after done. */
	int result; /* 0 or negative errno, as above */
	struct origin_attr attr;
	struct origin_part part_result;              /* MULTI_PART, MULTI_COPY */
	char upload_id_result[ORIGIN_UPLOAD_ID_MAX]; /* MULTI_BEGIN */
	char request_id[ORIGIN_REQUEST_ID_MAX]; /* the store's name for the exchange */
	uint64_t received;                      /* bytes handed to sink over all tries */
	struct why why;                         /* a sentence when result < 0 */
	uint64_t
		retry_after_ms; /* -EAGAIN by throttling: the pause the store asks for, at
				  * least 1 ms; 0: any other failure */

	/* The layers' own, by enum origin_layer; zero before submit. */
	void *layer[4];
};

/* A layer that wants to see the result puts its own `done` in place of the one it found,
 * and the old one back before it calls that. It never touches `user`. */
enum origin_layer {
	ORIGIN_LAYER_STORE,
	ORIGIN_LAYER_FAULT,
	ORIGIN_LAYER_RETRY,
	ORIGIN_LAYER_TRACE
};

struct origin_stats {
	uint64_t requests[ORIGIN_OP_N];
	uint64_t failures; /* requests that ended with result < 0 */
	uint64_t retries;
	uint64_t bytes_in, bytes_out;
	uint64_t crc_mismatches;
};

enum origin_cap {
	ORIGIN_CAP_MULTI = 1 << 0, /* MULTI_* work */
	ORIGIN_CAP_MULTI_COPY = 1 << 1,
	ORIGIN_CAP_APPEND = 1 << 2,
	ORIGIN_CAP_META = 1 << 3,  /* stores origin_meta */
	ORIGIN_CAP_CRC64 = 1 << 4, /* attr.crc64 is filled by STAT, PUT, MULTI_END */
	ORIGIN_CAP_TREE = 1 << 5,  /* has real directories: with a key "a" there can be
				    * none that starts with "a/" */
};

struct origin;

struct origin_ops {
	const char *name; /* "oss", "file", "mem", "retry", … */
	/* Never blocks for the network. May call done before it returns. */
	void (*submit)(struct origin *o, struct origin_req *req);
	/* Asks a request to end early; done still runs once, and never from within cancel:
	 * layers call it under their lock. May be NULL. Harmless when the request is done
	 * already or was never submitted, but the caller must know that req still exists. */
	void (*cancel)(struct origin *o, struct origin_req *req);
	/* Adds this layer's counters and those below. */
	void (*stats)(struct origin *o, struct origin_stats *stats);
	/* All requests are done. Frees the layers below too. */
	void (*free)(struct origin *o);
};

/* First member of every origin's own struct. */
struct origin {
	const struct origin_ops *ops;
	unsigned int caps;      /* enum origin_cap */
	uint64_t part_size_min; /* smallest part but the last; 0: any */
	/* What keys it can hold, where that is less than the contract above. */
	uint32_t key_max;   /* bytes; 0: PATH_KEY_MAX */
	bool key_is_utf8;   /* well-formed (RFC 3629) only */
	char key_not_first; /* no key begins with this byte; NUL: with any */
	char name[256];     /* "oss://bucket/prefix": for messages and cache identity */
};

/* Whether the arguments keep the contract above: -EINVAL with a sentence. Stores call it
 * first, so that a key taken from somewhere hostile is an error and not a surprise. */
int origin_req_check(const struct origin_req *req, struct why *why);

/* Whether the origin can hold an object of this name: 0, -ENAMETOOLONG, -EILSEQ (not UTF-8)
 * or -EINVAL (begins with what it must not). Asks nobody. */
int origin_key_check(const struct origin *o, const char *key);

void origin_submit(struct origin *o, struct origin_req *req);
void origin_cancel(struct origin *o, struct origin_req *req);
/* For origins: the name from its pieces. One that is too long ends in a checksum of the
 * whole, so that different sources never share a name. */
void origin_set_name(struct origin *o, const char *scheme, const char *rest);

/* For origins: ends the request. A failure without a sentence gets errno's. */
void origin_done(struct origin_req *req, int result);
struct origin *origin_free(struct origin *o); /* takes NULL, returns NULL */
void origin_stats_add(struct origin_stats *to, const struct origin_stats *from);

/* Submits, waits for done, returns req->result. `done` and `user` are overwritten. */
int origin_call(struct origin *o, struct origin_req *req);

/* Pages through a whole listing with origin_call(); entries go to req->list.entry. */
int origin_list_all(struct origin *o, struct origin_req *req);
