/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials: where they come from, how they stay fresh (protocol.md §7).
 *
 * Static kinds (environment, anonymous) are read once. Kinds that can be read again
 * (files, RAM role, URI) are renewed by one background thread: before they expire, and
 * when the store has refused them. Everybody else uses the old set until it really
 * expires; there is never more than one renewal under way.
 *
 * The secret parts live in pages of their own, locked into memory where the limits allow
 * it and left out of core dumps, and are wiped on close. They are never logged, and no
 * sentence in a struct why holds one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CREDS_ID_MAX 128 /* all with the NUL */
#define CREDS_SECRET_MAX 256
#define CREDS_TOKEN_MAX 4096

struct creds;
struct why;

/* One set that belongs together: take it once for each request and wipe it after signing. */
struct creds_set {
	char id[CREDS_ID_MAX]; /* "": anonymous, do not sign */
	char secret[CREDS_SECRET_MAX];
	char token[CREDS_TOKEN_MAX]; /* "": no security token */
};

void creds_set_wipe(struct creds_set *set);

/*
 * `reference` as in struct backend_config, or NULL for the look-up order: environment,
 * credentials URI, ossutil config, ossfs password files, instance role.
 * Reads the first set and may wait for the network, a few seconds at most. Fails with a
 * sentence that says what to do:
 *   -EINVAL  malformed reference or file      -ENOENT  nothing there, or no file
 *   -EACCES  a file others may read           others   the service did not answer
 */
int creds_open(const char *reference, struct creds **out, struct why *why);
/* The same for one bucket: ossfs password files may have a line of its own for it. */
int creds_open_for(const char *bucket, const char *reference, struct creds **out,
		   struct why *why);

/* Stops the thread, wipes, frees. Takes NULL, returns NULL. */
struct creds *creds_close(struct creds *c);

/*
 * Copies the set to use now. Never blocks on the network. `out` is untouched on failure:
 *   -EKEYEXPIRED  expired or refused, and a renewal is under way: wait for it
 *   -EACCES       the store has refused this set and the source, asked again, still gives
 *                 the same one. Lasts a few seconds; then the set may be tried again, in
 *                 case the account has been set right meanwhile.
 */
int creds_get(struct creds *c, struct creds_set *out);

/* As creds_get() without the copy. */
int creds_ready(struct creds *c);

/*
 * The store has refused this set (InvalidAccessKeyId, SecurityTokenExpired,
 * InvalidSecurityToken, 401). Starts one renewal, however many callers say so. Returns
 * what the request should now end with:
 *   -EKEYEXPIRED  a renewal is under way, or somebody has had one done meanwhile: the
 *                 layer above waits for creds_ready() and tries again
 *   -EACCES       credentials that can never change (environment, anonymous): final
 */
int creds_invalidate(struct creds *c, const struct creds_set *refused);

/* Waits until creds_ready() is not -EKEYEXPIRED, or the deadline (clock_mono_ms()), and
 * returns creds_ready(). */
int creds_wait_refresh(struct creds *c, uint64_t deadline_ms);

/* Calls fn(arg) from the renewing thread, without locks, whenever creds_ready() may have
 * changed. One watcher; NULL takes it away, and no call is under way after that. */
typedef void (*creds_watch_fn)(void *arg);
void creds_watch(struct creds *c, creds_watch_fn fn, void *arg);

/* Whether requests go out unsigned. */
bool creds_is_anonymous(const struct creds *c);
/* For status: "environment", "file /etc/passwd-ossfs", "RAM role at http://…", …. Lives as
 * long as `c`. */
const char *creds_describe(const struct creds *c);
/* Seconds until the set expires; INT64_MAX: never; negative: it has. */
int64_t creds_remaining_s(struct creds *c);
