/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon of a mount without FUSE: what fs/ops*.c does between the kernel and the tree. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache/origin.h"
#include "fs/backing.h"
#include "fs/base/buf.h"
#include "fs/handover.h"
#include "fs/output.h"
#include "fs/receipt.h"
#include "tests/unit/lib_mount.h"
#include "tests/unit/lib_remote.h"

static const struct output_owner me = {1000, 1000};

struct daemon {
	const struct mount_orders *orders;
	struct handover *handover;
	struct output *o;
	struct backing *backing;
	struct output_file *files[MOUNT_FILES_MAX];
	int lanes[MOUNT_LANES];
};

static struct handover_file *slot_of(struct daemon *d, uint32_t slot)
{
	return handover_file_at(&d->handover->files, slot);
}

static int connect_to(const char *path, char kind, int index)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char hello[2] = {kind, (char)index};

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    !lib_remote_send(s, hello, 2))
		_exit(2);
	return s;
}

static int backing_id(void *ctx, int fd)
{
	static atomic_int last;

	(void)ctx;
	(void)fd;
	return ++last;
}

static void backing_gone(void *ctx, int id)
{
	(void)ctx;
	(void)id;
}

/* As ops_handle.c. */
static void open_slot(struct daemon *d, struct call *c, struct output_file *file,
		      int *passed)
{
	uint32_t slot = handover_file_take(d->handover);
	struct handover_file *f;
	struct stat st;
	int fd = d->orders->passes ? output_backing_fd(file) : -1, id = 0;

	if (slot >= MOUNT_FILES_MAX)
		_exit(2);
	f = slot_of(d, slot);
	f->flags = c->flags;
	f->ino = c->ino;
	f->backing_id = 0;
	f->is_dir = false;
	f->mode = (uint8_t)backing_open(d->backing, NULL, c->ino, fd, false, &id);
	if (f->mode == BACKING_PASS && fstat(fd, &st) == 0) {
		f->backing_id = id;
		f->backing_dev = st.st_dev;
		f->backing_ino = st.st_ino;
		*passed = fd;
	} else if (fd >= 0) {
		close(fd);
	}
	c->passed = f->mode == BACKING_PASS;
	c->slot = slot;
	d->files[slot] = file;
	atomic_store(&f->state, handover_file_by(HANDOVER_OPENING, c->request));
}

static int close_slot(struct daemon *d, struct call *c)
{
	struct handover_file *f = slot_of(d, c->slot);
	struct output_file *file = d->files[c->slot];

	atomic_store(&f->state, handover_file_by(HANDOVER_RELEASING, c->request));
	d->files[c->slot] = NULL;
	backing_close(d->backing, NULL, f->ino, (enum backing_mode)f->mode);
	if (file)
		output_release(file);
	return 0;
}

static bool is_done(struct daemon *d, const struct call *c)
{
	return c->again && output_executed(d->o, c->request);
}

static int count_name(void *arg, const char *name, const struct tree_attr *attr,
		      uint64_t next)
{
	(void)name;
	(void)attr;
	(void)next;
	++*(int *)arg;
	return 0;
}

static int count_names(struct daemon *d, struct call *c)
{
	struct output_dir *dir;
	int r = output_opendir(d->o, c->ino, 0, &dir);

	c->count = 0;
	if (r < 0)
		return r;
	r = output_readdir(dir, 0, false, 0, count_name, &c->count);
	output_closedir(dir);
	return r;
}

static int change_names(struct daemon *d, struct call *c)
{
	int r;

	switch (c->op) {
	case CALL_RENAME:
		return is_done(d, c) ? 0
				     : output_rename(d->o, c->ino, c->name, c->ino2,
						     c->name2, c->set);
	case CALL_UNLINK:
		r = is_done(d, c) ? 0 : output_unlink(d->o, c->ino, c->name);
		return c->again && r == -ENOENT ? 0 : r;
	case CALL_RMDIR:
		r = is_done(d, c) ? 0 : output_rmdir(d->o, c->ino, c->name);
		return c->again && r == -ENOENT ? 0 : r;
	default:
		if (is_done(d, c))
			return output_lookup(d->o, c->ino, c->name, 0, &c->attr);
		return output_mkdir(d->o, c->ino, c->name, 0755, me, &c->attr);
	}
}

static int run_open(struct daemon *d, struct call *c, int *passed)
{
	struct output_file *file;
	int r;

	if (c->op == CALL_OPEN) {
		r = output_open(d->o, c->ino, c->flags, 0, &file);
	} else {
		r = output_create(d->o, c->ino, c->name, 0644, c->flags, me, 0, &c->attr,
				  &file);
		c->ino = c->attr.ino;
	}
	if (r == 0)
		open_slot(d, c, file, passed);
	return r;
}

static int note_lines(void *text, const char *lines, size_t n)
{
	buf_append(text, lines, n);
	return 0;
}

/* The files that were stored, or what is pending. */
static int drain(struct daemon *d, struct buf *text)
{
	struct receipt *receipt = NULL;
	uint64_t unread = 0;
	int r = output_drain(d->o, patience(), &receipt);

	buf_reset(text);
	if (receipt && r == 0) {
		buf_puts(text, "[");
		r = receipt_files(receipt, note_lines, text, &unread);
		buf_puts(text, "]");
	} else if (receipt) {
		receipt_object(receipt, 0, text);
	}
	receipt_free(receipt);
	return r != 0 || unread == 0 ? r : -EIO;
}

/* `data` is what came and what goes. */
static int run_call(struct daemon *d, struct call *c, struct buf *data, int *passed)
{
	struct output_file *file = c->slot < MOUNT_FILES_MAX ? d->files[c->slot] : NULL;
	size_t got = 0;
	int r;

	switch (c->op) {
	case CALL_LOOKUP:
		return output_lookup(d->o, c->ino, c->name, 0, &c->attr);
	case CALL_FORGET:
		output_forget(d->o, c->ino, 1);
		return 0;
	case CALL_OPEN:
	case CALL_CREATE:
		return run_open(d, c, passed);
	case CALL_RELEASE:
		return close_slot(d, c);
	case CALL_TRUNCATE:
		c->attr.size = c->size;
		return output_setattr(d->o, c->ino, OUTPUT_SET_SIZE, &c->attr);
	case CALL_COUNT:
		return count_names(d, c);
	case CALL_DRAIN:
		return drain(d, data);
	case CALL_RENAME:
	case CALL_UNLINK:
	case CALL_RMDIR:
	case CALL_MKDIR:
		return change_names(d, c);
	default:
		break;
	}
	if (!file)
		return -EIO;
	switch (c->op) {
	case CALL_READ:
		buf_reset(data);
		buf_reserve(data, c->size + 1);
		r = output_read(file, c->off, data->data, c->size, 0, &got);
		data->len = r == 0 ? got : 0;
		return r;
	case CALL_WRITE:
		return output_write(file, c->off, data->data, data->len,
				    c->again ? TREE_AGAIN : 0);
	case CALL_FSYNC:
		return output_fsync(file, false);
	default:
		return output_flush(file);
	}
}

static void send_descriptor(int socket, int fd)
{
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&m);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	if (sendmsg(socket, &m, MSG_NOSIGNAL) != 1)
		_exit(2);
	close(fd);
}

/* The reply has been sent. */
static void note_told(struct daemon *d, const struct call *c)
{
	uint64_t opening = handover_file_by(HANDOVER_OPENING, c->request);

	if ((c->op == CALL_OPEN || c->op == CALL_CREATE) && c->result == 0)
		atomic_compare_exchange_strong(&slot_of(d, c->slot)->state, &opening,
					       HANDOVER_OPEN);
	if (c->op == CALL_RELEASE)
		handover_file_give(d->handover, c->slot);
}

struct daemon_lane {
	struct daemon *daemon;
	int socket;
};

static void *serve_calls(void *arg)
{
	struct daemon_lane *l = arg;
	struct buf data = BUF_INIT;
	struct call c;

	while (lib_remote_receive(l->socket, &c, sizeof(c))) {
		int passed = -1;

		buf_reset(&data);
		buf_reserve(&data, c.len + 1);
		if (!lib_remote_receive(l->socket, data.data, c.len))
			break;
		data.len = c.len;
		output_set_request(c.request);
		c.result = run_call(l->daemon, &c, &data, &passed);
		c.len = c.op == CALL_READ || c.op == CALL_DRAIN ? data.len : 0;
		if (!lib_remote_send(l->socket, &c, sizeof(c)) ||
		    !lib_remote_send(l->socket, data.data, c.len))
			break;
		if (passed >= 0)
			send_descriptor(l->socket, passed);
		note_told(l->daemon, &c);
	}
	_exit(0); /* the test has ended */
}

/* What the kernel asks again says which opens and closes were not told of. */
static void correct_files(struct daemon *d)
{
	for (uint32_t i = 0; i < atomic_load(&d->handover->files.limit); i++) {
		struct handover_file *f = slot_of(d, i);
		enum handover_file_state state = handover_file_state(f);

		for (unsigned int j = 0; j < d->orders->resent_count; j++) {
			if (atomic_load(&f->state) >> 2 != d->orders->resent[j])
				continue;
			if (state == HANDOVER_OPENING)
				atomic_store(&f->state, HANDOVER_FREE);
			else if (state == HANDOVER_RELEASING)
				atomic_store(&f->state, HANDOVER_OPEN);
		}
	}
}

static void restore_files(struct daemon *d)
{
	for (uint32_t i = 0; i < atomic_load(&d->handover->files.limit); i++) {
		struct handover_file *f = slot_of(d, i);

		if (handover_file_state(f) == HANDOVER_FREE)
			continue;
		d->files[i] = output_restored_file(d->o, i);
		backing_restore(d->backing, f->ino, (enum backing_mode)f->mode,
				f->backing_id, f->backing_dev, f->backing_ino);
	}
}

void mount_daemon(struct mount *s)
{
	static const struct backing_kernel kernel = {backing_id, backing_gone};
	const struct mount_orders *orders = s->orders;
	struct daemon *d = calloc(1, sizeof(*d));
	struct output_config config = {.state_dir = s->state,
				       .handover = s->handover,
				       .settle_ms = MOUNT_SETTLE_MS,
				       .ttl_ms = orders->ttl_ms,
				       .walk_ahead = orders->walk_ahead,
				       .nodes_max = orders->nodes_max,
				       .carry_max = orders->carry_max,
				       .append_objects = orders->appends,
				       .part_size = orders->part_size,
				       .fetch_max = orders->fetch_max,
				       .upload_parallel = 4,
				       .publish_interval_ms =
					       orders->publish_interval_ms};
	int store[MOUNT_STORE_LANES];
	struct why why = {""};

	d->orders = orders;
	d->handover = s->handover;
	correct_files(d);
	/* There is no kernel to be asked for requests. */
	s->handover->generation = 1;
	if (handover_begin(s->handover) < 0)
		_exit(2);
	s->handover->generation = orders->generation;
	for (int i = 0; i < MOUNT_STORE_LANES; i++)
		store[i] = connect_to(s->path, 's', i);
	for (int i = 0; i < MOUNT_LANES; i++)
		d->lanes[i] = connect_to(s->path, 'c', i);
	config.origin = lib_remote_new(&orders->like, store, MOUNT_STORE_LANES);
	if (backing_new(&kernel, false, &d->backing) < 0 ||
	    output_new(&config, &d->o, &why) < 0)
		give_up("a daemon cannot start: %s", why.text);
	restore_files(d);
	for (int i = 0; i < MOUNT_LANES; i++) {
		struct daemon_lane *l = calloc(1, sizeof(*l));
		pthread_t thread;

		*l = (struct daemon_lane){d, d->lanes[i]};
		pthread_create(&thread, NULL, serve_calls, l);
	}
	pause();
	_exit(0);
}
