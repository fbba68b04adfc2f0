/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount is to do: the command line, checked and completed. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/base/opt.h"

struct backend_config;
struct why;

enum config_role_index {
	CONFIG_ROLE_NONE,
	CONFIG_INPUT,
	CONFIG_OUTPUT
};
enum config_when {
	CONFIG_AUTO,
	CONFIG_ON,
	CONFIG_OFF
};
enum config_profile_index {
	CONFIG_PROFILE_AUTO,
	CONFIG_PROFILE_SMALL,
	CONFIG_PROFILE_LARGE
};

#define CONFIG_LOADED_MAX 32

extern const char *const config_role[];
extern const char *const config_auto[];
extern const char *const config_addressing[];
extern const char *const config_signature[];
extern const char *const config_durability[];
extern const char *const config_profile[];
extern const char *const config_verify[]; /* in the order of enum object_verify */

struct config {
#define OPTION_STORE(type, field, ...) type field;
#define OPTION_MOUNT(type, field, ...) type field;
#include "fs/options.def"
#undef OPTION_STORE
#undef OPTION_MOUNT

	/* Not options: from the arguments, or derived by config_complete(). */
	const char *source; /* as given; borrowed */
	char dir[PATH_MAX]; /* mount point, absolute, no links */
	char cache_path[PATH_MAX], state_path[PATH_MAX], log_path[PATH_MAX];
	char record_path[PATH_MAX];     /* "": none */
	char ca_path[PATH_MAX];         /* ca_file, when that is relative */
	char credentials_ref[PATH_MAX]; /* credentials, with an absolute path */
	uid_t owner_uid;
	gid_t owner_gid;
	mode_t file_bits, dir_bits;      /* 0: the tree's default */
	bool read_only, no_exec;         /* -o ro, -o noexec */
	char *loaded[CONFIG_LOADED_MAX]; /* strings of config_load() */
	size_t loaded_count;
};

void config_fini(struct config *config); /* what config_load() made */

extern const struct opt_spec config_specs[];       /* all options */
extern const struct opt_spec config_store_specs[]; /* how to reach a source */

/* The comma lists of -o, through the same table. Names that mount(8) and fstab carry for
 * themselves are passed over. `list` is cut up in place and borrowed for ever. */
int config_apply_list(struct config *config, char *list, struct why *why);

/* Environment, defaults, directories, numbers. Creates nothing. Every path is absolute then,
 * also in the environment, for daemons that come later. Single-threaded. -EINVAL: what the
 * caller wrote is wrong (EXIT_USAGE). */
int config_complete(struct config *config, const char *source, struct why *why);

/* Where the state of a source lies unless --state-dir says otherwise. */
int config_default_state(const struct config *config, char *out, size_t out_size);

void config_to_backend(const struct config *config, struct backend_config *out);

/* <state>/mount.json: how the source is reached, for `sluice recover`. No secrets. */
int config_save(const struct config *config);
/* Strings last until config_fini(). -ENOENT, -EINVAL with a sentence. */
int config_load(struct config *config, const char *state_dir, struct why *why);
