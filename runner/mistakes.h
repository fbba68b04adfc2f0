/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that is wrong with a job file, gathered so that a person sees all of it at
 * once, in the order of the file. One line each: "job.yaml:3:9: what, what to do".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Further ones are counted, not kept: a file that is not a job file at all has thousands. */
#define MISTAKES_MAX 50

struct mistake_place {
	const char *source; /* "job.yaml" or "--set roles.ps.count"; NULL: no place */
	unsigned int line;  /* from 1; 0: the source says it all */
	unsigned int column;
};

struct mistake {
	char *text;                /* with its place in front */
	unsigned int line, column; /* for the order */
	int exit_code;
};

struct mistakes {
	struct mistake items[MISTAKES_MAX];
	size_t count;
	size_t dropped;
};

void mistakes_init(struct mistakes *m);
void mistakes_fini(struct mistakes *m);

/* `exit_code`: EXIT_USAGE for what is wrong in the file itself, EXIT_CONFIG for what does
 * not fit this machine, EXIT_UNAVAILABLE … Control characters are escaped. */
void mistakes_add(struct mistakes *m, struct mistake_place place, int exit_code,
		  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* 0 when there are none; EXIT_USAGE when the file is malformed; else the first one's. */
int mistakes_exit_code(const struct mistakes *m);

void mistakes_sort(struct mistakes *m); /* in the order of the file */

/* Sorted by place, one line each, "and N more" last. */
void mistakes_print(struct mistakes *m, FILE *out);
