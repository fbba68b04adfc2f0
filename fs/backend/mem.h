/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object store in memory: "mem:", and what tests run against.
 *
 * It behaves as OSS does and is strict: a request that breaks the contract of
 * cache/origin.h is an assertion, not an error. `done` runs inside submit. Objects made by
 * PUT cannot be appended to. `part_size_min` of the origin may be set before the first
 * request and is enforced from then on.
 */
#pragma once

struct origin;

int mem_origin_new(struct origin **out);
