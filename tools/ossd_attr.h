/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of an object: taken from request headers, given back as reply headers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ossd_bucket;
struct ossd_object;
struct ossd_request;

#define OSSD_META_MAX (8 * 1024) /* bytes of all x-oss-meta-*, names and values */

/* Content headers, metadata, tags, ACL and storage class. Without Content-Type the key's
 * extension tells. 0, OSSD_E_INVALID_ARGUMENT or OSSD_E_INVALID_TAG. */
int ossd_attrs_take(struct ossd_request *req, const struct ossd_bucket *bucket,
		    struct ossd_object *o);

/* What GET and HEAD show: attributes, ETag, CRC, type, times. */
void ossd_attrs_show(struct ossd_request *req, const struct ossd_object *o);

/* Restoring of archived objects: readable OSSD_RESTORE_MS after it was asked for, for a day.
 * The attribute holds the milliseconds since 1970 when it is done. Pure. */
#define OSSD_RESTORE_ATTR "x-oss-restore-done"
#define OSSD_RESTORE_MS 1000
enum ossd_restore {
	OSSD_RESTORE_NONE,
	OSSD_RESTORE_RUNNING,
	OSSD_RESTORE_DONE
};
enum ossd_restore ossd_restore_state(const struct ossd_object *o, int64_t now_ms);

/* Whether the request forbids to replace an object. */
bool ossd_attrs_forbid_overwrite(const struct ossd_request *req);
