/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/upload_step.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/check.h"
#include "fs/base/crc.h"

static const char *const action_names[] = {
	"wait",  "put",   "begin", "part",   "end",
	"check", "abort", "prove", "append", "done",
};
static_assert(sizeof(action_names) / sizeof(*action_names) == UPLOAD_ACTION_N,
	      "upload actions");

const char *upload_action_name(enum upload_action action)
{
	return action < UPLOAD_ACTION_N ? action_names[action] : "unknown";
}

static int make_parts(struct upload_state *s, uint32_t count)
{
	s->part_count = count;
	s->part_state = calloc(count, sizeof(*s->part_state));
	s->parts = calloc(count, sizeof(*s->parts));
	if (s->part_state && s->parts)
		return 0;
	upload_state_fini(s);
	return err_origin(-ENOMEM);
}

int upload_state_init(struct upload_state *s, uint64_t size, uint64_t part_size)
{
	*s = (struct upload_state){.size = size};
	if (part_size == 0)
		return 0;
	upload_schedule_init(&s->schedule, size, part_size);
	if (size <= part_size)
		return 0;
	return err_trace(make_parts(s, s->schedule.count));
}

int upload_state_plan(struct upload_state *s, struct upload_range *ranges, uint32_t count,
		      const struct patch_object *object, bool prove)
{
	upload_state_fini(s);
	s->ranges = ranges;
	s->object = *object;
	s->prove = prove;
	return err_trace(make_parts(s, count));
}

/* Everything is sent after all. */
static int unplan(struct upload_state *s)
{
	struct upload_state fresh;
	int r = upload_state_init(&fresh, s->size, s->schedule.first_size);

	if (r < 0)
		return err_trace(r);
	memcpy(fresh.upload_id, s->upload_id, sizeof(fresh.upload_id));
	fresh.cancelled = s->cancelled;
	upload_state_fini(s);
	*s = fresh;
	return 0;
}

void upload_state_append(struct upload_state *s, const struct patch_object *object,
			 uint64_t prove_off)
{
	upload_state_fini(s);
	s->append = true;
	s->append_off = object->size;
	s->append_crc64 = object->crc64;
	s->object = *object;
	s->prove_off = prove_off;
	s->prove = prove_off < object->size;
}

void upload_state_init_check(struct upload_state *s, uint64_t size, uint64_t crc64)
{
	*s = (struct upload_state){.size = size,
				   .append = true,
				   .append_off = size,
				   .append_crc64 = crc64,
				   .only_check = true};
}

int upload_state_init_end(struct upload_state *s, uint64_t size, const char *upload_id,
			  const struct upload_sent *sent, size_t count)
{
	uint64_t sum = 0;
	int r;

	*s = (struct upload_state){.size = size, .only_end = true};
	if (count == 0 || count > ORIGIN_PART_COUNT_MAX)
		return err_origin(-EINVAL);
	s->ranges = calloc(count, sizeof(*s->ranges));
	if (!s->ranges)
		return err_origin(-ENOMEM);
	r = make_parts(s, (uint32_t)count);
	for (size_t i = 0; i < count && r == 0; i++) {
		const struct origin_part *part = &sent[i].part;

		if (part->number == 0 || part->number > count ||
		    s->part_state[part->number - 1] == PART_SENT) {
			r = err_origin(-EINVAL);
			break;
		}
		s->ranges[part->number - 1] =
			(struct upload_range){sent[i].off, part->size, part->crc64 == 0};
		s->parts[part->number - 1] = *part;
		s->part_state[part->number - 1] = PART_SENT;
		s->sent++;
		sum += part->size;
	}
	if (r == 0 && sum != size)
		r = err_origin(-EINVAL);
	if (r < 0) {
		upload_state_fini(s);
		return err_trace(r);
	}
	upload_state_resume(s, upload_id);
	return 0;
}

void upload_state_fini(struct upload_state *s)
{
	free(s->part_state);
	free(s->parts);
	free(s->ranges);
	s->part_state = NULL;
	s->parts = NULL;
	s->ranges = NULL;
	s->part_count = 0;
}

static void forget_upload(struct upload_state *s)
{
	s->upload_id[0] = '\0';
	s->sent = 0;
	s->next = 0;
	for (uint32_t i = 0; i < s->part_count; i++) {
		s->part_state[i] = PART_TODO;
		s->parts[i] = (struct origin_part){0};
	}
}

void upload_state_resume(struct upload_state *s, const char *upload_id)
{
	check(s->phase == PHASE_START);
	snprintf(s->upload_id, sizeof(s->upload_id), "%s", upload_id);
}

void upload_state_resume_part(struct upload_state *s, const struct upload_sent *sent)
{
	const struct origin_part *part = &sent->part;
	bool proven = sent->proven;
	uint64_t off, n;

	check(s->phase == PHASE_START);
	if (part->number == 0 || part->number > s->part_count)
		return;
	upload_part_range(s, part->number, &off, &n);
	if (part->size != n || sent->off != off ||
	    s->part_state[part->number - 1] != PART_TODO)
		return;
	/* Nothing here could tell whether it is still right. */
	if (upload_part_copied(s, part->number))
		proven = true;
	else if (part->crc64 == 0)
		return;
	s->parts[part->number - 1] = *part;
	s->part_state[part->number - 1] = proven ? PART_SENT : PART_CLAIMED;
	s->sent += proven;
}

void upload_state_retry(struct upload_state *s)
{
	check(s->phase == PHASE_DONE && s->flying == 0);
	s->phase = PHASE_START;
	s->asked = false;
	s->result = 0;
	s->end_result = 0;
	s->next = 0;
	s->restarts = 0;
}

void upload_part_range(const struct upload_state *s, uint32_t part, uint64_t *off,
		       uint64_t *n)
{
	if (s->ranges) {
		*off = s->ranges[part - 1].off;
		*n = s->ranges[part - 1].size;
		return;
	}
	upload_schedule_range(&s->schedule, part, off, n);
}

uint64_t upload_sent_bytes(const struct upload_state *s)
{
	uint64_t bytes = 0, off, n;

	for (uint32_t i = 0; i < s->part_count; i++) {
		if (s->part_state[i] == PART_TODO)
			continue;
		upload_part_range(s, i + 1, &off, &n);
		bytes += n;
	}
	return bytes;
}

bool upload_part_copied(const struct upload_state *s, uint32_t part)
{
	return s->ranges && s->ranges[part - 1].copy;
}

const struct origin_part *upload_part_claim(const struct upload_state *s, uint32_t part)
{
	return s->parts[part - 1].size > 0 ? &s->parts[part - 1] : NULL;
}

/* The parts that copy the whole object from its start, or 0. */
static uint32_t object_parts(const struct upload_state *s)
{
	uint64_t size = 0;

	for (uint32_t i = 0; s->ranges && s->object.has_crc64 && i < s->part_count; i++) {
		if (!s->ranges[i].copy)
			break;
		size += s->ranges[i].size;
		if (size == s->object.size)
			return i + 1;
	}
	return 0;
}

bool upload_whole_crc64(const struct upload_state *s, uint64_t *crc)
{
	uint32_t first = object_parts(s);

	*crc = first ? s->object.crc64 : 0;
	for (uint32_t i = first; i < s->part_count; i++) {
		const struct origin_part *part = &s->parts[i];

		if (upload_part_copied(s, i + 1) && part->crc64 == 0)
			return false;
		*crc = crc64_combine(*crc, part->crc64, part->size);
	}
	return true;
}

static enum upload_action ask(struct upload_state *s, enum upload_action action)
{
	if (s->asked)
		return UPLOAD_WAIT;
	s->asked = true;
	return action;
}

static enum upload_action next_part(struct upload_state *s, uint32_t *part)
{
	/* Nothing new is begun after a failure; what flies may still land. */
	if (s->result < 0)
		return UPLOAD_WAIT;
	while (s->next < s->part_count && s->part_state[s->next] > PART_CLAIMED)
		s->next++;
	if (s->next < s->part_count && !s->stopped) {
		s->part_state[s->next] = PART_FLYING;
		s->flying++;
		*part = ++s->next;
		return UPLOAD_PART;
	}
	if (s->flying > 0)
		return UPLOAD_WAIT;
	if (s->ahead) {
		s->phase = PHASE_DONE;
		return UPLOAD_DONE;
	}
	check(s->sent == s->part_count);
	s->phase = PHASE_END;
	return ask(s, UPLOAD_END);
}

enum upload_action upload_next(struct upload_state *s, uint32_t *part)
{
	switch (s->phase) {
	case PHASE_START:
		if (s->stopped)
			s->phase = PHASE_DONE;
		else if (s->prove)
			s->phase = PHASE_PROVE;
		else if (s->append)
			s->phase = s->only_check ? PHASE_CHECK : PHASE_APPEND;
		else if (s->part_count == 0)
			s->phase = PHASE_PUT;
		else
			s->phase = s->upload_id[0] ? PHASE_PARTS : PHASE_BEGIN;
		return upload_next(s, part);
	case PHASE_PUT:
		return ask(s, UPLOAD_PUT);
	case PHASE_BEGIN:
		if (s->stopped && !s->asked)
			s->phase = PHASE_DONE;
		return s->phase == PHASE_DONE ? UPLOAD_DONE : ask(s, UPLOAD_BEGIN);
	case PHASE_PARTS:
		return next_part(s, part);
	case PHASE_END:
		return ask(s, UPLOAD_END);
	case PHASE_CHECK:
		return ask(s, UPLOAD_CHECK);
	case PHASE_PROVE:
		return ask(s, UPLOAD_PROVE);
	case PHASE_APPEND:
		return ask(s, UPLOAD_APPEND);
	case PHASE_ABORT:
		/* No part flies: one that lands behind the abort would stay for ever. */
		return ask(s, UPLOAD_ABORT);
	default:
		return UPLOAD_DONE;
	}
}

static void go(struct upload_state *s, enum upload_phase phase)
{
	s->phase = phase;
	s->asked = false;
}

static void finish(struct upload_state *s, int result)
{
	if (s->result == 0)
		s->result = result;
	if (s->cancelled) {
		s->result = -ECANCELED;
		go(s,
		   s->upload_id[0] && s->phase != PHASE_ABORT ? PHASE_ABORT : PHASE_DONE);
		return;
	}
	go(s, PHASE_DONE);
}

/* The store knows the upload id no more: lost, aborted by someone, or completed. */
static void restart(struct upload_state *s, int result)
{
	forget_upload(s);
	if (s->cancelled || s->only_end || ++s->restarts > UPLOAD_RESTART_MAX)
		finish(s, result);
	else
		go(s, PHASE_BEGIN);
}

static void part_landed(struct upload_state *s, int result,
			const struct origin_part *part)
{
	uint8_t *state = &s->part_state[part->number - 1];

	check(*state == PART_FLYING && s->flying > 0);
	s->flying--;
	*state = result == 0 ? PART_SENT : PART_TODO;
	s->parts[part->number - 1] = result == 0 ? *part : (struct origin_part){0};
	if (result == 0) {
		s->sent++;
	} else if (s->result == 0) {
		s->result = result;
	}
	if (s->flying > 0 || s->result == 0)
		return;
	if (s->result == -ENOENT) {
		s->result = 0;
		restart(s, -ENOENT);
		return;
	}
	finish(s, s->result);
}

static void end_landed(struct upload_state *s, int result)
{
	if (result == 0) {
		s->upload_id[0] = '\0';
		/* Too late to cancel: the object is there, the owner deletes it. */
		s->cancelled = false;
		finish(s, 0);
		return;
	}
	/* Completed although the answer says otherwise? Only the object can tell. */
	s->end_result = result;
	go(s, PHASE_CHECK);
}

/* The length is the token: an append at another one changed nothing, and what is there may
 * be an earlier one of ours. */
static void append_landed(struct upload_state *s, int result)
{
	if (result == 0)
		s->cancelled = false;
	if (result == -ESTALE && !s->cancelled)
		go(s, PHASE_CHECK);
	else
		finish(s, result);
}

static void append_check_landed(struct upload_state *s, int result,
				const struct origin_part *part)
{
	if (result == 0)
		s->cancelled = false;
	if (result != UPLOAD_PREFIX || s->cancelled) {
		finish(s, result == UPLOAD_PREFIX ? 0 : result);
		return;
	}
	/* Never back: each round trip ends nearer to the end. */
	check(part->size > s->append_off && part->size < s->size);
	s->append_off = part->size;
	s->append_crc64 = part->crc64;
	go(s, PHASE_APPEND);
}

static void check_landed(struct upload_state *s, int result)
{
	if (result == 0) {
		s->upload_id[0] = '\0';
		s->cancelled = false;
		finish(s, 0);
	} else if (result != -ENOENT) {
		finish(s, result); /* still unclear: END again, next time */
	} else if (s->end_result == -ENOENT || s->end_result == -EINVAL ||
		   s->end_result == -EBADMSG) {
		restart(s, s->end_result);
	} else {
		finish(s, s->end_result);
	}
}

static void prove_landed(struct upload_state *s, int result)
{
	s->prove = false;
	if (result == -ESTALE && !s->cancelled)
		result = unplan(s);
	if (result < 0 || result == UPLOAD_SAME || s->cancelled)
		finish(s, result < 0 ? result : 0);
	else
		go(s, PHASE_START);
}

void upload_landed(struct upload_state *s, enum upload_action action, int result,
		   const char *upload_id, const struct origin_part *part)
{
	switch (action) {
	case UPLOAD_PUT:
		if (result == 0)
			s->cancelled = false;
		finish(s, result);
		break;
	case UPLOAD_BEGIN:
		if (result == 0)
			snprintf(s->upload_id, sizeof(s->upload_id), "%s", upload_id);
		if (result == 0 && !s->cancelled)
			go(s, PHASE_PARTS);
		else
			finish(s, result);
		break;
	case UPLOAD_PART:
		part_landed(s, result, part);
		break;
	case UPLOAD_END:
		end_landed(s, result);
		break;
	case UPLOAD_CHECK:
		if (s->append)
			append_check_landed(s, result, part);
		else
			check_landed(s, result);
		break;
	case UPLOAD_APPEND:
		append_landed(s, result);
		break;
	case UPLOAD_PROVE:
		prove_landed(s, result);
		break;
	case UPLOAD_ABORT:
		if (result == 0)
			s->upload_id[0] = '\0';
		go(s, PHASE_DONE);
		break;
	default:
		check(!"an action that does not land");
	}
}

void upload_cancel(struct upload_state *s)
{
	if (s->phase == PHASE_DONE || s->cancelled)
		return;
	s->cancelled = true;
	if (s->phase == PHASE_START || (s->phase == PHASE_PARTS && s->flying == 0) ||
	    (s->phase == PHASE_BEGIN && !s->asked))
		finish(s, -ECANCELED);
	else if (s->phase == PHASE_PARTS)
		s->result = -ECANCELED;
}

void upload_stop(struct upload_state *s)
{
	check(s->ahead);
	s->stopped = true;
}
