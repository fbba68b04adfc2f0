/* SPDX-License-Identifier: Apache-2.0 */
/* Times as the protocol writes them. Milliseconds since 1970, UTC. Pure. */
#pragma once

#include <stdint.h>

#define OSSD_TIME_SIZE 40

/* Into `out` of OSSD_TIME_SIZE bytes; they return it. */
char *ossd_time_iso(char *out, int64_t ms);  /* 2012-02-24T08:43:07.000Z */
char *ossd_time_http(char *out, int64_t ms); /* Fri, 24 Feb 2012 08:43:07 GMT */

/* RFC 1123 date of a header. -EINVAL. */
int ossd_time_parse_http(const char *text, int64_t *ms);
/* "20231216T162057Z". -EINVAL. */
int ossd_time_parse_basic(const char *text, int64_t *ms);
