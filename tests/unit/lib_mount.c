/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/lib_mount.h"

#include "tests/unit/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/handover.h"
#include "tests/unit/lib_remote.h"

#define LATE_US 20000

/* Who carries out requests of one daemon, one at a time. */
struct mount_server {
	struct mount_server *next;
	struct mount *mount;
	struct origin *origin;
	pthread_t thread;
	int socket;
	unsigned int generation;
	unsigned int random;
	bool changes; /* the request at hand is one that changes the store */
};

/* ---- the holder ------------------------------------------------------------------------------ */

/* A process without threads: it makes a daemon whenever it is told to. */
static void holder_main(struct mount *s, int socket)
{
	pid_t daemon = -1, holder = getpid();
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (lib_remote_receive(socket, &byte, 1)) {
		if (daemon > 0)
			waitpid(daemon, NULL, 0);
		if (byte == 'n') {
			handover_free(s->handover);
			if (handover_new(&s->handover, NULL) < 0)
				_exit(2);
		}
		daemon = fork();
		if (daemon == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != holder)
				_exit(0);
			close(socket);
			mount_daemon(s);
		}
		lib_remote_send(socket, &daemon, sizeof(daemon));
	}
	if (daemon > 0) {
		kill(daemon, SIGKILL);
		waitpid(daemon, NULL, 0);
	}
	_exit(0);
}

/* ---- the store ------------------------------------------------------------------------------- */

static bool is_change(enum origin_op op)
{
	return op == ORIGIN_PUT || op == ORIGIN_APPEND || op == ORIGIN_COPY ||
	       op == ORIGIN_DELETE || op == ORIGIN_DELETE_MANY || op == ORIGIN_MULTI_END;
}

/* Whether something that a dead daemon asked for may still land. Mutex held. */
static bool lands_late(const struct mount *s)
{
	for (const struct mount_server *i = s->servers; i; i = i->next) {
		if (i->generation < s->orders->generation && i->changes)
			return true;
	}
	return false;
}

/* A daemon waits before it changes anything; as no machine is too slow for that here, who is
 * dead is always done when the wait is over. */
static void begin_request(void *arg, enum origin_op op)
{
	struct mount_server *i = arg;
	struct mount *s = i->mount;

	pthread_mutex_lock(&s->mutex);
	while (is_change(op) && i->generation == s->orders->generation && lands_late(s)) {
		if (clock_mono_ms() < s->started_ms + MOUNT_SETTLE_MS)
			give_up("seed %llu: the store is changed while what the last "
				"daemon sent may land",
				(unsigned long long)s->seed);
		pthread_cond_wait(&s->moved, &s->mutex);
	}
	i->changes = is_change(op);
	pthread_mutex_unlock(&s->mutex);
	/* Most of all what decides what a version has become. */
	if (op == ORIGIN_MULTI_END || rand_r(&i->random) % 4 == 0)
		usleep((useconds_t)rand_r(&i->random) % LATE_US);
}

static void end_request(void *arg)
{
	struct mount_server *i = arg;

	pthread_mutex_lock(&i->mount->mutex);
	i->changes = false;
	pthread_cond_broadcast(&i->mount->moved);
	pthread_mutex_unlock(&i->mount->mutex);
}

static void *serve_store(void *arg)
{
	struct mount_server *i = arg;
	const struct lib_remote_hooks hooks = {begin_request, end_request, i};

	lib_remote_serve(i->socket, i->origin, &hooks);
	return NULL;
}

static void add_server(struct mount *s, int socket)
{
	struct mount_server *i = calloc(1, sizeof(*i));

	*i = (struct mount_server){.mount = s,
				   .origin = s->origin,
				   .socket = socket,
				   .generation = s->orders->generation,
				   .random = (unsigned int)clock_random()};
	pthread_mutex_lock(&s->mutex);
	i->next = s->servers;
	s->servers = i;
	pthread_mutex_unlock(&s->mutex);
	pthread_create(&i->thread, NULL, serve_store, i);
}

static void join_servers(struct mount *s)
{
	while (s->servers) {
		struct mount_server *i = s->servers;

		pthread_join(i->thread, NULL);
		s->servers = i->next;
		free(i);
	}
}

/* ---- the kernel ------------------------------------------------------------------------------- */

static void start_daemon(struct mount *s)
{
	const char *order;

	/* Servers of the last one still look. */
	pthread_mutex_lock(&s->mutex);
	order = s->orders->generation++ == 0 ? "n" : "s";
	s->started_ms = clock_mono_ms();
	pthread_mutex_unlock(&s->mutex);
	if (!lib_remote_send(s->holder_socket, order, 1) ||
	    !lib_remote_receive(s->holder_socket, &s->daemon, sizeof(s->daemon)))
		give_up("the holder has ended");
	for (int i = 0; i < MOUNT_LANES + MOUNT_STORE_LANES; i++) {
		struct pollfd wait = {s->listener, POLLIN, 0};
		char hello[2];
		int fd;

		if (poll(&wait, 1, PATIENCE_MS) != 1)
			give_up("a daemon does not start");
		fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 || !lib_remote_receive(fd, hello, 2))
			give_up("a daemon has ended at once");
		if (hello[0] == 's')
			add_server(s, fd);
		else
			s->lanes[(int)hello[1]] = fd;
	}
}

void mount_kill(struct mount *s)
{
	pthread_mutex_lock(&s->mutex);
	s->dead = true;
	kill(s->daemon, SIGKILL);
	while (s->busy > 0)
		pthread_cond_wait(&s->moved, &s->mutex);
	pthread_mutex_unlock(&s->mutex);
	for (int i = 0; i < MOUNT_LANES; i++)
		close(s->lanes[i]);
	start_daemon(s);
	pthread_mutex_lock(&s->mutex);
	s->orders->resent_count = 0;
	s->dead = false;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->mutex);
}

static bool receive_descriptor(int socket, int *fd)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};

	if (recvmsg(socket, &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m))
		return false;
	memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(*fd));
	return true;
}

/* False: the daemon died before the reply had come whole. */
static bool ask_once(int socket, struct call *c, const void *in, struct buf *out, int *fd)
{
	struct call reply;

	if (!lib_remote_send(socket, c, sizeof(*c)) ||
	    !lib_remote_send(socket, in, c->len) ||
	    !lib_remote_receive(socket, &reply, sizeof(reply)))
		return false;
	buf_reset(out);
	buf_reserve(out, reply.len + 1);
	if (!lib_remote_receive(socket, out->data, reply.len))
		return false;
	out->len = reply.len;
	if (reply.passed && reply.result == 0 && !receive_descriptor(socket, fd))
		return false;
	*c = reply;
	return true;
}

/* Asks the daemon, and the next one if it dies meanwhile. */
int mount_ask(struct mount *s, int lane, struct call *c, const void *in, struct buf *out,
	      int *fd)
{
	struct buf none = BUF_INIT;
	bool told = false;

	pthread_mutex_lock(&s->mutex);
	c->request = ++s->last_request;
	while (!told) {
		while (s->dead)
			pthread_cond_wait(&s->moved, &s->mutex);
		s->busy++;
		pthread_mutex_unlock(&s->mutex);
		told = ask_once(s->lanes[lane], c, in, out ? out : &none, fd);
		pthread_mutex_lock(&s->mutex);
		if (!told && !s->dead)
			give_up("seed %llu: the daemon has died",
				(unsigned long long)s->seed);
		if (!told) {
			s->orders->resent[s->orders->resent_count++] = c->request;
			c->again = true;
		}
		s->busy--;
		pthread_cond_broadcast(&s->moved);
	}
	pthread_mutex_unlock(&s->mutex);
	buf_fini(&none);
	return c->result;
}

/* ---- start and end ----------------------------------------------------------------------- */

static void make_holder(struct mount *s)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	s->holder_socket = pair[0];
	s->holder = fork();
	assert_true(s->holder >= 0);
	if (s->holder == 0) {
		close(pair[0]);
		holder_main(s, pair[1]);
	}
	close(pair[1]);
}

void mount_init(struct mount *s, uint64_t seed)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	*s = (struct mount){.seed = seed, .dir = "/tmp/sluice-mount.XXXXXX"};
	assert_non_null(mkdtemp(s->dir));
	snprintf(s->state, sizeof(s->state), "%s/state", s->dir);
	snprintf(s->path, sizeof(s->path), "%s/socket", s->dir);
	pthread_mutex_init(&s->mutex, NULL);
	pthread_cond_init(&s->moved, NULL);
	s->orders = mmap(NULL, sizeof(*s->orders), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(s->orders != MAP_FAILED);
	s->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", s->path);
	assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(s->listener, MOUNT_LANES + MOUNT_STORE_LANES), 0);
	make_holder(s);
}

void mount_fini(struct mount *s)
{
	close(s->holder_socket);
	waitpid(s->holder, NULL, 0);
	close(s->listener);
	munmap(s->orders, sizeof(*s->orders));
	pthread_cond_destroy(&s->moved);
	pthread_mutex_destroy(&s->mutex);
	io_remove_tree(AT_FDCWD, s->dir);
}

void mount_begin(struct mount *s, struct origin *origin)
{
	s->origin = origin;
	s->orders->like = *origin;
	s->orders->generation = 0;
	start_daemon(s);
}

void mount_end(struct mount *s)
{
	kill(s->daemon, SIGKILL);
	for (int i = 0; i < MOUNT_LANES; i++)
		close(s->lanes[i]);
	join_servers(s);
}
