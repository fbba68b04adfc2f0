/* SPDX-License-Identifier: Apache-2.0 */
/* The few rtnetlink(7) requests that a job's network needs. A socket belongs to the
 * network namespace in which it was opened. */
#pragma once

#include <stdint.h>

int netlink_open(void); /* a descriptor, or a negative errno */

int netlink_add_bridge(int fd, const char *name);

/* One end `name` here, joined to the bridge and up; the other, `peer`, in the
 * namespace `peer_ns`. */
int netlink_add_veth(int fd, const char *name, const char *bridge, const char *peer,
		     int peer_ns);

int netlink_set_up(int fd, const char *name);

/* `address` in host byte order. */
int netlink_add_address(int fd, const char *name, uint32_t address, int prefix);
