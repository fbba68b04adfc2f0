/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/oss_signer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fs/base/check.h"
#include "fs/base/err.h"
#include "fs/base/lock.h"

struct oss_signer {
	struct lock lock; /* current, and refs of all grants */
	struct oss_grant *current;
	struct creds *creds; /* constant */
	const char *region;  /* constant */
};

static struct oss_grant *grant_new(void)
{
	struct oss_grant *grant = mmap(NULL, sizeof(*grant), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (grant == MAP_FAILED)
		return NULL;
	/* Best effort both: the limits of an unprivileged user may forbid the lock. */
	(void)madvise(grant, sizeof(*grant), MADV_DONTDUMP);
	(void)mlock(grant, sizeof(*grant));
	return grant;
}

static void grant_free(struct oss_grant *grant)
{
	explicit_bzero(grant, sizeof(*grant));
	munmap(grant, sizeof(*grant));
}

static void put_locked(struct oss_signer *s, struct oss_grant *grant)
{
	lock_assert_held(&s->lock);
	if (grant && !--grant->refs)
		grant_free(grant);
}

static bool same(const struct oss_grant *grant, const struct creds_set *set,
		 const char *day)
{
	return strcmp(grant->day, day) == 0 && strcmp(grant->set.id, set->id) == 0 &&
	       strcmp(grant->set.secret, set->secret) == 0 &&
	       strcmp(grant->set.token, set->token) == 0;
}

/* NULL: no memory, which is all that can fail. */
static struct oss_grant *make(const struct oss_signer *s, const struct creds_set *set,
			      const char *date, const char *day)
{
	struct oss_scope scope = {s->region, "oss", date, OSS_DIALECT_OSS};
	struct oss_grant *grant = grant_new();

	if (!grant)
		return NULL;
	grant->refs = 1;
	grant->set = *set;
	memcpy(grant->day, day, sizeof(grant->day));
	if (*day && *set->id && oss_v4_derive_key(&grant->key, set->secret, &scope) < 0) {
		grant_free(grant);
		return NULL;
	}
	return grant;
}

int oss_signer_get(struct oss_signer *s, const char *date, struct oss_grant **out)
{
	struct creds_set set;
	struct oss_grant *grant;
	char day[9] = "";
	int r;

	if (s->region)
		memcpy(day, date, 8);
	r = creds_get(s->creds, &set);
	if (r < 0)
		return err_trace(r);
	lock_take(&s->lock);
	grant = s->current;
	if (!grant || !same(grant, &set, day)) {
		grant = make(s, &set, date, day);
		if (grant) {
			put_locked(s, s->current);
			s->current = grant;
		}
	}
	if (grant)
		grant->refs++;
	lock_drop(&s->lock);
	creds_set_wipe(&set);
	if (!grant)
		return err_origin(-ENOMEM);
	*out = grant;
	return 0;
}

void oss_signer_put(struct oss_signer *s, struct oss_grant *grant)
{
	lock_scope(&s->lock);
	put_locked(s, grant);
}

int oss_signer_new(struct creds *creds, const char *region, struct oss_signer **out)
{
	struct oss_signer *s = calloc(1, sizeof(*s));

	if (!s)
		return err_origin(-ENOMEM);
	lock_init(&s->lock);
	s->creds = creds;
	s->region = region;
	*out = s;
	return 0;
}

struct oss_signer *oss_signer_free(struct oss_signer *s)
{
	if (!s)
		return NULL;
	if (s->current) {
		check(s->current->refs == 1);
		grant_free(s->current);
	}
	lock_fini(&s->lock);
	free(s);
	return NULL;
}
