/* SPDX-License-Identifier: Apache-2.0 */
/* Credential files: what they say, and who may read them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/creds_file.h"
#include "fs/base/err.h"
#include "fs/base/io.h"

static void assert_says(const struct why *why, const char *part)
{
	if (!strstr(why->text, part))
		fail_msg("\"%s\" does not say \"%s\"", why->text, part);
	/* Every secret in these tests has this in it. */
	if (strstr(why->text, "SECRET-"))
		fail_msg("\"%s\" tells a secret", why->text);
}

/* ---- ossfs ---------------------------------------------------------------------------- */

static struct creds_set passwd(const char *text, const char *bucket)
{
	struct creds_set set;
	struct why why = {0};

	if (creds_parse_passwd(text, strlen(text), "file", bucket, &set, &why) != 0)
		fail_msg("%s", why.text);
	return set;
}

static void refuse_passwd(const char *text, const char *part)
{
	struct creds_set set;
	struct why why = {0};

	assert_int_equal(creds_parse_passwd(text, strlen(text), "file", "b1", &set, &why),
			 -EINVAL);
	assert_says(&why, part);
}

static void test_passwd_has_a_default_pair_and_pairs_of_buckets(void **state)
{
	const char *text =
		"# comment\n\n  \nb1:id1:SECRET-1\r\nid0:SECRET-0\nb2:id2:SECRET-2";

	(void)state;
	assert_string_equal(passwd(text, NULL).id, "id0");
	assert_string_equal(passwd(text, "other").secret, "SECRET-0");
	assert_string_equal(passwd(text, "b1").id, "id1");
	assert_string_equal(passwd(text, "b1").secret, "SECRET-1");
	assert_string_equal(passwd(text, "b2").secret, "SECRET-2");
	assert_string_equal(
		passwd("OSSAccessKeyId=id\nOSSSecretKey=SECRET-=x\n", NULL).secret,
		"SECRET-=x");
}

static void test_wrong_passwd_lines_are_named_by_number(void **state)
{
	char text[10000];

	(void)state;
	refuse_passwd("", "no line ID:SECRET");
	refuse_passwd("other:id:SECRET-1\n", "nor one for bucket b1");
	refuse_passwd("a:SECRET-1\nb:SECRET-2\n", "file:2: a second default");
	refuse_passwd("b1:a:SECRET-1\nb1:b:SECRET-2\n", "file:2: a second line");
	refuse_passwd("\n[default]\n", "file:2: a line may not start with '['");
	refuse_passwd("id :SECRET-1\n", "file:1: a blank");
	refuse_passwd("SECRET-alone\n", "file:1: expected ID:SECRET");
	refuse_passwd("a:b:c:SECRET-1\n", "file:1: expected");
	refuse_passwd("id:\n", "secret is missing");
	refuse_passwd(":SECRET-1\n", "id is empty");
	refuse_passwd("id:SECRET-\x01\n", "control character");
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	refuse_passwd(text, "file:1: not a line");
	text[600] = '\0';
	memcpy(text, "id:", 3);
	refuse_passwd(text, "file:1: the value is too long");
}

/* ---- ossutil -------------------------------------------------------------------------- */

static struct creds_ossutil ossutil(const char *text, const char *profile)
{
	struct creds_ossutil config;
	struct why why = {0};

	if (creds_parse_ossutil(text, strlen(text), "file", profile, &config, &why) != 0)
		fail_msg("%s", why.text);
	return config;
}

static void test_ossutil_1_and_2_are_understood(void **state)
{
	const char *one = "[Credentials]\nlanguage=EN\nendpoint=oss.example\n"
			  "accessKeyID=id1\naccessKeySecret=SECRET-1\nstsToken=t1\n"
			  "[Bucket-Endpoint]\naccessKeyID=wrong\n";
	const char *two = "; two\n[default]\nAccess-Key-Id = id2\n"
			  "access_key_secret\t=\tSECRET-2\nregion = cn-x\n"
			  "[profile dev]\nsource-profile = default\naccessKeyId = id3\n"
			  "[buckets b]\naccessKeyId = wrong\n";

	(void)state;
	assert_string_equal(ossutil(one, "").set.id, "id1");
	assert_string_equal(ossutil(one, "").set.secret, "SECRET-1");
	assert_string_equal(ossutil(one, "").set.token, "t1");
	assert_string_equal(ossutil(two, "").set.id, "id2");
	assert_string_equal(ossutil(two, "").set.secret, "SECRET-2");
	assert_string_equal(ossutil(two, "dev").set.id, "id3");
	assert_string_equal(ossutil(two, "dev").set.secret, "SECRET-2");
}

static void test_ossutil_names_services(void **state)
{
	struct creds_ossutil config =
		ossutil("[Credentials]\nmode=EcsRamRole\necsRoleName=r\n"
			"[AkService]\necsAk=http://100.100.100.200/x\n",
			"");

	(void)state;
	assert_string_equal(config.mode, "EcsRamRole");
	assert_string_equal(config.role, "r");
	assert_string_equal(config.service, "http://100.100.100.200/x");
}

static void refuse_ossutil(const char *text, const char *profile, const char *part)
{
	struct creds_ossutil config;
	struct why why = {0};

	assert_int_equal(
		creds_parse_ossutil(text, strlen(text), "file", profile, &config, &why),
		-EINVAL);
	assert_says(&why, part);
}

static void test_wrong_ossutil_files_are_refused(void **state)
{
	(void)state;
	refuse_ossutil("", "", "no profile default");
	refuse_ossutil("[default]\n", "dev", "no profile dev");
	refuse_ossutil("[default]\nSECRET-without-name\n", "", "file:2: expected");
	refuse_ossutil(
		"[default]\nsource-profile=a\n[profile a]\nsource-profile=default\n", "",
		"circle");
	refuse_ossutil("[default]\nsource-profile=gone\n", "", "no profile gone");
}

/* ---- JSON ----------------------------------------------------------------------------- */

static int json(const char *text, struct creds_reply *reply, struct why *why)
{
	return creds_parse_json(text, strlen(text), "service", 1735689600, reply, why);
}

static void test_json_of_a_service(void **state)
{
	struct creds_reply reply;
	struct why why = {0};

	(void)state;
	assert_int_equal(json("{\"Code\":\"Success\",\"AccessKeyId\":\"STS.x\","
			      "\"AccessKeySecret\":\"SECRET-1\",\"SecurityToken\":\"tt\","
			      "\"Expiration\":\"2025-01-01T06:00:00Z\",\"More\":[1]}",
			      &reply, &why),
			 0);
	assert_string_equal(reply.set.id, "STS.x");
	assert_string_equal(reply.set.token, "tt");
	assert_int_equal(reply.lifetime_s, 6 * 3600);
	assert_int_equal(json("{\"AccessKeyId\":\"a\",\"AccessKeySecret\":\"SECRET-1\"}",
			      &reply, &why),
			 0);
	assert_int_equal(reply.lifetime_s, 0);
}

static void test_wrong_json_is_refused_without_quoting_it(void **state)
{
	static const struct {
		const char *text, *part;
		int r;
	} cases[] = {
		{"", "not a JSON object", -EINVAL},
		{"<html>SECRET-1</html>", "not a JSON object", -EINVAL},
		{"[]", "not a JSON object", -EINVAL},
		{"{\"AccessKeyId\":\"a\",\"AccessKeyId\":\"SECRET-1\"}", "not a JSON",
		 -EINVAL},
		{"{}", "id is empty", -EINVAL},
		{"{\"AccessKeyId\":\"a\"}", "secret is missing", -EINVAL},
		{"{\"AccessKeyId\":1,\"AccessKeySecret\":\"SECRET-1\"}",
		 "AccessKeyId is not", -EINVAL},
		{"{\"AccessKeyId\":\"a\",\"AccessKeySecret\":\"SECRET-\\r\\nX: 1\"}",
		 "control character", -EINVAL},
		{"{\"Code\":\"Failed\"}", "code Failed", -EIO},
		{"{\"AccessKeyId\":\"a\",\"AccessKeySecret\":\"SECRET-1\","
		 "\"Expiration\":\"tomorrow\"}",
		 "Expiration is not like", -EINVAL},
		{"{\"AccessKeyId\":\"a\",\"AccessKeySecret\":\"SECRET-1\","
		 "\"Expiration\":\"2024-12-31T23:59:00Z\"}",
		 "expired 60 s ago", -EKEYEXPIRED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct creds_reply reply;
		struct why why = {0};

		assert_int_equal(json(cases[i].text, &reply, &why), cases[i].r);
		assert_says(&why, cases[i].part);
		assert_string_equal(reply.set.secret, "");
	}
}

/* ---- modes ---------------------------------------------------------------------------- */

static int read_with_mode(mode_t mode, struct why *why)
{
	char path[] = "/tmp/sluice-creds.XXXXXX";
	char *text = malloc(CREDS_FILE_MAX + 1);
	int fd = mkstemp(path), r;
	size_t n = 0;

	assert_true(fd >= 0);
	assert_int_equal(io_write(fd, "id:SECRET-1\n", 12), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	r = creds_file_read(path, text, &n, why);
	if (r == 0) {
		assert_int_equal(n, 12);
		assert_string_equal(text, "id:SECRET-1\n");
	}
	unlink(path);
	free(text);
	return r;
}

static void test_only_the_owner_may_read_a_file(void **state)
{
	static const mode_t bad[] = {0644, 0640, 0604, 0660, 0602, 0700, 0610, 0601};
	struct why why = {0};

	(void)state;
	assert_int_equal(read_with_mode(0600, &why), 0);
	assert_int_equal(read_with_mode(0400, &why), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(read_with_mode(bad[i], &why), -EACCES);
		assert_says(&why, "run chmod 600 /tmp/sluice-creds.");
	}
}

static void test_what_is_no_small_file_is_refused(void **state)
{
	char *text = malloc(CREDS_FILE_MAX + 1);
	char path[] = "/tmp/sluice-creds.XXXXXX";
	struct why why = {0};
	size_t n;
	int fd;

	(void)state;
	assert_int_equal(creds_file_read("/tmp", text, &n, &why), -EINVAL);
	assert_says(&why, "not a file");
	assert_int_equal(creds_file_read("/no/such/file", text, &n, &why), -ENOENT);
	assert_says(&why, "/no/such/file");
	fd = mkstemp(path);
	assert_int_equal(ftruncate(fd, CREDS_FILE_MAX + 1), 0);
	assert_int_equal(creds_file_read(path, text, &n, &why), -EINVAL);
	assert_says(&why, "too large");
	close(fd);
	unlink(path);
	free(text);
}

TEST_MAIN(cmocka_unit_test(test_passwd_has_a_default_pair_and_pairs_of_buckets),
	  cmocka_unit_test(test_wrong_passwd_lines_are_named_by_number),
	  cmocka_unit_test(test_ossutil_1_and_2_are_understood),
	  cmocka_unit_test(test_ossutil_names_services),
	  cmocka_unit_test(test_wrong_ossutil_files_are_refused),
	  cmocka_unit_test(test_json_of_a_service),
	  cmocka_unit_test(test_wrong_json_is_refused_without_quoting_it),
	  cmocka_unit_test(test_only_the_owner_may_read_a_file),
	  cmocka_unit_test(test_what_is_no_small_file_is_refused))
