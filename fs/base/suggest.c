/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/base/suggest.h"

#include <string.h>

#define WORD_MAX 64

static size_t distance(const char *a, const char *b)
{
	size_t row[WORD_MAX + 1], n_a = strlen(a), n_b = strlen(b);

	if (n_a > WORD_MAX || n_b > WORD_MAX)
		return WORD_MAX;
	for (size_t j = 0; j <= n_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);
			size_t best = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = change < best ? change : best;
		}
	}
	return row[n_b];
}

const char *suggest_nearest(const char *word, const char *const *first, size_t count,
			    size_t stride)
{
	const char *nearest = NULL;
	size_t best = strlen(word) / 3 + 2;

	for (size_t i = 0; i < count; i++) {
		const char *name =
			*(const char *const *)((const char *)first + i * stride);
		size_t d = name ? distance(word, name) : WORD_MAX;

		if (d < best) {
			best = d;
			nearest = name;
		}
	}
	return nearest;
}
