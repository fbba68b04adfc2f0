/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of an object: taken from request headers, given back as reply headers. */
#pragma once

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

/* Whether the request forbids to replace an object. */
_Bool ossd_attrs_forbid_overwrite(const struct ossd_request *req);
