/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory back to the system. The C library keeps what is freed between what is not, and a heap
 * for each of several threads: a directory of 50,000 names that is listed twice would take
 * twice what it needs, for ever. In a process that is not all ours (libsluice) nothing is done.
 */
#pragma once

/* The process is ours. Before threads start. */
void heap_own(void);

/* Much has been freed. Takes milliseconds, in which others wait for memory; no lock held. */
void heap_trim(void);
