/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from the instance's metadata service and from a URI (protocol.md §7.1, §7.4).
 * Blocking, bounded by time-outs; no proxy, no redirect, no cookie. Internal to
 * creds_source.c. */
#pragma once

#include "fs/backend/creds_source.h"

/* Of the role; "": the one that is attached. The service stands at 100.100.100.200 or where
 * SLUICE_METADATA_ENDPOINT says. */
int creds_load_role(const char *role, struct creds_reply *out, struct why *why);
int creds_load_uri(const char *url, struct creds_reply *out, struct why *why);

/* Whether asking the metadata service makes sense here: it is configured, or this is an
 * Alibaba Cloud instance. */
bool creds_has_metadata(void);
