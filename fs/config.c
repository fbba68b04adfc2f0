/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/backend/backend.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/crc.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/json.h"

#define SAVED_NAME "mount.json"
#define SAVED_MAX 65536

const char *const config_role[] = {"none", "input", "output", NULL};
const char *const config_auto[] = {"auto", "on", "off", NULL};
const char *const config_addressing[] = {"auto", "virtual", "path", "cname", NULL};
const char *const config_signature[] = {"v4", "v1", NULL};
const char *const config_durability[] = {"local", "remote", NULL};
const char *const config_profile[] = {"auto", "small", "large", NULL};
const char *const config_verify[] = {"end", "whole", NULL};

#define SPEC(ctype, field, type, name, letter, init, min, max, value, help, choices)     \
	{name,  letter, type,   offsetof(struct config, field), init, min, max,          \
	 value, help,   choices},

#define OPTION_STORE(...) SPEC(__VA_ARGS__)
#define OPTION_MOUNT(...) SPEC(__VA_ARGS__)
const struct opt_spec config_specs[] = {
#include "fs/options.def"
	{0},
};
#undef OPTION_MOUNT

#define OPTION_MOUNT(...)
const struct opt_spec config_store_specs[] = {
#include "fs/options.def"
	{0},
};
#undef OPTION_STORE
#undef OPTION_MOUNT

/* What stands in fstab for mount(8), systemd or the kernel, and is so anyway here. */
static bool is_foreign(const char *name)
{
	static const char *const names[] = {
		"defaults",   "_netdev",  "nofail", "auto",    "noauto",   "user",
		"nouser",     "users",    "owner",  "group",   "rw",       "exec",
		"nosuid",     "nodev",    "async",  "noatime", "relatime", "nodiratime",
		"norelatime", "lazytime", "silent", "loud",
	};

	if (!strncmp(name, "x-", 2) || !strncmp(name, "X-", 2) ||
	    !strncmp(name, "comment=", 8))
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

int config_apply_list(struct config *config, char *list, struct why *why)
{
	char *rest = list;

	for (char *name = strsep(&rest, ","); name; name = strsep(&rest, ",")) {
		char *value = strchr(name, '=');
		int r;

		if (!*name || is_foreign(name))
			continue;
		if (value)
			*value++ = '\0';
		if (!strcmp(name, "ro")) {
			config->read_only = true;
			continue;
		}
		if (!strcmp(name, "noexec")) {
			config->no_exec = true;
			continue;
		}
		if (!strcmp(name, "suid") || !strcmp(name, "dev"))
			return why_set(why, -EINVAL,
				       "-o %s: a mount of an object store has no device "
				       "nodes and no set-user-id programs",
				       name);
		r = opt_set(config_specs, config, name, value, why);
		if (r < 0)
			return r;
	}
	return 0;
}

static const char *from_environment(const char *value, const char *name)
{
	if (value && *value)
		return value;
	value = getenv(name);
	return value && *value ? value : NULL;
}

static int parse_mode(const char *name, const char *text, mode_t *mode, struct why *why)
{
	char *end;
	unsigned long value;

	if (!text)
		return 0;
	value = strtoul(text, &end, 8);
	if (!*text || *end || *text == '-' || value > 0777 || value == 0)
		return why_set(why, -EINVAL, "--%s %s: not permissions such as 0644",
			       name, text);
	*mode = (mode_t)value;
	return 0;
}

static int parse_id(const char *name, const char *text, uint32_t *id, struct why *why)
{
	char *end;
	unsigned long value;

	if (!text)
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (!*text || *end || *text == '-' || errno || value >= UINT32_MAX)
		return why_set(why, -EINVAL, "--%s %s: not a number of a user or group",
			       name, text);
	*id = (uint32_t)value;
	return 0;
}

/* "/var/lib/sluice" for root, "$XDG_STATE_HOME/sluice" for others. */
static int base_dir(char *out, size_t size, const char *root, const char *xdg,
		    const char *home)
{
	const char *dir = getenv(xdg);
	int n;

	if (geteuid() == 0)
		n = snprintf(out, size, "%s", root);
	else if (dir && *dir == '/')
		n = snprintf(out, size, "%s/sluice", dir);
	else if (getenv("HOME"))
		n = snprintf(out, size, "%s/%s/sluice", getenv("HOME"), home);
	else
		return err_origin(-ENOENT);
	return n > 0 && (size_t)n < size ? 0 : err_origin(-ENAMETOOLONG);
}

/* The source as a directory name: readable, and unlike any other source's, also of the
 * same bucket at another endpoint. */
static void source_id(const struct config *c, char *out, size_t size)
{
	const char *endpoint = c->endpoint ? c->endpoint : "";
	const char *region = c->region ? c->region : "";
	uint32_t crc = crc32c(0, c->source, strlen(c->source) + 1);
	size_t n = 0;

	crc = crc32c(crc, endpoint, strlen(endpoint) + 1);
	crc = crc32c(crc, region, strlen(region) + 1);
	for (const char *s = c->source; *s && n < 80; s++) {
		bool plain = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') ||
			     (*s >= 'A' && *s <= 'Z');

		if (plain || (n > 0 && out[n - 1] != '-'))
			out[n++] = plain ? *s : '-';
	}
	snprintf(out + n, size - n, "%s%08x", n && out[n - 1] != '-' ? "-" : "", crc);
}

int config_default_state(const struct config *config, char *out, size_t out_size)
{
	char base[PATH_MAX - 128], id[128];
	int r;

	r = base_dir(base, sizeof(base), "/var/lib/sluice", "XDG_STATE_HOME",
		     ".local/state");
	if (r < 0)
		return err_trace(r);
	source_id(config, id, sizeof(id));
	r = snprintf(out, out_size, "%s/%s", base, id);
	return r < (int)out_size ? 0 : err_origin(-ENAMETOOLONG);
}

/* Absolute, since the daemon changes to "/". */
static int absolute(char *out, size_t size, const char *path)
{
	char cwd[PATH_MAX];
	int n;

	if (*path == '/') {
		n = snprintf(out, size, "%s", path);
	} else {
		if (!getcwd(cwd, sizeof(cwd)))
			return err_origin(-errno);
		n = snprintf(out, size, "%s/%s", cwd, path);
	}
	return n > 0 && (size_t)n < size ? 0 : err_origin(-ENAMETOOLONG);
}

/* "file:PATH" and the like: the absolute one, also when there is nothing to be done. */
static int absolute_reference(char *out, size_t size, const char *reference)
{
	static const char *const kinds[] = {"file:", "ossutil:", "passwd:"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		size_t n = strlen(kinds[i]);

		if (strncmp(reference, kinds[i], n) != 0 || !reference[n])
			continue;
		memcpy(out, kinds[i], n);
		return err_trace(absolute(out + n, size - n, reference + n));
	}
	return snprintf(out, size, "%s", reference) < (int)size
		       ? 0
		       : err_origin(-ENAMETOOLONG);
}

/* Files that the environment names: the next daemon looks there, too. */
static int complete_environment(void)
{
	static const char *const names[] = {"OSSUTIL_CONFIG_FILE", "OSS_CREDENTIAL_FILE"};
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *value = from_environment(NULL, names[i]);

		if (value && *value != '/' &&
		    (absolute(path, sizeof(path), value) < 0 ||
		     setenv(names[i], path, 1) < 0))
			return err_origin(-ENAMETOOLONG);
	}
	return 0;
}

/* Where credentials and certificates are read from, again and again. */
static int complete_access(struct config *c, struct why *why)
{
	if (c->credentials) {
		if (absolute_reference(c->credentials_ref, sizeof(c->credentials_ref),
				       c->credentials) < 0)
			return why_set(why, -EINVAL, "--credentials: name too long");
		c->credentials = c->credentials_ref;
	}
	if (c->ca_file && *c->ca_file != '/') {
		if (absolute(c->ca_path, sizeof(c->ca_path), c->ca_file) < 0)
			return why_set(why, -EINVAL, "--ca-file: name too long");
		c->ca_file = c->ca_path;
	}
	return complete_environment() < 0
		       ? why_set(why, -EINVAL, "files in the environment: name too long")
		       : 0;
}

static int complete_paths(struct config *c, struct why *why)
{
	int r;

	r = c->cache_dir ? absolute(c->cache_path, sizeof(c->cache_path), c->cache_dir)
			 : base_dir(c->cache_path, sizeof(c->cache_path),
				    "/var/cache/sluice", "XDG_CACHE_HOME", ".cache");
	if (r < 0)
		return why_set(why, -EINVAL, "no place for the cache: set --cache-dir");
	r = c->state_dir ? absolute(c->state_path, sizeof(c->state_path), c->state_dir)
			 : config_default_state(c, c->state_path, sizeof(c->state_path));
	if (r < 0)
		return why_set(why, -EINVAL, "no place for the state: set --state-dir");
	if (c->record && absolute(c->record_path, sizeof(c->record_path), c->record) < 0)
		return why_set(why, -EINVAL, "--record: name too long");
	if (c->log_file)
		return absolute(c->log_path, sizeof(c->log_path), c->log_file);
	r = snprintf(c->log_path, sizeof(c->log_path), "%s/log", c->state_path);
	if (r >= (int)sizeof(c->log_path))
		return why_set(why, -EINVAL, "--state-dir: name too long");
	return 0;
}

int config_complete(struct config *c, const char *source, struct why *why)
{
	int r = 0;

	c->source = source;
	c->endpoint = from_environment(c->endpoint, "OSS_ENDPOINT");
	c->region = from_environment(c->region, "OSS_REGION");
	if (c->credentials && !*c->credentials)
		c->credentials = NULL;
	c->owner_uid = getuid();
	c->owner_gid = getgid();
	for (size_t i = 0; i < c->mount_options.count && r == 0; i++) {
		/* OPT_STRINGS point into argv, which is ours to write to. */
		r = config_apply_list(c, (char *)(uintptr_t)c->mount_options.items[i],
				      why);
	}
	if (r == 0)
		r = parse_mode("file-mode", c->file_mode, &c->file_bits, why);
	if (r == 0)
		r = parse_mode("dir-mode", c->dir_mode, &c->dir_bits, why);
	if (r == 0)
		r = parse_id("uid", c->uid, &c->owner_uid, why);
	if (r == 0)
		r = parse_id("gid", c->gid, &c->owner_gid, why);
	if (r == 0)
		r = complete_access(c, why);
	if (r == 0)
		r = complete_paths(c, why);
	return r;
}

void config_to_backend(const struct config *c, struct backend_config *out)
{
	*out = (struct backend_config){
		.source = c->source,
		.endpoint = c->endpoint,
		.region = c->region,
		.addressing = (enum backend_addressing)c->addressing,
		.signature = (enum backend_signature)c->signature,
		.credentials = c->credentials,
		.ca_file = c->ca_file,
		.read_only = c->role == CONFIG_INPUT,
		.connections_max = (uint32_t)c->connections,
		.timeout_ms = c->timeout_ms,
	};
}

int config_save(const struct config *c)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	_cleanup_(close_fdp) int dirfd = -1;
	int r;

	json_begin_object(&b, NULL);
	json_put_uint(&b, "version", 1);
	json_put_string(&b, "source", c->source);
	json_put_string(&b, "endpoint", c->endpoint);
	json_put_string(&b, "region", c->region);
	json_put_string(&b, "credentials", c->credentials);
	json_put_string(&b, "addressing", config_addressing[c->addressing]);
	json_put_string(&b, "signature", config_signature[c->signature]);
	json_put_string(&b, "ca-file", c->ca_file);
	json_end_object(&b);
	buf_putc(&b, '\n');
	r = buf_error(&b);
	if (r < 0)
		return err_trace(r);
	dirfd = open(c->state_path, O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return err_origin(-errno);
	return err_trace(io_replace_file(dirfd, SAVED_NAME, b.data, b.len, 0600));
}

/* Every string of the file that names an option of ours, through the same table. */
static int load_members(struct config *c, json_t *root, struct why *why)
{
	const char *name;
	json_t *value;

	json_object_foreach(root, name, value)
	{
		char *text;
		int r;

		if (!json_is_string(value))
			continue;
		if (c->loaded_count == CONFIG_LOADED_MAX)
			return why_set(why, -EINVAL, "too many members");
		text = strdup(json_string_value(value));
		if (!text)
			return err_origin(-ENOMEM);
		c->loaded[c->loaded_count++] = text;
		if (!strcmp(name, "source")) {
			c->source = text;
			continue;
		}
		r = opt_set(config_store_specs, c, name, text, why);
		if (r < 0)
			return r;
	}
	if (!c->source)
		return why_set(why, -EINVAL, "it names no source");
	return 0;
}

void config_fini(struct config *c)
{
	while (c->loaded_count)
		free(c->loaded[--c->loaded_count]);
}

int config_load(struct config *c, const char *state_dir, struct why *why)
{
	_cleanup_(buf_fini) struct buf b = BUF_INIT;
	_cleanup_(close_fdp) int dirfd = -1;
	json_error_t error;
	json_t *root;
	int r;

	dirfd = open(state_dir, O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return why_set(why, -errno, "%s: %s", state_dir, strerror(errno));
	r = io_read_file(dirfd, SAVED_NAME, SAVED_MAX, &b);
	if (r < 0)
		return why_set(why, r,
			       "%s: no " SAVED_NAME
			       " there, so it is not the state of an "
			       "output mount (%s)",
			       state_dir, strerror(-r));
	root = json_loadb(b.data, b.len, 0, &error);
	if (!json_is_object(root))
		r = why_set(why, -EINVAL, "line %d: %s", error.line, error.text);
	else
		r = load_members(c, root, why);
	json_decref(root);
	if (r < 0)
		why_wrap(why, "%s/" SAVED_NAME, state_dir);
	return r;
}
