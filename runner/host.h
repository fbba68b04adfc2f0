/* SPDX-License-Identifier: Apache-2.0 */
/* What the runner must know of the machine it runs on. */
#pragma once

struct spec_host;

void host_probe(struct spec_host *out);
