/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listing by several ranges at once says what one page after another says, whatever the
 * keys are. SLUICE_SEED repeats a run.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cache/lister.h"
#include "cache/listing.h"
#include "cache/split.h"
#include "fs/backend/fault.h"
#include "fs/backend/mem.h"
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "tests/unit/lib_origin.h"

/* The in-memory store with small pages, and as slow as the test says. */
struct paged {
	struct origin origin;
	struct origin *below;
	uint32_t page;
	_Atomic uint64_t latency_ms;
	atomic_int lists, others;
	atomic_int under_way, under_way_max; /* LISTs */
};

static void enter(struct paged *p)
{
	int now = atomic_fetch_add(&p->under_way, 1) + 1;
	int max = atomic_load(&p->under_way_max);

	while (now > max && !atomic_compare_exchange_weak(&p->under_way_max, &max, now))
		;
}

static void paged_submit(struct origin *o, struct origin_req *req)
{
	struct paged *p = (struct paged *)o;

	if (req->op == ORIGIN_LIST) {
		atomic_fetch_add(&p->lists, 1);
		enter(p);
		if (atomic_load(&p->latency_ms))
			clock_sleep_ms(atomic_load(&p->latency_ms));
		if (!req->list.count_max || req->list.count_max > p->page)
			req->list.count_max = p->page;
		/* Before the answer: the asker's next one may follow at once. */
		atomic_fetch_sub(&p->under_way, 1);
	} else {
		atomic_fetch_add(&p->others, 1);
	}
	origin_submit(p->below, req);
}

static void paged_free(struct origin *o)
{
	struct paged *p = (struct paged *)o;

	origin_free(p->below);
	free(p);
}

static const struct origin_ops paged_ops = {
	.name = "paged", .submit = paged_submit, .free = paged_free};

static struct paged *paged_new(uint32_t page)
{
	struct paged *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->origin.ops = &paged_ops;
	p->page = page;
	assert_int_equal(mem_origin_new(&p->below), 0);
	strcpy(p->origin.name, "test://paged");
	return p;
}

static uint64_t rng;

static uint64_t rnd(uint64_t n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

static void seed(void)
{
	const char *given = getenv("SLUICE_SEED");

	rng = given ? strtoull(given, NULL, 0) : clock_random() | 1;
	print_message("SLUICE_SEED=%llu\n", (unsigned long long)rng);
}

/* ---- reading a listing whole ---- */

static int note(void *arg, const struct listing_entry *e, uint64_t next)
{
	(void)next;
	buf_printf(arg, "%s%s\n", e->name, e->attr.is_dir ? "/" : "");
	return 0;
}

static int read_all(struct listing *l, struct buf *out)
{
	uint64_t at = 0;
	int r;

	/* Positions are where fn was last told to go on. */
	(void)at;
	do {
		buf_reset(out);
		r = listing_each(l, 0, false, NULL, note, out);
		if (r == LISTING_E_WAIT)
			clock_sleep_ms(1);
	} while (r == LISTING_E_WAIT);
	return r;
}

static struct listing *fetch(struct paged *p, struct origin *o, const char *dir,
			     struct buf *out, int *r)
{
	struct lister *x;
	struct listing *l;

	assert_int_equal(lister_new(o, &x), 0);
	assert_int_equal(listing_new(dir, 0, NULL, &l), 0);
	atomic_store(&p->lists, 0);
	assert_true(lister_start(x, l, dir, NULL, NULL, NULL));
	*r = read_all(l, out);
	lister_free(x);
	return l;
}

/* One page after another into a listing of one range. */
static struct listing *fetch_alone(struct origin *o, const char *dir, struct buf *out)
{
	struct origin_req req = {.op = ORIGIN_LIST, .key = dir};
	struct listing_range *range;
	struct listing *l;

	assert_int_equal(listing_new(dir, 0, NULL, &l), 0);
	range = listing_first_range(l);
	req.list.entry = listing_add;
	req.list.entry_arg = range;
	assert_int_equal(origin_list_all(o, &req), 0);
	listing_range_done(range);
	listing_count_twins(l);
	listing_done(l, 0);
	assert_int_equal(read_all(l, out), LISTING_E_END);
	return l;
}

static void assert_same(struct paged *p, const char *dir)
{
	struct buf one = BUF_INIT, many = BUF_INIT;
	struct listing *a, *b;
	struct listing_entry e;
	char *name, *rest;
	int pages, alone, r;

	atomic_store(&p->lists, 0);
	a = fetch_alone(&p->origin, dir, &one);
	alone = atomic_load(&p->lists);
	b = fetch(p, &p->origin, dir, &many, &r);
	pages = atomic_load(&p->lists);
	assert_int_equal(r, LISTING_E_END);
	assert_string_equal(many.data ? many.data : "", one.data ? one.data : "");
	assert_int_equal(listing_facts(b).count, listing_facts(a).count);
	assert_int_equal(listing_facts(b).hidden, listing_facts(a).hidden);
	assert_int_equal(listing_facts(b).shadowed, listing_facts(a).shadowed);
	if (pages > alone + alone * 3 / 10 + LISTER_WASTE + LISTER_PARALLEL)
		fail_msg("%d pages where %d would do", pages, alone);
	/* Every name is found, and nothing else. */
	rest = many.data;
	while (rest && (name = strsep(&rest, "\n")) && *name) {
		size_t n = strlen(name);
		bool is_dir = name[n - 1] == '/';

		if (is_dir)
			name[--n] = '\0';
		assert_int_equal(listing_find(b, name, true, &e), 0);
		assert_int_equal(e.attr.is_dir, is_dir);
	}
	assert_int_equal(listing_find(b, "no such name", true, &e), LISTING_E_END);
	listing_put(a);
	listing_put(b);
	buf_fini(&one);
	buf_fini(&many);
}

/* ---- keys ---- */

static size_t put_byte(char *key, size_t n, int kind)
{
	static const char pieces[] = "abc./-_0";
	static const char *const characters[] = {"\xe4\xb8\xad", "\xe6\x96\x87",
						 "\xc3\xa9", "\xf0\x9f\x98\x80"};
	const char *c;

	switch (kind) {
	case 0: /* few bytes, slashes everywhere */
		key[n++] = pieces[rnd(sizeof(pieces) - 1)];
		break;
	case 1: /* any byte but NUL, and what separates names below */
		key[n++] = (char)(11 + rnd(245));
		break;
	case 2: /* the last ones */
		key[n++] = rnd(2) ? '\xff' : '\xfe';
		break;
	case 3:
		c = characters[rnd(4)];
		n = (size_t)(stpcpy(key + n, c) - key);
		break;
	default:
		key[n++] = (char)('0' + rnd(10));
	}
	return n;
}

static void put_random(struct paged *p, const char *dir, int kind, size_t prefix)
{
	char key[1100];
	size_t n = (size_t)(stpcpy(key, dir) - key), end;

	for (size_t i = 0; i < prefix; i++)
		key[n++] = (char)('a' + i % 3);
	end = n + 1 + rnd(9);
	while (n < end)
		n = put_byte(key, n, kind);
	key[n] = '\0';
	if (key[0] != '/')
		lib_put(p->below, key, "x");
}

static void test_any_keys_are_listed_as_one_page_after_another(void **state)
{
	static const char *const dirs[] = {"", "d/", "some/where/deep/"};

	(void)state;
	seed();
	for (int round = 0; round < 30; round++) {
		struct paged *p = paged_new((uint32_t)(1 + rnd(30)));
		const char *dir = dirs[rnd(3)];
		int kind = (int)rnd(5), count = (int)rnd(1500);
		size_t prefix = rnd(3) ? 0 : rnd(240);

		for (int i = 0; i < count; i++)
			put_random(p, dir, rnd(20) ? kind : (int)rnd(5),
				   rnd(10) ? prefix : 0);
		assert_same(p, dir);
		origin_free(&p->origin);
	}
}

static void put_numbered(struct paged *p, const char *before, int digits,
			 const char *after, int count)
{
	char key[100];

	for (int i = 0; i < count; i++) {
		snprintf(key, sizeof(key), "%s%0*d%s", before, digits, i, after);
		lib_put(p->below, key, "x");
	}
}

static void test_a_long_listing_is_fetched_by_many_at_once(void **state)
{
	static const struct {
		const char *dir, *before, *after;
		int digits;
	} sets[] = {{"", "img_", ".jpg", 8}, {"d/", "", "", 0}, {"train/", "n", "/x", 5}};

	(void)state;
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		struct paged *p = paged_new(10);
		const char *dir = sets[i].dir;
		char before[32];
		uint64_t began;

		snprintf(before, sizeof(before), "%s%s", dir, sets[i].before);
		put_numbered(p, before, sets[i].digits, sets[i].after, 10000);
		assert_same(p, dir);
		atomic_store(&p->latency_ms, 5);
		atomic_store(&p->under_way_max, 0);
		began = clock_mono_ms();
		{
			struct buf b = BUF_INIT;
			int r;

			listing_put(fetch(p, &p->origin, dir, &b, &r));
			buf_fini(&b);
		}
		print_message("%s: %d requests, %llu ms\n", before,
			      atomic_load(&p->lists),
			      (unsigned long long)(clock_mono_ms() - began));
		assert_true(atomic_load(&p->lists) <= 1300 + LISTER_WASTE);
		assert_in_range(atomic_load(&p->under_way_max), LISTER_PARALLEL / 2,
				LISTER_PARALLEL);
		assert_int_equal(atomic_load(&p->others), 0);
		origin_free(&p->origin);
	}
}

static void test_short_listings_cost_what_they_must(void **state)
{
	struct paged *p = paged_new(10);
	struct buf b = BUF_INIT;
	int r;

	(void)state;
	put_numbered(p, "a/", 6, "", 10);
	put_numbered(p, "b/", 6, "", 29);
	listing_put(fetch(p, &p->origin, "none/", &b, &r));
	assert_int_equal(atomic_load(&p->lists), 1);
	listing_put(fetch(p, &p->origin, "a/", &b, &r));
	assert_int_equal(atomic_load(&p->lists), 1);
	listing_put(fetch(p, &p->origin, "b/", &b, &r));
	assert_int_equal(atomic_load(&p->lists), 3);
	buf_fini(&b);
	origin_free(&p->origin);
}

static void test_a_failed_page_fails_the_listing(void **state)
{
	struct paged *p = paged_new(10);
	struct origin *faulty;
	struct buf whole = BUF_INIT, b = BUF_INIT;
	int failed = 0;

	(void)state;
	seed();
	put_numbered(p, "", 6, "", 3000);
	listing_put(fetch_alone(&p->origin, "", &whole));
	assert_int_equal(fault_origin_new(&p->origin, &faulty), 0);
	for (unsigned int i = 0; i < 20; i++) {
		struct fault_rule rule = {.op = ORIGIN_LIST,
					  .skip = (unsigned int)rnd(300),
					  .count = 1,
					  .error = -ECONNRESET,
					  .cut = rnd(2),
					  .cut_after = rnd(10)};
		struct listing *l;
		int r;

		fault_clear(faulty);
		fault_add(faulty, &rule);
		l = fetch(p, faulty, "", &b, &r);
		/* A page may have ended before the fault. */
		failed += r == -ECONNRESET;
		assert_true(r == -ECONNRESET || r == LISTING_E_END);
		assert_int_equal(r == LISTING_E_END, b.len == whole.len);
		assert_memory_equal(b.len ? b.data : "", whole.data, b.len);
		listing_put(l);
	}
	assert_true(failed > 10);
	buf_fini(&whole);
	buf_fini(&b);
	origin_free(faulty);
}

static void test_readers_see_the_start_while_it_goes_on(void **state)
{
	struct paged *p = paged_new(10);
	struct listing_entry e;
	struct lister *x;
	struct listing *l;

	(void)state;
	put_numbered(p, "", 6, "", 2000);
	atomic_store(&p->latency_ms, 20);
	assert_int_equal(lister_new(&p->origin, &x), 0);
	assert_int_equal(listing_new("", 0, NULL, &l), 0);
	assert_true(lister_start(x, l, "", NULL, NULL, NULL));
	assert_int_equal(listing_at(l, 0, false, NULL, &e), 0);
	assert_string_equal(e.name, "000000");
	assert_false(listing_facts(l).complete);
	/* In order from there on, wherever the pages come from. */
	for (int i = 0; i < 2000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%06d", i);
		assert_int_equal(listing_at(l, (uint64_t)i, false, NULL, &e), 0);
		assert_string_equal(e.name, name);
	}
	assert_int_equal(listing_at(l, 2000, false, NULL, &e), LISTING_E_END);
	lister_free(x);
	listing_put(l);
	origin_free(&p->origin);
}

static void test_closing_ends_a_listing_under_way(void **state)
{
	struct paged *p = paged_new(10);
	struct buf b = BUF_INIT;
	struct lister *x;
	struct listing *l;

	(void)state;
	put_numbered(p, "", 6, "", 3000);
	atomic_store(&p->latency_ms, 10);
	assert_int_equal(lister_new(&p->origin, &x), 0);
	assert_int_equal(listing_new("", 0, NULL, &l), 0);
	assert_true(lister_start(x, l, "", NULL, NULL, NULL));
	clock_sleep_ms(60);
	lister_free(x);
	assert_true(listing_facts(l).complete);
	assert_int_equal(read_all(l, &b), -ECANCELED);
	buf_fini(&b);
	listing_put(l);
	origin_free(&p->origin);
}

TEST_MAIN(cmocka_unit_test(test_any_keys_are_listed_as_one_page_after_another),
	  cmocka_unit_test(test_a_long_listing_is_fetched_by_many_at_once),
	  cmocka_unit_test(test_short_listings_cost_what_they_must),
	  cmocka_unit_test(test_a_failed_page_fails_the_listing),
	  cmocka_unit_test(test_readers_see_the_start_while_it_goes_on),
	  cmocka_unit_test(test_closing_ends_a_listing_under_way))
