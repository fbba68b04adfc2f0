/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/preflight.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "fs/base/err.h"
#include "fs/base/exit.h"
#include "runner/code.h"
#include "runner/engine.h"
#include "runner/gateway.h"
#include "runner/host.h"
#include "runner/mistakes.h"
#include "runner/spec.h"

static void check_images(const struct spec *spec, struct engine *e, struct mistakes *m)
{
	for (size_t i = 0; i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		struct why why = {""};
		bool seen = false;

		for (size_t j = 0; j < i; j++)
			seen |= !strcmp(spec->roles[j].image, role->image);
		if (!seen && e->ops->check_image(e, role->image, &why) < 0)
			mistakes_add(
				m,
				strcmp(role->image, spec->image)
					? spec_place(spec, "roles.%s.image", role->name)
					: spec_place(spec, "image"),
				EXIT_CONFIG, "%s", why.text);
	}
}

static void check_engine(const struct spec *spec, struct mistakes *m)
{
	struct mistake_place nowhere = {0};
	struct engine *e = NULL;
	struct why why = {""};

	if (engine_open(spec->engine, &e, &why) < 0 || e->ops->probe(e, &why) < 0)
		mistakes_add(m, nowhere, EXIT_UNAVAILABLE,
			     "no containers can run here: %s", why.text);
	else
		check_images(spec, e, m);
	engine_free(e);
}

static void check_code(const struct spec *spec, struct mistakes *m)
{
	const struct spec_code *code = &spec->code;
	bool secret = code->password.file || code->password.env || code->token.file ||
		      code->token.env;
	const struct code_source source = {
		.dir = code->dir,
		.git_url = code->git,
		.branch = code->branch,
		.commit = code->commit,
		.user = code->user,
		/* Whether there is one, not what it is: that is read when it is needed. */
		.password = secret ? "by reference" : NULL,
	};
	struct why why = {""};

	if (code->target && code_check(&source, &why) < 0)
		mistakes_add(m, spec_place(spec, "code"), EXIT_CONFIG, "%s", why.text);
}

void preflight(const struct spec *spec, struct mistakes *m)
{
	struct spec_host host;
	struct why why = {""};
	char gateway[PATH_MAX];

	host_probe(&host);
	spec_check_host(spec, &host, m);
	if (!m->count)
		check_code(spec, m);
	check_engine(spec, m);
	if ((spec->input.source || spec->output.source) &&
	    gateway_find(gateway, &why) < 0)
		mistakes_add(m, (struct mistake_place){0}, EXIT_UNAVAILABLE, "%s",
			     why.text);
}
