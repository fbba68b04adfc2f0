/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Content type that a key's extension tells; "application/octet-stream" when none. Pure. */
const char *ossd_mime_type(const char *key, size_t n);
