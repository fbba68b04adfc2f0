/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in /run/runner of every container: the cluster and the hyperparameters as
 * files, for programs that would rather read than parse variables. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "runner/env.h"
#include "runner/spec.h"

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct spec_role *const *)a)->name,
		      (*(const struct spec_role *const *)b)->name);
}

void env_cluster_json(const struct spec *spec, struct buf *out)
{
	const struct spec_role *roles[SPEC_ROLES_MAX] = {NULL};
	struct buf b = BUF_INIT;

	for (size_t i = 0; i < spec->role_count; i++)
		roles[i] = &spec->roles[i];
	qsort(roles, spec->role_count, sizeof(const struct spec_role *), by_name);
	json_begin_object(&b, NULL);
	for (size_t i = 0; i < spec->role_count; i++) {
		json_begin_array(&b, roles[i]->name);
		for (size_t j = 0; j < roles[i]->count; j++) {
			char address[SPEC_ROLE_NAME_MAX + 48];

			snprintf(address, sizeof(address), "%s-%zu:%u", roles[i]->name, j,
				 (unsigned int)roles[i]->ports[0]);
			json_put_string(&b, NULL, address);
		}
		json_end_array(&b);
	}
	json_end_object(&b);
	buf_append(out, b.data, b.len);
	out->failed |= buf_error(&b) < 0;
	buf_fini(&b);
}

/* A number by JSON's grammar: -?int frac? exp?. */
static bool is_json_number(const char *s)
{
	static const char digits[] = "0123456789";
	size_t n;

	s += *s == '-';
	n = strspn(s, digits);
	if (n == 0 || (n > 1 && *s == '0'))
		return false;
	s += n;
	if (*s == '.') {
		n = strspn(++s, digits);
		if (n == 0)
			return false;
		s += n;
	}
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '+' || *s == '-';
		n = strspn(s, digits);
		if (n == 0)
			return false;
		s += n;
	}
	return *s == '\0';
}

void env_hyperparameters_json(const struct spec *spec, struct buf *out)
{
	struct buf b = BUF_INIT;

	json_begin_object(&b, NULL);
	for (size_t i = 0; i < spec->hyperparameters.count; i++) {
		const struct spec_pair *p = &spec->hyperparameters.items[i];

		if (!p->quoted &&
		    (is_json_number(p->value) || !strcmp(p->value, "true") ||
		     !strcmp(p->value, "false")))
			json_put_raw(&b, p->name, p->value);
		else
			json_put_string(&b, p->name, p->value);
	}
	json_end_object(&b);
	buf_append(out, b.data, b.len);
	out->failed |= buf_error(&b) < 0;
	buf_fini(&b);
}

static int write_file(int dirfd, const char *name, struct buf *b)
{
	int r = buf_error(b);

	if (r == 0)
		r = io_replace_file(dirfd, name, b->data ? b->data : "", b->len, 0644);
	buf_reset(b);
	return err_trace(r);
}

int env_write_files(const struct spec *spec, int dirfd)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT, all = BUF_INIT;
	int r;

	env_cluster_json(spec, &b);
	r = write_file(dirfd, "cluster.json", &b);
	if (r == 0) {
		env_hyperparameters_json(spec, &b);
		r = write_file(dirfd, "hparams.json", &b);
	}
	for (size_t i = 0; r == 0 && i < spec->role_count; i++) {
		const struct spec_role *role = &spec->roles[i];
		char name[SPEC_ROLE_NAME_MAX + 8];

		for (size_t j = 0; j < role->count; j++) {
			buf_printf(&b, "%s-%zu\n", role->name, j);
			if (!role->service)
				buf_printf(&all, "%s-%zu slots=1\n", role->name, j);
		}
		snprintf(name, sizeof(name), "%s.host", role->name);
		r = write_file(dirfd, name, &b);
	}
	if (r == 0)
		r = write_file(dirfd, "hostfile", &all);
	return err_trace(r);
}
