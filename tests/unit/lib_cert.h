/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates of a local authority, made on the spot. */
#pragma once

#include <stdbool.h>

struct cert_spec {
	const char *name; /* "127.0.0.1" or a host name: the subject alternative */
	long expires_s;   /* from now; negative: it has expired */
};

/* Writes ca.pem, cert.pem and key.pem into the directory. Every call makes an authority of
 * its own. */
void cert_make(const char *dir, const struct cert_spec *spec);
