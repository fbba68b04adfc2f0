/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a request between its headers and its reply. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ossd_request;

/* With the headers there, before any of the body: parses the target, finds the operation and
 * the faults, checks signature and permission, opens the spool. False: the reply is filled
 * in already, and the body is of no interest. */
bool ossd_dispatch_begin(struct ossd_request *req, const char *raw_target);

/* Bytes of the body. False as above. */
bool ossd_dispatch_body(struct ossd_request *req, const char *data, size_t n);

/* With the body there: runs the operation and fills in the reply. */
void ossd_dispatch_run(struct ossd_request *req);

/* Headers that every reply has. */
void ossd_dispatch_finish(struct ossd_request *req);
