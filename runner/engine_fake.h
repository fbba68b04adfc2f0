/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that runs nothing: it records every call and plays the ends it was told. For
 * tests of everything above the engine.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct engine;

struct engine *engine_fake_new(void);

/* The container with this name exits with `status` delay_ms after its start. Without a
 * script it runs until it is signalled. */
void engine_fake_exits(struct engine *e, const char *name, int status, uint64_t delay_ms);
void engine_fake_oom(struct engine *e, const char *name, uint64_t delay_ms);

/* SIGTERM does not end it; SIGKILL does. */
void engine_fake_ignores_term(struct engine *e, const char *name);

/* The next call of `op` ("create", "start" …) for this name fails with `error`. */
void engine_fake_fails(struct engine *e, const char *op, const char *name, int error);

/* The calls so far: "op name" lines, as a new string. */
char *engine_fake_calls(struct engine *e);

/* The environment that `name` was created with, "NAME=value" lines, as a new string. */
char *engine_fake_env(struct engine *e, const char *name);
