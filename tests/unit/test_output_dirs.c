/* SPDX-License-Identifier: Apache-2.0 */
/* A store with real directories, where a name is a file or a directory: whatever exchanges
 * the two arrives, and nothing is only where it has just been removed. */
#include "tests/unit/lib_output.h"

#include "fs/backend/file.h"
#include "fs/base/cleanup.h"

#define LARGE (200u << 10) /* changed without being fetched */

static void set_up_dirs(struct rig *t)
{
	static char state[80];
	struct why why = {""};
	char dir[80];

	set_up(t);
	t->o = output_free(t->o);
	origin_free(t->origin);
	snprintf(dir, sizeof(dir), "%s/store", t->dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	if (file_origin_open(dir, false, &t->origin, &why) < 0)
		fail_msg("%s", why.text);
	assert_int_equal(fault_origin_new(t->origin, &t->origin), 0);
	/* The other one is that of the store in memory. */
	snprintf(state, sizeof(state), "%s/state", t->dir);
	t->config.state_dir = state;
	t->config.origin = t->origin;
	t->config.fetch_max = LARGE / 2;
	start(t);
}

static void put_tree(struct rig *t, const char *const *keys)
{
	for (; *keys; keys++)
		assert_int_equal(lib_put(t->origin, *keys, *keys), 0);
}

/* Each step is "old new", with "<> " before it for an exchange, "rm " or "mkdir ". */
static void take_steps(struct rig *t, const char *steps)
{
	char copy[256], *save = NULL, *base, *dir;
	const char *name;

	snprintf(copy, sizeof(copy), "%s", steps);
	for (char *s = strtok_r(copy, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		bool exchange = strncmp(s, "<> ", 3) == 0;

		if (strncmp(s, "rm ", 3) == 0) {
			assert_int_equal(remove_file(t, s + 3), 0);
		} else if (strncmp(s, "rmdir ", 6) == 0) {
			uint64_t parent = parent_of(t, s + 6, &name);

			assert_int_equal(output_rmdir(t->o, parent, name), 0);
		} else if (strncmp(s, "mkdir ", 6) == 0) {
			make_dir(t, s + 6);
		} else if (strncmp(s, "put ", 4) == 0) {
			put(t, s + 4, s + 4);
		} else {
			dir = exchange ? s + 3 : s;
			base = strchr(dir, ' ');
			*base = '\0';
			assert_int_equal(
				move(t, dir, base + 1, exchange ? RENAME_EXCHANGE : 0),
				0);
		}
	}
}

/* What each step is about, what is there before, what is done, what is there then ("key=text"
 * for what has another key's text). */
static const struct {
	const char *before[6], *steps, *after;
} cases[] = {
	{{"a", "b/c", "b/d/e"}, "a x,b a,x b", "a/c=b/c a/d/e=b/d/e b=a"},
	{{"a", "b/c", "b/d/e"}, "<> a b", "a/c=b/c a/d/e=b/d/e b=a"},
	{{"a"}, "rm a,mkdir a,put a/x", "a/x=a/x"},
	{{"b/c", "b/d"}, "rm b/c,rm b/d,rmdir b,put b", "b=b"},
	{{"b/c"}, "rm b/c,rmdir b,put b,rm b,mkdir b,put b/c", "b/c=b/c"},
	{{"a"}, "a x,mkdir a,x a/x", "a/x=a"},
	{{"a/x"}, "a/x t,rmdir a,t a", "a=a/x"},
	{{"a", "f", "b/c"}, "a t,b a,f b,t f", "a/c=b/c b=f f=a"},
	{{"a", "b"}, "a t,b u,mkdir a,mkdir b,t b/x,u a/x", "a/x=b b/x=a"},
	{{"a/b/c", "b/a"}, "a t,b a,t b", "a/a=b/a b/b/c=a/b/c"},
	{{"a/b/c", "a/d"}, "<> a/b/c a/d,a/b t,a/d a/b,t a/d", "a/b=a/b/c a/d/c=a/d"},
	{{"a/b", "c"}, "a/b t,c a/b,rm a/b,rmdir a,t a", "a=a/b"},
	{{"a", "b/c", "d/e"}, "b x,d b,a d,x a", "a/c=b/c b/e=d/e d=a"},
};

static void assert_texts(struct rig *t, const char *after, bool stored)
{
	char copy[256], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", after);
	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
		char *text = strchr(s, '=');

		*text++ = '\0';
		if (stored)
			lib_assert_content(t->origin, s, text);
		else
			assert_reads(t, s, text);
	}
}

/* Everything that the store has, but for marked directories: "a=, b/c=" */
static void assert_no_others(struct rig *t, const char *after)
{
	struct origin_req req = {.op = ORIGIN_LIST, .key = ""};
	struct buf keys = BUF_INIT;
	size_t files = 0, wanted = 0;

	req.list.recursive = true;
	req.list.entry = lib_note_entry;
	req.list.entry_arg = &keys;
	assert_int_equal(origin_list_all(t->origin, &req), 0);
	for (char *s = strtok(keys.data, " "); s; s = strtok(NULL, " "))
		files += s[strlen(s) - 1] != '/';
	for (; *after; after++)
		wanted += *after == '=';
	assert_int_equal(files, wanted);
	buf_fini(&keys);
}

/* Known by the process that does it or not, and with a restart before anything is sent. */
static void test_a_file_and_a_directory_exchange_names(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (int how = 0; how < 3; how++) {
			struct fault_rule away = {.op = ORIGIN_OP_N,
						  .error = -ECONNREFUSED};
			struct rig t;

			set_up_dirs(&t);
			print_message("%s, %d\n", cases[i].steps, how);
			put_tree(&t, cases[i].before);
			for (size_t k = 0; how == 1 && cases[i].before[k]; k++)
				assert_reads(&t, cases[i].before[k], cases[i].before[k]);
			take_steps(&t, cases[i].steps);
			assert_texts(&t, cases[i].after, false);
			if (how == 2) {
				fault_add(t.origin, &away);
				t.o = output_free(t.o);
				fault_clear(t.origin);
				start(&t);
			}
			drain(&t);
			assert_texts(&t, cases[i].after, true);
			assert_no_others(&t, cases[i].after);
			restart(&t);
			assert_texts(&t, cases[i].after, false);
			tear_down(&t);
		}
	}
}

static void test_a_link_and_a_directory_exchange_names(void **state)
{
	struct tree_attr attr;
	char target[64];
	struct rig t;

	(void)state;
	set_up_dirs(&t);
	assert_int_equal(output_symlink(t.o, TREE_ROOT, "a", "b/c", me, &attr), 0);
	output_forget(t.o, attr.ino, 1);
	make_dir(&t, "b");
	put(&t, "b/c", "text");
	drain(&t);
	restart(&t);
	assert_int_equal(move(&t, "a", "b", RENAME_EXCHANGE), 0);
	drain(&t);
	lib_assert_content(t.origin, "a/c", "text");
	restart(&t);
	assert_int_equal(
		output_readlink(t.o, walk(&t, "b", &attr), 0, target, sizeof(target)), 0);
	assert_string_equal(target, "b/c");
	tear_down(&t);
}

/* Its unchanged bytes are only in the object that has to go. */
static void test_a_changed_large_file_and_a_directory_exchange_names(void **state)
{
	_cleanup_(freep) char *want = malloc(LARGE);
	struct origin_req req = {.op = ORIGIN_PUT, .key = "a"};
	struct buf got = BUF_INIT;
	struct output_file *f;
	struct rig t;

	(void)state;
	set_up_dirs(&t);
	fill(want, LARGE, 1);
	req.body = (struct origin_body){.data = want, .len = LARGE};
	assert_int_equal(origin_call(t.origin, &req), 0);
	assert_int_equal(lib_put(t.origin, "b/c", "text"), 0);
	f = open_for(&t, "a", O_RDWR);
	assert_int_equal(output_write(f, 1000, "new", 3, 0), 0);
	memcpy(want + 1000, "new", 3);
	take_steps(&t, "<> a b");
	close_file(f);
	drain(&t);
	lib_assert_content(t.origin, "a/c", "text");
	assert_int_equal(lib_get(t.origin, "b", 0, ORIGIN_TO_END, NULL, &got), 0);
	assert_int_equal(got.len, LARGE);
	assert_memory_equal(got.data, want, LARGE);
	buf_fini(&got);
	tear_down(&t);
}

TEST_MAIN(cmocka_unit_test(test_a_file_and_a_directory_exchange_names),
	  cmocka_unit_test(test_a_link_and_a_directory_exchange_names),
	  cmocka_unit_test(test_a_changed_large_file_and_a_directory_exchange_names))
