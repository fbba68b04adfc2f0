/* SPDX-License-Identifier: Apache-2.0 */
/* The admin listener: GET and DELETE /stats, GET, PUT and DELETE /faults. */
#pragma once

struct ossd_admin;
struct ossd_context;
struct why;

int ossd_admin_start(struct ossd_admin **out, const char *address,
		     const struct ossd_context *context, struct why *why);
struct ossd_admin *ossd_admin_stop(struct ossd_admin *admin); /* takes NULL */
const char *ossd_admin_address(const struct ossd_admin *admin);
