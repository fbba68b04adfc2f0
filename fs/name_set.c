/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/name_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/crc.h"
#include "fs/base/err.h"

#define SIZE_FIRST 64

static uint32_t sum_of(const char *name)
{
	uint64_t sum = crc64(0, name, strlen(name));
	uint32_t folded = (uint32_t)(sum ^ sum >> 32);

	return folded ? folded : 1;
}

/* Where the sum is, or where it would be. */
static size_t place(const struct name_set *s, uint32_t sum)
{
	size_t i = sum & (s->size - 1);

	while (s->slots[i] && s->slots[i] != sum)
		i = (i + 1) & (s->size - 1);
	return i;
}

static int grow(struct name_set *s)
{
	struct name_set grown = {.size = s->size ? s->size * 2 : SIZE_FIRST,
				 .count = s->count};

	grown.slots = calloc(grown.size, sizeof(*grown.slots));
	if (!grown.slots)
		return err_origin(-ENOMEM);
	for (size_t i = 0; i < s->size; i++) {
		if (s->slots[i])
			grown.slots[place(&grown, s->slots[i])] = s->slots[i];
	}
	free(s->slots);
	*s = grown;
	return 0;
}

int name_set_add(struct name_set *s, const char *name)
{
	uint32_t sum = sum_of(name);
	size_t i;

	if (name_set_may_have(s, name))
		return 0;
	if (s->count + 1 > s->size / 4 * 3 && grow(s) < 0)
		return err_trace(-ENOMEM);
	i = place(s, sum);
	s->slots[i] = sum;
	s->count++;
	return 0;
}

bool name_set_may_have(const struct name_set *s, const char *name)
{
	return s->count > 0 && s->slots[place(s, sum_of(name))] != 0;
}

void name_set_fini(struct name_set *s)
{
	free(s->slots);
	*s = (struct name_set){0};
}
