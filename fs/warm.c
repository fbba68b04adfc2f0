/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: waiting -> running -> done | cancelled | failed. One at a time runs, on WARM_LOOKERS
 * threads that take the lines of its file in turn, look the names up and hand objects to
 * ahead.c, at most WARM_OUTSTANDING_MAX at a time.
 *
 * Failure modes: a name that is not there, a file that fails: counted, the first few named,
 * the job goes on. The object was replaced since it was listed: looked up again. The store
 * fails FAILURES_MAX times in a row, or refuses: the job fails.
 * On close: jobs are cancelled, objects under way come back first.
 * Threads: WARM_LOOKERS; `done` on ahead's. All under `lock` but what is marked.
 */
#include "fs/warm_impl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache.h"
#include "cache/fetch.h"
#include "cache/origin.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/json.h"
#include "fs/base/log.h"

#define JOBS_MAX 16 /* kept, over or not */
#define CANCEL_MS 50

static const char *const state_names[] = {"waiting", "running", "done", "cancelled",
					  "failed"};
_Static_assert(sizeof(state_names) / sizeof(*state_names) == WARM_N, "state names");

static bool over(const struct warm_job *j)
{
	return j->state >= WARM_DONE;
}

static void job_free(struct warm_job *j)
{
	struct warm_mark *m, *next;

	while (!list_empty(&j->trees)) {
		struct warm_tree *tree = list_first(&j->trees, struct warm_tree, link);

		list_remove(&tree->link);
		free(tree);
	}

	HASH_ITER (hh, j->marks_by_hash, m, next) {
		HASH_DEL(j->marks_by_hash, m);
		free(m);
	}
	if (j->fd >= 0)
		close(j->fd);
	free(j->reader);
	free(j->dir);
	free(j);
}

/* ---- the lookers ----------------------------------------------------------------------- */

static struct warm_job *current_locked(struct warm *w)
{
	struct list *it;

	list_for_each (it, &w->jobs) {
		struct warm_job *j = container_of(it, struct warm_job, link);

		if (!over(j))
			return j;
	}
	return NULL;
}

/* The next line; false: there is none. Lock held, dropped while reading. */
static bool next_key_locked(struct warm *w, struct warm_job *j, char *key)
{
	const char *bad = "";
	int r = ORDER_E_BAD;

	while (j->reading)
		lock_wait(&w->lock, &w->moved, UINT64_MAX);
	j->reading = true;
	while (r == ORDER_E_BAD && !j->read_out && !atomic_load(&j->stop)) {
		lock_drop(&w->lock);
		r = order_next(j->reader, key, &bad);
		lock_take(&w->lock);
		if (r == ORDER_E_BAD) {
			j->lines_bad++;
			warm_problem_locked(j, "line %llu: %s",
					    (unsigned long long)j->reader->line, bad);
		}
	}
	j->reading = false;
	pthread_cond_broadcast(&w->moved);
	if (r < 0)
		warm_fail_locked(w, j, r);
	if (r != 0)
		j->read_out = true;
	return r == 0;
}

static void end_job_locked(struct warm *w, struct warm_job *j)
{
	j->state = j->error < 0            ? WARM_FAILED
		   : atomic_load(&j->stop) ? WARM_CANCELLED
					   : WARM_DONE;
	j->end_ms = clock_mono_ms();
	while (!list_empty(&j->marks))
		warm_unmark_locked(w, j, list_first(&j->marks, struct warm_mark, link));
	close(j->fd);
	j->fd = -1;
	log_info("warm job over id=%llu state=%s fetched=%llu cached=%llu failed=%llu",
		 (unsigned long long)j->id, state_names[j->state],
		 (unsigned long long)j->files_fetched,
		 (unsigned long long)j->files_cached,
		 (unsigned long long)(j->files_failed + j->files_missing));
	pthread_cond_broadcast(&w->moved);
}

/* false: no tree is to be counted. Lock held, dropped meanwhile. */
static bool count_locked(struct warm *w, struct warm_job *j)
{
	struct warm_tree *tree;

	if (list_empty(&j->trees))
		return false;
	tree = list_first(&j->trees, struct warm_tree, link);
	list_remove(&tree->link);
	lock_drop(&w->lock);
	warm_count_tree(w, j, tree);
	lock_take(&w->lock);
	j->counting--;
	pthread_cond_broadcast(&w->moved);
	return true;
}

static void count_lines(struct warm_job *j)
{
	char data[16384];
	uint64_t off = 0, lines = 0;
	bool head = false;
	ssize_t n;

	while ((n = pread(j->fd, data, sizeof(data), (off_t)off)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			lines += data[i] == '\n';
		if (off == 0)
			head = !memcmp(data, "sluice-", n < 7 ? (size_t)n : 7);
		off += (uint64_t)n;
	}
	j->lines = lines - (head && lines ? 1 : 0);
}

/* One step of a job; false: nothing to do now. Lock held, dropped meanwhile. */
static bool step_locked(struct warm *w)
{
	struct warm_job *j = current_locked(w);
	char key[PATH_KEY_MAX + 2];
	struct warm_item *item;

	if (!list_empty(&w->again)) {
		item = list_first(&w->again, struct warm_item, link);
		list_remove(&item->link);
		lock_drop(&w->lock);
		warm_fetch_again(item);
		lock_take(&w->lock);
		return true;
	}
	if (!j)
		return false;
	j->state = WARM_RUNNING;
	if (count_locked(w, j))
		return true;
	if (!j->read_out && !atomic_load(&j->stop)) {
		j->lookers++;
		if (next_key_locked(w, j, key)) {
			lock_drop(&w->lock);
			warm_take_key(w, j, key);
			lock_take(&w->lock);
		}
		j->lookers--;
		return true;
	}
	if (j->lookers || j->outstanding || j->counting)
		return false;
	end_job_locked(w, j);
	return true;
}

static void *run(void *arg)
{
	struct warm *w = arg;

	pthread_setname_np(pthread_self(), "warm");
	lock_take(&w->lock);
	while (!w->stop || current_locked(w))
		if (!step_locked(w))
			lock_wait(&w->lock, &w->moved, UINT64_MAX);
	lock_drop(&w->lock);
	return NULL;
}

/* ---- the door -------------------------------------------------------------------------- */

int warm_new(const struct warm_config *config, struct warm **out)
{
	struct warm *w = calloc(1, sizeof(*w));

	if (!w)
		return err_origin(-ENOMEM);
	w->config = *config;
	lock_init(&w->lock);
	lock_cond_init(&w->moved);
	list_init(&w->jobs);
	list_init(&w->again);
	*out = w;
	return 0;
}

/* At the first job: most mounts have none. */
static int start_threads_locked(struct warm *w)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (w->thread_count < WARM_LOOKERS && r == 0) {
		r = -pthread_create(&w->threads[w->thread_count], NULL, run, w);
		w->thread_count += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return w->thread_count ? 0 : err_origin(r);
}

static void stop_job_locked(struct warm_job *j)
{
	if (!over(j))
		atomic_store(&j->stop, true);
}

/* Requests under way are cut short; more may start until the job has seen its end. */
static void end_all(struct warm *w)
{
	struct list *it;

	lock_take(&w->lock);
	w->stop = true;
	list_for_each (it, &w->jobs)
		stop_job_locked(container_of(it, struct warm_job, link));
	while (w->thread_count && current_locked(w)) {
		for (int i = 0; i < WARM_LOOKERS; i++)
			if (w->requests[i])
				origin_cancel(w->config.origin, w->requests[i]);
		pthread_cond_broadcast(&w->moved);
		lock_drop(&w->lock);
		ahead_wake(w->config.ahead);
		fetch_cancel_all(w->config.cache, w->config.origin);
		lock_take(&w->lock);
		lock_wait(&w->lock, &w->moved, clock_mono_ms() + CANCEL_MS);
	}
	pthread_cond_broadcast(&w->moved);
	lock_drop(&w->lock);
}

struct warm *warm_free(struct warm *w)
{
	if (!w)
		return NULL;
	end_all(w);
	for (unsigned int i = 0; i < w->thread_count; i++)
		pthread_join(w->threads[i], NULL);
	while (!list_empty(&w->jobs)) {
		struct warm_job *j = list_first(&w->jobs, struct warm_job, link);

		list_remove(&j->link);
		job_free(j);
	}
	pthread_cond_destroy(&w->moved);
	lock_fini(&w->lock);
	free(w);
	return NULL;
}

static struct warm_job *job_new(int fd, const char *dir)
{
	struct warm_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	list_init(&j->marks);
	list_init(&j->trees);
	list_init(&j->link);
	j->fd = -1;
	j->dir = strdup(dir);
	j->reader = malloc(sizeof(*j->reader));
	if (!j->dir || !j->reader) {
		job_free(j);
		return NULL;
	}
	j->fd = fd;
	order_reader_init(j->reader, fd, j->dir);
	count_lines(j);
	j->born_ms = clock_mono_ms();
	return j;
}

/* Room for one more: the oldest that is over goes. */
static bool make_room_locked(struct warm *w)
{
	struct list *it;

	if (w->job_count < JOBS_MAX)
		return true;
	list_for_each (it, &w->jobs) {
		struct warm_job *j = container_of(it, struct warm_job, link);

		if (over(j)) {
			list_remove(&j->link);
			w->job_count--;
			job_free(j);
			return true;
		}
	}
	return false;
}

static int add_locked(struct warm *w, struct warm_job *j, struct why *why)
{
	int r;

	if (!make_room_locked(w))
		return why_set(why, err_origin(-EBUSY),
			       "%d jobs wait already; see \"sluice status\"", JOBS_MAX);
	r = start_threads_locked(w);
	if (r < 0)
		return why_set(why, r, "cannot start threads: %s", strerror(-r));
	j->id = ++w->next_id;
	list_push_back(&w->jobs, &j->link);
	w->job_count++;
	pthread_cond_broadcast(&w->moved);
	return 0;
}

int warm_start(struct warm *w, int fd, const char *dir, uint64_t *id, struct why *why)
{
	struct warm_job *j;
	int r;

	if (!cache_disk_limit(w->config.cache)) {
		close(fd);
		return why_set(why, err_origin(-ENODEV),
			       "the cache has no disk that works now; see the log");
	}
	j = job_new(fd, dir);
	if (!j) {
		close(fd);
		return why_set(why, err_origin(-ENOMEM), "no memory");
	}
	lock_take(&w->lock);
	r = add_locked(w, j, why);
	if (r == 0)
		*id = j->id;
	lock_drop(&w->lock);
	if (r < 0)
		job_free(j);
	return err_trace(r);
}

static struct warm_job *find_locked(struct warm *w, uint64_t id)
{
	struct list *it;

	list_for_each (it, &w->jobs) {
		struct warm_job *j = container_of(it, struct warm_job, link);

		if (j->id == id)
			return j;
	}
	return NULL;
}

int warm_wait(struct warm *w, uint64_t id, uint64_t until_ms)
{
	struct warm_job *j;

	lock_scope(&w->lock);
	while ((j = find_locked(w, id)) && !over(j) && !j->ahead_of_readers)
		if (lock_wait(&w->lock, &w->moved, until_ms) == LOCK_E_TIMEOUT)
			return WARM_E_RUNS;
	return j ? 0 : WARM_E_NONE;
}

bool warm_complete(struct warm *w, uint64_t id)
{
	struct warm_job *j;

	lock_scope(&w->lock);
	j = find_locked(w, id);
	return j && j->state == WARM_DONE && !j->files_failed && !j->files_missing &&
	       !j->lines_bad && !j->files_too_many;
}

int warm_cancel(struct warm *w, uint64_t id)
{
	struct list *it;
	bool any = false;

	lock_take(&w->lock);
	list_for_each (it, &w->jobs) {
		struct warm_job *j = container_of(it, struct warm_job, link);

		if (over(j) || (id && j->id != id))
			continue;
		stop_job_locked(j);
		any = true;
	}
	pthread_cond_broadcast(&w->moved);
	lock_drop(&w->lock);
	ahead_wake(w->config.ahead);
	return any ? 0 : WARM_E_NONE;
}

/* ---- figures --------------------------------------------------------------------------- */

/* Of trees their count, once it is complete, of lines all of them. */
static void put_totals(const struct warm_job *j, struct buf *b)
{
	bool counted = !j->counting && (j->line_trees || j->read_out);
	uint64_t files = j->lines > j->line_trees ? j->lines - j->line_trees : 0;

	if (over(j)) {
		files = j->files_found + j->files_too_many;
		json_put_uint(b, "files_total", files);
		json_put_uint(b, "bytes_total", j->bytes_found + j->bytes_too_many);
		return;
	}
	json_put_uint(b, "files_total", j->counting ? 0 : files + j->tree_files);
	json_put_uint(b, "bytes_total",
		      counted && j->read_out ? j->line_bytes + j->tree_bytes : 0);
}

static void put_job(const struct warm_job *j, struct buf *b)
{
	uint64_t end = over(j) ? j->end_ms : clock_mono_ms();

	json_begin_object(b, NULL);
	json_put_uint(b, "id", j->id);
	json_put_string(b, "state", state_names[j->state]);
	json_put_bool(b, "ahead_of_readers", j->ahead_of_readers && !over(j));
	json_put_uint(b, "elapsed_ms", end - j->born_ms);
	put_totals(j, b);
	json_put_uint(b, "files_done", j->files_cached + j->files_fetched);
	json_put_uint(b, "bytes_done", j->bytes_cached + j->bytes_fetched);
	json_put_uint(b, "files_fetched", j->files_fetched);
	json_put_uint(b, "bytes_fetched", j->bytes_fetched);
	json_put_uint(b, "files_cached", j->files_cached);
	json_put_uint(b, "files_missing", j->files_missing);
	json_put_uint(b, "files_failed", j->files_failed);
	json_put_uint(b, "lines_bad", j->lines_bad);
	json_put_uint(b, "files_not_fitting", j->files_too_many);
	json_put_uint(b, "bytes_not_fitting", j->bytes_too_many);
	json_put_int(b, "errno", -j->error);
	json_put_string(b, "error", j->error < 0 ? strerror(-j->error) : NULL);
	json_begin_array(b, "problems");
	for (unsigned int i = 0; i < j->problem_count; i++)
		json_put_string(b, NULL, j->problems[i]);
	json_end_array(b);
	json_end_object(b);
}

int warm_job_json(struct warm *w, uint64_t id, struct buf *b)
{
	struct warm_job *j;

	lock_scope(&w->lock);
	j = find_locked(w, id);
	if (!j)
		return WARM_E_NONE;
	put_job(j, b);
	return 0;
}

void warm_json(struct warm *w, struct buf *b)
{
	struct list *it;

	json_begin_array(b, "warm");
	lock_take(&w->lock);
	list_for_each (it, &w->jobs)
		put_job(container_of(it, struct warm_job, link), b);
	lock_drop(&w->lock);
	json_end_array(b);
}
