/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel keeps names as long as it likes, and what it holds takes memory here: so it is
 * asked to let go of files that nobody uses. Directories, and what is open, stay.
 */
#include <stdlib.h>

#include "fs/base/worker.h"
#include "fs/input.h"
#include "fs/ops_call.h"
#include "fs/output.h"
#include "fs/session.h"

enum {
	SPARE_MAX = 4096, /* at a time */
	SPARE_ROUNDS = 64 /* then whoever comes next begins again */
};

/* As kernels before 6.18 must be asked. */
static void forget_names(struct ops *o, const uint64_t *inos, size_t n)
{
	const struct ops_config *c = &o->config;
	struct inodes_name name;

	for (size_t i = 0; i < n && !atomic_load(&o->stopping); i++) {
		int r = c->input ? input_name(c->input, inos[i], &name)
				 : output_name(c->output, inos[i], &name);

		if (r == 0)
			session_forget_name(c->session, name.parent, name.name);
	}
}

static void forget_files(struct ops *o, const uint64_t *inos, size_t n)
{
	if (n && session_forget_files(o->config.session, inos, n) == SESSION_E_BY_NAME)
		forget_names(o, inos, n);
}

static size_t spare_inodes(struct ops *o, uint64_t *inos)
{
	uint64_t *parents = inos + SPARE_MAX;
	size_t n = input_spare(o->config.input, inos, parents, SPARE_MAX);

	forget_files(o, inos, n);
	/* A listing that the kernel keeps would now mean a look-up for each of its names. */
	for (size_t i = 0; i < n; i++)
		if (i == 0 || parents[i] != parents[i - 1])
			session_forget_content(o->config.session, parents[i]);
	return n;
}

static size_t spare_nodes(struct ops *o, uint64_t *inos)
{
	size_t n = output_spare(o->config.output, inos, SPARE_MAX);

	forget_files(o, inos, n);
	return n;
}

static void spare(void *arg)
{
	struct ops *o = arg;
	uint64_t *inos = malloc(2 * SPARE_MAX * sizeof(*inos));
	size_t n = inos ? 1 : 0;

	for (int round = 0; n && round < SPARE_ROUNDS && !atomic_load(&o->stopping);
	     round++)
		n = o->config.input ? spare_inodes(o, inos) : spare_nodes(o, inos);
	free(inos);
	atomic_store(&o->sparing, false);
}

void ops_spare(void *arg)
{
	struct ops *o = arg;

	if (atomic_exchange(&o->sparing, true))
		return;
	lock_scope(&o->lock);
	if (atomic_load(&o->stopping) || !worker_try_submit(o->workers, spare, o))
		atomic_store(&o->sparing, false);
}

void ops_spare_now(struct ops *o)
{
	if (!atomic_exchange(&o->sparing, true))
		spare(o);
}
