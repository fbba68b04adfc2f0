/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_op.h"

#include <stdio.h>
#include <string.h>

#include "tools/ossd_code.h"
#include "tools/ossd_request.h"

#define S OSSD_SERVICE
#define B OSSD_BUCKET
#define O OSSD_OBJECT
#define NONE OSSD_BODY_NONE
#define MEMORY OSSD_BODY_MEMORY
#define SPOOL OSSD_BODY_SPOOL
#define READ OSSD_ACCESS_READ
#define WRITE OSSD_ACCESS_WRITE
#define OWNER OSSD_ACCESS_OWNER

/* The first row that fits is taken: selected ones stand before the plain one. */
static const struct ossd_op ops[] = {
	{"GetService", "GET", S, NULL, NONE, OWNER, ossd_op_list_buckets},

	{"PutBucketAcl", "PUT", B, "acl", MEMORY, OWNER, ossd_op_put_bucket_acl},
	{"PutBucket", "PUT", B, NULL, MEMORY, OWNER, ossd_op_put_bucket},
	{"DeleteBucket", "DELETE", B, NULL, NONE, OWNER, ossd_op_delete_bucket},
	{"DeleteMultipleObjects", "POST", B, "delete", MEMORY, WRITE,
	 ossd_op_delete_objects},
	{"HeadBucket", "HEAD", B, NULL, NONE, READ, ossd_op_head_bucket},
	{"GetBucketInfo", "GET", B, "bucketInfo", NONE, READ, ossd_op_get_bucket_info},
	{"GetBucketLocation", "GET", B, "location", NONE, OWNER,
	 ossd_op_get_bucket_location},
	{"GetBucketStat", "GET", B, "stat", NONE, OWNER, ossd_op_get_bucket_stat},
	{"GetBucketAcl", "GET", B, "acl", NONE, OWNER, ossd_op_get_bucket_acl},
	{"GetBucketVersioning", "GET", B, "versioning", NONE, OWNER,
	 ossd_op_get_bucket_versioning},
	{"ListMultipartUploads", "GET", B, "uploads", NONE, READ, ossd_op_list_uploads},
	{"ListObjectVersions", "GET", B, "versions", NONE, READ, ossd_op_list_versions},
	{"ListObjectsV2", "GET", B, "list-type=2", NONE, READ, ossd_op_list_objects_v2},
	{"ListObjects", "GET", B, NULL, NONE, READ, ossd_op_list_objects},

	{"PutObjectAcl", "PUT", O, "acl", MEMORY, OWNER, ossd_op_put_object_acl},
	{"PutObjectTagging", "PUT", O, "tagging", MEMORY, OWNER, ossd_op_put_tagging},
	{"PutSymlink", "PUT", O, "symlink", MEMORY, WRITE, ossd_op_put_symlink},
	{"UploadPart", "PUT", O, "uploadId", SPOOL, WRITE, ossd_op_upload_part},
	{"CopyObject", "PUT", O, "header:x-oss-copy-source", MEMORY, WRITE,
	 ossd_op_copy_object},
	{"PutObject", "PUT", O, NULL, SPOOL, WRITE, ossd_op_put_object},
	{"GetObjectAcl", "GET", O, "acl", NONE, OWNER, ossd_op_get_object_acl},
	{"GetObjectTagging", "GET", O, "tagging", NONE, OWNER, ossd_op_get_tagging},
	{"GetSymlink", "GET", O, "symlink", NONE, READ, ossd_op_get_symlink},
	{"ListParts", "GET", O, "uploadId", NONE, READ, ossd_op_list_parts},
	{"GetObjectMeta", "GET", O, "objectMeta", NONE, READ, ossd_op_get_object_meta},
	{"GetObject", "GET", O, NULL, NONE, READ, ossd_op_get_object},
	{"GetObjectMeta", "HEAD", O, "objectMeta", NONE, READ, ossd_op_get_object_meta},
	{"HeadObject", "HEAD", O, NULL, NONE, READ, ossd_op_head_object},
	{"AppendObject", "POST", O, "append", SPOOL, WRITE, ossd_op_append_object},
	{"InitiateMultipartUpload", "POST", O, "uploads", MEMORY, WRITE,
	 ossd_op_initiate_upload},
	{"CompleteMultipartUpload", "POST", O, "uploadId", MEMORY, WRITE,
	 ossd_op_complete_upload},
	{"RestoreObject", "POST", O, "restore", MEMORY, OWNER, ossd_op_restore},
	{"AbortMultipartUpload", "DELETE", O, "uploadId", NONE, WRITE,
	 ossd_op_abort_upload},
	{"DeleteObjectTagging", "DELETE", O, "tagging", NONE, OWNER,
	 ossd_op_delete_tagging},
	{"DeleteObject", "DELETE", O, NULL, NONE, WRITE, ossd_op_delete_object},
};

/* UploadPart with a source: the same selector decides, then this. */
static const struct ossd_op part_copy = {
	"UploadPartCopy", "PUT", O, "uploadId", MEMORY, WRITE, ossd_op_upload_part_copy};

/* Parameters that choose an operation. One that the chosen row does not know means another
 * operation than this server has: never a plain GET or PUT. */
static const char *const selectors[] = {
	"accessPoint",
	"accessPointPolicy",
	"acl",
	"append",
	"asyncFetch",
	"bucketArchiveDirectRead",
	"bucketInfo",
	"callback",
	"cloudboxes",
	"cname",
	"comp",
	"cors",
	"delete",
	"encryption",
	"group",
	"httpsConfig",
	"img",
	"inventory",
	"lifecycle",
	"link",
	"live",
	"location",
	"logging",
	"metaQuery",
	"objectInfo",
	"objectMeta",
	"overwriteConfig",
	"policy",
	"policyStatus",
	"publicAccessBlock",
	"qos",
	"qosInfo",
	"redundancyTransition",
	"referer",
	"regionList",
	"regions",
	"replication",
	"replicationLocation",
	"replicationProgress",
	"requestPayment",
	"requesterQosInfo",
	"resourceGroup",
	"resourcePool",
	"responseHeader",
	"restore",
	"rtc",
	"seal",
	"stat",
	"style",
	"symlink",
	"tagging",
	"transferAcceleration",
	"udf",
	"uploadId",
	"uploads",
	"versioning",
	"versions",
	"vod",
	"website",
	"worm",
	"x-oss-async-process",
	"x-oss-batchGet",
	"x-oss-delete",
	"x-oss-dir",
	"x-oss-process",
	"x-oss-rename",
};

/* Configurations that no bucket here has; their GET says so with a code of its own. */
static const char *const configurations[] = {
	"cors",    "encryption",  "inventory", "lifecycle", "logging", "policy",
	"referer", "replication", "tagging",   "website",   "worm",
};

static bool listed(const char *const *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(list[i], name))
			return true;
	return false;
}

static bool selected(const struct ossd_request *req, const char *select)
{
	const char *equals, *value;
	char name[32];

	if (!select)
		return true;
	if (!strncmp(select, "header:", 7))
		return ossd_request_header(req, select + 7) != NULL;
	equals = strchr(select, '=');
	if (!equals)
		return ossd_request_query(req, select) != NULL;
	snprintf(name, sizeof(name), "%.*s", (int)(equals - select), select);
	value = ossd_request_query(req, name);
	return value && !strcmp(value, equals + 1);
}

/* Whether a parameter asks for something that the operation is not. */
static int check_selectors(const struct ossd_request *req, const struct ossd_op *op)
{
	for (size_t i = 0; i < req->target.query_count; i++) {
		const char *name = req->target.query[i].name;

		if (op->select && !strcmp(name, op->select))
			continue;
		if (!listed(selectors, sizeof(selectors) / sizeof(*selectors), name))
			continue;
		for (size_t k = 0; k < sizeof(ops) / sizeof(*ops); k++)
			if (ops[k].select && ops[k].level == op->level &&
			    !strcmp(ops[k].select, name))
				return OSSD_E_METHOD_NOT_ALLOWED;
		if (op->level == B && !strcmp(op->method, "GET") &&
		    listed(configurations,
			   sizeof(configurations) / sizeof(*configurations), name))
			return OSSD_E_NOT_CONFIGURED;
		return OSSD_E_NOT_IMPLEMENTED;
	}
	return 0;
}

int ossd_op_find(const struct ossd_request *req, const struct ossd_op **op)
{
	enum ossd_level level = req->target.key.len ? O : req->target.bucket[0] ? B : S;

	*op = NULL;
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops) && !*op; i++)
		if (ops[i].level == level && !strcmp(ops[i].method, req->method) &&
		    selected(req, ops[i].select))
			*op = &ops[i];
	if (!*op)
		return OSSD_E_METHOD_NOT_ALLOWED;
	if ((*op)->run == ossd_op_upload_part &&
	    ossd_request_header(req, "x-oss-copy-source"))
		*op = &part_copy;
	return check_selectors(req, *op);
}
