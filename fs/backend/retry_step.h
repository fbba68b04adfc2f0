/* SPDX-License-Identifier: Apache-2.0 */
/* What is worth another try, and when (protocol.md §6). Pure but for the jitter. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cache/origin.h"

struct retry_policy {
	uint64_t budget_ms;   /* without progress; UINT64_MAX: for ever */
	unsigned int try_max; /* of one request without progress; 0: no limit. Throttling
			       * and credentials do not count */
	uint64_t base_ms, cap_ms;                   /* faults: full jitter */
	uint64_t throttle_base_ms, throttle_cap_ms; /* when told to slow down */
	uint64_t probe_budget_ms; /* PROBE: somebody waits for the answer */
	uint64_t credentials_ms;  /* to wait for a renewal, within a finite budget */
};
/* The values of README.md with this budget (0: 60 s). */
void retry_policy_init(struct retry_policy *policy, uint64_t budget_ms);

/* Of one request; starts as {.started_ms = now}. */
struct retry_state {
	uint64_t started_ms;    /* or the last progress */
	unsigned int faults;    /* since then */
	unsigned int throttles; /* since then */
	unsigned int damages;   /* since then: wrong bytes */
	unsigned int renewals;  /* waits for credentials, in all */
	bool ambiguous;         /* a try may have taken effect unheard */
};

enum retry_action {
	RETRY_END,         /* the result stands */
	RETRY_AT,          /* again at *due_ms */
	RETRY_CREDENTIALS, /* again once they are renewed, at most until *due_ms */
	RETRY_VERIFY,      /* the failure may be the echo of our own success: look */
	RETRY_ACTION_N
};
const char *retry_action_name(enum retry_action action);

/* After a try of req ended with req->result < 0. `progressed`: it delivered something. */
enum retry_action retry_decide(const struct retry_policy *policy,
			       struct retry_state *state, const struct origin_req *req,
			       bool progressed, uint64_t now_ms, uint64_t *due_ms);
