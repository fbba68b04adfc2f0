/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model (lib_model.h) with a store that fails now and then, and restarts in between, after
 * which nothing of the store has been listed.
 *
 * SLUICE_SEED repeats a run, SLUICE_STEPS makes it longer.
 */
#include "tests/unit/lib_drain.h"
#include "tests/unit/lib_model.h"

struct sut {
	char state[80];
	struct output *o;
};

static void start(struct model *m)
{
	struct output_config config = {.origin = m->origin,
				       .state_dir = m->sut->state,
				       .ttl_ms = pick(m, 2) ? 60000 : 1,
				       .walk_ahead = 1 + (uint32_t)pick(m, 6),
				       .nodes_max = pick(m, 2) ? 1 + pick(m, 30) : 0,
				       .part_size = PART,
				       .fetch_max = FETCH_MAX,
				       .upload_parallel = 4,
				       .publish_interval_ms = 20};
	struct why why = {""};

	if (output_new(&config, &m->sut->o, &why) < 0)
		fail_msg("%s", why.text);
}

/* ---- the tree ------------------------------------------------------------------------------ */

static struct output_file *of(struct file *f)
{
	return (struct output_file *)f;
}

static int sut_lookup(struct model *m, uint64_t dir, const char *name,
		      struct tree_attr *attr)
{
	return output_lookup(m->sut->o, dir, name, 0, attr);
}

static void sut_forget(struct model *m, uint64_t ino)
{
	output_forget(m->sut->o, ino, 1);
}

static int sut_open(struct model *m, uint64_t ino, int flags, struct file **f)
{
	return output_open(m->sut->o, ino, flags, 0, (struct output_file **)f);
}

static int sut_create(struct model *m, uint64_t dir, const char *name, int flags,
		      struct tree_attr *attr, struct file **f)
{
	return output_create(m->sut->o, dir, name, 0644, flags, me, 0, attr,
			     (struct output_file **)f);
}

static int sut_read(struct model *m, struct file *f, uint64_t off, void *p, size_t n,
		    size_t *got)
{
	(void)m;
	return output_read(of(f), off, p, n, 0, got);
}

static int sut_write(struct model *m, struct file *f, uint64_t off, const void *p,
		     size_t n)
{
	(void)m;
	return output_write(of(f), off, p, n, 0);
}

static int sut_fsync(struct model *m, struct file *f)
{
	(void)m;
	return output_fsync(of(f), false);
}

static int sut_flush(struct model *m, struct file *f)
{
	(void)m;
	return output_flush(of(f));
}

static void sut_release(struct model *m, struct file *f)
{
	(void)m;
	output_release(of(f));
}

static int sut_truncate(struct model *m, uint64_t ino, uint64_t size)
{
	struct tree_attr attr = {.size = size};

	return output_setattr(m->sut->o, ino, OUTPUT_SET_SIZE, &attr);
}

static int sut_rename(struct model *m, uint64_t from_dir, const char *from, uint64_t dir,
		      const char *to, unsigned int flags)
{
	return output_rename(m->sut->o, from_dir, from, dir, to, flags);
}

static int sut_unlink(struct model *m, uint64_t dir, const char *name)
{
	return output_unlink(m->sut->o, dir, name);
}

static int sut_rmdir(struct model *m, uint64_t dir, const char *name)
{
	return output_rmdir(m->sut->o, dir, name);
}

static int sut_mkdir(struct model *m, uint64_t dir, const char *name,
		     struct tree_attr *attr)
{
	return output_mkdir(m->sut->o, dir, name, 0755, me, attr);
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

static int sut_count(struct model *m, uint64_t ino, int *count)
{
	struct output_dir *d;
	int r = output_opendir(m->sut->o, ino, 0, &d);

	if (r < 0)
		return r;
	r = output_readdir(d, 0, false, 0, count_name, count);
	output_closedir(d);
	return r;
}

static void sut_drain(struct model *m)
{
	struct buf receipt = BUF_INIT;

	if (lib_drain(m->sut->o, patience(), &receipt) != 0)
		fail_msg("seed %llu step %d: not drained: %s",
			 (unsigned long long)m->seed, m->step, receipt.data);
	buf_fini(&receipt);
}

/* ---- the run ------------------------------------------------------------------------------- */

static void run(uint64_t seed, int steps)
{
	struct sut sut;
	struct model m;

	make_model(&m, seed);
	m.sut = &sut;
	snprintf(sut.state, sizeof(sut.state), "%s/state", m.dir);
	start(&m);
	put_trees(&m);
	for (m.step = 0; m.step < steps; m.step++) {
		uint64_t dice = pick(&m, 100);

		if (dice < 40)
			do_write(&m);
		else if (dice < 60)
			do_rename(&m);
		else if (dice < 75)
			do_remove(&m);
		else if (dice < 87)
			do_mkdir(&m);
		else if (dice < 91)
			do_truncate(&m);
		else if (dice < 94)
			compare_dir(&m, "", false);
		else if (dice < 96)
			do_fault(&m);
		else if (dice < 97)
			settle(&m);
		if (dice >= 96) {
			snprintf(m.last, sizeof(m.last), "restart");
			forget_all(&m);
			output_free(sut.o);
			start(&m);
		}
		forget_all(&m);
		if (getenv("SLUICE_TRACE"))
			print_message("%d dice %d\n", m.step, (int)dice);
	}
	compare_dir(&m, "", false);
	forget_all(&m);
	settle(&m);
	output_free(sut.o);
	remove_model(&m);
}

static void test_random_operations_match_a_plain_directory(void **state)
{
	(void)state;
	run_seeds(run, 4, 250);
}

/* Most runs of this one hung: a directory waited for the key that was kept for the upload of a
 * file renamed meanwhile, and this for what lay below the directory to leave. */
static void test_a_directory_gets_the_key_of_an_upload_that_has_moved(void **state)
{
	(void)state;
	run(227223, 250);
}

TEST_MAIN(cmocka_unit_test(test_a_directory_gets_the_key_of_an_upload_that_has_moved),
	  cmocka_unit_test(test_random_operations_match_a_plain_directory))
