/* SPDX-License-Identifier: Apache-2.0 */
/* A drain whose receipt is text. */
#pragma once

#include "fs/base/buf.h"
#include "fs/output.h"
#include "fs/receipt.h"

/* As output_drain(); appends the receipt, without the files. */
static inline int lib_drain(struct output *o, uint64_t deadline_ms, struct buf *text)
{
	struct receipt *receipt = NULL;
	int r = output_drain(o, deadline_ms, &receipt);

	if (receipt)
		receipt_object(receipt, 0, text);
	receipt_free(receipt);
	return r;
}
