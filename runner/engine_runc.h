/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded engine: runc, and nothing that runs in the background. engine_free() kills
 * the containers that are left; their traces stay for remove(). */
#pragma once

struct engine;
struct why;

int engine_runc_open(struct engine **out, struct why *why)
	__attribute__((warn_unused_result));
