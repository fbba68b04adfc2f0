/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors 0 to 2, as a program finds and leaves them. */
#pragma once

/* Opens /dev/null for those that the caller closed, so that no file of ours takes their
 * numbers and gets what libraries write there. First in main(), before anything is opened.
 * Without /dev/null the process ends with EXIT_INTERNAL. */
void standard_open(void);

/* Closes stdout, which nobody uses after this. Returns the exit code: `code`, or
 * EXIT_INTERNAL with a sentence when `code` is success and what was printed did not get
 * through. */
int standard_close(const char *program, int code);
