/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsluice: object storage as directories, without a mount.
 *
 * A handle stands for a source opened for one role:
 *
 *   input   read-only, through a cache on local disk that survives the process and is
 *           shared with others; every byte is verified before it is returned
 *   output  what is written is durable on local disk when sluice_close() or sluice_sync()
 *           returns 0, and is uploaded in the background; sluice_flush() waits for that
 *
 * Paths are relative to the source ("a/b"; "" is the source itself). Functions return 0 or
 * more for success and a negative errno for failure; sluice_error() then has a sentence for
 * what failed last in the calling thread. All functions may be called from any thread; one
 * file must not be used by two at a time.
 *
 *   struct sluice_options o = SLUICE_OPTIONS_INIT;
 *   struct sluice *s;
 *
 *   o.region = "cn-hangzhou";
 *   if (sluice_open_input("oss://data/images", &o, &s) < 0)
 *           errx(1, "%s", sluice_error());
 *   sluice_list(s, "", print_name, NULL);
 *   sluice_done(s);
 *
 * Credentials come from where `sluice mount` takes them (sluice(8), CREDENTIALS).
 * Link with -lsluice; compile with `pkg-config --cflags sluice`.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_API __attribute__((visibility("default")))
#define SLUICE_VERSION 1 /* of this interface */

struct sluice;
struct sluice_file;

/* All strings are borrowed for the call. Zero and NULL mean the default. */
struct sluice_options {
	uint32_t version;        /* SLUICE_VERSION */
	const char *endpoint;    /* address of the store */
	const char *region;      /* of the bucket */
	const char *credentials; /* reference, as --credentials */
	const char *cache_dir;   /* input; default as for a mount */
	const char *state_dir;   /* output; one process at a time */
	uint64_t cache_size;     /* input: bytes on disk at most */
	uint64_t memory;         /* input: bytes of buffers at most; default 256 MiB */
	uint64_t ttl_ms;  /* age that attributes and listings may have; default 60 s */
	int immutable;    /* input: the source never changes */
	int remote;       /* output: sluice_close() waits for the store */
	int verify_whole; /* input: no byte of an object before all of it is known right */
};
#define SLUICE_OPTIONS_INIT                                                              \
	{                                                                                \
		.version = SLUICE_VERSION                                                \
	}

/* Asks the store before it returns. */
SLUICE_API int sluice_open_input(const char *source, const struct sluice_options *options,
				 struct sluice **out);
SLUICE_API int sluice_open_output(const char *source,
				  const struct sluice_options *options,
				  struct sluice **out);

/* All files are closed. What output has not uploaded stays in its state directory for the
 * next one that opens it. Takes NULL. */
SLUICE_API void sluice_done(struct sluice *s);

/* A sentence about the last failure in this thread; "" when there was none. */
SLUICE_API const char *sluice_error(void);

struct sluice_stat {
	uint64_t size;
	int64_t mtime_ns; /* since 1970 */
	mode_t mode;      /* with S_IFDIR, S_IFREG or S_IFLNK */
};
SLUICE_API int sluice_stat(struct sluice *s, const char *path, struct sluice_stat *out);

/* Calls `fn` for each entry of a directory, in no order; a non-zero return ends it and is
 * what sluice_list() returns. */
typedef int (*sluice_list_fn)(void *arg, const char *name,
			      const struct sluice_stat *stat);
SLUICE_API int sluice_list(struct sluice *s, const char *path, sluice_list_fn fn,
			   void *arg);

/* flags as open(2): O_RDONLY; with output also O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_EXCL,
 * O_APPEND. Parents must exist. */
SLUICE_API int sluice_open(struct sluice *s, const char *path, int flags, mode_t mode,
			   struct sluice_file **out);
/* Bytes read: less than `size` only at the end of the file. */
SLUICE_API ssize_t sluice_read(struct sluice_file *file, void *data, size_t size,
			       uint64_t offset);
/* All of it, or an error. */
SLUICE_API int sluice_write(struct sluice_file *file, const void *data, size_t size,
			    uint64_t offset);
SLUICE_API int sluice_sync(struct sluice_file *file);
/* The file is gone afterwards, whatever the result. Takes NULL. */
SLUICE_API int sluice_close(struct sluice_file *file);

/* Output only. */
SLUICE_API int sluice_mkdir(struct sluice *s, const char *path, mode_t mode);
SLUICE_API int sluice_remove(struct sluice *s, const char *path); /* file or empty dir */
SLUICE_API int sluice_rename(struct sluice *s, const char *from, const char *to);

/* Waits until everything closed or synced is verified in the store: 0; 1 when the time is
 * over first (timeout_ms 0: no limit) and something is still pending. */
SLUICE_API int sluice_flush(struct sluice *s, uint64_t timeout_ms);

#ifdef __cplusplus
}
#endif
