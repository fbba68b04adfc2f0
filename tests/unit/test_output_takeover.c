/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model (lib_model.h) with a daemon that is killed again and again, and replaced
 * (lib_mount.h).
 *
 * Beside the single operations of the model several writers change one file at a time, each
 * its own blocks, past the daemon where that lets them, and files stay open across steps.
 *
 * SLUICE_SEED repeats a run (not its timing), SLUICE_STEPS makes it longer.
 */
#include "tests/unit/lib_model.h"

#include <jansson.h>
#include <pthread.h>

#include "tests/unit/lib_mount.h"

#define WRITERS (MOUNT_LANES - 1) /* the first lane is that of the single operations */
#define KEPT 3
#define BLOCK 4096
#define USED_MAX 64 /* open at a time */
#define DIRS_MAX 4096

struct sut {
	struct mount mount;
	struct kept {
		struct file *file;
		int plain;
	} kept[KEPT];
	struct used {
		uint64_t ino;
		unsigned int opens, forgets; /* these are due when it is closed */
	} used[USED_MAX];
	uint64_t dirs[DIRS_MAX];
	size_t dir_count;
};

struct file {
	uint64_t ino;
	uint32_t slot;
	int pass; /* the staged file, or -1 */
};

static _Thread_local int lane; /* of this thread */

/* ---- the tree --- */

static int ask(struct model *m, struct call *c, const void *in, struct buf *out, int *fd)
{
	return mount_ask(&m->sut->mount, lane, c, in, out, fd);
}

static struct call named(enum call_op op, uint64_t dir, const char *name)
{
	struct call c = {.op = op, .ino = dir, .slot = MOUNT_FILES_MAX};

	snprintf(c.name, sizeof(c.name), "%s", name);
	return c;
}

static struct call filed(enum call_op op, const struct file *f)
{
	return (struct call){.op = op, .slot = f->slot};
}

static void note_dir(struct sut *s, uint64_t ino)
{
	for (size_t i = 0; i < s->dir_count; i++) {
		if (s->dirs[i] == ino)
			return;
	}
	if (s->dir_count == DIRS_MAX)
		give_up("too many directories");
	s->dirs[s->dir_count++] = ino;
}

static int sut_lookup(struct model *m, uint64_t dir, const char *name,
		      struct tree_attr *attr)
{
	struct call c = named(CALL_LOOKUP, dir, name);
	int r = ask(m, &c, NULL, NULL, NULL);

	*attr = c.attr;
	if (r == 0 && S_ISDIR(attr->mode))
		note_dir(m->sut, attr->ino);
	return r;
}

/* 0 finds a free one. */
static struct used *find_used(struct sut *s, uint64_t ino)
{
	for (size_t i = 0; i < USED_MAX; i++) {
		if (s->used[i].ino == ino)
			return &s->used[i];
	}
	return NULL;
}

/* A kernel forgets no file that is open, and no directory above; here none at all. */
static void sut_forget(struct model *m, uint64_t ino)
{
	struct call c = named(CALL_FORGET, ino, "");
	struct used *u = find_used(m->sut, ino);

	for (size_t i = 0; i < m->sut->dir_count; i++) {
		if (m->sut->dirs[i] == ino)
			return;
	}
	if (u)
		u->forgets++;
	else
		ask(m, &c, NULL, NULL, NULL);
}

static void note_open(struct sut *s, uint64_t ino)
{
	struct used *u = find_used(s, ino);

	if (!u)
		u = find_used(s, 0);
	if (!u)
		give_up("too many open files");
	u->ino = ino;
	u->opens++;
}

static void note_closed(struct model *m, uint64_t ino)
{
	struct used *u = find_used(m->sut, ino);
	unsigned int forgets = u->forgets;

	if (--u->opens > 0)
		return;
	*u = (struct used){0};
	while (forgets-- > 0)
		sut_forget(m, ino);
}

static int open_with(struct model *m, struct call *c, int flags, struct file **out)
{
	struct file *f = calloc(1, sizeof(*f));
	int r;

	c->flags = flags;
	f->pass = -1;
	r = ask(m, c, NULL, NULL, &f->pass);
	f->slot = c->slot;
	f->ino = c->ino;
	if (r < 0) {
		free(f);
		return r;
	}
	note_open(m->sut, f->ino);
	*out = f;
	return 0;
}

static int sut_open(struct model *m, uint64_t ino, int flags, struct file **f)
{
	struct call c = named(CALL_OPEN, ino, "");

	return open_with(m, &c, flags, f);
}

static int sut_create(struct model *m, uint64_t dir, const char *name, int flags,
		      struct tree_attr *attr, struct file **f)
{
	struct call c = named(CALL_CREATE, dir, name);
	int r = open_with(m, &c, flags, f);

	*attr = c.attr;
	return r;
}

static int sut_read(struct model *m, struct file *f, uint64_t off, void *p, size_t n,
		    size_t *got)
{
	struct call c = filed(CALL_READ, f);
	struct buf out = BUF_INIT;
	ssize_t r;

	if (f->pass >= 0) {
		r = io_pread(f->pass, p, n, off);
		*got = r < 0 ? 0 : (size_t)r;
		return r < 0 ? (int)r : 0;
	}
	c.off = off;
	c.size = n;
	r = ask(m, &c, NULL, &out, NULL);
	*got = out.len;
	if (out.len)
		memcpy(p, out.data, out.len);
	buf_fini(&out);
	return (int)r;
}

static int sut_write(struct model *m, struct file *f, uint64_t off, const void *p,
		     size_t n)
{
	struct call c = filed(CALL_WRITE, f);

	if (f->pass >= 0)
		return io_pwrite(f->pass, p, n, off);
	c.off = off;
	c.len = n;
	return ask(m, &c, p, NULL, NULL);
}

static int sut_fsync(struct model *m, struct file *f)
{
	struct call c = filed(CALL_FSYNC, f);

	return ask(m, &c, NULL, NULL, NULL);
}

static int sut_flush(struct model *m, struct file *f)
{
	struct call c = filed(CALL_FLUSH, f);

	return ask(m, &c, NULL, NULL, NULL);
}

static void sut_release(struct model *m, struct file *f)
{
	struct call c = filed(CALL_RELEASE, f);

	if (f->pass >= 0)
		close(f->pass);
	ask(m, &c, NULL, NULL, NULL);
	note_closed(m, f->ino);
	free(f);
}

static int sut_truncate(struct model *m, uint64_t ino, uint64_t size)
{
	struct call c = named(CALL_TRUNCATE, ino, "");

	c.size = size;
	return ask(m, &c, NULL, NULL, NULL);
}

static int sut_rename(struct model *m, uint64_t from_dir, const char *from, uint64_t dir,
		      const char *to, unsigned int flags)
{
	struct call c = named(CALL_RENAME, from_dir, from);

	c.ino2 = dir;
	c.set = flags;
	snprintf(c.name2, sizeof(c.name2), "%s", to);
	return ask(m, &c, NULL, NULL, NULL);
}

/* A kernel asks for the removal of names only that it has found. */
static int remove_found(struct model *m, enum call_op op, uint64_t dir, const char *name)
{
	struct call c = named(op, dir, name);
	struct tree_attr attr;
	int r = sut_lookup(m, dir, name, &attr);

	if (r < 0)
		return r;
	sut_forget(m, attr.ino);
	return ask(m, &c, NULL, NULL, NULL);
}

static int sut_unlink(struct model *m, uint64_t dir, const char *name)
{
	return remove_found(m, CALL_UNLINK, dir, name);
}

static int sut_rmdir(struct model *m, uint64_t dir, const char *name)
{
	return remove_found(m, CALL_RMDIR, dir, name);
}

static int sut_mkdir(struct model *m, uint64_t dir, const char *name,
		     struct tree_attr *attr)
{
	struct call c = named(CALL_MKDIR, dir, name);
	int r = ask(m, &c, NULL, NULL, NULL);

	*attr = c.attr;
	if (r == 0)
		note_dir(m->sut, attr->ino);
	return r;
}

static int sut_count(struct model *m, uint64_t ino, int *count)
{
	struct call c = named(CALL_COUNT, ino, "");
	int r = ask(m, &c, NULL, NULL, NULL);

	*count = c.count;
	return r;
}

/* Each line of a receipt is what the store has. */
static void check_receipt(struct model *m, const char *text)
{
	json_t *receipt = json_loads(text, 0, NULL), *line;
	size_t i;

	if (!receipt)
		fail_msg("seed %llu: no receipt: %s", (unsigned long long)m->seed, text);
	json_array_foreach(receipt, i, line)
	{
		const char *key = json_string_value(json_object_get(line, "key"));
		const char *etag = json_string_value(json_object_get(line, "etag"));
		struct origin_attr attr;

		if (lib_stat(m->store, key, &attr) != 0 ||
		    json_integer_value(json_object_get(line, "size")) !=
			    (json_int_t)attr.size ||
		    strcmp(etag, attr.etag) != 0)
			fail_msg("seed %llu step %d: the receipt is wrong about %s",
				 (unsigned long long)m->seed, m->step, key);
	}
	json_decref(receipt);
}

static void sut_drain(struct model *m)
{
	struct call c = named(CALL_DRAIN, 0, "");
	struct buf receipt = BUF_INIT;

	if (ask(m, &c, NULL, &receipt, NULL) != 0)
		fail_msg("seed %llu step %d: not drained: %.*s",
			 (unsigned long long)m->seed, m->step, (int)receipt.len,
			 receipt.data);
	buf_append(&receipt, "", 1);
	check_receipt(m, receipt.data);
	buf_fini(&receipt);
}

/* ---- files that stay open ---------------------------------------------------------------------- */

static void write_both(struct model *m, struct file *f, int plain, uint64_t off, size_t n,
		       unsigned int seed)
{
	_cleanup_(freep) char *data = malloc(n + 1);

	for (size_t i = 0; i < n; i++)
		data[i] = (char)rand_r(&seed);
	if (io_pwrite(plain, data, n, off) != 0 || sut_write(m, f, off, data, n) != 0)
		give_up("seed %llu step %d: %s: a write fails",
			(unsigned long long)m->seed, m->step, m->last);
}

static void compare_both(struct model *m, struct file *f, int plain, uint64_t off,
			 size_t n)
{
	_cleanup_(freep) char *want = malloc(n + 1);
	_cleanup_(freep) char *have = malloc(n + 1);
	ssize_t r = io_pread(plain, want, n, off);
	size_t got = 0;
	int e = sut_read(m, f, off, have, n, &got);

	if (e != 0 || (ssize_t)got < r || memcmp(want, have, (size_t)r) != 0)
		give_up("seed %llu step %d: %s: a read of %zu bytes at %llu differs: %d, "
			"%zu of %zd",
			(unsigned long long)m->seed, m->step, m->last, n,
			(unsigned long long)off, e, got, r);
}

static void close_kept(struct model *m, struct kept *k)
{
	if (!k->file)
		return;
	same(m, sut_flush(m, k->file), 0);
	sut_release(m, k->file);
	close(k->plain);
	*k = (struct kept){0};
}

static bool open_both(struct model *m, int flags, struct kept *k)
{
	char path[64], plain[160];
	int r, want;

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "open %s flags %o", path, flags);
	k->plain = open(plain, flags | O_CLOEXEC, 0644);
	want = k->plain < 0 ? -errno : 0;
	r = open_ours(m, path, flags, &k->file);
	same(m, r, want);
	return want == 0;
}

static void use_kept(struct model *m)
{
	struct kept *k = &m->sut->kept[pick(m, KEPT)];
	uint64_t off = pick(m, SIZE_MAX_WRITE), n = 1 + pick(m, 3000);

	if (!k->file) {
		if (!open_both(m, O_RDWR | (pick(m, 2) ? O_CREAT : 0), k))
			*k = (struct kept){0};
		return;
	}
	snprintf(m->last, sizeof(m->last), "an open file, %llu bytes at %llu",
		 (unsigned long long)n, (unsigned long long)off);
	switch (pick(m, 8)) {
	case 0:
		close_kept(m, k);
		break;
	case 1:
		same(m, sut_fsync(m, k->file), 0);
		break;
	case 2:
	case 3:
		compare_both(m, k->file, k->plain, off, n);
		break;
	default:
		write_both(m, k->file, k->plain, off, n, (unsigned int)pick(m, 1 << 30));
	}
}

/* ---- several writers ---------------------------------------------------------------------------- */

struct writer {
	struct model *model;
	struct kept file;
	int index;
	unsigned int random;
	pthread_t thread;
};

/* Each has its own blocks. */
static void *writer_main(void *arg)
{
	struct writer *w = arg;
	unsigned int blocks = SIZE_MAX_WRITE / BLOCK / WRITERS;

	lane = 1 + w->index;
	for (int i = 0; i < 4; i++) {
		uint64_t block =
			rand_r(&w->random) % blocks * WRITERS + (unsigned)w->index;
		uint64_t off = block * BLOCK + rand_r(&w->random) % 1000;
		size_t n = 1 + (size_t)rand_r(&w->random) % 3000;

		write_both(w->model, w->file.file, w->file.plain, off, n,
			   (unsigned int)rand_r(&w->random));
		if (rand_r(&w->random) % 2 == 0 && sut_fsync(w->model, w->file.file) != 0)
			give_up("an fsync fails");
		if (rand_r(&w->random) % 2 == 0)
			compare_both(w->model, w->file.file, w->file.plain, off, n);
	}
	return NULL;
}

static void do_burst(struct model *m)
{
	struct writer w[WRITERS];
	char path[64], plain[160];

	random_path(m, path);
	plain_path(m, path, plain);
	snprintf(m->last, sizeof(m->last), "several write %s", path);
	for (int i = 0; i < WRITERS; i++) {
		int want;

		w[i] = (struct writer){
			.model = m, .index = i, .random = (unsigned int)pick(m, 1 << 30)};
		w[i].file.plain = open(plain, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		want = w[i].file.plain < 0 ? -errno : 0;
		same(m, open_ours(m, path, O_RDWR | O_CREAT, &w[i].file.file), want);
		if (want < 0)
			return; /* as for the first */
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&w[i].thread, NULL, writer_main, &w[i]);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(w[i].thread, NULL);
	compare_both(m, w[0].file.file, w[0].file.plain, 0, 2 * SIZE_MAX_WRITE);
	for (int i = 0; i < WRITERS; i++)
		close_kept(m, &w[i].file);
}

/* ---- the run ------------------------------------------------------------------------------------- */

static void set_up(struct model *m, struct sut *s, uint64_t seed)
{
	*s = (struct sut){0};
	mount_init(&s->mount, seed);
	make_model(m, seed);
	m->sut = s;
	*s->mount.orders =
		(struct mount_orders){.ttl_ms = pick(m, 2) ? 60000 : 1,
				      .nodes_max = pick(m, 2) ? 1 + pick(m, 30) : 0,
				      .carry_max = pick(m, 2) ? 1 : 0,
				      .publish_interval_ms = pick(m, 2) ? 20 : 0,
				      .part_size = PART,
				      .fetch_max = FETCH_MAX,
				      .walk_ahead = 1 + (uint32_t)pick(m, 6),
				      .passes = pick(m, 2),
				      .appends = pick(m, 2)};
	mount_begin(&s->mount, m->origin);
}

static void tear_down(struct model *m)
{
	mount_end(&m->sut->mount);
	mount_fini(&m->sut->mount);
	remove_model(m);
}

struct killer {
	struct sut *sut;
	useconds_t after_us;
	pthread_t thread;
};

static void *killer_main(void *arg)
{
	struct killer *k = arg;

	usleep(k->after_us);
	mount_kill(&k->sut->mount);
	return NULL;
}

/* An object that someone has open is not deleted: nothing is complete before. */
static void settle_open(struct model *m)
{
	struct stat st;

	for (int i = 0; i < KEPT; i++) {
		struct kept *k = &m->sut->kept[i];

		if (k->file && fstat(k->plain, &st) == 0 && st.st_nlink == 0)
			close_kept(m, k);
	}
	settle(m);
}

static void do_step(struct model *m)
{
	uint64_t dice = pick(m, 100);

	if (dice < 20)
		do_write(m);
	else if (dice < 45)
		do_burst(m);
	else if (dice < 70)
		use_kept(m);
	else if (dice < 78)
		do_rename(m);
	else if (dice < 83)
		do_remove(m);
	else if (dice < 88)
		do_mkdir(m);
	else if (dice < 91)
		do_truncate(m);
	else if (dice < 94)
		compare_dir(m, "", false);
	else if (dice < 96)
		do_fault(m);
	else if (dice < 98)
		settle_open(m);
	else
		usleep((useconds_t)pick(m, 50000));
}

/* Nothing is left but the store. */
static void lose_state(struct model *m)
{
	mount_end(&m->sut->mount);
	m->sut->dir_count = 0;
	assert_int_equal(io_remove_tree(AT_FDCWD, m->sut->mount.state), 0);
	mount_begin(&m->sut->mount, m->origin);
	compare_dir(m, "", false);
	forget_all(m);
}

static void run(uint64_t seed, int steps)
{
	struct sut sut;
	struct model m;

	set_up(&m, &sut, seed);
	put_trees(&m);
	for (m.step = 0; m.step < steps; m.step++) {
		struct killer k = {.sut = &sut, .after_us = (useconds_t)pick(&m, 8000)};
		bool kills = pick(&m, 4) == 0;

		if (kills)
			pthread_create(&k.thread, NULL, killer_main, &k);
		do_step(&m);
		if (kills)
			pthread_join(k.thread, NULL);
		forget_all(&m);
		if (getenv("SLUICE_TRACE"))
			print_message("%d%s\n", m.step, kills ? " killed" : "");
	}
	for (int i = 0; i < KEPT; i++)
		close_kept(&m, &sut.kept[i]);
	compare_dir(&m, "", false);
	forget_all(&m);
	settle(&m);
	lose_state(&m);
	tear_down(&m);
}

static void test_what_daemons_that_die_were_told_arrives(void **state)
{
	(void)state;
	run_seeds(run, 3, 80);
}

TEST_MAIN(cmocka_unit_test(test_what_daemons_that_die_were_told_arrives))
