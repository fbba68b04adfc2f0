/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runc_net.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/io.h"
#include "fs/base/path.h"
#include "fs/base/xalloc.h"
#include "runner/engine.h"
#include "runner/netlink.h"
#include "runner/ns.h"

/* Nothing is routed, so every job can have the same addresses. .0.1 stays free. */
#define NET_BASE 0x0a580000u /* 10.88.0.0 */
#define NET_PREFIX 16

struct peer {
	char *hostname;
	int ns; /* -1: not made yet */
	uint32_t address;
};

struct runc_net {
	char *job;
	char hosts[PATH_MAX];
	int bridge_ns; /* holds the bridge and one end of every pair */
	struct peer *peers;
	size_t count;
};

/* In a replica's new namespace; the pair is added later, from the bridge's side. */
static int make_peer_ns(void *arg)
{
	struct peer *p = arg;
	_cleanup_(close_fdp) int nl = -1;
	int fd = ns_enter_new(CLONE_NEWNET);

	if (fd < 0)
		return err_trace(fd);
	p->ns = fd;
	nl = netlink_open();
	return nl < 0 ? err_trace(nl) : err_trace(netlink_set_up(nl, "lo"));
}

static int make_bridge_ns(void *arg)
{
	struct runc_net *net = arg;
	_cleanup_(close_fdp) int nl = -1;
	int r = ns_enter_new(CLONE_NEWNET);

	if (r < 0)
		return err_trace(r);
	net->bridge_ns = r;
	nl = netlink_open();
	if (nl < 0)
		return err_trace(nl);
	r = netlink_set_up(nl, "lo");
	r = r ? r : netlink_add_bridge(nl, "job0");
	r = r ? r : netlink_set_up(nl, "job0");
	for (size_t i = 0; i < net->count && !r; i++) {
		char name[IF_NAMESIZE];

		snprintf(name, sizeof(name), "peer%u", (unsigned int)i);
		r = netlink_add_veth(nl, name, "job0", "eth0", net->peers[i].ns);
	}
	return err_trace(r);
}

static int set_peer_address(void *arg)
{
	const struct peer *p = arg;
	_cleanup_(close_fdp) int nl = -1;
	int r;

	if (setns(p->ns, CLONE_NEWNET))
		return err_origin(-errno);
	nl = netlink_open();
	if (nl < 0)
		return err_trace(nl);
	r = netlink_add_address(nl, "eth0", p->address, NET_PREFIX);
	return err_trace(r ? r : netlink_set_up(nl, "eth0"));
}

static void format_address(const struct peer *p, char out[64])
{
	snprintf(out, 64, "%u.%u.%u.%u", p->address >> 24, p->address >> 16 & 255,
		 p->address >> 8 & 255, p->address & 255);
}

static int write_hosts(const struct runc_net *net, const char *state_dir, struct why *why)
{
	_cleanup_(close_fdp) int dir = io_open_private_dir(state_dir, why);
	struct buf b = BUF_INIT;
	int r;

	if (dir < 0)
		return err_trace(dir);

	buf_puts(&b, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n");
	for (size_t i = 0; i < net->count; i++) {
		char address[64];

		format_address(&net->peers[i], address);
		buf_printf(&b, "%s\t%s\n", address, net->peers[i].hostname);
	}
	r = buf_error(&b);
	r = r ? r : io_replace_file(dir, "hosts", b.data, b.len, 0644);
	buf_fini(&b);
	/* Whatever our umask: programs in the container need not run as root. */
	if (!r && fchmodat(dir, "hosts", 0644, 0))
		r = err_origin(-errno);
	return err_trace(r);
}

static int build(struct runc_net *net)
{
	int r = 0;

	for (size_t i = 0; i < net->count && !r; i++)
		r = ns_call(make_peer_ns, &net->peers[i]);
	r = r ? r : ns_call(make_bridge_ns, net);
	for (size_t i = 0; i < net->count && !r; i++)
		r = ns_call(set_peer_address, &net->peers[i]);
	return err_trace(r);
}

int runc_net_new(struct runc_net **out, const char *job, const char *state_dir,
		 struct engine_peer *peers, size_t count, struct why *why)
{
	struct runc_net *net;
	int r;

	if (count > RUNC_NET_PEER_MAX)
		return why_set(why, err_origin(-E2BIG),
			       "%zu replicas are more than one host's network takes (%d)",
			       count, RUNC_NET_PEER_MAX);
	net = xcalloc(1, sizeof(*net));
	net->job = xstrdup(job);
	net->bridge_ns = -1;
	net->count = count;
	net->peers = xcalloc(count ? count : 1, sizeof(*net->peers));
	for (size_t i = 0; i < count; i++) {
		net->peers[i] = (struct peer){.hostname = xstrdup(peers[i].hostname),
					      .ns = -1,
					      .address = NET_BASE + 2 + (uint32_t)i};
		format_address(&net->peers[i], peers[i].address);
	}
	r = path_join(net->hosts, sizeof(net->hosts), state_dir, "hosts");
	r = r ? r : write_hosts(net, state_dir, why);
	if (!r) {
		r = build(net);
		if (r)
			why_set(why, r,
				"cannot make the job's network: %s (the kernel "
				"needs network namespaces, bridge and veth)",
				strerror(-r));
	}
	if (r) {
		runc_net_free(net);
		return err_trace(r);
	}
	*out = net;
	return 0;
}

struct runc_net *runc_net_free(struct runc_net *net)
{
	if (!net)
		return NULL;
	for (size_t i = 0; i < net->count; i++) {
		close_fdp(&net->peers[i].ns);
		free(net->peers[i].hostname);
	}
	close_fdp(&net->bridge_ns);
	free(net->peers);
	free(net->job);
	free(net);
	return NULL;
}

const char *runc_net_job(const struct runc_net *net)
{
	return net->job;
}

const char *runc_net_hosts_path(const struct runc_net *net)
{
	return net->hosts;
}

int runc_net_ns(const struct runc_net *net, const char *hostname)
{
	for (size_t i = 0; i < net->count; i++)
		if (!strcmp(net->peers[i].hostname, hostname))
			return net->peers[i].ns;
	return err_origin(-ENOENT);
}
