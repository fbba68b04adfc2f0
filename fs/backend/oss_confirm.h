/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Was it a success after all? A request whose answer was lost, or came without a checksum,
 * may have done its work: look at the object before saying so. Internal to oss_*.c.
 */
#pragma once

struct oss_op;

/*
 * Fill op->confirm (crc64, etag, size) first. Asks for the object's header. It is what was
 * sent: the request ends with 0 and req->attr filled. It is not, or is not there: with
 * `original` and the sentence that stands in req->why now. The question fails: with
 * `original` too, unless that failure says more (-EACCES, -EKEYEXPIRED).
 * Returns OSS_E_AGAIN.
 */
int oss_confirm(struct oss_op *op, int original);
