/* SPDX-License-Identifier: Apache-2.0 */
/* What a client says of itself: four lines, target, host, Authorization, Range. Keys must be
 * valid and lead to paths below the root, ranges must be inside the object. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "tools/ossd_auth.h"
#include "tools/ossd_keyfile.h"
#include "tools/ossd_list.h"
#include "tools/ossd_range.h"
#include "tools/ossd_target.h"

#define LINES 4

static void check_path(const struct ossd_target *t)
{
	struct buf path = BUF_INIT, back = BUF_INIT;
	const char *name;

	if (!ossd_bucket_name_valid(t->bucket) ||
	    !ossd_key_valid(t->key.data, t->key.len))
		abort();
	ossd_key_path(&path, t->bucket, t->key.data, t->key.len, true);
	if (strstr(path.data, "/../") || strstr(path.data, "//"))
		abort();
	name = path.data + strlen(OSSD_PRIVATE "/odd/") + strlen(t->bucket) + 1;
	if (ossd_key_from_odd(&back, name) < 0 || back.len != t->key.len ||
	    memcmp(back.data, t->key.data, back.len) != 0)
		abort();
	buf_fini(&path);
	buf_fini(&back);
}

static void check_auth(const struct ossd_target *t, const char *authorization)
{
	static char id[] = "ak", secret[] = "secret";
	static struct ossd_account account = {id, secret, NULL};
	const struct ossd_accounts accounts = {&account, 1};
	const struct oss_pair headers[] = {{"x-oss-date", "20231216T162057Z"},
					   {"Authorization", authorization}};
	struct ossd_auth auth = {
		.accounts = &accounts,
		.now_ms = 1702743657000ll,
		.method = "GET",
		.target = t,
		.headers = headers,
		.header_count = 2,
	};
	const struct ossd_account *who = NULL;
	const char *message = NULL;
	struct buf extra = BUF_INIT;

	if (ossd_auth_check(&auth, &who, &message, &extra) == 0 && who)
		abort(); /* nobody guesses a signature */
	buf_fini(&extra);
}

static void check_range(const char *value)
{
	for (int standard = 0; standard < 2; standard++) {
		uint64_t start, length;

		if (ossd_range_parse(value, 1000, standard, &start, &length) !=
			    OSSD_RANGE_INVALID &&
		    (start > 1000 || length > 1000 - start))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const suffixes[] = {"localhost"};
	char *copy = strndup((const char *)data, size), *rest = copy;
	struct buf source = BUF_INIT, token = BUF_INIT;
	const char *lines[LINES];
	char bucket[OSSD_BUCKET_SIZE];
	struct ossd_target t;

	for (int i = 0; i < LINES; i++) {
		lines[i] = strsep(&rest, "\n");
		if (!lines[i])
			lines[i] = "";
	}
	if (ossd_target_parse(&t, lines[0], lines[1], suffixes, 1) == 0) {
		if (t.key.len)
			check_path(&t);
		check_auth(&t, lines[2]);
	}
	ossd_target_fini(&t);
	check_range(lines[3]);
	ossd_target_parse_source(lines[0], bucket, &source);
	ossd_token_parse(&token, lines[3]);
	buf_fini(&source);
	buf_fini(&token);
	free(copy);
	return 0;
}
