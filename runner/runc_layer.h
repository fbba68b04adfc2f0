/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written into the upper layer of a container's overlay before it is mounted: what
 * hides parts of the lower layer, and the files that every container has of its own.
 * Paths are relative to the root and have no link in them. See the kernel's overlayfs.rst.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct runc_layer {
	int lower; /* the image's root (borrowed) */
	int upper; /* the layer's (borrowed) */
};

/* The path is absent in the container. What is not there below is left so. */
int runc_layer_hide(const struct runc_layer *l, const char *path);

/* The directory is there, and empty. */
int runc_layer_empty(const struct runc_layer *l, const char *path, mode_t mode);

/* The directory is there, with what the image has in it; parents, too. */
int runc_layer_dir(const struct runc_layer *l, const char *path);

int runc_layer_link(const struct runc_layer *l, const char *path, const char *to);
int runc_layer_file(const struct runc_layer *l, const char *path, const void *data,
		    size_t n, mode_t mode);

/* Leaves of the host's root what a program needs to run, and nothing private. */
int runc_layer_hide_host(const struct runc_layer *l);
