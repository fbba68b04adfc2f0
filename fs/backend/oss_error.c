/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_error.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct row {
	const char *code;
	struct oss_error_meaning meaning;
} rows[] = {
	{"NoSuchKey", {-ENOENT, OSS_ERROR_PLAIN}},
	{"NoSuchBucket", {-ENOENT, OSS_ERROR_PLAIN}},
	{"NoSuchUpload", {-ENOENT, OSS_ERROR_PLAIN}},
	{"NoSuchVersion", {-ENOENT, OSS_ERROR_PLAIN}},
	{"SymlinkTargetNotExist", {-ENOENT, OSS_ERROR_PLAIN}},
	{"PreconditionFailed", {-ESTALE, OSS_ERROR_PLAIN}},
	{"PositionNotEqualToLength", {-ESTALE, OSS_ERROR_PLAIN}},
	{"FileAlreadyExists", {-EEXIST, OSS_ERROR_PLAIN}},
	{"BucketAlreadyExists", {-EEXIST, OSS_ERROR_PLAIN}},
	{"BucketNotEmpty", {-ENOTEMPTY, OSS_ERROR_PLAIN}},
	{"FileImmutable", {-EROFS, OSS_ERROR_PLAIN}},
	{"ObjectNotAppendable", {-ENOTSUP, OSS_ERROR_PLAIN}},
	{"NotImplemented", {-ENOTSUP, OSS_ERROR_PLAIN}},
	{"OperationNotSupported", {-ENOTSUP, OSS_ERROR_PLAIN}},
	{"MethodNotAllowed", {-ENOTSUP, OSS_ERROR_PLAIN}},
	{"EntityTooLarge", {-EFBIG, OSS_ERROR_PLAIN}},
	{"TooManyBuckets", {-ENOSPC, OSS_ERROR_PLAIN}},
	{"InvalidObjectState", {-EIO, OSS_ERROR_PLAIN}}, /* archived, not restored */
	{"InvalidRange", {-EINVAL, OSS_ERROR_PLAIN}},
	/* Damage on the way: what arrived is not what was sent. */
	{"InvalidDigest", {-EBADMSG, OSS_ERROR_PLAIN}},
	{"InvalidCRC64", {-EBADMSG, OSS_ERROR_PLAIN}},
	{"IncompleteBody", {-EBADMSG, OSS_ERROR_PLAIN}},
	{"RequestTimeout", {-EAGAIN, OSS_ERROR_PLAIN}},
	{"BadRequest", {-EAGAIN, OSS_ERROR_PLAIN}},
	{"MirrorFailed", {-EAGAIN, OSS_ERROR_PLAIN}},
	{"AccessDenied", {-EACCES, OSS_ERROR_PLAIN}},
	{"SignatureDoesNotMatch", {-EACCES, OSS_ERROR_PLAIN}},
	{"InvalidAccessKeyId", {-EACCES, OSS_ERROR_CREDENTIALS}},
	{"InvalidSecurityToken", {-EACCES, OSS_ERROR_CREDENTIALS}},
	{"SecurityTokenExpired", {-EACCES, OSS_ERROR_CREDENTIALS}},
	{"AccessKeyIdAndSecurityTokenNotMatch", {-EACCES, OSS_ERROR_CREDENTIALS}},
	{"RequestTimeTooSkewed", {-EAGAIN, OSS_ERROR_SKEW}},
	{"QpsLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"TotalQpsLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"MetaOperationQpsLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"ActiveRequestLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"CpuLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"DownloadTrafficRateLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
	{"UploadTrafficRateLimitExceeded", {-EAGAIN, OSS_ERROR_THROTTLED}},
};

static struct oss_error_meaning meaning_of_status(int status)
{
	static const struct oss_error_meaning throttled = {-EAGAIN, OSS_ERROR_THROTTLED};
	static const struct oss_error_meaning refused = {-EACCES, OSS_ERROR_CREDENTIALS};
	struct oss_error_meaning plain = {-EIO, OSS_ERROR_PLAIN};

	switch (status) {
	case 400:
	case 411:
		plain.errno_value = -EINVAL;
		break;
	case 401:
		return refused;
	case 403:
		plain.errno_value = -EACCES;
		break;
	case 404:
		plain.errno_value = -ENOENT;
		break;
	case 405:
	case 501:
		plain.errno_value = -ENOTSUP;
		break;
	case 412:
		plain.errno_value = -ESTALE;
		break;
	case 413:
		plain.errno_value = -EFBIG;
		break;
	case 416:
		plain.errno_value = -EINVAL;
		break;
	case 408:
	case 424:
		plain.errno_value = -EAGAIN;
		break;
	case 429:
	case 503:
		return throttled;
	default: /* a redirect is never followed: -EIO */
		if (status >= 500)
			plain.errno_value = -EAGAIN;
	}
	return plain;
}

struct oss_error_meaning oss_error_meaning(int status, const char *code)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strcmp(code, rows[i].code) == 0)
			return rows[i].meaning;
	return meaning_of_status(status);
}
