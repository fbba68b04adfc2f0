/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts that may sign: lines "ID:SECRET" or "ID:SECRET:TOKEN" (an STS credential). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct why;

#define OSSD_ACCOUNTS_MAX 1024

struct ossd_account {
	char *id, *secret;
	char *token; /* NULL: a lasting key */
};

struct ossd_accounts {
	struct ossd_account *items;
	size_t count;
};

/* Refuses with a sentence a file that others may read, and what is not such a line. Empty
 * lines and lines that start with '#' are skipped. */
int ossd_accounts_load(struct ossd_accounts *accounts, const char *path, struct why *why);
int ossd_accounts_parse(struct ossd_accounts *accounts, const char *text,
			const char *name, struct why *why);
void ossd_accounts_fini(struct ossd_accounts *accounts); /* overwrites the secrets */

const struct ossd_account *ossd_accounts_find(const struct ossd_accounts *accounts,
					      const char *id);
