/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of one job: a bridge in a namespace of its own, a namespace with one
 * address for every replica, one file of names. It has no way out: neither the host nor the
 * world (nor a cloud's metadata service) can be reached from it, and the host's own
 * network is not touched. The namespaces live as long as this object or a container in them.
 */
#pragma once

#include <stddef.h>

struct engine_peer;
struct runc_net;
struct why;

#define RUNC_NET_PEER_MAX 4096

/* Fills in the peers' addresses. The file of names is state_dir/hosts. */
int runc_net_new(struct runc_net **out, const char *job, const char *state_dir,
		 struct engine_peer *peers, size_t count, struct why *why)
	__attribute__((warn_unused_result));
struct runc_net *runc_net_free(struct runc_net *net); /* takes NULL, returns NULL */

const char *runc_net_job(const struct runc_net *net);
const char *runc_net_hosts_path(const struct runc_net *net);

/* The namespace of a peer (borrowed), or -ENOENT. */
int runc_net_ns(const struct runc_net *net, const char *hostname);
