/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_ossd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/backend/creds.h"
#include "fs/backend/http.h"
#include "fs/backend/oss.h"
#include "fs/base/buf.h"
#include "fs/base/check.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/lock.h"

#define UP_MS 60000

static void write_keys(const char *dir)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/keys", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0);
	check(io_write(fd, "test-id:test-secret\n", 20) == 0);
	close(fd);
}

static void run(struct lib_ossd *s, const char *const *options)
{
	const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
	char program[512], root[128], keys[128], out[128];
	const char *argv[32] = {program,       "--root",   root,          "--listen",
				"127.0.0.1:0", "--admin",  "127.0.0.1:0", "--key-file",
				keys,          "--bucket", "data"};
	size_t n = 11;
	int fd;

	snprintf(program, sizeof(program), "%s/ossd", build);
	snprintf(root, sizeof(root), "%s/root", s->dir);
	snprintf(keys, sizeof(keys), "%s/keys", s->dir);
	snprintf(out, sizeof(out), "%s/out", s->dir);
	check(mkdir(root, 0700) == 0);
	while (options && *options && n < 31)
		argv[n++] = *options++;
	fd = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	check(fd >= 0);
	s->pid = fork();
	check(s->pid >= 0);
	if (s->pid == 0) {
		dup2(fd, STDOUT_FILENO);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(fd);
}

static bool read_address(const char *text, const char *word, char *out, size_t out_size)
{
	const char *at = strstr(text, word);

	if (!at || !strchr(at, '\n'))
		return false;
	at += strlen(word);
	snprintf(out, out_size, "%.*s", (int)strcspn(at, "\n"), at);
	return true;
}

void lib_ossd_start(struct lib_ossd *s, const char *const *options)
{
	uint64_t until = clock_mono_ms() + UP_MS;
	struct buf text = BUF_INIT;
	char out[128];

	strcpy(s->dir, "/tmp/sluice-ossd.XXXXXX");
	check(mkdtemp(s->dir));
	write_keys(s->dir);
	run(s, options);
	snprintf(out, sizeof(out), "%s/out", s->dir);
	for (;;) {
		buf_reset(&text);
		check(io_read_file(AT_FDCWD, out, 4096, &text) == 0);
		if (text.len &&
		    read_address(text.data, "ready http://", s->host, sizeof(s->host)) &&
		    read_address(text.data, "admin http://", s->admin, sizeof(s->admin)))
			break;
		check(waitpid(s->pid, NULL, WNOHANG) == 0);
		check(clock_mono_ms() < until);
		clock_sleep_ms(10);
	}
	buf_fini(&text);
}

void lib_ossd_stop(struct lib_ossd *s)
{
	kill(s->pid, SIGTERM);
	waitpid(s->pid, NULL, 0);
	check(io_remove_tree(AT_FDCWD, s->dir) == 0);
}

struct oss_config lib_ossd_config(const struct lib_ossd *s, const char *prefix)
{
	struct oss_config config = {.host = s->host,
				    .region = "cn-hangzhou",
				    .addressing = ADDRESSING_PATH,
				    .bucket = "data",
				    .prefix = prefix,
				    .connections_max = 4};

	setenv("OSS_ACCESS_KEY_ID", "test-id", 1);
	setenv("OSS_ACCESS_KEY_SECRET", "test-secret", 1);
	unsetenv("OSS_SESSION_TOKEN");
	check(creds_open("env", &config.creds, NULL) == 0);
	return config;
}

/* ---- the admin address --------------------------------------------------------------- */

struct admin_call {
	struct http_exchange x;
	struct lock lock;
	pthread_cond_t cond;
	bool done;
};

static int ignore(struct http_exchange *x, const void *data, size_t n)
{
	(void)x, (void)data, (void)n;
	return 0;
}

static void admin_done(struct http_exchange *x)
{
	struct admin_call *c = (struct admin_call *)x;

	lock_scope(&c->lock);
	c->done = true;
	pthread_cond_signal(&c->cond);
}

void lib_ossd_faults(const struct lib_ossd *s, const char *json)
{
	static const struct http_hooks hooks = {.receive = ignore, .done = admin_done};
	const struct http_config config = {.connections_max = 1};
	struct admin_call c = {.x = {.method = HTTP_PUT, .hooks = &hooks}};
	struct http *h;
	char url[128];

	snprintf(url, sizeof(url), "http://%s/faults", s->admin);
	c.x.url = url;
	c.x.body.data = json ? json : "[]";
	c.x.body.len = strlen(json ? json : "[]");
	c.x.deadline_ms = clock_mono_ms() + UP_MS;
	lock_init(&c.lock);
	lock_cond_init(&c.cond);
	check(http_start(&config, &h, NULL) == 0);
	http_submit(h, &c.x);
	lock_take(&c.lock);
	while (!c.done)
		lock_wait(&c.lock, &c.cond, UINT64_MAX);
	lock_drop(&c.lock);
	http_stop(h);
	check(c.x.result == 0);
	check(c.x.status / 100 == 2);
	pthread_cond_destroy(&c.cond);
	lock_fini(&c.lock);
}
