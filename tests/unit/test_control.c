/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket, both ends of it, over operations of the test's own. */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/client.h"
#include "fs/control.h"
#include "fs/mounts.h"
#include "fs/receipt.h"

#define SLOW_MS 1500 /* longer than the grace that idle callers get */
#define CALLERS 16   /* that may wait at once */

struct mount {
	struct control *control;
	atomic_bool unmounting;
	atomic_bool stored;  /* a flush has nothing to wait for */
	atomic_uint flushes; /* that wait */
	char run_dir[64], socket[MOUNTS_SOCKET_NAME_MAX];
};

static void status(void *arg, struct buf *b)
{
	(void)arg;
	buf_puts(b, "{\"state\":\"serving\",\"pid\":1}");
}

static void progress(void *arg, struct buf *b)
{
	(void)arg;
	buf_puts(b, "{}");
}

static int flush(void *arg, uint64_t deadline_ms, const atomic_bool *given_up,
		 struct receipt **receipt)
{
	struct buf object = BUF_INIT;
	struct mount *m = arg;
	int r;

	m->flushes++;
	while (!m->stored && !*given_up && clock_mono_ms() < deadline_ms)
		clock_sleep_ms(1);
	m->flushes--;
	buf_puts(&object, "{\"status\":\"stored\"");
	r = receipt_new(&object, NULL, receipt);
	if (r < 0)
		return r;
	return m->stored ? 0 : CONTROL_E_PENDING;
}

/* As umount(2) of a mount with many inodes: the owner sees its end long before. */
static int unmount_slowly(void *arg, uint64_t deadline_ms, struct buf *elsewhere)
{
	struct mount *m = arg;

	(void)deadline_ms;
	(void)elsewhere;
	m->unmounting = true;
	clock_sleep_ms(SLOW_MS);
	return 0;
}

static const struct control_ops ops = {.status = status,
				       .progress = progress,
				       .flush = flush,
				       .unmount = unmount_slowly};

static int set_up(void **state)
{
	static struct mount m;
	struct why why = {""};

	snprintf(m.run_dir, sizeof(m.run_dir), "/tmp/sluice-control.XXXXXX");
	assert_non_null(mkdtemp(m.run_dir));
	m.unmounting = false;
	m.stored = true;
	mounts_socket_name("/mnt", m.socket);
	assert_int_equal(control_start(m.run_dir, "/mnt", -1, &ops, &m, &m.control, &why),
			 0);
	*state = &m;
	return 0;
}

static int tear_down(void **state)
{
	struct mount *m = *state;

	return rmdir(m->run_dir);
}

static void *own(void *arg)
{
	struct mount *m = arg;

	while (!m->unmounting)
		clock_sleep_ms(1);
	control_finish(m->control, 0, NULL);
	assert_int_equal(control_stop(m->control), 0);
	return NULL;
}

static void test_a_stop_is_answered_however_long_the_unmount_takes(void **state)
{
	struct mount *m = *state;
	struct client *c = NULL;
	json_t *result = NULL;
	pthread_t owner;

	assert_int_equal(client_open_socket(m->run_dir, m->socket, &c), 0);
	assert_int_equal(pthread_create(&owner, NULL, own, m), 0);
	assert_int_equal(client_send(c, "stop", UINT64_MAX, false), 0);
	assert_int_equal(client_follow(c, true, &result), 0);
	assert_string_equal(json_string_value(json_object_get(result, "result")), "ok");
	json_decref(result);
	client_close(c);
	pthread_join(owner, NULL);
}

static struct client *call(struct mount *m, const char *command)
{
	struct client *c = NULL;

	assert_int_equal(client_open_socket(m->run_dir, m->socket, &c), 0);
	assert_int_equal(client_send(c, command, UINT64_MAX, false), 0);
	return c;
}

/* A member of the answer to a request; the caller frees it. */
static char *ask(struct mount *m, const char *command, const char *name)
{
	struct client *c = call(m, command);
	json_t *answer = NULL;
	const char *text;
	char *copy;

	assert_int_equal(client_follow(c, true, &answer), 0);
	text = json_string_value(json_object_get(answer, name));
	copy = text ? strdup(text) : NULL;
	json_decref(answer);
	client_close(c);
	return copy;
}

static void end(struct mount *m)
{
	control_finish(m->control, 0, NULL);
	assert_int_equal(control_stop(m->control), 0);
}

/* The nth caller who waits for uploads. Those who left may need a moment to make room. */
static struct client *call_until_it_waits(struct mount *m, const char *command,
					  unsigned int nth)
{
	uint64_t until = patience();

	for (;;) {
		struct client *c = call(m, command);
		uint64_t soon = clock_mono_ms() + 2000;

		while (m->flushes < nth && clock_mono_ms() < soon)
			clock_sleep_ms(1);
		if (m->flushes == nth)
			return c;
		client_close(c);
		assert_true(clock_mono_ms() < until);
	}
}

static void test_callers_that_left_make_room_for_others(void **state)
{
	struct mount *m = *state;
	struct client *c[CALLERS];

	m->stored = false;
	for (int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < CALLERS; i++)
			c[i] = call_until_it_waits(m, round ? "stop" : "flush", i + 1);
		eventually(m->flushes == CALLERS);
		for (unsigned int i = 0; i < CALLERS; i++)
			client_close(c[i]);
		eventually(m->flushes == 0);
	}
	assert_false(m->unmounting); /* who left a stop did not want it any more */
	end(m);
}

static void test_a_full_house_says_that_it_is_busy(void **state)
{
	struct mount *m = *state;
	struct client *c[CALLERS];
	char *text;

	m->stored = false;
	for (unsigned int i = 0; i < CALLERS; i++)
		c[i] = call(m, "flush");
	eventually(m->flushes == CALLERS);
	text = ask(m, "flush", "message");
	assert_non_null(text);
	assert_non_null(strstr(text, "busy"));
	free(text);
	/* Who only looks is answered all the same. */
	text = ask(m, "status", "state");
	assert_non_null(text);
	assert_string_equal(text, "serving");
	free(text);
	m->stored = true;
	for (unsigned int i = 0; i < CALLERS; i++) {
		json_t *result = NULL;

		assert_int_equal(client_follow(c[i], true, &result), 0);
		json_decref(result);
		client_close(c[i]);
	}
	end(m);
}

static void test_more_callers_than_can_be_heard_are_told_so(void **state)
{
	struct mount *m = *state;
	struct client *c[2 * CALLERS];
	char *text = NULL;

	/* They say nothing for now. */
	for (int i = 0; i < 2 * CALLERS; i++)
		assert_int_equal(client_open_socket(m->run_dir, m->socket, &c[i]), 0);
	text = ask(m, "status", "message");
	assert_non_null(text);
	assert_non_null(strstr(text, "busy"));
	free(text);
	for (int i = 0; i < 2 * CALLERS; i++)
		client_close(c[i]);
	end(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

TEST_MAIN(CASE(test_a_stop_is_answered_however_long_the_unmount_takes),
	  CASE(test_callers_that_left_make_room_for_others),
	  CASE(test_a_full_house_says_that_it_is_busy),
	  CASE(test_more_callers_than_can_be_heard_are_told_so))
