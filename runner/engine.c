/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/engine.h"

#include <errno.h>
#include <string.h>

#include "fs/base/err.h"
#include "runner/engine_runc.h"

int engine_open(const char *kind, struct engine **out, struct why *why)
{
	if (!kind || !strcmp(kind, "runc"))
		return err_trace(engine_runc_open(out, why));
	return why_set(why, err_origin(-EINVAL),
		       "no engine is called \"%s\"; there is: runc", kind);
}

struct engine *engine_free(struct engine *e)
{
	if (e)
		e->ops->free(e);
	return NULL;
}
