/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ossd_mime.h"

#include <string.h>
#include <strings.h>

static const struct {
	const char *extension, *type;
} types[] = {
	{"avi", "video/x-msvideo"},
	{"bmp", "image/bmp"},
	{"css", "text/css"},
	{"csv", "text/csv"},
	{"gif", "image/gif"},
	{"gz", "application/gzip"},
	{"htm", "text/html"},
	{"html", "text/html"},
	{"jpeg", "image/jpeg"},
	{"jpg", "image/jpeg"},
	{"js", "application/javascript"},
	{"json", "application/json"},
	{"log", "text/plain"},
	{"md", "text/markdown"},
	{"mp3", "audio/mpeg"},
	{"mp4", "video/mp4"},
	{"pdf", "application/pdf"},
	{"png", "image/png"},
	{"svg", "image/svg+xml"},
	{"tar", "application/x-tar"},
	{"tif", "image/tiff"},
	{"tiff", "image/tiff"},
	{"txt", "text/plain"},
	{"wav", "audio/x-wav"},
	{"webp", "image/webp"},
	{"xml", "application/xml"},
	{"yaml", "application/yaml"},
	{"yml", "application/yaml"},
	{"zip", "application/zip"},
};

const char *ossd_mime_type(const char *key, size_t n)
{
	const char *dot = memrchr(key, '.', n);
	size_t left;

	for (size_t i = 0; dot && i < sizeof(types) / sizeof(*types); i++) {
		left = n - (size_t)(dot + 1 - key);
		if (strlen(types[i].extension) == left &&
		    !strncasecmp(types[i].extension, dot + 1, left))
			return types[i].type;
	}
	return "application/octet-stream";
}
