/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one function over hostile bytes; it asserts properties, not only that
 * nothing crashes. replay.c runs it over a corpus; libFuzzer makes the corpus grow. */
#pragma once

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
