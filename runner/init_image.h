/* SPDX-License-Identifier: Apache-2.0 */
/* The container's process 1 (init.c) as bytes, to be written into each container. */
#pragma once

extern const unsigned char init_image[], init_image_end[];
