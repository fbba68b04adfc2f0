/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store has of us, file by file, for the receipt of a drain. With a hand-over all
 * daemons of the mount write one ledger.
 *
 * A line is noted before the journal says that the store has the file, so none is missing
 * that the next daemon will not write itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/ledger.h"
#include "fs/base/err.h"
#include "fs/handover.h"
#include "fs/output_impl.h"

int receipt_begin(struct output *o)
{
	struct handover *h = o->config.handover;

	o->totals = h ? &h->totals : calloc(1, sizeof(*o->totals));
	if (!o->totals)
		return err_origin(-ENOMEM);
	return err_trace(ledger_open(o->state_fd, h ? h->ledger : NULL,
				     h && h->generation > 1, &o->ledger));
}

void receipt_end(struct output *o)
{
	o->ledger = ledger_close(o->ledger);
	if (!o->config.handover)
		free(o->totals);
	o->totals = NULL;
}

void receipt_note(struct output *o, const char *key, const struct stored *s)
{
	const struct ledger_line line = {
		.key = key, .etag = s->etag, .size = s->size, .crc64 = s->crc64};

	lock_assert_held(&o->lock);
	ledger_note(o->ledger, &line);
}

void receipt_forget(struct output *o, const char *key)
{
	lock_assert_held(&o->lock);
	ledger_forget(o->ledger, key);
}
