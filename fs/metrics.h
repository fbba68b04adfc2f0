/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status of mounts as metrics, in Prometheus' text exposition format 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Every series carries the
 * mount point as the label "mount" and no other name: their number does not grow with what
 * is read or written. Pure.
 */
#pragma once

#include <jansson.h>

#include "fs/base/buf.h"

/* `mounts`: an array as survey_all() has it; borrowed. Appends whole families, each with HELP
 * and TYPE, one after another. A value that a status does not have is left out. Errors show
 * in buf_error(). */
void metrics_write(struct buf *out, const json_t *mounts);
