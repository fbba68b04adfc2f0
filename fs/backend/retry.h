/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer that tries again: after passing faults with growing, jittered pauses; after being
 * told to slow down, at the store's pace; after a renewal of refused credentials, never
 * with the same ones. A broken GET goes on after the last byte delivered, pinned to the
 * version it began with; a broken LIST after the last entry. What a second try of a PUT
 * with if_none_match, a MULTI_END or an APPEND is refused for may be the first one's
 * success: that is looked up before it is believed.
 */
#pragma once

struct creds;
struct origin;
struct retry_policy;

/* Takes `below`, also on failure. Borrows `creds` (NULL: refused credentials are final),
 * which lives at least until `below` is freed, and watches it. */
int retry_origin_new(struct origin *below, struct creds *creds,
		     const struct retry_policy *policy, struct origin **out);
