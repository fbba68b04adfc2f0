/* SPDX-License-Identifier: Apache-2.0 */
/* A local OSS server of the test's own: BUILD/ossd in a folder that goes away with it. */
#pragma once

struct origin;
struct oss_config;

struct lib_ossd {
	int pid;
	char dir[64];
	char host[64];  /* "127.0.0.1:1234" */
	char admin[64]; /* the same of the admin address */
};

/* Starts it with a bucket "data" and the keys test-id:test-secret. Extra options end with
 * NULL. Fails the test when it does not come up. */
void lib_ossd_start(struct lib_ossd *s, const char *const *options);
void lib_ossd_stop(struct lib_ossd *s);

/* A configuration for its bucket; credentials are put into the environment and opened. */
struct oss_config lib_ossd_config(const struct lib_ossd *s, const char *prefix);

/* PUT /faults of the admin address; NULL clears. */
void lib_ossd_faults(const struct lib_ossd *s, const char *json);
