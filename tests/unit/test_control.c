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

#define SLOW_MS 1500 /* longer than the grace that idle callers get */

struct mount {
	struct control *control;
	atomic_bool unmounting;
	char run_dir[64], socket[MOUNTS_SOCKET_NAME_MAX];
};

static void status(void *arg, struct buf *b)
{
	(void)arg;
	buf_puts(b, "{\"pid\":1}");
}

static void progress(void *arg, struct buf *b)
{
	(void)arg;
	buf_puts(b, "{}");
}

static int flush(void *arg, uint64_t deadline_ms, struct buf *receipt)
{
	(void)arg;
	(void)deadline_ms;
	buf_puts(receipt, "{}");
	return 0;
}

/* As umount(2) of a mount with many inodes: the owner sees its end long before. */
static int unmount_slowly(void *arg, uint64_t deadline_ms)
{
	struct mount *m = arg;

	(void)deadline_ms;
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
	mounts_socket_name("/mnt", m.socket);
	assert_int_equal(control_start(m.run_dir, "/mnt", &ops, &m, &m.control, &why), 0);
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
	control_finish(m->control, 0, "{}");
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
	assert_int_equal(client_send(c, "stop", UINT64_MAX), 0);
	assert_int_equal(client_follow(c, true, &result), 0);
	assert_string_equal(json_string_value(json_object_get(result, "result")), "ok");
	json_decref(result);
	client_close(c);
	pthread_join(owner, NULL);
}

TEST_MAIN(cmocka_unit_test_setup_teardown(
	test_a_stop_is_answered_however_long_the_unmount_takes, set_up, tear_down))
