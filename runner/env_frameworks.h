/* SPDX-License-Identifier: Apache-2.0 */
/* The environment that each framework expects. Private to env*.c. */
#pragma once

#include "runner/env.h"

/* Replaces an earlier value. */
void env_put(struct env *env, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

void env_put_framework(const struct spec *spec, const struct env_task *task,
		       struct env *env);
