/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/handover_file.h"

#include <errno.h>
#include <stdlib.h>

#include "fs/base/err.h"
#include "fs/handover.h"

static bool file_used(void *arg, uint32_t i)
{
	struct handover_files *f = arg;

	return handover_file_state(&f->items[i]) != HANDOVER_FREE;
}

static int note_orphan(struct handover_files *f, struct handover_file *file)
{
	int *grown;

	if (file->backing_id <= 0)
		return 0;
	grown = realloc(f->orphans, (f->orphan_count + 1) * sizeof(*grown));
	if (!grown)
		return err_origin(-ENOMEM);
	f->orphans = grown;
	grown[f->orphan_count++] = file->backing_id;
	/* Whether the id is still good is not known: nobody else may share it. */
	file->backing_id = 0;
	file->mode = 0;
	return 0;
}

/* Those that the kernel does not know: it was never told of them, or was told of the end. */
static int drop_unknown(struct handover *h)
{
	struct handover_files *f = &h->files;
	int r = 0;

	f->orphans = NULL; /* the last daemon's */
	f->orphan_count = 0;
	for (uint32_t i = 0; r == 0 && i < atomic_load(&f->limit); i++) {
		struct handover_file *file = &f->items[i];
		enum handover_file_state state = handover_file_state(file);
		bool again;

		if (state != HANDOVER_OPENING && state != HANDOVER_RELEASING)
			continue;
		again = handover_resent(h, atomic_load(&file->state) >> 2);
		if (again)
			r = note_orphan(f, file);
		if (again == (state == HANDOVER_OPENING))
			atomic_store(&file->state, HANDOVER_FREE);
		else
			atomic_store(&file->state, HANDOVER_OPEN);
	}
	return err_trace(r);
}

int handover_files_begin(struct handover *h)
{
	struct handover_files *f = &h->files;

	int r = drop_unknown(h);

	if (r < 0)
		return err_trace(r);
	return err_trace(slots_attach(&f->slots, f->items, sizeof(*f->items),
				      HANDOVER_FILES_MAX, &f->limit, file_used, f));
}

void handover_files_end(struct handover *h)
{
	slots_detach(&h->files.slots);
	free(h->files.orphans);
}

uint32_t handover_file_take(struct handover *h)
{
	return slots_take(&h->files.slots);
}

void handover_file_give(struct handover *h, uint32_t i)
{
	atomic_store(&h->files.items[i].state, HANDOVER_FREE);
	slots_give(&h->files.slots, i);
}
