/* SPDX-License-Identifier: Apache-2.0 */
/* Going to the background: the caller waits until the child says how it went. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct why;

/* Before any thread starts. In the child: 0, and *report is where to say how it went. In
 * the parent: DAEMON_E_PARENT once the child has said it or died, *code and `why` filled. */
enum {
	DAEMON_E_PARENT = 1
};
int daemon_fork(int *report, int *code, struct why *why);

/* The child's one word: code 0 means it serves. Closes `report`; -1 is allowed. */
void daemon_report(int report, int code, const struct why *why);

/* From now on the log goes to `path` (mode 0600), as do the standard descriptors; a session
 * of its own. A log over 64 MiB becomes PATH.1, whichever process that writes to it sees it
 * first; the others follow with their next line. */
int daemon_detach(const char *path, struct why *why);
/* Opens `path` anew: after something renamed it. */
void daemon_reopen_log(const char *path);

/* No core files, no tracing by other processes of this user: memory holds secrets. Signals
 * that would end us silently are ignored. As many descriptors as the process may have. */
void daemon_harden(void);
