/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of step does, and what undoes it. */
#pragma once

struct run;
struct step;
struct why;

/* Fails with a negative errno and a sentence; -ECANCELED: a request to stop came. A step
 * that failed half-way is undone like one that succeeded, so undoing must not mind what
 * was never done, nor being called again by another process. */
int step_act(struct run *r, const struct step *step, struct why *why);
int step_undo(struct run *r, const struct step *step, struct why *why);

/* Private to step*.c: what lies in files of its own. */
int step_fetch_code(struct run *r, const struct step *step, struct why *why);
int step_mount_input(struct run *r, const struct step *step, struct why *why);
int step_mount_output(struct run *r, const struct step *step, struct why *why);
int step_unmount_input(struct run *r, const struct step *step, struct why *why);
int step_flush_output(struct run *r, const struct step *step, struct why *why);
