/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes of all programs; the numbers of sysexits.h where it has one. */
#pragma once

enum exit_code {
	EXIT_OK = 0,
	EXIT_USAGE = 64,       /* wrong command line or malformed file a person wrote */
	EXIT_UNAVAILABLE = 69, /* the store or a server does not answer */
	EXIT_INTERNAL = 70,    /* our own mistake, or the operating system's */
	EXIT_PENDING = 75,     /* something is still pending; nothing is lost */
	EXIT_REFUSED = 77,     /* credentials or permissions */
	EXIT_CONFIG = 78, /* configuration: no such bucket, mount point not empty … */
};
