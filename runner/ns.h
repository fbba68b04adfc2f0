/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel namespaces held by nothing but descriptors: no file, no name, no process. When the
 * runner dies they are gone with it (and with the containers inside), so there is never
 * one to clean up.
 */
#pragma once

struct why;

/*
 * Runs `fn` on a thread of its own whose file system attributes are not shared: it may
 * unshare() and setns() as it likes, the rest of the process does not notice. Returns what fn
 * returns. All signals are blocked in it.
 */
int ns_call(int (*fn)(void *arg), void *arg) __attribute__((warn_unused_result));

/* Inside ns_call: unshares `flag` (CLONE_NEWNET, CLONE_NEWNS) and stays in the new one.
 * Returns a descriptor of it, or a negative errno. */
int ns_enter_new(int flag);
