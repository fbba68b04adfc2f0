/* SPDX-License-Identifier: Apache-2.0 */
/* Refused credentials, from the store through the renewal to the next try. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/creds.h"
#include "fs/backend/mem.h"
#include "fs/backend/retry.h"
#include "fs/backend/retry_step.h"
#include "fs/base/clock.h"
#include "tests/unit/lib_httpd.h"
#include "tests/unit/lib_origin.h"

/* A file of credentials, and a store that refuses the id "old" as OSS does. */
struct guarded {
	struct origin origin;
	struct origin *below;
	struct creds *creds;
	atomic_int asked, refused;
};

static void guarded_submit(struct origin *o, struct origin_req *req)
{
	struct guarded *g = (struct guarded *)o;
	struct creds_set set;
	int r = creds_get(g->creds, &set);

	atomic_fetch_add(&g->asked, 1);
	if (r == 0 && !strcmp(set.id, "old")) {
		atomic_fetch_add(&g->refused, 1);
		r = creds_invalidate(g->creds, &set);
	}
	if (r == 0)
		origin_submit(g->below, req);
	else
		origin_done(req, why_set(&req->why, r, "refused"));
}

static void guarded_stats(struct origin *o, struct origin_stats *stats)
{
	struct guarded *g = (struct guarded *)o;

	g->below->ops->stats(g->below, stats);
}

static void guarded_free(struct origin *o)
{
	struct guarded *g = (struct guarded *)o;

	origin_free(g->below);
	creds_close(g->creds);
}

static const struct origin_ops guarded_ops = {.name = "guarded",
					      .submit = guarded_submit,
					      .stats = guarded_stats,
					      .free = guarded_free};

static void write_credentials(const char *path, const char *id)
{
	char name[128];
	FILE *out;

	snprintf(name, sizeof(name), "%s.new", path);
	out = fopen(name, "we");
	assert_non_null(out);
	assert_int_equal(fchmod(fileno(out), 0600), 0);
	fprintf(out, "%s:secret\n", id);
	fclose(out);
	assert_int_equal(rename(name, path), 0);
}

static struct origin *open_guarded(struct guarded *g, const char *reference,
				   uint64_t budget_ms)
{
	struct retry_policy policy;
	struct origin *o;
	struct why why = {0};

	retry_policy_init(&policy, budget_ms);
	policy.credentials_ms = 300;
	*g = (struct guarded){.origin.ops = &guarded_ops};
	if (creds_open(reference, &g->creds, &why) != 0)
		fail_msg("%s", why.text);
	assert_int_equal(mem_origin_new(&g->below), 0);
	assert_int_equal(retry_origin_new(&g->origin, g->creds, &policy, &o), 0);
	return o;
}

static void test_refused_credentials_are_renewed_and_used_once(void **state)
{
	char reference[] = "passwd:/tmp/sluice-creds.XXXXXX", *path = reference + 7;
	struct guarded g;
	struct origin *o;

	(void)state;
	close(mkstemp(path));
	write_credentials(path, "old");
	o = open_guarded(&g, reference, PATIENCE_MS);
	write_credentials(path, "new");
	assert_int_equal(lib_put(o, "a", "x"), 0);
	assert_int_equal(atomic_load(&g.refused), 1);
	assert_int_equal(atomic_load(&g.asked), 2);
	origin_free(o);
	unlink(path);
}

static void test_credentials_that_stay_refused_are_final_soon(void **state)
{
	char reference[] = "passwd:/tmp/sluice-creds.XXXXXX", *path = reference + 7;
	uint64_t start = clock_mono_ms();
	struct guarded g;
	struct origin *o;

	(void)state;
	close(mkstemp(path));
	write_credentials(path, "old");
	o = open_guarded(&g, reference, 10 * PATIENCE_MS);
	assert_int_equal(lib_put(o, "a", "x"), -EACCES);
	assert_int_equal(atomic_load(&g.refused), 1);
	assert_true(clock_mono_ms() - start < PATIENCE_MS);
	origin_free(o);
	unlink(path);
}

/* The service that should give new ones is down: N12. */
static void script_service(struct httpd *service, const char *id)
{
	char body[128];

	if (!id) {
		httpd_reply(service, "GET /c", "503 Down", "", "", 0);
		return;
	}
	snprintf(body, sizeof(body), "{\"AccessKeyId\":\"%s\",\"AccessKeySecret\":\"s\"}",
		 id);
	httpd_reply(service, "GET /c", "200 OK", "", body, strlen(body));
}

static void test_a_reader_does_not_wait_for_ever_for_a_renewal(void **state)
{
	struct httpd *service = httpd_start(NULL, NULL);
	uint64_t start = clock_mono_ms();
	char reference[128];
	struct guarded g;
	struct origin *o;

	(void)state;
	snprintf(reference, sizeof(reference), "uri:%s/c", httpd_url(service));
	script_service(service, "old");
	for (int i = 0; i < 2; i++)
		script_service(service, NULL);
	o = open_guarded(&g, reference, 10 * PATIENCE_MS);
	assert_int_equal(lib_stat(o, "a", NULL), -EKEYEXPIRED);
	assert_in_range(clock_mono_ms() - start, 300, PATIENCE_MS);
	/* No request goes out while there is nothing to sign with. */
	assert_int_equal(atomic_load(&g.refused), 1);
	eventually(httpd_count(service) >= 3);
	origin_free(o);
	assert_true(httpd_finish(service));
}

static void finished(struct origin_req *req)
{
	atomic_fetch_add((atomic_int *)req->user, 1);
}

static void test_uploads_wait_until_one_renewal_serves_them_all(void **state)
{
	struct httpd *service = httpd_start(NULL, NULL);
	struct origin_req reqs[20];
	atomic_int done = 0;
	char reference[128];
	struct guarded g;
	struct origin *o;

	(void)state;
	snprintf(reference, sizeof(reference), "uri:%s/c", httpd_url(service));
	script_service(service, "old");
	script_service(service, NULL);
	script_service(service, "new");
	o = open_guarded(&g, reference, UINT64_MAX);
	for (int i = 0; i < 20; i++) {
		reqs[i] = (struct origin_req){.op = ORIGIN_PUT,
					      .key = "a",
					      .body = {.data = "x", .len = 1},
					      .done = finished,
					      .user = &done};
		origin_submit(o, &reqs[i]);
	}
	eventually(atomic_load(&done) == 20);
	for (int i = 0; i < 20; i++)
		assert_int_equal(reqs[i].result, 0);
	assert_int_equal(httpd_count(service), 3);
	assert_int_equal(atomic_load(&g.refused), 1);
	assert_int_equal(atomic_load(&g.asked), 40);
	origin_free(o);
	assert_true(httpd_finish(service));
}

TEST_MAIN(cmocka_unit_test(test_refused_credentials_are_renewed_and_used_once),
	  cmocka_unit_test(test_credentials_that_stay_refused_are_final_soon),
	  cmocka_unit_test(test_a_reader_does_not_wait_for_ever_for_a_renewal),
	  cmocka_unit_test(test_uploads_wait_until_one_renewal_serves_them_all))
