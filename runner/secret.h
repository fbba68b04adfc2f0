/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets by reference. Whoever reads one wipes it with secret_free() after use. */
#pragma once

#include <stddef.h>

struct spec_secret;
struct why;

#define SECRET_SIZE_MAX 8192

/* *out is new, or NULL where the reference is empty. -EACCES: others can read the file;
 * the sentence names the place, never the secret. */
int secret_read(const struct spec_secret *ref, char **out, struct why *why);
char *secret_free(char *secret);
