/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where to cut a range of keys in two when only its beginning is known, and how much of it
 * is probably left. Guesses: they make a listing faster or slower, never wrong. Pure.
 *
 * The bytes seen at each position of the keys so far stand for those to come; a digit
 * stands for all digits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPLIT_POSITIONS 64 /* later ones share the last set */
#define SPLIT_KEY_SIZE 1032

struct split {
	size_t base; /* length of what all keys begin with */
	uint64_t seen[SPLIT_POSITIONS][4];
};

void split_note(struct split *s, const char *key);

/* Where a key lies between the first and the last that are likely: from 0 to 1. NULL is the
 * end. */
double split_position(const struct split *s, const char *key);

/* A key greater than `last` and less than `until` (NULL: the end), with something on both
 * sides of it if the guess is good. `first` and `last` are those of the last page: a cut
 * nearer than another such page is not made. `coarse` cuts where `last` and `until` part,
 * the other way looks for where keys vary between there and within the page. `out` has
 * SPLIT_KEY_SIZE bytes. It is text (UTF-8) where `last` is. false: none. */
bool split_point(const struct split *s, const char *first, const char *last,
		 const char *until, bool coarse, char *out);

/* Whether keys were seen to differ where `last` and `until` part. */
bool split_varies(const struct split *s, const char *last, const char *until);
