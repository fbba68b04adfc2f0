/* SPDX-License-Identifier: Apache-2.0 */
/* Inside fs/ops_output*.c: the operations on open files and directories. */
#pragma once

#include "fs/fuse_api.h"

void ops_file_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_file_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		      struct fuse_file_info *fi);
void ops_file_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi);
void ops_file_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_file_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only,
		       struct fuse_file_info *fi);
void ops_file_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		     struct fuse_file_info *fi);
void ops_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_file_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi);
void ops_file_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size,
		    off_t off, struct fuse_file_info *fi);
void ops_file_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_file_fsync(fuse_req_t req, fuse_ino_t ino, int data_only,
		    struct fuse_file_info *fi);
void ops_file_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void ops_file_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
			struct fuse_file_info *fi);
void ops_file_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		    struct fuse_file_info *fi);
