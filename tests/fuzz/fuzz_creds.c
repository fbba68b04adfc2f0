/* SPDX-License-Identifier: Apache-2.0 */
/* Credential files and answers: the first byte chooses the form. Whatever is taken must be
 * fit for a header, and what is refused must be told in one line. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "fs/backend/backend.h"
#include "fs/backend/creds_file.h"
#include "fs/backend/endpoint.h"
#include "fs/base/err.h"

static void require(bool x)
{
	if (!x)
		abort();
}

static void check_set(const struct creds_set *set)
{
	require(set->id[0] && set->secret[0]);
	for (const char *text = set->id; text;
	     text = text == set->id ? set->secret : NULL)
		for (const char *c = text; *c; c++)
			require(*c > 0x20 && *c < 0x7f);
}

static void parse_names(const char *text, struct why *why)
{
	struct backend_source source;
	struct endpoint endpoint;

	if (backend_parse(text, &source, why) == 0)
		require(strlen(source.prefix) < sizeof(source.prefix));
	if (endpoint_resolve(text, NULL, ADDRESSING_AUTO, &endpoint, why) == 0)
		require(endpoint.addressing != ADDRESSING_AUTO && endpoint.host[0] &&
			!strpbrk(endpoint.host, "/@ \r\n"));
}

static void parse(char form, const char *text, size_t n, struct why *why)
{
	static struct creds_ossutil config;
	static struct creds_reply reply;
	static struct creds_set set;

	switch (form) {
	case 'p':
		if (creds_parse_passwd(text, n, "file", "bucket", &set, why) == 0)
			check_set(&set);
		break;
	case 'o':
		if (creds_parse_ossutil(text, n, "file", "", &config, why) == 0)
			require(strlen(config.set.token) < sizeof(config.set.token));
		break;
	case 'j':
		if (creds_parse_json(text, n, "service", 1735689600, &reply, why) == 0)
			check_set(&reply.set);
		break;
	default:
		parse_names(text, why);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct why why = {""};
	char *text;

	if (!size)
		return 0;
	text = malloc(size);
	require(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	parse((char)data[0], text, size - 1, &why);
	require(!strpbrk(why.text, "\r\n"));
	free(text);
	return 0;
}
