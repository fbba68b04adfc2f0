/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/backend/retry_step.h"

#include <assert.h>
#include <errno.h>

#include "fs/base/check.h"
#include "fs/base/clock.h"

#define DAMAGE_MAX 4  /* tries that ended with -EBADMSG, without progress */
#define RENEWAL_MAX 3 /* of one request within a finite budget */

static const char *const action_names[] = {"end", "at", "credentials", "verify"};
static_assert(sizeof(action_names) / sizeof(*action_names) == RETRY_ACTION_N,
	      "action names");

const char *retry_action_name(enum retry_action action)
{
	return action < RETRY_ACTION_N ? action_names[action] : "unknown";
}

void retry_policy_init(struct retry_policy *policy, uint64_t budget_ms)
{
	*policy = (struct retry_policy){
		.budget_ms = budget_ms ? budget_ms : 60000,
		.try_max = budget_ms == UINT64_MAX ? 0 : 10,
		.base_ms = 200,
		.cap_ms = 20000,
		.throttle_base_ms = 1000,
		.throttle_cap_ms = 30000,
		.probe_budget_ms = 5000,
		.credentials_ms = 10000,
	};
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* No try starts after this. */
static uint64_t limit_of(const struct retry_policy *policy,
			 const struct retry_state *state, const struct origin_req *req)
{
	uint64_t budget = policy->budget_ms, limit;

	if (req->op == ORIGIN_PROBE && budget > policy->probe_budget_ms)
		budget = policy->probe_budget_ms;
	limit = plus(state->started_ms, budget);
	return req->deadline_ms && req->deadline_ms < limit ? req->deadline_ms : limit;
}

/* The connection was refused, or the store said "not now": nothing happened. */
static bool is_ambiguous(const struct origin_req *req)
{
	if (req->result == -ECONNREFUSED || req->result == -EHOSTUNREACH)
		return false;
	return req->result != -EAGAIN || !req->retry_after_ms;
}

/* What a second try meets when the first one had its effect. */
static bool may_be_echo(const struct retry_state *state, const struct origin_req *req)
{
	if (!state->ambiguous)
		return false;
	switch (req->op) {
	case ORIGIN_PUT:
		return req->if_none_match && req->result == -EEXIST;
	case ORIGIN_MULTI_END:
		return req->result == -ENOENT ||
		       (req->if_none_match && req->result == -EEXIST);
	case ORIGIN_APPEND:
		return req->result == -ESTALE;
	default:
		return false;
	}
}

static enum retry_action decide_credentials(const struct retry_policy *policy,
					    struct retry_state *state, uint64_t now_ms,
					    uint64_t limit, uint64_t *due_ms)
{
	bool for_ever = policy->budget_ms == UINT64_MAX;

	if (now_ms >= limit || (!for_ever && state->renewals >= RENEWAL_MAX))
		return RETRY_END;
	state->renewals++;
	*due_ms = limit;
	if (!for_ever && plus(now_ms, policy->credentials_ms) < limit)
		*due_ms = now_ms + policy->credentials_ms;
	return RETRY_CREDENTIALS;
}

enum retry_action retry_decide(const struct retry_policy *policy,
			       struct retry_state *state, const struct origin_req *req,
			       bool progressed, uint64_t now_ms, uint64_t *due_ms)
{
	uint64_t limit, wait;

	check(req->result < 0);
	if (progressed) {
		state->started_ms = now_ms;
		state->faults = state->throttles = state->damages = 0;
	}
	limit = limit_of(policy, state, req);
	if (req->result == -EKEYEXPIRED)
		return decide_credentials(policy, state, now_ms, limit, due_ms);
	if (may_be_echo(state, req))
		return RETRY_VERIFY;
	if (!origin_is_transient(req->result))
		return RETRY_END;
	state->ambiguous |= is_ambiguous(req);
	if (req->result == -EAGAIN && req->retry_after_ms) {
		wait = clock_backoff_ms(state->throttles++, policy->throttle_base_ms,
					policy->throttle_cap_ms);
		wait = plus(wait, req->retry_after_ms);
	} else {
		wait = clock_backoff_ms(state->faults++, policy->base_ms, policy->cap_ms);
		if (policy->try_max && state->faults >= policy->try_max)
			return RETRY_END;
		/* Bytes that arrive wrong again and again were wrong from the start. */
		if (req->result == -EBADMSG && ++state->damages >= DAMAGE_MAX)
			return RETRY_END;
	}
	*due_ms = plus(now_ms, wait);
	return *due_ms < limit ? RETRY_AT : RETRY_END;
}
