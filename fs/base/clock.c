/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/clock.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "fs/base/check.h"

#define NS_PER_S INT64_C(1000000000)

static uint64_t real_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t real_real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_from_timespec(struct timespec t)
{
	const int64_t limit = INT64_MAX / NS_PER_S - 1;

	if (t.tv_sec > limit)
		return limit * NS_PER_S;
	if (t.tv_sec < -limit)
		return -limit * NS_PER_S;
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

struct timespec clock_to_timespec(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

	if (t.tv_nsec < 0) {
		t.tv_sec--;
		t.tv_nsec += NS_PER_S;
	}
	return t;
}

static uint64_t real_random(void)
{
	uint64_t r;

	/* Up to 256 bytes getrandom never comes back short once the pool is ready. */
	while (getrandom(&r, sizeof(r), 0) < 0)
		check(errno == EINTR);
	return r;
}

static const struct clock_source real_source = {real_mono_ns, real_real_ns, real_random};
static const struct clock_source *source = &real_source;

void clock_replace(const struct clock_source *other)
{
	source = other ? other : &real_source;
}

uint64_t clock_mono_ns(void)
{
	return source->mono_ns();
}

uint64_t clock_mono_ms(void)
{
	return source->mono_ns() / 1000000;
}

int64_t clock_real_ns(void)
{
	return source->real_ns();
}

uint64_t clock_random(void)
{
	return source->random();
}

uint64_t clock_backoff_ms(unsigned int attempt, uint64_t base_ms, uint64_t cap_ms)
{
	uint64_t limit = base_ms;

	while (attempt-- && limit < cap_ms)
		limit *= 2;
	if (limit > cap_ms)
		limit = cap_ms;
	return limit ? clock_random() % (limit + 1) : 0;
}

void clock_sleep_ms(uint64_t ms)
{
	struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}
