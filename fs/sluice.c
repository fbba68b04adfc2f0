/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public library: paths over the two trees, which speak in inodes. Each path is looked
 * up component by component, and the references are given back before the call ends, except
 * that of an open file.
 */
#include "fs/sluice.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/path.h"
#include "fs/config.h"
#include "fs/input.h"
#include "fs/output.h"
#include "fs/stack.h"

struct sluice {
	struct stack stack;
	struct config config;
	char *strings[5]; /* copies that config points to */
};

struct sluice_file {
	struct sluice *sluice;
	void *file; /* struct input_file or output_file */
	uint64_t ino;
	bool written;
};

static _Thread_local struct why last_error;

const char *sluice_error(void)
{
	return last_error.text;
}

static int failed(int r, const char *what, const char *path)
{
	if (r < 0)
		why_set(&last_error, r, "%s %s: %s", what, *path ? path : ".",
			strerror(-r));
	return r;
}

/* ---- opening --------------------------------------------------------------------------- */

static int keep(struct sluice *s, int slot, const char *text, const char **to)
{
	if (!text)
		return 0;
	s->strings[slot] = strdup(text);
	*to = s->strings[slot];
	return s->strings[slot] ? 0 : err_origin(-ENOMEM);
}

static int configure(struct sluice *s, int role, const char *source,
		     const struct sluice_options *o)
{
	struct config *c = &s->config;
	const char *kept = NULL;
	int none = 0, r;

	r = opt_parse(config_specs, c, &none, NULL, &last_error);
	if (r == 0)
		r = keep(s, 0, source, &kept);
	if (r == 0)
		r = keep(s, 1, o->endpoint, &c->endpoint);
	if (r == 0)
		r = keep(s, 2, o->region, &c->region);
	if (r == 0)
		r = keep(s, 3, o->credentials, &c->credentials);
	if (r < 0)
		return r;
	c->role = role;
	c->cache_dir = o->cache_dir;
	c->state_dir = o->state_dir;
	c->cache_size = o->cache_size;
	c->memory = o->memory ? o->memory : c->memory;
	c->ttl_ms = o->ttl_ms ? o->ttl_ms : c->ttl_ms;
	c->immutable = o->immutable;
	c->verify = o->verify_whole ? OBJECT_VERIFY_WHOLE : OBJECT_VERIFY_END;
	c->durability = o->remote ? OUTPUT_REMOTE : OUTPUT_LOCAL;
	return config_complete(c, kept, &last_error);
}

/* What the exit codes of stack_open() are to a caller of a library. */
static int errno_of(int exit_code)
{
	switch (exit_code) {
	case 77:
		return -EACCES;
	case 69:
		return -EHOSTUNREACH;
	case 64:
		return -EINVAL;
	default:
		return -EIO;
	}
}

static int open_role(int role, const char *source, const struct sluice_options *options,
		     struct sluice **out)
{
	const struct sluice_options none = SLUICE_OPTIONS_INIT;
	struct sluice *s;
	int r;

	last_error.text[0] = '\0';
	if (options && options->version != SLUICE_VERSION)
		return why_set(&last_error, -EINVAL,
			       "options of version %u; this library has %u",
			       options->version, SLUICE_VERSION);
	s = calloc(1, sizeof(*s));
	if (!s)
		return why_set(&last_error, -ENOMEM, "out of memory");
	r = configure(s, role, source, options ? options : &none);
	if (r == 0) {
		r = stack_open(&s->config, NULL, UINT64_MAX, &s->stack, &last_error);
		if (r > 0)
			r = errno_of(r);
	}
	if (r < 0) {
		sluice_done(s);
		return r;
	}
	*out = s;
	return 0;
}

int sluice_open_input(const char *source, const struct sluice_options *options,
		      struct sluice **out)
{
	return open_role(CONFIG_INPUT, source, options, out);
}

int sluice_open_output(const char *source, const struct sluice_options *options,
		       struct sluice **out)
{
	return open_role(CONFIG_OUTPUT, source, options, out);
}

void sluice_done(struct sluice *s)
{
	if (!s)
		return;
	stack_close(&s->stack);
	for (size_t i = 0; i < sizeof(s->strings) / sizeof(*s->strings); i++)
		free(s->strings[i]);
	free(s);
}

/* ---- paths ----------------------------------------------------------------------------- */

static int lookup(struct sluice *s, uint64_t parent, const char *name,
		  struct tree_attr *attr)
{
	return s->stack.input ? input_lookup(s->stack.input, parent, name, 0, attr)
			      : output_lookup(s->stack.output, parent, name, 0, attr);
}

static void forget(struct sluice *s, uint64_t ino)
{
	if (ino == TREE_ROOT)
		return;
	if (s->stack.input)
		input_forget(s->stack.input, ino, 1);
	else
		output_forget(s->stack.output, ino, 1);
}

static int root_attr(struct sluice *s, struct tree_attr *attr)
{
	return s->stack.input ? input_getattr(s->stack.input, TREE_ROOT, 0, attr)
			      : output_getattr(s->stack.output, TREE_ROOT, 0, attr);
}

/* The inode of the first `n` bytes of a path, with one reference. */
static int walk(struct sluice *s, const char *path, size_t n, struct tree_attr *attr)
{
	char name[PATH_NAME_MAX + 1];
	uint64_t at = TREE_ROOT;
	int r = root_attr(s, attr);

	while (r == 0 && n > 0) {
		const char *slash = memchr(path, '/', n);
		size_t len = slash ? (size_t)(slash - path) : n;
		uint64_t parent = at;

		if (path_name_check(path, len) != PATH_OK) {
			r = -EINVAL;
		} else {
			memcpy(name, path, len);
			name[len] = '\0';
			r = lookup(s, parent, name, attr);
		}
		forget(s, parent);
		if (r != 0)
			return r;
		at = attr->ino;
		n -= slash ? len + 1 : len;
		path += slash ? len + 1 : len;
	}
	return r;
}

/* The directory of a path's last component, with one reference, and where that begins. */
static int walk_parent(struct sluice *s, const char *path, uint64_t *parent,
		       const char **name)
{
	const char *slash = strrchr(path, '/');
	struct tree_attr attr;
	int r;

	*name = slash ? slash + 1 : path;
	if (path_name_check(*name, strlen(*name)) != PATH_OK)
		return -EINVAL;
	r = walk(s, path, slash ? (size_t)(slash - path) : 0, &attr);
	if (r == 0)
		*parent = attr.ino;
	return r;
}

static void to_stat(const struct tree_attr *attr, struct sluice_stat *out)
{
	*out = (struct sluice_stat){
		.size = attr->size,
		.mtime_ns = attr->mtime_ns,
		.mode = attr->mode,
	};
}

int sluice_stat(struct sluice *s, const char *path, struct sluice_stat *out)
{
	struct tree_attr attr;
	int r = walk(s, path, strlen(path), &attr);

	if (r != 0)
		return failed(r, "stat", path);
	forget(s, attr.ino);
	to_stat(&attr, out);
	return 0;
}

/* ---- listings -------------------------------------------------------------------------- */

struct listing {
	sluice_list_fn fn;
	void *arg;
	struct output *output; /* of whose directory `dir` it is; NULL: the input's */
	uint64_t dir;
	int result;
	uint64_t cookie; /* after the last entry seen */
	uint64_t count;  /* of this page */
};

static int fill(void *arg, const char *name, const struct tree_attr *attr, uint64_t next)
{
	struct listing *l = arg;
	struct tree_attr sure;
	struct sluice_stat st;

	l->cookie = next;
	l->count++;
	if (attr->unsure) {
		int r = output_lookup(l->output, l->dir, name, 0, &sure);

		if (r == -ENOENT)
			return 0; /* removed meanwhile */
		if (r < 0)
			return r;
		output_forget(l->output, sure.ino, 1);
		to_stat(&sure, &st);
	} else {
		to_stat(attr, &st);
	}
	l->result = l->fn(l->arg, name, &st);
	if (l->result)
		return TREE_E_FULL;
	if (l->output && !attr->unsure)
		output_forget(l->output, attr->ino, 1);
	return 0;
}

static int list_input(struct input *in, uint64_t ino, struct listing *l)
{
	struct input_dir *dir;
	int r = input_opendir(in, ino, 0, &dir);

	if (r != 0)
		return r;
	do {
		l->count = 0;
		r = input_readdir(dir, l->cookie, false, 0, fill, l);
	} while (r >= 0 && l->count && !l->result);
	input_closedir(dir);
	return r < 0 ? r : 0;
}

static int list_output(struct output *o, uint64_t ino, struct listing *l)
{
	struct output_dir *dir;
	int r = output_opendir(o, ino, 0, &dir);

	if (r != 0)
		return r;
	l->output = o;
	l->dir = ino;
	do {
		l->count = 0;
		r = output_readdir(dir, l->cookie, true, 0, fill, l);
	} while (r >= 0 && l->count && !l->result);
	output_closedir(dir);
	return r < 0 ? r : 0;
}

int sluice_list(struct sluice *s, const char *path, sluice_list_fn fn, void *arg)
{
	struct listing l = {.fn = fn, .arg = arg};
	struct tree_attr attr;
	int r = walk(s, path, strlen(path), &attr);

	if (r != 0)
		return failed(r, "list", path);
	r = s->stack.input ? list_input(s->stack.input, attr.ino, &l)
			   : list_output(s->stack.output, attr.ino, &l);
	forget(s, attr.ino);
	return r < 0 ? failed(r, "list", path) : l.result;
}

/* ---- files ----------------------------------------------------------------------------- */

static int open_input(struct sluice *s, const char *path, int flags,
		      struct sluice_file *f)
{
	struct tree_attr attr;
	struct input_file *file;
	int r;

	if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))
		return -EROFS;
	r = walk(s, path, strlen(path), &attr);
	if (r != 0)
		return r;
	r = input_open(s->stack.input, attr.ino, 0, &file);
	if (r != 0) {
		forget(s, attr.ino);
		return r;
	}
	f->ino = attr.ino;
	f->file = file;
	return 0;
}

static int create_output(struct sluice *s, const char *path, int flags, mode_t mode,
			 struct sluice_file *f)
{
	const struct output_owner owner = {getuid(), getgid()};
	struct output_file *file;
	struct tree_attr attr;
	const char *name;
	uint64_t parent;
	int r = walk_parent(s, path, &parent, &name);

	if (r != 0)
		return r;
	r = output_create(s->stack.output, parent, name, S_IFREG | (mode & 07777), flags,
			  owner, 0, &attr, &file);
	forget(s, parent);
	if (r != 0)
		return r;
	f->ino = attr.ino;
	f->file = file;
	return 0;
}

static int open_output(struct sluice *s, const char *path, int flags, mode_t mode,
		       struct sluice_file *f)
{
	struct output_file *file;
	struct tree_attr attr;
	int r = walk(s, path, strlen(path), &attr);

	f->written = (flags & O_ACCMODE) != O_RDONLY;
	if (r == -ENOENT && flags & O_CREAT)
		return create_output(s, path, flags, mode, f);
	if (r != 0)
		return r;
	r = flags & O_CREAT && flags & O_EXCL
		    ? -EEXIST
		    : output_open(s->stack.output, attr.ino, flags, 0, &file);
	if (r != 0) {
		forget(s, attr.ino);
		return r;
	}
	f->ino = attr.ino;
	f->file = file;
	return 0;
}

int sluice_open(struct sluice *s, const char *path, int flags, mode_t mode,
		struct sluice_file **out)
{
	struct sluice_file *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return failed(-ENOMEM, "open", path);
	f->sluice = s;
	r = s->stack.input ? open_input(s, path, flags, f)
			   : open_output(s, path, flags, mode, f);
	if (r != 0) {
		free(f);
		return failed(r, "open", path);
	}
	*out = f;
	return 0;
}

ssize_t sluice_read(struct sluice_file *f, void *data, size_t size, uint64_t offset)
{
	size_t got = 0, done = 0;
	int r = 0;

	do {
		r = f->sluice->stack.input
			    ? input_read(f->file, offset + done, (char *)data + done,
					 size - done, 0, &got)
			    : output_read(f->file, offset + done, (char *)data + done,
					  size - done, 0, &got);
		done += r == 0 ? got : 0;
	} while (r == 0 && got > 0 && done < size);
	return r < 0 ? failed(r, "read", "file") : (ssize_t)done;
}

int sluice_write(struct sluice_file *f, const void *data, size_t size, uint64_t offset)
{
	if (!f->written)
		return failed(-EBADF, "write", "file");
	return failed(output_write(f->file, offset, data, size, 0), "write", "file");
}

int sluice_sync(struct sluice_file *f)
{
	return f->written ? failed(output_fsync(f->file, false), "sync", "file") : 0;
}

int sluice_close(struct sluice_file *f)
{
	int r = 0;

	if (!f)
		return 0;
	if (f->written)
		r = output_flush(f->file);
	if (f->sluice->stack.input)
		input_close(f->file);
	else
		output_release(f->file);
	forget(f->sluice, f->ino);
	free(f);
	return failed(r, "close", "file");
}

/* ---- names ----------------------------------------------------------------------------- */

int sluice_mkdir(struct sluice *s, const char *path, mode_t mode)
{
	const struct output_owner owner = {getuid(), getgid()};
	struct tree_attr attr;
	const char *name;
	uint64_t parent;
	int r;

	if (s->stack.input)
		return failed(-EROFS, "mkdir", path);
	r = walk_parent(s, path, &parent, &name);
	if (r != 0)
		return failed(r, "mkdir", path);
	r = output_mkdir(s->stack.output, parent, name, S_IFDIR | (mode & 07777), owner,
			 &attr);
	if (r == 0)
		forget(s, attr.ino);
	forget(s, parent);
	return failed(r, "mkdir", path);
}

int sluice_remove(struct sluice *s, const char *path)
{
	struct tree_attr attr;
	const char *name;
	uint64_t parent;
	int r;

	if (s->stack.input)
		return failed(-EROFS, "remove", path);
	r = walk_parent(s, path, &parent, &name);
	if (r != 0)
		return failed(r, "remove", path);
	r = lookup(s, parent, name, &attr);
	if (r == 0) {
		forget(s, attr.ino);
		r = S_ISDIR(attr.mode) ? output_rmdir(s->stack.output, parent, name)
				       : output_unlink(s->stack.output, parent, name);
	}
	forget(s, parent);
	return failed(r, "remove", path);
}

int sluice_rename(struct sluice *s, const char *from, const char *to)
{
	const char *name, *new_name;
	uint64_t parent, new_parent;
	int r;

	if (s->stack.input)
		return failed(-EROFS, "rename", from);
	r = walk_parent(s, from, &parent, &name);
	if (r != 0)
		return failed(r, "rename", from);
	r = walk_parent(s, to, &new_parent, &new_name);
	if (r == 0) {
		r = output_rename(s->stack.output, parent, name, new_parent, new_name, 0);
		forget(s, new_parent);
	}
	forget(s, parent);
	return failed(r, "rename", from);
}

int sluice_flush(struct sluice *s, uint64_t timeout_ms)
{
	uint64_t deadline = timeout_ms ? clock_mono_ms() + timeout_ms : UINT64_MAX;
	int r = s->stack.output ? output_drain(s->stack.output, deadline, NULL) : 0;

	return r == OUTPUT_E_PENDING ? 1 : failed(r, "flush", "");
}
