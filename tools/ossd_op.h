/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations: which request is which, and what it may do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ossd_request;

enum ossd_level {
	OSSD_SERVICE,
	OSSD_BUCKET,
	OSSD_OBJECT
};
enum ossd_body {
	OSSD_BODY_NONE,
	OSSD_BODY_MEMORY,
	OSSD_BODY_SPOOL
};
enum ossd_access {
	OSSD_ACCESS_READ,
	OSSD_ACCESS_WRITE,
	OSSD_ACCESS_OWNER
};

/* 0 and the reply is filled in; or an enum ossd_code or a negative errno, and the error
 * document is the caller's business. May block. */
typedef int (*ossd_op_fn)(struct ossd_request *req);

struct ossd_op {
	const char *name; /* in /stats and in fault rules */
	const char *method;
	enum ossd_level level;
	const char
		*select; /* query parameter, "name=value", or "header:name"; NULL: any */
	enum ossd_body body;
	enum ossd_access access; /* what an anonymous request needs by the ACL */
	ossd_op_fn run;
};

/* The operation of a request; 0, OSSD_E_METHOD_NOT_ALLOWED, OSSD_E_NOT_IMPLEMENTED or
 * OSSD_E_NOT_CONFIGURED. */
int ossd_op_find(const struct ossd_request *req, const struct ossd_op **op);

/* ossd_ops_bucket.c */
int ossd_op_list_buckets(struct ossd_request *req);
int ossd_op_put_bucket(struct ossd_request *req);
int ossd_op_delete_bucket(struct ossd_request *req);
int ossd_op_head_bucket(struct ossd_request *req);
int ossd_op_get_bucket_info(struct ossd_request *req);
int ossd_op_get_bucket_location(struct ossd_request *req);
int ossd_op_get_bucket_stat(struct ossd_request *req);
int ossd_op_get_bucket_acl(struct ossd_request *req);
int ossd_op_put_bucket_acl(struct ossd_request *req);
int ossd_op_get_bucket_versioning(struct ossd_request *req);

/* ossd_ops_list.c */
int ossd_op_list_objects(struct ossd_request *req);
int ossd_op_list_objects_v2(struct ossd_request *req);
int ossd_op_list_versions(struct ossd_request *req);

/* ossd_ops_object.c */
int ossd_op_put_object(struct ossd_request *req);
int ossd_op_append_object(struct ossd_request *req);
int ossd_op_copy_object(struct ossd_request *req);
int ossd_op_delete_object(struct ossd_request *req);
int ossd_op_delete_objects(struct ossd_request *req);
int ossd_op_put_symlink(struct ossd_request *req);
int ossd_op_get_symlink(struct ossd_request *req);

/* ossd_ops_get.c */
int ossd_op_get_object(struct ossd_request *req);
int ossd_op_head_object(struct ossd_request *req);
int ossd_op_get_object_meta(struct ossd_request *req);

/* ossd_ops_attr.c */
int ossd_op_get_object_acl(struct ossd_request *req);
int ossd_op_put_object_acl(struct ossd_request *req);
int ossd_op_get_tagging(struct ossd_request *req);
int ossd_op_put_tagging(struct ossd_request *req);
int ossd_op_delete_tagging(struct ossd_request *req);
int ossd_op_restore(struct ossd_request *req);

/* ossd_ops_upload.c */
int ossd_op_initiate_upload(struct ossd_request *req);
int ossd_op_upload_part(struct ossd_request *req);
int ossd_op_upload_part_copy(struct ossd_request *req);
int ossd_op_complete_upload(struct ossd_request *req);
int ossd_op_abort_upload(struct ossd_request *req);
int ossd_op_list_parts(struct ossd_request *req);
int ossd_op_list_uploads(struct ossd_request *req);
