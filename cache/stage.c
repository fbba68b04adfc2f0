/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States of a content: live (references > 0) → doomed (none left, waits for the journal)
 * → gone. A failed sync makes it dead, which is no state of its life: it can still be read
 * as far as the page cache goes, and is removed like any other.
 *
 * A file that the journal never named may go back to `spares` when its content goes, and is
 * cut to nothing when it is taken again: to make and remove a file costs more than to write
 * a small one. One that was passed through may still be mapped by a program, which outlives
 * its last close: it is taken only if a lease shows that nobody else has it open.
 *
 * On close: what is doomed and not yet durable-forgotten stays on disk; the next start
 * sweeps it.
 */
#include "cache/stage_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache/kill_point.h"
#include "cache/patch.h"
#include "fs/base/check.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

#define DISK_RESERVE (64u << 20)
#define SPACE_AGE_MS 200 /* how old an answer of statvfs() may be */
#define ID_NAME_MAX 24
#define CARRY_TOTAL_MAX (64u << 20)
#define SPARES_MAX 64
#define IDLE_SHARE                                                                       \
	16 /* of the descriptors we may have: for spares, and for what is doomed */

static void id_name(char out[static ID_NAME_MAX], uint64_t id)
{
	snprintf(out, ID_NAME_MAX, "%016llx", (unsigned long long)id);
}

/* Descriptors that files may keep which nobody uses. */
static int idle_max(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur / IDLE_SHARE > INT_MAX)
		return INT_MAX;
	return (int)(files.rlim_cur / IDLE_SHARE);
}

int stage_new(const struct stage_config *config, struct stage **out)
{
	struct stage *s = calloc(1, sizeof(*s));

	if (!s)
		return err_origin(-ENOMEM);
	s->config = *config;
	if (s->config.disk_reserve == 0)
		s->config.disk_reserve = DISK_RESERVE;
	if (s->config.carry_max == 0)
		s->config.carry_max = CARRY_TOTAL_MAX;
	lock_init(&s->lock);
	list_init(&s->doomed);
	list_init(&s->spares);
	s->idle_max = idle_max();
	s->spares_max = s->idle_max < SPARES_MAX ? s->idle_max : SPARES_MAX;
	s->next_id = 1;
	*out = s;
	return 0;
}

static void content_free(struct content *c)
{
	if (c->fd >= 0)
		close(c->fd);
	free(c->bytes);
	patch_free(atomic_load(&c->patch));
	free(c);
}

struct stage *stage_free(struct stage *s)
{
	struct list *it, *next;

	if (!s)
		return NULL;
	list_for_each_safe (it, next, &s->doomed)
		content_free(container_of(it, struct content, doomed));
	check(!s->contents && s->carried == 0);
	list_for_each_safe (it, next, &s->spares)
		content_free(container_of(it, struct content, doomed));
	lock_fini(&s->lock);
	free(s);
	return NULL;
}

static struct content *content_new(struct stage *s, uint64_t id, int fd)
{
	struct content *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->stage = s;
	c->id = id;
	c->fd = fd;
	c->references = 1;
	list_init(&c->doomed);
	return c;
}

/* The file goes, and so does what the next process would need of it. */
static void drop_patch(struct content *c)
{
	struct patch *patch = atomic_exchange(&c->patch, NULL);

	if (patch)
		patch_unkeep(patch);
	patch_free(patch);
}

/* Whether nobody else has the file open or mapped. */
static bool is_alone(int fd)
{
	return fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

/* Cuts the file to nothing by an open of its own, which sets its times as making it would.
 * File systems take a file that was cut and closed for one that replaces its old self, and
 * write it out at the close: let that be this one, when there is nothing to write. */
static bool empty_file(struct stage *s, const struct content *c)
{
	char name[ID_NAME_MAX];
	int fd;

	id_name(name, c->id);
	fd = openat(s->config.dirfd, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && close(fd) == 0;
}

/* Its file is to be removed. To close it may cost what to write it does, which is for
 * nothing, so that is left to whoever removes it; but not with all descriptors there are. */
static void doom(struct stage *s, struct content *c)
{
	lock_assert_held(&s->lock);
	if (c->fd >= 0 && s->doomed_open == s->idle_max) {
		close(c->fd);
		c->fd = -1;
	}
	s->doomed_open += c->fd >= 0;
	list_push_back(&s->doomed, &c->doomed);
}

/* A file that was used before, empty again. */
static struct content *take_spare(struct stage *s)
{
	struct content *c;

	lock_take(&s->lock);
	c = s->spare_count > 0 ? list_first(&s->spares, struct content, doomed) : NULL;
	if (c) {
		list_remove(&c->doomed);
		s->spare_count--;
	}
	lock_drop(&s->lock);
	if (!c)
		return NULL;
	if (is_alone(c->fd) && empty_file(s, c)) {
		c->references = 1;
		c->small = false;
		drop_patch(c);
		return c;
	}
	lock_scope(&s->lock);
	doom(s, c);
	return NULL;
}

static int make_file(struct stage *s, struct content **out)
{
	struct content *c = content_new(s, 0, -1);
	char name[ID_NAME_MAX];

	if (!c)
		return err_origin(-ENOMEM);
	lock_take(&s->lock);
	c->id = s->next_id++;
	lock_drop(&s->lock);
	id_name(name, c->id);
	c->fd = openat(s->config.dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
		       0600);
	if (c->fd < 0) {
		int r = err_origin(-errno);

		free(c);
		return r;
	}
	lock_scope(&s->lock);
	c->number = ++s->created; /* now that the name is there for stage_sync_names() */
	*out = c;
	return 0;
}

int stage_create(struct stage *s, struct content **out)
{
	struct content *c = take_spare(s);
	int r = c ? 0 : make_file(s, &c);

	if (r < 0)
		return err_trace(r);
	c->pins = 1;
	lock_scope(&s->lock);
	HASH_ADD(hh, s->contents, id, sizeof(c->id), c);
	*out = c;
	return 0;
}

int stage_carry(struct stage *s, char *bytes, size_t n, bool must, struct content **out)
{
	struct content *c = content_new(s, 0, -1);

	if (!c)
		return err_origin(-ENOMEM);
	lock_take(&s->lock);
	if (s->carried + n > s->config.carry_max && !must) {
		lock_drop(&s->lock);
		free(c);
		return -ENOBUFS; /* not worth a trace: a file does as well */
	}
	s->carried += n;
	lock_drop(&s->lock);
	c->bytes = bytes;
	c->size = n;
	content_count(c, n);
	*out = c;
	return 0;
}

const char *content_carried(const struct content *c)
{
	return c->bytes;
}

void content_spare(struct content *c)
{
	lock_scope(&c->stage->lock);
	c->small = true;
}

void content_record(struct content *c)
{
	struct stage *s = c->stage;

	lock_scope(&s->lock);
	c->recorded = true;
	if (s->named < c->number)
		s->named = c->number;
}

int stage_adopt(struct stage *s, uint64_t id, uint64_t size, struct content **out)
{
	char name[ID_NAME_MAX];
	_cleanup_(close_fdp) int fd = -1;
	struct content *c;
	struct stat st;

	id_name(name, id);
	lock_scope(&s->lock);
	if (id >= s->next_id)
		s->next_id = id + 1;
	HASH_FIND(hh, s->contents, &id, sizeof(id), c);
	if (c) {
		c->references++;
		*out = c;
		return 0;
	}
	fd = openat(s->config.dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_origin(-errno);
	if (size == STAGE_WHOLE)
		size = (uint64_t)st.st_size;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < size)
		return err_origin(-EBADMSG);
	if ((uint64_t)st.st_size > size && ftruncate(fd, (off_t)size) < 0)
		return err_origin(-errno);
	c = content_new(s, id, -1);
	if (!c)
		return err_origin(-ENOMEM);
	c->recorded = true;
	HASH_ADD(hh, s->contents, id, sizeof(c->id), c);
	*out = c;
	if ((uint64_t)st.st_blocks * 512 < size)
		size = (uint64_t)st.st_blocks * 512;
	content_count(c, size);
	return 0;
}

int stage_take_over(struct stage *s, uint64_t id, struct content **out)
{
	struct patch *patch = NULL;
	char name[ID_NAME_MAX];
	struct stat st;
	int r = 0;

	id_name(name, id);
	/* Before the content is ours: put back, it would take its file along. */
	if (s->config.patches)
		r = patch_take_over(s->config.patches, id, &patch);
	if (r == 0 && fstatat(s->config.dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = err_origin(-errno);
	if (r == 0)
		r = stage_adopt(s, id, STAGE_WHOLE, out);
	if (r < 0) {
		patch_free(patch);
		return err_trace(r);
	}
	(*out)->taken_over = true;
	if (!patch)
		return 0;
	/* It may have been cut and not said so yet. */
	patch_cut(patch, (uint64_t)st.st_size);
	atomic_store(&(*out)->patch, patch);
	return 0;
}

bool stage_has_taken_over(struct stage *s, uint64_t id)
{
	struct content *c;

	lock_scope(&s->lock);
	HASH_FIND(hh, s->contents, &id, sizeof(id), c);
	return c && c->taken_over;
}

static int sweep_one(struct stage *s, const char *name, uint64_t id, bool keep)
{
	char to[ID_NAME_MAX + 16];
	struct stat st;

	if (fstatat(s->config.dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_origin(-errno);
	if (!keep || st.st_size == 0) {
		log_debug(LOG_JOURNAL,
			  "staged file was never acknowledged id=%llu size=%lld",
			  (unsigned long long)id, (long long)st.st_size);
		return unlinkat(s->config.dirfd, name, 0) < 0 ? err_origin(-errno) : 0;
	}
	snprintf(to, sizeof(to), "%.16s.stage", name);
	log_error("staged file belongs to no record size=%lld quarantine=%s",
		  (long long)st.st_size, to);
	return renameat(s->config.dirfd, name, s->config.quarantine_fd, to) < 0
		       ? err_origin(-errno)
		       : 0;
}

int stage_sweep(struct stage *s, bool keep)
{
	int copy = openat(s->config.dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	int count = 0;

	if (!dir) {
		int r = -errno;

		if (copy >= 0)
			close(copy);
		return err_origin(r);
	}
	lock_scope(&s->lock);
	while ((e = readdir(dir))) {
		struct content *c;
		char *end;
		uint64_t id = strtoull(e->d_name, &end, 16);

		if (strlen(e->d_name) != 16 || *end)
			continue;
		if (id >= s->next_id)
			s->next_id = id + 1;
		HASH_FIND(hh, s->contents, &id, sizeof(id), c);
		if (!c && sweep_one(s, e->d_name, id, keep) == 0)
			count++;
	}
	return count;
}

struct content *content_get(struct content *c)
{
	lock_scope(&c->stage->lock);
	check(c->references > 0);
	c->references++;
	return c;
}

bool stage_is_laden(struct stage *s)
{
	lock_scope(&s->lock);
	return s->carried > s->config.carry_max / 2;
}

bool stage_has_spare(struct stage *s)
{
	lock_scope(&s->lock);
	return s->spare_count > 0;
}

/* Keeps a content and its file for another use. Lock held. */
static bool make_spare(struct stage *s, struct content *c)
{
	if (c->recorded || c->fd < 0 || !c->small || s->spare_count >= s->spares_max ||
	    atomic_load(&c->dead))
		return false;
	s->spare_count++;
	list_push_back(&s->spares, &c->doomed);
	return true;
}

struct content *content_put(struct content *c, uint64_t after)
{
	struct stage *s;

	if (!c)
		return NULL;
	s = c->stage;
	lock_scope(&s->lock);
	check(c->references > 0);
	if (c->after < after)
		c->after = after;
	if (--c->references > 0)
		return NULL;
	check(c->pins == 0);
	if (c->bytes) {
		s->carried -= c->size;
		content_count(c, 0);
		content_free(c);
		return NULL;
	}
	HASH_DEL(s->contents, c);
	if (make_spare(s, c)) {
		content_count(c, 0);
		return NULL;
	}
	if (!c->recorded)
		c->after = 0;
	doom(s, c);
	return NULL;
}

uint64_t content_id(const struct content *c)
{
	return c->id;
}

int content_pin(struct content *c)
{
	struct stage *s = c->stage;
	char name[ID_NAME_MAX];

	/* The open is under the lock: local, rare, and it keeps one descriptor a file. */
	lock_scope(&s->lock);
	check(c->references > 0);
	if (c->fd < 0 && !c->bytes) {
		id_name(name, c->id);
		c->fd = openat(s->config.dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		if (c->fd < 0)
			return err_origin(-errno);
	}
	c->pins++;
	return 0;
}

void content_unpin(struct content *c)
{
	lock_scope(&c->stage->lock);
	check(c->pins > 0);
	/* A file that has no record goes back to the spares with its descriptor. */
	if (--c->pins == 0 && c->recorded && c->fd >= 0) {
		close(c->fd);
		c->fd = -1;
	}
}

int content_fd(struct content *c)
{
	return c->fd;
}

int content_sync(struct content *c)
{
	struct patch_sync sync = {0};
	int r;

	if (atomic_load(&c->dead))
		return err_origin(-EIO);
	r = c->patch ? patch_sync_begin(c->patch, &sync) : 0;
	if (r < 0)
		return err_trace(r);
	kill_point("stage.fsync.before");
	r = fdatasync(c->fd) < 0 ? err_origin(-errno) : 0;
	if (c->patch)
		patch_sync_end(c->patch, &sync, r == 0);
	if (r < 0) {
		/* Even ENOSPC from a sync means pages were dropped. */
		atomic_store(&c->dead, true);
		log_error("sync of a staged file failed id=%llu error=%s",
			  (unsigned long long)c->id, strerror(-r));
		return err_trace(r);
	}
	kill_point("stage.fsync.after");
	return 0;
}

int content_check(struct content *c)
{
	int r;

	if (atomic_load(&c->dead))
		return err_origin(-EIO);
	if (sync_file_range(c->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) == 0 ||
	    errno == ESPIPE || errno == ENOSYS || errno == EINVAL)
		return 0;
	r = err_origin(-errno);
	atomic_store(&c->dead, true);
	log_error("a staged file could not be written id=%llu error=%s",
		  (unsigned long long)c->id, strerror(-r));
	return r;
}

bool content_is_dead(struct content *c)
{
	return atomic_load(&c->dead);
}

int stage_sync_names(struct stage *s)
{
	uint64_t upto;
	int r;

	lock_take(&s->lock);
	upto = s->created;
	r = s->synced >= s->named;
	lock_drop(&s->lock);
	if (r)
		return 0;
	r = io_fsync_dir(s->config.dirfd);
	if (r < 0)
		return err_trace(r);
	lock_scope(&s->lock);
	if (s->synced < upto)
		s->synced = upto;
	return 0;
}

int stage_reap(struct stage *s, uint64_t durable)
{
	struct list ready = LIST_INIT(ready);
	struct list *it, *next;
	int count = 0;

	lock_take(&s->lock);
	list_for_each_safe (it, next, &s->doomed) {
		struct content *c = container_of(it, struct content, doomed);

		if (c->after > durable)
			continue;
		list_remove(it);
		s->doomed_open -= c->fd >= 0;
		list_push_back(&ready, it);
	}
	s->reaping++;
	lock_drop(&s->lock);
	list_for_each_safe (it, next, &ready) {
		struct content *c = container_of(it, struct content, doomed);
		char name[ID_NAME_MAX];

		id_name(name, c->id);
		kill_point("stage.unlink");
		content_count(c, 0);
		drop_patch(c);
		if (unlinkat(s->config.dirfd, name, 0) < 0 && errno != ENOENT)
			log_warn("staged file cannot be removed id=%llu error=%s",
				 (unsigned long long)c->id, strerror(errno));
		content_free(c);
		count++;
	}
	if (count > 0)
		stage_look_again(s);
	lock_scope(&s->lock);
	s->reaping--;
	return count;
}

bool stage_has_doomed(struct stage *s)
{
	lock_scope(&s->lock);
	return !list_empty(&s->doomed) || s->reaping > 0;
}

void stage_look_again(struct stage *s)
{
	atomic_store(&s->space_ms, 0);
}

void content_count(struct content *c, uint64_t size)
{
	uint64_t before = atomic_exchange(&c->counted, size);

	atomic_fetch_add(&c->stage->used, (int64_t)(size - before));
}

void content_grow(struct content *c, uint64_t size)
{
	uint64_t before = atomic_load(&c->counted);

	while (size > before) {
		if (atomic_compare_exchange_weak(&c->counted, &before, size)) {
			atomic_fetch_add(&c->stage->used, (int64_t)(size - before));
			return;
		}
	}
}

uint64_t stage_used(struct stage *s)
{
	int64_t used = atomic_load(&s->used);

	return used > 0 ? (uint64_t)used : 0;
}

static uint64_t disk_available(struct stage *s)
{
	uint64_t now = clock_mono_ms() + 1, then;
	struct statvfs st;
	int64_t since;

	if (atomic_load(&s->space_ms) + SPACE_AGE_MS <= now) {
		if (fstatvfs(s->config.dirfd, &st) < 0)
			return 0;
		atomic_store(&s->used_then, atomic_load(&s->used));
		atomic_store(&s->available, (uint64_t)st.f_bavail * st.f_frsize);
		atomic_store(&s->space_ms, now);
	}
	/* Memory is filled faster than that is asked for. */
	then = atomic_load(&s->available);
	since = atomic_load(&s->used) - atomic_load(&s->used_then);
	if (since <= 0)
		return then;
	return then > (uint64_t)since ? then - (uint64_t)since : 0;
}

void stage_space(struct stage *s, uint64_t *total, uint64_t *available)
{
	uint64_t disk = disk_available(s), used = stage_used(s);
	uint64_t left = disk > s->config.disk_reserve ? disk - s->config.disk_reserve : 0;

	if (s->config.size_max > 0) {
		uint64_t own = s->config.size_max > used ? s->config.size_max - used : 0;

		if (own < left)
			left = own;
	}
	*available = left;
	*total = s->config.size_max > 0 ? s->config.size_max : left + used;
}

bool stage_has_room(struct stage *s, uint64_t n)
{
	uint64_t total, available;

	stage_space(s, &total, &available);
	return n <= available;
}
