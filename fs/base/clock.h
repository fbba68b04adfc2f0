/* SPDX-License-Identifier: Apache-2.0 */
/* Time and randomness, replaceable in tests. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct clock_source {
	uint64_t (*mono_ns)(void); /* never steps; for deadlines and ages */
	int64_t (*real_ns)(void);  /* since 1970; for time stamps and signatures */
	uint64_t (*random)(void);  /* 64 uniform bits, for jitter and names */
};

/* NULL restores the real one. Not while threads run. */
void clock_replace(const struct clock_source *source);

uint64_t clock_mono_ns(void);
uint64_t clock_mono_ms(void);
int64_t clock_real_ns(void);
uint64_t clock_random(void);

/* A file's time as nanoseconds since 1970, and back. What those cannot say, before 1677 and
 * after 2262, is the nearest that they can. */
int64_t clock_from_timespec(struct timespec t);
struct timespec clock_to_timespec(int64_t ns);

/* Full jitter: uniform in [0, min(cap_ms, base_ms * 2^attempt)]. */
uint64_t clock_backoff_ms(unsigned int attempt, uint64_t base_ms, uint64_t cap_ms);

/* Sleeps through signals. */
void clock_sleep_ms(uint64_t ms);
