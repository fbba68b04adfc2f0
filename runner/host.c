/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/host.h"

#include <unistd.h>

#include "runner/spec.h"

void host_probe(struct spec_host *out)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	out->memory_bytes =
		pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
	out->cpu_count = cpus > 0 ? (uint64_t)cpus : 1;
}
