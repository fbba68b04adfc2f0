/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/base/path.h"
#include "runner/engine.h"
#include "runner/init_image.h"
#include "runner/ns.h"
#include "runner/runc_layer.h"

struct work {
	const struct engine_container *c;
	const char *run_dir;
	bool is_host;
	int lower;             /* the image's root */
	int state;             /* c->state_dir */
	char layer[PATH_MAX];  /* state_dir/layer */
	char rootfs[PATH_MAX]; /* state_dir/rootfs */
	int mount_ns;
	struct why *why;
};

static bool is_host_image(const char *image)
{
	return !strcmp(image, "host");
}

static bool has_entry(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return !path_join(path, sizeof(path), dir, name) && !access(path, F_OK);
}

int runc_rootfs_check(const char *image, struct why *why)
{
	struct stat st;
	char path[PATH_MAX];

	if (is_host_image(image))
		return 0;
	if (image[0] != '/')
		return why_set(
			why, err_origin(-EINVAL),
			"image \"%s\" is neither \"host\" nor an absolute directory "
			"with a root file system; unpack the image into one",
			image);
	if (stat(image, &st))
		return why_set(why, err_origin(-errno), "image %s: %s", image,
			       strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return why_set(why, err_origin(-ENOTDIR),
			       "image %s is not a directory; unpack it into one", image);
	if (!realpath(image, path) || !strcmp(path, "/"))
		return why_set(why, err_origin(-EINVAL),
			       "image %s is the host's own root: say image: host", image);
	if (!has_entry(image, "usr") && !has_entry(image, "bin"))
		return why_set(why, err_origin(-EINVAL),
			       "image %s holds no root file system (no usr, no bin)",
			       image);
	return 0;
}

/* One of the paths that image "host" must not show. */
static int hide_path(const struct runc_layer *l, const char *path)
{
	char real[PATH_MAX];

	if (!realpath(path, real) || !real[1])
		return 0;
	return err_trace(runc_layer_hide(l, real + 1));
}

static int fill_host(const struct work *w, const struct runc_layer *l)
{
	int r = runc_layer_hide_host(l);

	r = r ? r : hide_path(l, w->run_dir);
	r = r ? r : hide_path(l, w->c->state_dir);
	for (const char *const *p = w->c->hide; p && *p && !r; p++)
		r = hide_path(l, *p);
	return err_trace(r);
}

static int fill_layer(const struct work *w, const struct runc_layer *l)
{
	/* A resolver without a server asks 127.0.0.1, is refused at once and goes on
	 * to /etc/hosts; with the host's server it would wait for what never answers. */
	static const char resolv[] =
		"# This network has no name server; see /etc/hosts.\n";
	char hostname[300];
	int r = w->is_host ? fill_host(w, l) : 0;

	r = r ? r : runc_layer_file(l, "etc/resolv.conf", resolv, strlen(resolv), 0644);
	snprintf(hostname, sizeof(hostname), "%s\n", w->c->hostname);
	r = r ? r : runc_layer_file(l, "etc/hostname", hostname, strlen(hostname), 0644);
	r = r ? r
	      : runc_layer_file(l, RUNC_INIT_PATH + 1, init_image,
				(size_t)(init_image_end - init_image), 0555);
	for (size_t i = 0; i < w->c->link_count && !r; i++)
		r = runc_layer_link(l, w->c->links[i].path + 1, w->c->links[i].to);
	return err_trace(r);
}

/* Descriptors for paths: no name in them can be mistaken for an option. */
static int mount_overlay(const struct work *w, int upper, int work_dir)
{
	char options[128];

	snprintf(options, sizeof(options),
		 "lowerdir=/proc/thread-self/fd/%d,upperdir=/proc/thread-self/fd/%d,"
		 "workdir=/proc/thread-self/fd/%d",
		 w->lower, upper, work_dir);
	if (mount("sluice", w->rootfs, "overlay", MS_NODEV, options))
		return err_origin(-errno);
	return 0;
}

static int make_dir_at(int parent, const char *name, mode_t mode)
{
	int fd;

	if (mkdirat(parent, name, 0700) && errno != EEXIST)
		return err_origin(-errno);
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_origin(-errno);
	if (fchmod(fd, mode)) {
		close(fd);
		return err_origin(-errno);
	}
	return fd;
}

static int try_overlay(const struct work *w)
{
	_cleanup_(close_fdp) int layer = -1, upper = -1, work_dir = -1;
	struct runc_layer l;
	int r;

	layer = open(w->layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	upper = layer < 0 ? -errno : make_dir_at(layer, "upper", 0755);
	work_dir = upper < 0 ? upper : make_dir_at(layer, "work", 0755);
	if (work_dir < 0)
		return err_origin(work_dir);
	l = (struct runc_layer){.lower = w->lower, .upper = upper};
	r = fill_layer(w, &l);
	return err_trace(r ? r : mount_overlay(w, upper, work_dir));
}

/* The kernel refuses some file systems as an upper layer (another overlay, NFS): there
 * the layer lives in memory, and counts against the container's limit. */
static int overlay_or_memory(const struct work *w)
{
	int r = try_overlay(w);

	if (!r)
		return 0;
	if (mount("sluice", w->layer, "tmpfs", MS_NODEV, "mode=0700"))
		return err_origin(-errno);
	log_debug(LOG_RUNNER, "layer in memory container=%s because=%s", w->c->name,
		  strerror(-r));
	return err_trace(try_overlay(w));
}

/* The overlay sees only the root's own file system: a /usr on another is bound in. */
static int bind_other_file_systems(const struct work *w)
{
	static const char *const names[] = {"usr", "opt"};
	struct stat root, st;

	if (stat("/", &root))
		return err_origin(-errno);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		char from[32], to[PATH_MAX];
		int r = path_join(to, sizeof(to), w->rootfs, names[i]);

		snprintf(from, sizeof(from), "/%s", names[i]);
		if (r)
			return err_trace(r);
		if (lstat(from, &st) || !S_ISDIR(st.st_mode) || st.st_dev == root.st_dev)
			continue;
		if (mount(from, to, NULL, MS_BIND, NULL) ||
		    mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NODEV,
			  NULL))
			return err_origin(-errno);
	}
	return 0;
}

/* On a thread with a mount namespace of its own. */
static int build(void *arg)
{
	struct work *w = arg;
	int r = ns_enter_new(CLONE_NEWNS);

	if (r < 0)
		return why_set(w->why, r, "cannot make a mount namespace: %s",
			       strerror(-r));
	w->mount_ns = r;
	/* What the host mounts later still arrives; what is mounted here never leaves. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return err_origin(-errno);
	w->lower =
		open(w->is_host ? "/" : w->c->image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->lower < 0)
		return why_set(w->why, err_origin(-errno), "image %s: %s", w->c->image,
			       strerror(errno));
	r = overlay_or_memory(w);
	if (!r && w->is_host)
		r = bind_other_file_systems(w);
	if (r)
		return why_set(w->why, r,
			       "cannot make the root file system of %s from image %s: %s",
			       w->c->name, w->c->image, strerror(-r));
	return 0;
}

int runc_rootfs_new(struct runc_rootfs *out, const struct engine_container *c,
		    const char *run_dir, struct why *why)
{
	_cleanup_(close_fdp) int layer = -1, rootfs = -1;
	struct work w = {.c = c,
			 .run_dir = run_dir,
			 .is_host = is_host_image(c->image),
			 .lower = -1,
			 .state = -1,
			 .mount_ns = -1,
			 .why = why};
	int r = path_join(w.layer, sizeof(w.layer), c->state_dir, "layer");

	r = r ? r : path_join(w.rootfs, sizeof(w.rootfs), c->state_dir, "rootfs");
	if (r)
		return err_trace(r);
	w.state = io_open_private_dir(c->state_dir, why);
	if (w.state < 0)
		return err_trace(w.state);
	layer = make_dir_at(w.state, "layer", 0700);
	rootfs = layer < 0 ? layer : make_dir_at(w.state, "rootfs", 0700);
	if (rootfs < 0)
		r = why_set(why, rootfs, "%s: %s", c->state_dir, strerror(-rootfs));
	else
		r = ns_call(build, &w);
	close_fdp(&w.state);
	close_fdp(&w.lower);
	if (r) {
		close_fdp(&w.mount_ns);
		return err_trace(r);
	}
	out->mount_ns = w.mount_ns;
	memcpy(out->path, w.rootfs, sizeof(out->path));
	return 0;
}
