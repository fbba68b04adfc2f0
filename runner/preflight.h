/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job can run here: the machine, the engine, the images, the gateway. Looks,
 * changes nothing. */
#pragma once

struct spec;
struct mistakes;

void preflight(const struct spec *spec, struct mistakes *m);
