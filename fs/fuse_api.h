/* SPDX-License-Identifier: Apache-2.0 */
/* libfuse's low-level API, and what its version can do. The kernel is asked at run time. */
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define FUSE_HAS_PASSTHROUGH 1
#else
#define FUSE_HAS_PASSTHROUGH 0
#endif

/* Whether a write says that it takes set-user-id away; older ones can ask the kernel for that
 * and cannot tell us. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
#define FUSE_HAS_KILL_SUIDGID 1
#else
#define FUSE_HAS_KILL_SUIDGID 0
#endif

/* 3.18 has io_uring, but hangs when replies come from other threads than the ring's;
 * scripts/setup marks a library that was built with the fix. */
#if defined(FUSE_URING_ANY_THREAD) || FUSE_VERSION >= FUSE_MAKE_VERSION(3, 19)
#define FUSE_HAS_URING 1
#else
#define FUSE_HAS_URING 0
#endif

/* Whether a reader that waits over io_uring can be interrupted; marked likewise. */
#ifdef FUSE_URING_INTERRUPT
#define FUSE_HAS_URING_INTERRUPT 1
#else
#define FUSE_HAS_URING_INTERRUPT 0
#endif
