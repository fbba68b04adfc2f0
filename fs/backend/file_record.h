/* SPDX-License-Identifier: Apache-2.0 */
/* The records of uploads in parts: FILE_UPLOADS/ID holds the key and the metadata, each text
 * ended by NUL. Internal to the file: origin. */
#pragma once

#include "fs/backend/file_impl.h"
#include "fs/base/buf.h"

/* The id names files: nothing but what we gave out may pass. */
bool file_upload_id_ok(const char *id);
void file_upload_draft_name(const char *id, char out[64]);

int file_record_write(const struct file_origin *f, const struct origin_req *req,
		      const char *id);
/* The key, as a string at b->data; its metadata behind it. */
int file_record_read(const struct file_origin *f, const char *id, struct buf *b);
void file_record_remove(const struct file_origin *f, const char *id);
void file_record_posix(const struct buf *b, struct file_posix *out);
