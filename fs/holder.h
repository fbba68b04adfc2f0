/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that outlives a mount's daemon. It keeps the connection to the kernel open,
 * starts the daemon, and when that dies starts another one on the same connection: what
 * programs wait for is answered by the new one. It has no thread, asks no store, and does
 * nothing but wait.
 */
#pragma once

struct config;

/* In the place of serve_run(). Returns the exit code when the mount is gone: the last
 * daemon's own, or EXIT_PENDING when it died. */
int holder_run(const struct config *config, int report);
