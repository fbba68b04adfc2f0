/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/netlink.h"

#include <errno.h>
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/check.h"
#include "fs/base/err.h"

/* One request: header, fixed part, attributes. The largest here is below 300 bytes. */
struct request {
	struct nlmsghdr h;
	char body[500];
};

int netlink_open(void)
{
	struct sockaddr_nl local = {.nl_family = AF_NETLINK};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return err_origin(-errno);
	if (bind(fd, (struct sockaddr *)&local, sizeof(local))) {
		int r = -errno;

		close(fd);
		return err_origin(r);
	}
	return fd;
}

static void begin(struct request *q, uint16_t type, uint16_t flags, const void *fixed,
		  size_t n)
{
	memset(q, 0, sizeof(*q));
	q->h.nlmsg_type = type;
	q->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
	q->h.nlmsg_len = (uint32_t)NLMSG_LENGTH(n);
	memcpy(NLMSG_DATA(&q->h), fixed, n);
}

static struct rtattr *put(struct request *q, uint16_t type, const void *data, size_t n)
{
	size_t at = NLMSG_ALIGN(q->h.nlmsg_len);
	struct rtattr *a = (struct rtattr *)(void *)((char *)q + at);

	check(at + RTA_SPACE(n) <= sizeof(*q));
	a->rta_type = type;
	a->rta_len = (uint16_t)RTA_LENGTH(n);
	if (n)
		memcpy(RTA_DATA(a), data, n);
	q->h.nlmsg_len = (uint32_t)(at + RTA_SPACE(n));
	return a;
}

static void put_string(struct request *q, uint16_t type, const char *s)
{
	put(q, type, s, strlen(s) + 1);
}

/* Everything put since `a` becomes its content. */
static void end(struct request *q, struct rtattr *a)
{
	a->rta_len = (uint16_t)((char *)q + q->h.nlmsg_len - (char *)a);
}

/* Sends and reads the acknowledgement, the only answer to requests of this kind. */
static int transact(int fd, struct request *q)
{
	union {
		struct nlmsghdr h;
		char bytes[4096];
	} answer;
	const struct nlmsgerr *e;
	ssize_t n;

	do
		n = send(fd, q, q->h.nlmsg_len, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_origin(-errno);
	do
		n = recv(fd, &answer, sizeof(answer), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_origin(-errno);
	if (!NLMSG_OK(&answer.h, (size_t)n) || answer.h.nlmsg_type != NLMSG_ERROR)
		return err_origin(-EPROTO);
	e = NLMSG_DATA(&answer.h);
	return e->error ? err_origin(e->error) : 0;
}

int netlink_add_bridge(int fd, const char *name)
{
	const struct ifinfomsg link = {.ifi_family = AF_UNSPEC};
	struct request q;
	struct rtattr *info;

	begin(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof(link));
	put_string(&q, IFLA_IFNAME, name);
	info = put(&q, IFLA_LINKINFO, NULL, 0);
	put_string(&q, IFLA_INFO_KIND, "bridge");
	end(&q, info);
	return err_trace(transact(fd, &q));
}

/* if_nametoindex() would ask in the caller's namespace: inside ns_call it is the same. */
static int index_of(const char *name, int *index)
{
	unsigned int i = if_nametoindex(name);

	if (!i)
		return err_origin(-errno);
	*index = (int)i;
	return 0;
}

int netlink_add_veth(int fd, const char *name, const char *bridge, const char *peer,
		     int peer_ns)
{
	const struct ifinfomsg link = {
		.ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	const struct ifinfomsg other = {.ifi_family = AF_UNSPEC};
	struct rtattr *info, *data, *p;
	struct request q;
	int master = 0, r = index_of(bridge, &master);

	if (r)
		return err_trace(r);
	begin(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof(link));
	put_string(&q, IFLA_IFNAME, name);
	put(&q, IFLA_MASTER, &master, sizeof(master));
	info = put(&q, IFLA_LINKINFO, NULL, 0);
	put_string(&q, IFLA_INFO_KIND, "veth");
	data = put(&q, IFLA_INFO_DATA, NULL, 0);
	p = put(&q, VETH_INFO_PEER, &other, sizeof(other));
	put_string(&q, IFLA_IFNAME, peer);
	put(&q, IFLA_NET_NS_FD, &peer_ns, sizeof(peer_ns));
	end(&q, p);
	end(&q, data);
	end(&q, info);
	return err_trace(transact(fd, &q));
}

int netlink_set_up(int fd, const char *name)
{
	struct ifinfomsg link = {
		.ifi_family = AF_UNSPEC, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
	struct request q;
	int r = index_of(name, &link.ifi_index);

	if (r)
		return err_trace(r);
	begin(&q, RTM_NEWLINK, 0, &link, sizeof(link));
	return err_trace(transact(fd, &q));
}

int netlink_add_address(int fd, const char *name, uint32_t address, int prefix)
{
	struct ifaddrmsg a = {.ifa_family = AF_INET, .ifa_prefixlen = (uint8_t)prefix};
	uint32_t host_bits = prefix < 32 ? 0xffffffffu >> prefix : 0;
	uint32_t wire = htonl(address), broadcast = htonl(address | host_bits);
	struct request q;
	int index = 0, r = index_of(name, &index);

	if (r)
		return err_trace(r);
	a.ifa_index = (uint32_t)index;
	begin(&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a, sizeof(a));
	put(&q, IFA_LOCAL, &wire, sizeof(wire));
	put(&q, IFA_ADDRESS, &wire, sizeof(wire));
	put(&q, IFA_BROADCAST, &broadcast, sizeof(broadcast));
	return err_trace(transact(fd, &q));
}
