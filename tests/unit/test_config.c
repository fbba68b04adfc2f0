/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backend/backend.h"
#include "fs/base/err.h"
#include "fs/base/opt.h"
#include "fs/config.h"

static struct config *defaults(void)
{
	struct config *c = test_calloc(1, sizeof(*c));
	struct why why = {""};
	int none = 0;

	assert_int_equal(opt_parse(config_specs, c, &none, NULL, &why), 0);
	return c;
}

static int apply(struct config *c, const char *list, struct why *why)
{
	static char copies[16][256];
	static int next;
	char *copy = copies[next++ % 16];

	snprintf(copy, sizeof(copies[0]), "%s", list);
	return config_apply_list(c, copy, why);
}

static void test_every_default_is_in_its_own_range(void **state)
{
	struct config *c = defaults();

	(void)state;
	assert_int_equal(c->ttl_ms, 60000);
	assert_int_equal(c->memory, 256 << 20);
	assert_int_equal(c->role, CONFIG_ROLE_NONE);
	assert_false(c->immutable);
	test_free(c);
}

static void test_fstab_options_go_through_the_table(void **state)
{
	struct config *c = defaults();
	struct why why = {""};

	(void)state;
	assert_int_equal(apply(c,
			       "role=output,ttl=5s,_netdev,x-systemd.automount,"
			       "nofail,,ro,noexec,immutable,memory=64M",
			       &why),
			 0);
	assert_int_equal(c->role, CONFIG_OUTPUT);
	assert_int_equal(c->ttl_ms, 5000);
	assert_int_equal(c->memory, 64 << 20);
	assert_true(c->read_only && c->no_exec && c->immutable);
	assert_int_equal(apply(c, "rolle=input", &why), -EINVAL);
	assert_non_null(strstr(why.text, "role"));
	assert_int_equal(apply(c, "suid", &why), -EINVAL);
	assert_int_equal(apply(c, "role", &why), -EINVAL);
	test_free(c);
}

static void complete(struct config *c, const char *source)
{
	struct why why = {""};

	if (config_complete(c, source, &why) < 0)
		fail_msg("%s", why.text);
}

static void test_sources_have_states_of_their_own(void **state)
{
	static const char *const sources[] = {"oss://a/b", "oss://a-b", "oss://a/b/",
					      "file:///a/b"};
	char paths[6][PATH_MAX];
	size_t count = 0;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct config *c = defaults();

		complete(c, sources[i]);
		strcpy(paths[count++], c->state_path);
		test_free(c);
	}
	for (int i = 0; i < 2; i++) { /* the same bucket elsewhere is another one */
		struct config *c = defaults();

		c->endpoint = i ? "http://10.0.0.1" : "http://10.0.0.2";
		complete(c, "oss://a/b");
		strcpy(paths[count++], c->state_path);
		test_free(c);
	}
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(paths[i], paths[j]);
}

static void test_relative_directories_become_absolute(void **state)
{
	struct config *c = defaults();
	char cwd[PATH_MAX], want[PATH_MAX + 32];

	(void)state;
	c->cache_dir = "cache";
	c->log_file = "/var/log/x";
	c->ca_file = "ca.pem";
	c->credentials = "ossutil:config#profile";
	setenv("OSS_CREDENTIAL_FILE", "passwd", 1);
	complete(c, "file:///a");
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	snprintf(want, sizeof(want), "%s/passwd", cwd);
	assert_string_equal(getenv("OSS_CREDENTIAL_FILE"), want);
	unsetenv("OSS_CREDENTIAL_FILE");
	snprintf(want, sizeof(want), "%s/ca.pem", cwd);
	assert_string_equal(c->ca_file, want);
	snprintf(want, sizeof(want), "ossutil:%s/config#profile", cwd);
	assert_string_equal(c->credentials, want);
	snprintf(want, sizeof(want), "%s/cache", cwd);
	assert_string_equal(c->cache_path, want);
	assert_string_equal(c->log_path, "/var/log/x");
	test_free(c);
}

static void test_odd_numbers_are_refused(void **state)
{
	static const char *const modes[] = {"0", "999", "", "-1", "rw", "1777"};
	struct why why = {""};

	(void)state;
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		struct config *c = defaults();

		c->file_mode = modes[i];
		assert_int_equal(config_complete(c, "file:///a", &why), -EINVAL);
		test_free(c);
	}
}

static void test_saved_configuration_reaches_the_same_source(void **state)
{
	char dir[] = "/tmp/sluice-config.XXXXXX", path[64];
	struct config *c = defaults(), *back = defaults();
	struct backend_config backend;
	struct why why = {""};

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(config_load(back, dir, &why), -ENOENT);
	c->state_dir = dir;
	c->endpoint = "http://127.0.0.1:1";
	c->credentials = "env";
	c->addressing = 2;
	c->signature = 1;
	complete(c, "oss://bucket/pre fix\"\n");
	assert_int_equal(config_save(c), 0);
	assert_int_equal(config_load(back, dir, &why), 0);
	assert_string_equal(back->source, c->source);
	config_to_backend(back, &backend);
	assert_string_equal(backend.endpoint, c->endpoint);
	assert_string_equal(backend.credentials, "env");
	assert_int_equal(backend.addressing, ADDRESSING_PATH);
	assert_int_equal(backend.signature, SIGNATURE_V1);
	snprintf(path, sizeof(path), "%s/mount.json", dir);
	unlink(path);
	rmdir(dir);
	config_fini(back);
	test_free(back);
	test_free(c);
}

TEST_MAIN(cmocka_unit_test(test_every_default_is_in_its_own_range),
	  cmocka_unit_test(test_fstab_options_go_through_the_table),
	  cmocka_unit_test(test_sources_have_states_of_their_own),
	  cmocka_unit_test(test_relative_directories_become_absolute),
	  cmocka_unit_test(test_odd_numbers_are_refused),
	  cmocka_unit_test(test_saved_configuration_reaches_the_same_source))
