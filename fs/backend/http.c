/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop: takes what was submitted, keeps at most connections_max of it on the wire,
 * sleeps in epoll.
 *
 * States of an exchange: inbox (under the lock) -> queue -> active (has a slot: an easy
 * handle that is used again and again) -> done. Cancelled ones leave from any of them.
 *
 * Happy path: http_submit() links it into the inbox and wakes the loop, which moves it to
 * the queue and, as soon as a slot is free, adds its handle to the multi. libcurl says
 * which sockets matter (socket_changed) and when it wants to be called (timer_changed).
 * reap() takes what has finished, gives the slot back, calls done.
 *
 * Failure modes: curl's codes become errno values in one table; what a hook returned wins
 * over them. A deadline that passes in the queue is found by expire_queues(), on the wire
 * by curl. Out of memory for a slot fails that exchange.
 *
 * On stop: the loop ends when nothing is left anywhere.
 *
 * Threads: everything but the inbox and the cancel list belongs to the loop's thread.
 */
#include "fs/backend/http.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fs/backend/http_slot.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/cleanup.h"
#include "fs/base/lock.h"
#include "fs/base/log.h"

#define CONNECTIONS_LIMIT 1024
#define CONNECT_MS 5000
#define STALL_MS 30000
#define EVENTS_MAX 64
#define QUEUE_SCAN_MS                                                                    \
	100 /* how often waiting exchanges are looked at for their deadline */

struct http {
	struct lock lock;  /* inbox, cancels, sleeping, stopping, pending of exchanges */
	struct list inbox; /* submitted, not seen by the loop yet */
	struct list cancels; /* by cancel_link */
	bool sleeping;       /* the loop must be woken for news */
	bool stopping;

	struct http_slot_config slot_config; /* constant */
	uint32_t connections_max;            /* constant */
	pthread_t thread;
	int epoll_fd, wake_fd;
	CURLM *multi;
	struct list queue;  /* waiting for a slot */
	struct list later;  /* the same, in the background */
	struct list active; /* on the wire */
	uint32_t active_count;
	struct http_slot *idle; /* free slots */
	uint64_t timer_ms;      /* when curl wants to be called; UINT64_MAX: never */
	uint64_t scan_ms;       /* when the queue is looked at next */
	atomic_uint_least64_t connects;
};

/* ---- curl's wishes ------------------------------------------------------------------- */

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct http *h = arg;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		/* Fails when curl has closed it already; then epoll has forgotten it too. */
		(void)epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) |
		       (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
	if (epoll_ctl(h->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
		return -1;
	if (!known)
		curl_multi_assign(h->multi, fd, h);
	return 0;
}

static int timer_changed(CURLM *multi, long ms, void *arg)
{
	struct http *h = arg;

	(void)multi;
	h->timer_ms = ms < 0 ? UINT64_MAX : clock_mono_ms() + (uint64_t)ms;
	return 0;
}

/* ---- one exchange's way -------------------------------------------------------------- */

static void finish(struct http *h, struct http_exchange *x)
{
	/* From here on a cancel must find nothing to do: the caller may free x. */
	lock_take(&h->lock);
	list_remove(&x->link);
	list_remove(&x->cancel_link);
	x->pending = false;
	lock_drop(&h->lock);
	x->hooks->done(x);
}

static void finish_with(struct http *h, struct http_exchange *x, int r, const char *text)
{
	x->result = why_set(&x->why, err_origin(r), "%s", text);
	finish(h, x);
}

static void give_back(struct http *h, struct http_slot *slot)
{
	slot->next = h->idle;
	h->idle = slot;
}

static void begin(struct http *h, struct http_exchange *x)
{
	struct http_slot *slot = h->idle;
	int r;

	if (slot) {
		h->idle = slot->next;
	} else {
		slot = http_slot_new(&h->slot_config);
		if (!slot) {
			finish_with(h, x, -ENOMEM, "no memory for a request");
			return;
		}
	}
	r = http_slot_load(slot, x);
	if (r >= 0 && curl_multi_add_handle(h->multi, slot->easy) != CURLM_OK)
		r = why_set(&x->why, err_origin(-ENOMEM), "no memory for a request");
	if (r < 0) {
		give_back(h, slot);
		x->result = r;
		finish(h, x);
		return;
	}
	x->slot = slot;
	h->active_count++;
	list_remove(&x->link);
	list_push_back(&h->active, &x->link);
}

static void end(struct http *h, struct http_exchange *x)
{
	struct http_slot *slot = x->slot;

	curl_multi_remove_handle(h->multi, slot->easy);
	x->slot = NULL;
	h->active_count--;
	give_back(h, slot);
	finish(h, x);
}

static void reap(struct http *h)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(h->multi, &left))) {
		struct http_exchange *x;
		struct http_slot *slot;
		long opened = 0;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&slot);
		curl_easy_getinfo(message->easy_handle, CURLINFO_NUM_CONNECTS, &opened);
		atomic_fetch_add_explicit(&h->connects, (uint64_t)opened,
					  memory_order_relaxed);
		x = slot->x;
		http_slot_result(slot, (int)message->data.result);
		end(h, x);
	}
}

/* ---- the loop ------------------------------------------------------------------------ */

static bool anything_waits(const struct http *h)
{
	return !list_empty(&h->queue) || !list_empty(&h->later);
}

/* Moves the inbox to the queues; true while the loop has to go on. */
static bool take_news(struct http *h)
{
	struct http_exchange *x;

	lock_scope(&h->lock);
	h->sleeping = false;
	while (!list_empty(&h->inbox)) {
		struct list *first = h->inbox.next;

		list_remove(first);
		x = container_of(first, struct http_exchange, link);
		list_push_back(x->background ? &h->later : &h->queue, first);
	}
	return !h->stopping || anything_waits(h) || h->active_count;
}

static struct http_exchange *next_cancelled(struct http *h)
{
	struct http_exchange *x;

	lock_scope(&h->lock);
	if (list_empty(&h->cancels))
		return NULL;
	x = list_first(&h->cancels, struct http_exchange, cancel_link);
	list_remove(&x->cancel_link);
	return x;
}

static void handle_cancels(struct http *h)
{
	struct http_exchange *x;

	while ((x = next_cancelled(h))) {
		x->result = why_set(&x->why, err_origin(-ECANCELED), "cancelled");
		if (x->slot)
			end(h, x);
		else
			finish(h, x);
	}
}

/* Curl watches the deadlines of what is on the wire; this those of what is not yet. */
static void expire(struct http *h, struct list *queue, uint64_t now)
{
	struct list *it, *next;

	list_for_each_safe (it, next, queue) {
		struct http_exchange *x = container_of(it, struct http_exchange, link);

		if (x->deadline_ms <= now)
			finish_with(h, x, -ETIMEDOUT,
				    "the deadline passed while waiting for a connection");
	}
}

static void expire_queues(struct http *h)
{
	uint64_t now = clock_mono_ms();

	if (!anything_waits(h) || now < h->scan_ms)
		return;
	h->scan_ms = now + QUEUE_SCAN_MS;
	expire(h, &h->queue, now);
	expire(h, &h->later, now);
}

static void fill_slots(struct http *h)
{
	uint32_t background_max = h->connections_max - h->connections_max / 8;

	while (h->active_count < h->connections_max && !list_empty(&h->queue))
		begin(h, list_first(&h->queue, struct http_exchange, link));
	while (h->active_count < background_max && !list_empty(&h->later))
		begin(h, list_first(&h->later, struct http_exchange, link));
}

/* How long to sleep; 0 when something came in meanwhile. */
static int prepare_sleep(struct http *h)
{
	uint64_t now = clock_mono_ms();
	uint64_t until = h->timer_ms;

	if (anything_waits(h) && h->scan_ms < until)
		until = h->scan_ms;
	lock_scope(&h->lock);
	if (!list_empty(&h->inbox) || !list_empty(&h->cancels) || until <= now)
		return 0;
	if (h->stopping && !h->active_count && !anything_waits(h))
		return 0;
	h->sleeping = true;
	return until == UINT64_MAX ? -1
				   : (int)(until - now > 60000 ? 60000 : until - now);
}

static void handle_events(struct http *h, const struct epoll_event *events, int count)
{
	int running;

	for (int i = 0; i < count; i++) {
		uint32_t e = events[i].events;
		uint64_t drained;

		if (events[i].data.fd == h->wake_fd) {
			(void)!read(h->wake_fd, &drained, sizeof(drained));
			continue;
		}
		curl_multi_socket_action(
			h->multi, events[i].data.fd,
			(e & EPOLLIN ? CURL_CSELECT_IN : 0) |
				(e & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
				(e & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
			&running);
	}
	if (h->timer_ms <= clock_mono_ms()) {
		h->timer_ms = UINT64_MAX;
		curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
}

static void *loop(void *arg)
{
	struct http *h = arg;
	struct epoll_event events[EVENTS_MAX];

	prctl(PR_SET_NAME, "http");
	while (take_news(h)) {
		int count;

		handle_cancels(h);
		fill_slots(h);
		expire_queues(h);
		count = epoll_wait(h->epoll_fd, events, EVENTS_MAX, prepare_sleep(h));
		handle_events(h, events, count < 0 ? 0 : count);
		reap(h);
	}
	return NULL;
}

/* ---- the door ------------------------------------------------------------------------ */

/* Wakes the loop unless it is awake; the counter of an eventfd cannot run over here. */
static void wake_locked(struct http *h)
{
	uint64_t one = 1;

	lock_assert_held(&h->lock);
	if (!h->sleeping)
		return;
	h->sleeping = false;
	(void)!write(h->wake_fd, &one, sizeof(one));
}

void http_submit(struct http *h, struct http_exchange *x)
{
	check(x->url && x->hooks && x->method < HTTP_METHOD_N);
	x->result = x->status = 0;
	x->received = 0;
	x->why.text[0] = '\0';
	x->slot = NULL;
	list_init(&x->cancel_link);
	lock_scope(&h->lock);
	check(!h->stopping);
	x->pending = true;
	list_push_back(&h->inbox, &x->link);
	wake_locked(h);
}

void http_cancel(struct http *h, struct http_exchange *x)
{
	lock_scope(&h->lock);
	if (!x->pending || !list_empty(&x->cancel_link))
		return;
	list_push_back(&h->cancels, &x->cancel_link);
	wake_locked(h);
}

uint64_t http_connect_count(const struct http *h)
{
	return atomic_load_explicit(&h->connects, memory_order_relaxed);
}

static void global_init(void)
{
	check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static struct http *http_free(struct http *h)
{
	while (h->idle) {
		struct http_slot *slot = h->idle;

		h->idle = slot->next;
		http_slot_free(slot);
	}
	if (h->multi)
		curl_multi_cleanup(h->multi);
	close_fdp(&h->wake_fd);
	close_fdp(&h->epoll_fd);
	lock_fini(&h->lock);
	free(h->slot_config.ca_file);
	free(h);
	return NULL;
}

static int open_loop(struct http *h)
{
	struct epoll_event event = {.events = EPOLLIN};

	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.fd = h->wake_fd;
	if (h->epoll_fd < 0 || h->wake_fd < 0 ||
	    epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->wake_fd, &event) < 0)
		return err_origin(-errno);
	h->multi = curl_multi_init();
	if (!h->multi)
		return err_origin(-ENOMEM);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)h->connections_max);
	curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	return 0;
}

static int start_thread(struct http *h)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&h->thread, NULL, loop, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r ? err_origin(-r) : 0;
}

int http_start(const struct http_config *config, struct http **out, struct why *why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct http *h;
	int r = 0;

	check(config->connections_max && config->connections_max <= CONNECTIONS_LIMIT);
	if (config->ca_file && access(config->ca_file, R_OK) < 0)
		return why_set(why, err_origin(-EINVAL), "cannot read the CA file %s: %s",
			       config->ca_file, strerror(errno));
	pthread_once(&once, global_init);
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_origin(-ENOMEM);
	lock_init(&h->lock);
	list_init(&h->inbox);
	list_init(&h->cancels);
	list_init(&h->queue);
	list_init(&h->later);
	list_init(&h->active);
	h->epoll_fd = h->wake_fd = -1;
	h->timer_ms = UINT64_MAX;
	h->connections_max = config->connections_max;
	h->slot_config.connect_ms = config->connect_ms ? config->connect_ms : CONNECT_MS;
	h->slot_config.stall_ms = config->stall_ms ? config->stall_ms : STALL_MS;
	if (config->ca_file && !(h->slot_config.ca_file = strdup(config->ca_file)))
		r = err_origin(-ENOMEM);
	if (r >= 0)
		r = open_loop(h);
	if (r >= 0)
		r = start_thread(h);
	if (r < 0) {
		http_free(h);
		return why_set(why, err_trace(r), "cannot start the HTTP loop: %s",
			       strerror(-r));
	}
	*out = h;
	return 0;
}

struct http *http_stop(struct http *h)
{
	if (!h)
		return NULL;
	lock_take(&h->lock);
	h->stopping = true;
	wake_locked(h);
	lock_drop(&h->lock);
	pthread_join(h->thread, NULL);
	return http_free(h);
}
