/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/origin_posix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NS_PER_S INT64_C(1000000000)

enum field {
	MODE,
	MODE_OCTAL,
	UID,
	GID,
	MTIME
};

/* ossfs's own name comes first: where an object has several, the last one parsed wins only
 * among equals, and stores list names in order. */
static const struct {
	const char *name;
	enum field field;
} names[] = {
	{"mode", MODE},
	{"uid", UID},
	{"gid", GID},
	{"mtime", MTIME},
	{"permissions", MODE},
	{"owner", UID},
	{"group", GID},
	{"goog-reserved-posix-mode", MODE_OCTAL},
	{"goog-reserved-posix-uid", UID},
	{"goog-reserved-posix-gid", GID},
	{"goog-reserved-file-mtime", MTIME},
};

static bool parse_number(const char *value, int base, uint64_t max, uint64_t *out)
{
	char *end;

	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	*out = strtoull(value, &end, base);
	return errno == 0 && *end == '\0' && *out <= max;
}

/* "1700000000" or "1700000000.25": what follows the dot is a decimal fraction. ossfs reads
 * it as a count of nanoseconds, the same as long as nine digits are written. */
static bool parse_time(const char *value, int64_t *ns)
{
	int64_t fraction = 0, unit = NS_PER_S / 10, s;
	bool negative = *value == '-';
	char *end;

	if (negative)
		value++;
	if (*value < '0' || *value > '9')
		return false;
	errno = 0;
	s = strtoll(value, &end, 10);
	if (errno || s > INT64_MAX / NS_PER_S - 1)
		return false;
	if (*end == '.') {
		for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
			fraction += (*end - '0') * unit;
	}
	if (*end)
		return false;
	*ns = s * NS_PER_S + fraction;
	if (negative)
		*ns = -*ns;
	return true;
}

static bool set_mode(struct origin_attr *attr, const char *value, int base)
{
	uint64_t mode;

	if (!parse_number(value, base, 0177777, &mode))
		return false;
	if (!(mode & S_IFMT))
		mode |= S_IFREG;
	attr->mode = (mode_t)mode;
	attr->has_posix = true;
	attr->is_symlink = S_ISLNK(attr->mode);
	return true;
}

bool origin_posix_parse(struct origin_attr *attr, const char *name, const char *value)
{
	uint64_t id;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(names[i].name, name) != 0)
			continue;
		switch (names[i].field) {
		case MODE:
			return set_mode(attr, value, 0);
		case MODE_OCTAL:
			return set_mode(attr, value, 8);
		case MTIME:
			return parse_time(value, &attr->mtime_ns);
		case UID:
		case GID:
			if (!parse_number(value, 10, UINT32_MAX - 1, &id))
				return false;
			if (names[i].field == UID)
				attr->uid = (uid_t)id;
			else
				attr->gid = (gid_t)id;
			return true;
		}
	}
	return false;
}

void origin_posix_format(struct origin_posix *out, mode_t mode, uid_t uid, gid_t gid,
			 int64_t mtime_ns)
{
	uint64_t t = mtime_ns < 0 ? -(uint64_t)mtime_ns : (uint64_t)mtime_ns;

	snprintf(out->mode, sizeof(out->mode), "%u", mode);
	snprintf(out->uid, sizeof(out->uid), "%u", uid);
	snprintf(out->gid, sizeof(out->gid), "%u", gid);
	snprintf(out->mtime, sizeof(out->mtime), "%s%" PRIu64 ".%09" PRIu64,
		 mtime_ns < 0 ? "-" : "", t / (uint64_t)NS_PER_S, t % (uint64_t)NS_PER_S);
	for (int i = 0; i < 4; i++)
		out->pairs[i][0] = names[i].name;
	out->pairs[MODE][1] = out->mode;
	out->pairs[1][1] = out->uid;
	out->pairs[2][1] = out->gid;
	out->pairs[3][1] = out->mtime;
	out->meta = (struct origin_meta){
		.pairs = (const char *const(*)[2])out->pairs,
		.count = 4,
	};
}

void origin_posix_drop_time(struct origin_posix *out)
{
	out->meta.count = 3;
}
