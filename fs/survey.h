/* SPDX-License-Identifier: Apache-2.0 */
/* What the mounts of this host say of themselves: the status objects of control.h. */
#pragma once

#include <jansson.h>

struct why;

/* An array with the status of every mount, also of those that drain after their mount was
 * taken away; the caller decrefs it. Of one whose process cannot be asked
 * there are only "version", "dir", "source", "role" and "state":
 *
 *   dead     it is gone
 *   hung     it does not answer within 5 s
 *   busy     it answers too many others
 *   unknown  another user's ("user"), or the socket may not be opened */
int survey_all(json_t **out);

/* The status of the mount on `dir` (a canonical path); the caller decrefs it. -ENOENT with a
 * sentence: there is none. */
int survey_one(const char *dir, json_t **out, struct why *why);
