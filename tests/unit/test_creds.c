/* SPDX-License-Identifier: Apache-2.0 */
/* Where credentials come from, and how they stay fresh, against a scripted service. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/creds.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "tests/unit/lib_httpd.h"

#define ROLES "/latest/meta-data/ram/security-credentials/"
#define NOW "Wed, 01 Jan 2025 00:00:00 GMT"

struct fixture {
	char home[64];
	int log_fd;
	struct httpd *service;
};

static const char *const variables[] = {
	"OSS_ACCESS_KEY_ID",
	"OSS_ACCESS_KEY_SECRET",
	"OSS_SESSION_TOKEN",
	"ALIBABA_CLOUD_ACCESS_KEY_ID",
	"ALIBABA_CLOUD_ACCESS_KEY_SECRET",
	"ALIBABA_CLOUD_SECURITY_TOKEN",
	"ALIBABA_CLOUD_CREDENTIALS_URI",
	"ALIBABA_CLOUD_ECS_METADATA",
	"ALIBABA_CLOUD_IMDSV1_DISABLED",
	"OSSUTIL_CONFIG_FILE",
	"OSSUTIL_PROFILE",
	"OSS_CREDENTIAL_FILE",
	"SLUICE_METADATA_ENDPOINT",
};

/* A home of its own, nothing in the environment, and the log in a file that no secret may
 * ever reach. */
static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true", 1);
	strcpy(f->home, "/tmp/sluice-home.XXXXXX");
	assert_non_null(mkdtemp(f->home));
	setenv("HOME", f->home, 1);
	f->log_fd = open(f->home, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_true(f->log_fd >= 0);
	log_set_fd(f->log_fd);
	log_set_debug("all");
	f->service = httpd_start(NULL, NULL);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char text[65536] = "";
	bool followed = httpd_finish(f->service);

	log_set_fd(STDERR_FILENO);
	assert_true(io_pread(f->log_fd, text, sizeof(text) - 1, 0) >= 0);
	assert_null(strstr(text, "SECRET-"));
	close(f->log_fd);
	io_remove_tree(AT_FDCWD, f->home);
	free(f);
	return followed ? 0 : -1;
}

static void use_metadata(struct fixture *f)
{
	unsetenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED");
	setenv("SLUICE_METADATA_ENDPOINT", httpd_url(f->service), 1);
}

static void write_home(struct fixture *f, const char *name, const char *text, mode_t mode)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->home, name);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(io_write(fd, text, strlen(text)), 0);
	close(fd);
}

/* `seconds` after NOW. */
static void script_credentials(struct fixture *f, const char *path, const char *id,
			       int seconds)
{
	char body[512], expect[256];

	snprintf(expect, sizeof(expect), "GET %s", path);
	snprintf(body, sizeof(body),
		 "{\"Code\":\"Success\",\"AccessKeyId\":\"%s\",\"AccessKeySecret\":"
		 "\"SECRET-%s\",\"SecurityToken\":\"TOKEN-%s\","
		 "\"Expiration\":\"2025-01-01T%02d:%02d:%02dZ\"}",
		 id, id, id, seconds / 3600, seconds / 60 % 60, seconds % 60);
	httpd_reply(f->service, expect, "200 OK", "Date: " NOW "\r\n", body,
		    strlen(body));
}

static void script_token(struct fixture *f)
{
	httpd_reply(f->service, "PUT /latest/api/token", "200 OK", "", "META-TOKEN", 10);
}

static struct creds *opened(const char *reference)
{
	struct creds *c = NULL;
	struct why why = {0};

	if (creds_open(reference, &c, &why) != 0)
		fail_msg("%s", why.text);
	return c;
}

static void assert_id(struct creds *c, const char *id)
{
	struct creds_set set;
	char secret[160];

	assert_int_equal(creds_get(c, &set), 0);
	assert_string_equal(set.id, id);
	snprintf(secret, sizeof(secret), "SECRET-%s", id);
	assert_string_equal(set.secret, secret);
	creds_set_wipe(&set);
	assert_string_equal(set.secret, "");
}

static void assert_not_opened(const char *reference, int r, const char *part)
{
	struct creds *c;
	struct why why = {0};

	assert_int_equal(creds_open(reference, &c, &why), r);
	if (!strstr(why.text, part))
		fail_msg("\"%s\" does not say \"%s\"", why.text, part);
	assert_null(strstr(why.text, "SECRET-"));
}

/* ---- sources -------------------------------------------------------------------------- */

static void test_the_environment_gives_a_key_or_a_session(void **state)
{
	struct creds_set set;
	struct creds *c;

	(void)state;
	setenv("OSS_ACCESS_KEY_ID", "id", 1);
	assert_not_opened("env", -EINVAL, "OSS_ACCESS_KEY_SECRET is not");
	setenv("OSS_ACCESS_KEY_SECRET", "SECRET-id", 1);
	setenv("OSS_SESSION_TOKEN", "token", 1);
	c = opened("env");
	assert_id(c, "id");
	assert_int_equal(creds_get(c, &set), 0);
	assert_string_equal(set.token, "token");
	assert_int_equal(creds_remaining_s(c), INT64_MAX);
	/* Nothing else can come out of an environment. */
	assert_int_equal(creds_invalidate(c, &set), -EACCES);
	assert_id(c, "id");
	creds_close(c);
	setenv("OSS_ACCESS_KEY_SECRET", "SECRET-\nX: 1", 1);
	assert_not_opened("env", -EINVAL, "control character");
}

static void test_anonymous_needs_nothing(void **state)
{
	struct creds *c = opened("anonymous");
	struct creds_set set;

	(void)state;
	assert_true(creds_is_anonymous(c));
	assert_int_equal(creds_get(c, &set), 0);
	assert_string_equal(set.id, "");
	creds_close(c);
}

static void test_references_are_checked(void **state)
{
	(void)state;
	assert_not_opened("LTAI:SECRET-pasted", -EINVAL, "a reference is env");
	assert_not_opened("file:", -EINVAL, "write file:PATH");
	assert_not_opened("env:x", -EINVAL, "nothing follows env");
	assert_not_opened("uri:ftp://x", -EINVAL, "http://");
	assert_not_opened("passwd:/no/such", -ENOENT, "/no/such");
	assert_not_opened("ram-role:../x", -EINVAL, "name of a role");
}

static void test_the_look_up_order(void **state)
{
	struct fixture *f = *state;
	struct creds *c;

	if (access("/etc/passwd-ossfs", F_OK) != 0)
		assert_not_opened(NULL, -ENOENT, "set OSS_ACCESS_KEY_ID");
	write_home(f, ".passwd-ossfs", "passwd:SECRET-passwd\nbucket:own:SECRET-own\n",
		   0600);
	c = opened(NULL);
	assert_id(c, "passwd");
	assert_non_null(strstr(creds_describe(c), "/.passwd-ossfs"));
	creds_close(c);
	assert_int_equal(creds_open_for("bucket", NULL, &c, NULL), 0);
	assert_id(c, "own");
	creds_close(c);
	write_home(f, ".ossutilconfig",
		   "[default]\naccessKeyId=util\naccessKeySecret=SECRET-util\n", 0600);
	c = opened(NULL);
	assert_id(c, "util");
	creds_close(c);
	script_credentials(f, "/uri", "uri", 3600);
	char url[128];
	snprintf(url, sizeof(url), "%s/uri", httpd_url(f->service));
	setenv("ALIBABA_CLOUD_CREDENTIALS_URI", url, 1);
	c = opened(NULL);
	assert_id(c, "uri");
	creds_close(c);
	setenv("OSS_ACCESS_KEY_ID", "env", 1);
	setenv("OSS_ACCESS_KEY_SECRET", "SECRET-env", 1);
	c = opened(NULL);
	assert_id(c, "env");
	creds_close(c);
}

static void test_the_first_source_decides_also_when_it_is_faulty(void **state)
{
	struct fixture *f = *state;

	write_home(f, ".passwd-ossfs", "passwd:SECRET-passwd\n", 0600);
	write_home(f, ".ossutilconfig", "[default]\naccessKeyId=util\n", 0644);
	assert_not_opened(NULL, -EACCES, "run chmod 600");
}

static void test_own_files_are_a_line_or_json(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set;
	struct creds *c;

	snprintf(reference, sizeof(reference), "file:%s/key", f->home);
	write_home(f, "key", "line:SECRET-line:tok\n", 0600);
	c = opened(reference);
	assert_id(c, "line");
	assert_int_equal(creds_get(c, &set), 0);
	assert_string_equal(set.token, "tok");
	creds_close(c);
	write_home(f, "key",
		   " {\"AccessKeyId\":\"json\",\"AccessKeySecret\":\"SECRET-json\"}",
		   0600);
	c = opened(reference);
	assert_id(c, "json");
	creds_close(c);
	write_home(f, "key", "SECRET-nothing else\n", 0600);
	assert_not_opened(reference, -EINVAL, "expected ID:SECRET");
}

/* ---- metadata service ----------------------------------------------------------------- */

static void test_the_metadata_service_is_asked_with_a_token(void **state)
{
	struct fixture *f = *state;
	char value[64];
	struct creds *c;

	use_metadata(f);
	script_token(f);
	httpd_reply(f->service, "GET " ROLES " ", "200 OK", "", "my-role\n", 8);
	script_credentials(f, ROLES "my-role", "role", 6 * 3600);
	c = opened("ram-role");
	assert_id(c, "role");
	assert_in_range(creds_remaining_s(c), 6 * 3600 - 10, 6 * 3600);
	creds_close(c);
	assert_string_equal(httpd_header(httpd_get(f->service, 0),
					 "X-aliyun-ecs-metadata-token-ttl-seconds", value,
					 sizeof(value)),
			    "300");
	for (size_t i = 1; i < 3; i++)
		assert_string_equal(httpd_header(httpd_get(f->service, i),
						 "X-aliyun-ecs-metadata-token", value,
						 sizeof(value)),
				    "META-TOKEN");
}

static void test_without_hardened_mode_it_is_asked_without(void **state)
{
	struct fixture *f = *state;
	char value[64];
	struct creds *c;

	use_metadata(f);
	setenv("ALIBABA_CLOUD_ECS_METADATA", "named", 1);
	httpd_reply(f->service, "PUT /latest/api/token", "404 Not Found", "", "", 0);
	script_credentials(f, ROLES "named", "role", 3600);
	c = opened(NULL);
	assert_id(c, "role");
	creds_close(c);
	assert_null(httpd_header(httpd_get(f->service, 1), "X-aliyun-ecs-metadata-token",
				 value, sizeof(value)));
	setenv("ALIBABA_CLOUD_IMDSV1_DISABLED", "true", 1);
	httpd_reply(f->service, "PUT /latest/api/token", "404 Not Found", "", "", 0);
	assert_not_opened("ram-role", -EACCES, "ALIBABA_CLOUD_IMDSV1_DISABLED");
}

static void test_what_is_wrong_with_the_service_is_said(void **state)
{
	struct fixture *f = *state;

	use_metadata(f);
	script_token(f);
	httpd_reply(f->service, "GET " ROLES " ", "404 Not Found", "", "", 0);
	assert_not_opened("ram-role", -ENOENT, "no RAM role is attached");
	script_token(f);
	httpd_reply(f->service, "GET " ROLES " ", "200 OK", "", "../../evil", 10);
	assert_not_opened("ram-role", -EIO, "not the name of a role");
	script_token(f);
	httpd_reply(f->service, "GET " ROLES "x ", "200 OK", "", "<html>SECRET-1", 14);
	assert_not_opened("ram-role:x", -EINVAL, "not a JSON object");
	httpd_reply(f->service, "PUT /latest/api/token", "500 Oops", "", "", 0);
	assert_not_opened("ram-role", -EIO, "no token, status 500");
	/* A redirect would carry the token elsewhere. */
	script_token(f);
	httpd_reply(f->service, "GET " ROLES " ", "302 Found",
		    "Location: http://127.0.0.1:1/\r\n", "", 0);
	assert_not_opened("ram-role", -EIO, "status 302");
	setenv("SLUICE_METADATA_ENDPOINT", "http://127.0.0.1:1", 1);
	assert_not_opened("ram-role", -ECONNREFUSED, "metadata service");
}

/* ---- freshness ------------------------------------------------------------------------ */

static bool has(struct creds *c, const char *id)
{
	struct creds_set set;

	return creds_get(c, &set) == 0 && !strcmp(set.id, id);
}

static char *uri(struct fixture *f, char out[128])
{
	snprintf(out, 128, "uri:%s/c?secret=SECRET-url", httpd_url(f->service));
	return out;
}

static void test_a_set_is_renewed_before_it_expires(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set;
	struct creds *c;
	uint64_t start;

	script_credentials(f, "/c", "first", 6);
	script_credentials(f, "/c", "second", 7200);
	start = clock_mono_ms();
	c = opened(uri(f, reference));
	assert_id(c, "first");
	assert_null(strstr(creds_describe(c), "SECRET-"));
	/* At half its life; the old one is good until then and beyond. */
	do {
		clock_sleep_ms(2);
		assert_int_equal(creds_get(c, &set), 0);
	} while (strcmp(set.id, "second") != 0);
	assert_true(clock_mono_ms() - start >= 2900);
	assert_in_range(creds_remaining_s(c), 7190, 7200);
	creds_close(c);
}

static void test_a_clock_that_is_wrong_expires_nothing(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds *c;

	/* By our clock 2025-01-01 is long over; by the service's it has just begun. */
	script_credentials(f, "/c", "x", 3600);
	c = opened(uri(f, reference));
	assert_in_range(creds_remaining_s(c), 3590, 3600);
	creds_close(c);
}

static void test_a_renewal_that_fails_leaves_the_old_set(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set;
	struct creds *c;

	script_credentials(f, "/c", "first", 3);
	httpd_reply(f->service, "GET /c", "500 Oops", "", "", 0);
	httpd_reply(f->service, "GET /c", "200 OK", "", "garbage", 7);
	script_credentials(f, "/c", "second", 7200);
	c = opened(uri(f, reference));
	eventually(httpd_count(f->service) >= 2);
	assert_int_equal(creds_get(c, &set), 0);
	assert_string_equal(set.id, "first");
	eventually(has(c, "second"));
	creds_close(c);
}

static void test_an_expired_set_is_not_given_out(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set = {.id = "untouched"};
	struct creds *c;

	script_credentials(f, "/c", "first", 1);
	for (int i = 0; i < 2; i++)
		httpd_reply(f->service, "GET /c", "500 Oops", "", "", 0);
	script_credentials(f, "/c", "second", 7200);
	c = opened(uri(f, reference));
	clock_sleep_ms(1010);
	assert_int_equal(creds_get(c, &set), -EKEYEXPIRED);
	assert_string_equal(set.id, "untouched");
	assert_int_equal(creds_wait_refresh(c, patience()), 0);
	assert_id(c, "second");
	creds_close(c);
}

static void test_a_refused_set_is_renewed_once_for_all(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set;
	struct creds *c;

	script_credentials(f, "/c", "first", 3600);
	script_credentials(f, "/c", "second", 3600);
	c = opened(uri(f, reference));
	assert_int_equal(creds_get(c, &set), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(creds_invalidate(c, &set), -EKEYEXPIRED);
	assert_int_equal(creds_wait_refresh(c, patience()), 0);
	assert_id(c, "second");
	/* Who comes late with the old set does not spoil the new one. */
	assert_int_equal(creds_invalidate(c, &set), -EKEYEXPIRED);
	assert_int_equal(creds_ready(c), 0);
	clock_sleep_ms(50);
	assert_int_equal(httpd_count(f->service), 2);
	creds_close(c);
}

static void test_a_source_that_insists_is_told_from_one_that_is_silent(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	struct creds_set set;
	struct creds *c;

	snprintf(reference, sizeof(reference), "passwd:%s/.passwd-ossfs", f->home);
	write_home(f, ".passwd-ossfs", "old:SECRET-old\n", 0600);
	c = opened(reference);
	assert_int_equal(creds_get(c, &set), 0);
	assert_int_equal(creds_invalidate(c, &set), -EKEYEXPIRED);
	assert_int_equal(creds_wait_refresh(c, patience()), -EACCES);
	assert_int_equal(creds_get(c, &set), -EACCES);
	/* The account may be set right without a new key: after a while it may be tried. */
	eventually(creds_ready(c) == 0);
	assert_id(c, "old");
	creds_close(c);
}

static void note(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void test_a_watcher_hears_of_renewals(void **state)
{
	struct fixture *f = *state;
	char reference[128];
	atomic_int calls = 0;
	struct creds_set set;
	struct creds *c;

	script_credentials(f, "/c", "first", 3600);
	script_credentials(f, "/c", "second", 3600);
	c = opened(uri(f, reference));
	creds_watch(c, note, &calls);
	assert_int_equal(creds_get(c, &set), 0);
	creds_invalidate(c, &set);
	eventually(has(c, "second"));
	eventually(atomic_load(&calls) > 0);
	assert_int_equal(atomic_load(&calls), 1);
	creds_watch(c, NULL, NULL);
	creds_close(c);
}

/* The sanitizers' shadow memory cannot be searched: their builds go without this case. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CORE_DUMP_CASE
#else
#define CORE_DUMP_CASE CASE(test_secrets_stay_out_of_core_dumps),

/* Finds the flags of the mapping that holds `p`. */
static void flags_of(const void *p, char *flags, size_t size)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	char line[512];
	bool inside = false;

	assert_non_null(maps);
	flags[0] = '\0';
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			snprintf(flags, size, "%s", line);
	}
	fclose(maps);
}

static void test_secrets_stay_out_of_core_dumps(void **state)
{
	struct creds *c;
	char flags[512];
	FILE *maps;
	char line[512];
	int found = 0;

	(void)state;
	setenv("OSS_ACCESS_KEY_ID", "id", 1);
	setenv("OSS_ACCESS_KEY_SECRET", "SECRET-canary", 1);
	c = opened("env");
	unsetenv("OSS_ACCESS_KEY_SECRET");
	/* Every copy in anonymous memory outside this stack and environment lies in a mapping
	 * that is not dumped. */
	maps = fopen("/proc/self/maps", "re");
	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char mode[8], *hit;

		if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 ||
		    strncmp(mode, "rw", 2) != 0 || strchr(line, '/') || strchr(line, '['))
			continue;
		hit = memmem((void *)from, to - from,
			     "SECRET-"
			     "canary",
			     13);
		if (!hit)
			continue;
		found++;
		flags_of(hit, flags, sizeof(flags));
		assert_non_null(strstr(flags, " dd"));
	}
	fclose(maps);
	assert_int_equal(found, 1);
	creds_close(c);
}
#endif

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

TEST_MAIN(CORE_DUMP_CASE CASE(test_the_environment_gives_a_key_or_a_session),
	  CASE(test_anonymous_needs_nothing), CASE(test_references_are_checked),
	  CASE(test_the_look_up_order),
	  CASE(test_the_first_source_decides_also_when_it_is_faulty),
	  CASE(test_own_files_are_a_line_or_json),
	  CASE(test_the_metadata_service_is_asked_with_a_token),
	  CASE(test_without_hardened_mode_it_is_asked_without),
	  CASE(test_what_is_wrong_with_the_service_is_said),
	  CASE(test_a_set_is_renewed_before_it_expires),
	  CASE(test_a_clock_that_is_wrong_expires_nothing),
	  CASE(test_a_renewal_that_fails_leaves_the_old_set),
	  CASE(test_an_expired_set_is_not_given_out),
	  CASE(test_a_refused_set_is_renewed_once_for_all),
	  CASE(test_a_source_that_insists_is_told_from_one_that_is_silent),
	  CASE(test_a_watcher_hears_of_renewals))
