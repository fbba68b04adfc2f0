/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The errors of the OSS protocol (protocol.md §6.2), one table; those that only S3 has bear
 * no EC.
 *
 * Throughout ossd a function that returns `int` gives 0, a negative errno (which becomes
 * InternalError and one log line), or a positive enum ossd_code: the one condition that
 * travels from the storage engine up to the reply, because it is the reply.
 */
#pragma once

#include <stddef.h>

struct buf;

/* name, HTTP status, code on the wire, EC, message */
/* clang-format off */
#define OSSD_CODES(X) \
	X(ACCESS_DENIED, 403, "AccessDenied", "0003-00000001", \
	  "You have no right to access this object.") \
	X(ANONYMOUS, 403, "AccessDenied", "0003-00000001", \
	  "You do not have read acl permission on this object.") \
	X(BAD_DIGEST, 400, "InvalidDigest", "0016-00000501", \
	  "The Content-MD5 you specified was invalid.") \
	X(BAD_CRC, 400, "InvalidCRC64", "0016-00000505", \
	  "The x-oss-hash-crc64ecma you specified does not match what we " \
	  "calculated.") \
	X(BAD_REQUEST, 400, "InvalidRequest", "0017-00000001", \
	  "The request is not valid.") \
	X(BUCKET_EXISTS, 409, "BucketAlreadyExists", "0015-00000104", \
	  "The requested bucket name is not available. The bucket " \
	  "namespace is shared by all users of the system. Please select " \
	  "a different name and try again.") \
	X(BUCKET_NOT_EMPTY, 409, "BucketNotEmpty", "0015-00000301", \
	  "The bucket you tried to delete is not empty.") \
	X(ENTITY_TOO_LARGE, 400, "EntityTooLarge", "0016-00000306", \
	  "Your proposed upload exceeds the maximum allowed size.") \
	X(ENTITY_TOO_SMALL, 400, "EntityTooSmall", "0042-00000006", \
	  "Your proposed upload smaller than the minimum allowed size.") \
	X(FILE_EXISTS, 409, "FileAlreadyExists", "0026-00000002", \
	  "The object you specified already exists and can not be " \
	  "overwritten.") \
	X(INTERNAL, 500, "InternalError", "0000-00000001", \
	  "We encountered an internal error. Please try again.") \
	X(INVALID_ARGUMENT, 400, "InvalidArgument", "0017-00000201", \
	  "A parameter is not valid.") \
	X(INVALID_BUCKET_NAME, 400, "InvalidBucketName", "0015-00000001", \
	  "The specified bucket is not valid.") \
	X(INVALID_KEY_ID, 403, "InvalidAccessKeyId", "0002-00000902", \
	  "The OSS Access Key Id you provided does not exist in our " \
	  "records.") \
	X(INVALID_OBJECT_NAME, 400, "InvalidObjectName", "0016-00000101", \
	  "The specified object is not valid.") \
	X(INVALID_OBJECT_STATE, 403, "InvalidObjectState", "0016-00000701", \
	  "The operation is not valid for the object's state") \
	X(INVALID_PART, 400, "InvalidPart", "0042-00000101", \
	  "One or more of the specified parts could not be found or the " \
	  "specified entity tag might not have matched the part's entity " \
	  "tag.") \
	X(INVALID_PART_ORDER, 400, "InvalidPartOrder", "0042-00000102", \
	  "The list of parts was not in ascending order. Parts list must " \
	  "specified in order by part number.") \
	X(INVALID_RANGE, 416, "InvalidRange", "0024-00000001", \
	  "The requested range cannot be satisfied.") \
	X(INVALID_TAG, 400, "InvalidTag", "0016-00000401", \
	  "The tag you specified is invalid.") \
	X(INVALID_TARGET_TYPE, 400, "InvalidTargetType", "0026-00000013", \
	  "The symbolic's target file type is invalid") \
	X(INVALID_TOKEN, 403, "InvalidSecurityToken", "0002-00000806", \
	  "The security token you provided is invalid.") \
	X(MALFORMED_AUTH, 400, "AuthorizationHeaderMalformed", "", \
	  "The authorization header you provided is invalid.") \
	X(MALFORMED_QUERY_AUTH, 400, "AuthorizationQueryParametersError", "", \
	  "The signature parameters of the URL are invalid.") \
	X(MALFORMED_XML, 400, "MalformedXML", "0031-00000001", \
	  "The XML you provided was not well-formed or did not validate " \
	  "against our published schema.") \
	X(METHOD_NOT_ALLOWED, 405, "MethodNotAllowed", "0017-00000301", \
	  "The specified method is not allowed against this resource.") \
	X(MISSING_ARGUMENT, 400, "MissingArgument", "0016-00000502", \
	  "Missing Some Required Arguments.") \
	X(MISSING_LENGTH, 411, "MissingContentLength", "0017-00000101", \
	  "You must provide the Content-Length HTTP header.") \
	X(NO_SUCH_BUCKET, 404, "NoSuchBucket", "0015-00000101", \
	  "The specified bucket does not exist.") \
	X(NO_SUCH_KEY, 404, "NoSuchKey", "0026-00000001", \
	  "The specified key does not exist.") \
	X(NO_SUCH_UPLOAD, 404, "NoSuchUpload", "0042-00000002", \
	  "The specified upload does not exist. The upload ID may be " \
	  "invalid, or the upload may have been aborted or completed.") \
	X(NO_SUCH_VERSION, 404, "NoSuchVersion", "0026-00000003", \
	  "The specified version does not exist.") \
	X(NOT_APPENDABLE, 409, "ObjectNotAppendable", "0026-00000010", \
	  "The object is not appendable") \
	X(NOT_CONFIGURED, 404, "NoSuchConfiguration", "0017-00000501", \
	  "The bucket has no such configuration.") \
	X(NOT_IMPLEMENTED, 400, "NotImplemented", "0017-00000401", \
	  "A header or parameter you provided implies functionality that " \
	  "is not implemented.") \
	X(NOT_MODIFIED, 304, "NotModified", "0017-00000601", \
	  "Not modified.") \
	X(NOT_SUPPORTED, 400, "OperationNotSupported", "0016-00000703", \
	  "The operation is not supported for this resource.") \
	X(NOT_SYMLINK, 400, "NotSymlink", "0026-00000014", \
	  "The object you specified is not a symlink.") \
	X(PAYLOAD_HASH, 400, "XAmzContentSHA256Mismatch", "", \
	  "The provided 'x-amz-content-sha256' header does not match what " \
	  "was computed.") \
	X(POSITION, 409, "PositionNotEqualToLength", "0026-00000016", \
	  "Position is not equal to file length") \
	X(PRECONDITION, 412, "PreconditionFailed", "0026-00000005", \
	  "At least one of the pre-conditions you specified did not " \
	  "hold.") \
	X(RESTORE_IN_PROGRESS, 409, "RestoreAlreadyInProgress", "0016-00000702", \
	  "The restore operation is in progress.") \
	X(SIGNATURE, 403, "SignatureDoesNotMatch", "0002-00000040", \
	  "The request signature we calculated does not match the " \
	  "signature you provided. Check your key and signing method.") \
	X(SYMLINK_TARGET, 404, "SymlinkTargetNotExist", "0026-00000012", \
	  "The symlink's target object does not exist") \
	X(TIME_SKEWED, 403, "RequestTimeTooSkewed", "0002-00000504", \
	  "The difference between the request time and the current time " \
	  "is too large.") \
	X(TOKEN_EXPIRED, 403, "SecurityTokenExpired", "0002-00000805", \
	  "The security token you provided has expired.") \
	X(TOKEN_MISMATCH, 403, "AccessKeyIdAndSecurityTokenNotMatch", "0002-00000807", \
	  "The access key id and the security token do not belong " \
	  "together.") \
	X(TOO_MANY_BUCKETS, 400, "TooManyBuckets", "0015-00000201", \
	  "You have attempted to create more buckets than allowed.") \
	X(UNAVAILABLE, 503, "ServiceUnavailable", "0000-00000503", \
	  "Please reduce your request rate.") \
	X(URL_EXPIRED, 403, "AccessDenied", "0002-00000069", \
	  "Request has expired.") \
	X(WRONG_REGION, 403, "AccessDenied", "0003-00001403", \
	  "The bucket you are attempting to access must be addressed " \
	  "using the specified endpoint. Please send all future requests " \
	  "to this endpoint.")

/* clang-format on */
enum ossd_code {
	OSSD_E_NONE,
#define OSSD_CODE_ENUM(name, status, code, ec, message) OSSD_E_##name,
	OSSD_CODES(OSSD_CODE_ENUM)
#undef OSSD_CODE_ENUM
	OSSD_E_N
};

struct ossd_code_info {
	int status;
	const char *code;
	const char *ec;
	const char *message;
};

const struct ossd_code_info *ossd_code_info(int code);

/* What stands in an error document beside the table's entry. Any member may be NULL. */
struct ossd_error_doc {
	const char *message; /* instead of the table's */
	const char *request_id;
	const char *host_id;
	const char *extra; /* further children, as XML text */
};

/* The <Error> document. */
void ossd_error_format(struct buf *out, const struct ossd_code_info *info,
		       const struct ossd_error_doc *doc);
