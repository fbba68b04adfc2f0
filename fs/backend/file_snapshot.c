/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/file_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

#define KEPT_MS 30000       /* between two pages of one listing */
#define KEPT_COUNT_MIN 256  /* a smaller directory is read again */
#define STALE_DRAFT_S 86400 /* a draft this old belongs to nobody */

static void snapshot_free(struct file_snapshot *s)
{
	free(s->text);
	free(s->names);
	free(s);
}

const char *file_snapshot_name(const struct file_snapshot *s, size_t i)
{
	return s->text + s->names[i];
}

size_t file_snapshot_lower_bound(const struct file_snapshot *s, const char *name)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(file_snapshot_name(s, middle), name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int compare(const void *a, const void *b, void *text)
{
	return strcmp((char *)text + *(const size_t *)a,
		      (char *)text + *(const size_t *)b);
}

static int add(struct file_snapshot *s, const char *name, bool is_dir)
{
	size_t n = strlen(name);

	if (s->text_room - s->text_len < n + 2) {
		size_t room = s->text_room ? s->text_room * 2 : 4096;
		char *grown = realloc(s->text, room);

		if (!grown)
			return err_origin(-ENOMEM);
		s->text = grown;
		s->text_room = room;
	}
	if (s->count == s->room) {
		size_t room = s->room ? s->room * 2 : 256;
		size_t *grown = reallocarray(s->names, room, sizeof(*grown));

		if (!grown)
			return err_origin(-ENOMEM);
		s->names = grown;
		s->room = room;
	}
	s->names[s->count++] = s->text_len;
	memcpy(s->text + s->text_len, name, n);
	s->text_len += n;
	if (is_dir)
		s->text[s->text_len++] = '/';
	s->text[s->text_len++] = '\0';
	return 0;
}

/* A put that was killed leaves its draft. Uploads in parts have a record and stay. */
static void remove_stale_draft(const struct file_origin *f, int dir_fd, const char *name)
{
	struct stat st;

	if (f->read_only || strlen(name) != strlen(FILE_TMP_PREFIX) + FILE_ID_LEN ||
	    fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return;
	if (clock_real_ns() / INT64_C(1000000000) - st.st_mtim.tv_sec > STALE_DRAFT_S)
		unlinkat(dir_fd, name, 0);
}

static int read_entry(const struct file_origin *f, struct file_snapshot *s, DIR *dir,
		      const struct dirent *entry)
{
	const char *name = entry->d_name;
	unsigned char type = entry->d_type;
	struct stat st;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (!strncmp(name, FILE_TMP_PREFIX, strlen(FILE_TMP_PREFIX))) {
		remove_stale_draft(f, dirfd(dir), name);
		return 0;
	}
	if (type == DT_UNKNOWN) {
		if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		type = IFTODT(st.st_mode);
	}
	if (type != DT_REG && type != DT_DIR && type != DT_LNK)
		return 0;
	return add(s, name, type == DT_DIR);
}

static int read_dir(const struct file_origin *f, int fd, struct file_snapshot *s)
{
	_cleanup_(closedirp) DIR *dir = fdopendir(fd);
	struct dirent *entry;
	int r = 0;

	if (!dir) {
		close(fd);
		return err_origin(file_error(errno));
	}
	for (errno = 0; r == 0 && (entry = readdir(dir)); errno = 0)
		r = read_entry(f, s, dir, entry);
	if (r == 0 && errno)
		r = err_origin(file_error(errno));
	if (r == 0 && s->count)
		qsort_r(s->names, s->count, sizeof(*s->names), compare, s->text);
	return err_trace(r);
}

/* ---- copies between two pages --------------------------------------------------------- */

static struct file_snapshot *take_kept_locked(struct file_origin *f, const char *path,
					      const struct stat *st)
{
	for (int i = 0; i < FILE_SNAPSHOT_COUNT; i++) {
		struct file_snapshot *s = f->snapshots[i];

		if (!s || strcmp(s->path, path) != 0 || s->st.st_ino != st->st_ino ||
		    clock_mono_ms() - s->used_ms > KEPT_MS ||
		    memcmp(&s->st.st_mtim, &st->st_mtim, sizeof(st->st_mtim)) != 0)
			continue;
		s->used_ms = clock_mono_ms();
		s->refs++;
		return s;
	}
	return NULL;
}

static void put_locked(struct file_snapshot *s)
{
	if (--s->refs == 0)
		snapshot_free(s);
}

static void keep_locked(struct file_origin *f, struct file_snapshot *s)
{
	int slot = FILE_SNAPSHOT_COUNT - 1;

	for (int i = 0; i < FILE_SNAPSHOT_COUNT; i++) {
		if (f->snapshots[i] && !strcmp(f->snapshots[i]->path, s->path))
			slot = i;
	}
	if (f->snapshots[slot])
		put_locked(f->snapshots[slot]);
	memmove(&f->snapshots[1], &f->snapshots[0],
		(size_t)slot * sizeof(f->snapshots[0]));
	f->snapshots[0] = s;
	s->refs++;
}

void file_snapshots_drop(struct file_origin *f, const char *prefix)
{
	lock_scope(&f->lock);
	for (int i = 0; i < FILE_SNAPSHOT_COUNT; i++) {
		struct file_snapshot *s = f->snapshots[i];

		if (!s || (strncmp(s->path, prefix, strlen(prefix)) != 0 &&
			   strncmp(s->path, prefix, strlen(s->path)) != 0))
			continue;
		put_locked(s);
		f->snapshots[i] = NULL;
	}
}

int file_snapshot_get(struct file_origin *f, const char *path, bool go_on,
		      struct file_snapshot **out)
{
	struct file_snapshot *s;
	_cleanup_(close_fdp) int fd = file_open_beneath(f, path, O_RDONLY | O_DIRECTORY);
	struct stat st;
	int r;

	if (fd < 0)
		return err_trace(fd);
	if (fstat(fd, &st) < 0)
		return err_origin(file_error(errno));
	if (go_on) {
		lock_take(&f->lock);
		*out = take_kept_locked(f, path, &st);
		lock_drop(&f->lock);
		if (*out)
			return 0;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_origin(-ENOMEM);
	strcpy(s->path, path);
	s->st = st;
	s->refs = 1;
	s->used_ms = clock_mono_ms();
	r = read_dir(f, steal_fd(&fd), s);
	if (r < 0) {
		snapshot_free(s);
		return err_trace(r);
	}
	*out = s;
	lock_scope(&f->lock);
	if (s->count >= KEPT_COUNT_MIN)
		keep_locked(f, s);
	return 0;
}

void file_snapshot_put(struct file_origin *f, struct file_snapshot *s)
{
	lock_scope(&f->lock);
	put_locked(s);
}
