/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/preflight.h"

#include "runner/host.h"
#include "runner/spec.h"

void preflight(const struct spec *spec, struct mistakes *m)
{
	struct spec_host host;

	host_probe(&host);
	spec_check_host(spec, &host, m);
}
