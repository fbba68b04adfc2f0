/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/xalloc.h"

#define FILE_MAX_BYTES (1u << 20)

/* "ID:SECRET[:TOKEN]"; the token may hold colons. */
static int parse_line(struct ossd_account *account, const char *line, size_t n)
{
	const char *secret = memchr(line, ':', n), *end = line + n, *token;

	if (!secret || secret == line)
		return -EINVAL;
	token = memchr(secret + 1, ':', (size_t)(end - secret - 1));
	if ((token ? token : end) == secret + 1 || (token && token + 1 == end))
		return -EINVAL;
	account->id = xstrndup(line, (size_t)(secret - line));
	account->secret =
		xstrndup(secret + 1, (size_t)((token ? token : end) - secret - 1));
	account->token = token ? xstrndup(token + 1, (size_t)(end - token - 1)) : NULL;
	return 0;
}

int ossd_accounts_parse(struct ossd_accounts *accounts, const char *text,
			const char *name, struct why *why)
{
	*accounts = (struct ossd_accounts){
		.items = xcalloc(OSSD_ACCOUNTS_MAX, sizeof(*accounts->items))};
	for (int number = 1; *text; number++) {
		size_t n = strcspn(text, "\n"), used = n;

		while (used && (text[used - 1] == '\r' || text[used - 1] == ' '))
			used--;
		if (used && *text != '#') {
			if (accounts->count == OSSD_ACCOUNTS_MAX)
				return why_set(why, err_origin(-E2BIG),
					       "%s:%d: more than %d keys", name, number,
					       OSSD_ACCOUNTS_MAX);
			if (parse_line(&accounts->items[accounts->count], text, used) < 0)
				return why_set(why, err_origin(-EINVAL),
					       "%s:%d: expected ID:SECRET or "
					       "ID:SECRET:TOKEN",
					       name, number);
			accounts->count++;
		}
		text += n;
		text += *text == '\n';
	}
	if (accounts->count == 0)
		return why_set(why, err_origin(-EINVAL),
			       "%s: no keys in it; write a line ID:SECRET", name);
	return 0;
}

int ossd_accounts_load(struct ossd_accounts *accounts, const char *path, struct why *why)
{
	_cleanup_(close_fdp) int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(buf_wipe) struct buf text = BUF_INIT;
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return why_set(why, err_origin(-errno), "%s: %s", path, strerror(errno));
	if (st.st_mode & 077)
		return why_set(why, err_origin(-EPERM),
			       "%s: readable by others (mode %04o); chmod 600 it", path,
			       st.st_mode & 07777);
	r = io_read_file(AT_FDCWD, path, FILE_MAX_BYTES, &text);
	if (r < 0)
		return why_set(why, err_trace(r), "%s: %s", path, strerror(-r));
	return ossd_accounts_parse(accounts, text.data ? text.data : "", path, why);
}

static void forget(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

void ossd_accounts_fini(struct ossd_accounts *accounts)
{
	for (size_t i = 0; accounts->items && i < accounts->count; i++) {
		free(accounts->items[i].id);
		forget(accounts->items[i].secret);
		forget(accounts->items[i].token);
	}
	free(accounts->items);
	*accounts = (struct ossd_accounts){0};
}

const struct ossd_account *ossd_accounts_find(const struct ossd_accounts *accounts,
					      const char *id)
{
	for (size_t i = 0; i < accounts->count; i++)
		if (!strcmp(accounts->items[i].id, id))
			return &accounts->items[i];
	return NULL;
}
