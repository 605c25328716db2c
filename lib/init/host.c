/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the static program does on the host, for `network: nat` (lib/local/network.c starts it):
 *   tool PARENT PROGRAM ARG...   becomes PROGRAM, tied to the daemon: it dies with it
 *   net PARENT USERNS NETNS DEVICE [-ADDR/LEN] [+ADDR/LEN]...
 *       waits inside a box's network until DEVICE has a default route, then adds routes: what goes to -ADDR/LEN ends
 *       in the box itself, +ADDR/LEN is reached through DEVICE all the same.  Ends when all is done.
 * Why those routes: the tool sends from the host, so what it is asked to reach is reached from there, the host's own
 * addresses too; and a program may bind a socket to DEVICE, which takes 127.0.0.1 there.  A local route on DEVICE holds
 * in every case, and programs have no right to change it.
 * One thread.  Reasons go to stderr; exit 1 after them.
 */
#include "init.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* rtnetlink, of which a static libc has no header: the kernel's ABI */
#define NETLINK_ROUTE_FAMILY 0
#define GROUP_LINK 0x1
#define GROUP_ROUTES 0x440 /* IPv4 and IPv6 */
#define MSG_ERROR 2
#define MSG_DONE 3
#define NEW_ROUTE 24
#define GET_ROUTE 26
#define FLAG_REQUEST 0x1
#define FLAG_ACK 0x4
#define FLAG_DUMP 0x300
#define FLAG_CREATE 0x400
#define FLAG_APPEND 0x800
#define TABLE_MAIN 254
#define TABLE_LOCAL 255
#define PROTOCOL_STATIC 4
#define SCOPE_LINK 253
#define SCOPE_HOST 254
#define TYPE_UNICAST 1
#define TYPE_LOCAL 2
#define ATTR_DST 1
#define ATTR_OIF 4
#define OUR_METRIC 4096 /* of IPv6, behind what the kernel has itself */
#define ATTR_PRIORITY 6

struct nl_address {
	uint16_t family, pad;
	uint32_t pid, groups;
};

struct nl_head {
	uint32_t len;
	uint16_t type, flags;
	uint32_t seq, pid;
};

struct route_head {
	uint8_t family, dst_len, src_len, tos, table, protocol, scope, type;
	uint32_t flags;
};

struct attr_head {
	uint16_t len, type;
};

#define ALIGN4(n) (((n) + 3u) & ~3u)

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* ends with the thread of the daemon that started it, which lives as long as the daemon */
static void tie(const char *parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		die("cannot be tied to its parent: %s", strerror(errno));
	if (getppid() != atoi(parent)) /* it has ended in between */
		exit(1);
}

/* undoes the octal escapes of mountinfo in place */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/*
 * A mount namespace for root's tool: slirp4netns's sandbox would unmount shared mounts of the host.  No FUSE file system is
 * left in it: our own would never be told to be unmounted as long as the tool holds a copy.
 */
static void own_mounts(void)
{
	char line[8192], point[4096], *dash;
	FILE *f;

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
		die("cannot make a mount namespace: %s", strerror(errno));
	f = fopen("/proc/self/mountinfo", "re");
	while (f && fgets(line, sizeof(line), f)) {
		dash = strstr(line, " - fuse");
		if (!dash || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1)
			continue;
		unescape(point);
		umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW);
	}
	if (f)
		fclose(f);
}

static int be_tool(char **argv)
{
	static char *const env[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL };

	tie(argv[0]);
	if (geteuid() == 0)
		own_mounts();
	if (chdir("/") != 0)
		die("/: %s", strerror(errno));
	execve(argv[1], argv + 1, env); /* nothing of the daemon's environment */
	die("%s: %s", argv[1], strerror(errno));
}

/* ---- the box's network ---- */

static void enter(const char *userns, const char *netns)
{
	int user = open(userns, O_RDONLY | O_CLOEXEC), net = open(netns, O_RDONLY | O_CLOEXEC);

	if (user < 0 || net < 0)
		die("the sandbox's namespaces cannot be opened: %s", strerror(errno));
	if (setns(user, CLONE_NEWUSER) != 0 || setns(net, CLONE_NEWNET) != 0)
		die("the sandbox's namespaces cannot be entered: %s", strerror(errno));
	close(user);
	close(net);
}

static int nl_open(uint32_t groups)
{
	struct nl_address address = { .family = AF_NETLINK, .groups = groups };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE_FAMILY);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die("netlink: %s", strerror(errno));
	return fd;
}

static void nl_send(int fd, const void *msg, size_t len)
{
	if (send(fd, msg, len, 0) != (ssize_t)len)
		die("netlink: %s", strerror(errno));
}

/* a default route of the main table through device @index? */
static bool is_default(const struct nl_head *head, int index)
{
	const struct route_head *route = (const struct route_head *)(head + 1);
	size_t off = sizeof(*head) + sizeof(*route);

	if (head->type != NEW_ROUTE || head->len < off || route->dst_len != 0 || route->table != TABLE_MAIN ||
	    route->type != TYPE_UNICAST)
		return false;
	while (off + sizeof(struct attr_head) <= head->len) {
		const struct attr_head *attr = (const struct attr_head *)((const char *)head + off);
		int value;

		if (attr->len < sizeof(*attr) || off + attr->len > head->len)
			break;
		if (attr->type == ATTR_OIF && attr->len >= sizeof(*attr) + sizeof(value)) {
			memcpy(&value, attr + 1, sizeof(value));
			return value == index;
		}
		off += ALIGN4(attr->len);
	}
	return false;
}

/* all routes of @family; is one of them the default through @index? */
static bool has_default(int fd, uint8_t family, int index)
{
	struct {
		struct nl_head head;
		struct route_head route;
	} ask = { .head = { sizeof(ask), GET_ROUTE, FLAG_REQUEST | FLAG_DUMP, 1, 0 }, .route = { .family = family } };
	static _Alignas(8) char answer[65536];
	bool found = false;

	nl_send(fd, &ask, sizeof(ask));
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		size_t off = 0;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			die("netlink: %s", strerror(errno));
		while (off + sizeof(struct nl_head) <= (size_t)n) {
			const struct nl_head *head = (const struct nl_head *)(answer + off);

			if (head->len < sizeof(*head) || off + head->len > (size_t)n)
				return found;
			if (head->type == MSG_DONE || head->type == MSG_ERROR)
				return found;
			if (is_default(head, index))
				found = true;
			off += ALIGN4(head->len);
		}
	}
}

static int await_device(const char *device)
{
	static char drain[65536];
	int events = nl_open(GROUP_LINK | GROUP_ROUTES), ask = nl_open(0);

	/* who started us sets the bound */
	for (;;) {
		struct pollfd p = { events, POLLIN, 0 };
		int index = (int)if_nametoindex(device);

		if (index > 0 && (has_default(ask, AF_INET, index) || has_default(ask, AF_INET6, index))) {
			close(events);
			close(ask);
			return index;
		}
		poll(&p, 1, -1);
		while (recv(events, drain, sizeof(drain), MSG_DONTWAIT) > 0)
			;
	}
}

/* 0 or the errno of the kernel's answer */
static int add_route(int fd, uint8_t family, const void *addr, size_t addr_len, uint8_t bits, bool local, int index)
{
	struct {
		struct nl_head head;
		struct route_head route;
		char attrs[64];
	} msg;
	struct {
		struct nl_head head;
		int error;
		char rest[256];
	} answer;
	const struct {
		uint16_t type;
		const void *data;
		size_t len;
	} attrs[] = { { ATTR_DST, addr, addr_len },
		      { ATTR_OIF, &index, sizeof(index) },
		      { ATTR_PRIORITY, &(uint32_t){ OUR_METRIC }, sizeof(uint32_t) } };
	size_t i, off = 0;

	memset(&msg, 0, sizeof(msg));
	msg.route = (struct route_head){ .family = family, .dst_len = bits, .table = TABLE_LOCAL, .protocol = PROTOCOL_STATIC,
					 .scope = local ? SCOPE_HOST : SCOPE_LINK, .type = local ? TYPE_LOCAL : TYPE_UNICAST };
	for (i = 0; i < sizeof(attrs) / sizeof(attrs[0]); i++) {
		struct attr_head attr = { (uint16_t)(sizeof(attr) + attrs[i].len), attrs[i].type };

		memcpy(msg.attrs + off, &attr, sizeof(attr));
		memcpy(msg.attrs + off + sizeof(attr), attrs[i].data, attrs[i].len);
		off += ALIGN4(attr.len);
	}
	msg.head = (struct nl_head){ (uint32_t)(sizeof(msg.head) + sizeof(msg.route) + off), NEW_ROUTE,
				     FLAG_REQUEST | FLAG_ACK | FLAG_CREATE | FLAG_APPEND, 1, 0 };
	nl_send(fd, &msg, msg.head.len);
	if (recv(fd, &answer, sizeof(answer), 0) < (ssize_t)(sizeof(answer.head) + sizeof(answer.error)) ||
	    answer.head.type != MSG_ERROR)
		return EIO;
	return -answer.error;
}

/* @word: -ADDR/LEN or +ADDR/LEN */
static void route_word(int fd, const char *word, int index)
{
	char text[INET6_ADDRSTRLEN], addr[16];
	const char *slash = strchr(word, '/');
	uint8_t family = strchr(word, ':') ? AF_INET6 : AF_INET;
	size_t len = slash ? (size_t)(slash - word - 1) : sizeof(text);
	int e;

	if ((word[0] != '-' && word[0] != '+') || len >= sizeof(text))
		die("'%s' is no address", word);
	memcpy(text, word + 1, len);
	text[len] = '\0';
	if (inet_pton(family, text, addr) != 1)
		die("'%s' is no address", word);
	e = add_route(fd, family, addr, family == AF_INET ? 4 : 16, (uint8_t)atoi(slash + 1), word[0] == '-', index);
	if (e == 0 || e == EEXIST)
		return;
	/* no IPv6 here: then nothing can be sent with it either */
	if (family == AF_INET6 && (e == EAFNOSUPPORT || e == EOPNOTSUPP || e == EACCES || e == ENODEV))
		return;
	die("route %s: %s", word, strerror(e));
}

static int be_net(char **argv)
{
	int index, fd;

	tie(argv[0]);
	enter(argv[1], argv[2]);
	tie(argv[0]); /* other credentials: the kernel may have forgotten it */
	index = await_device(argv[3]);
	fd = nl_open(0);
	for (argv += 4; *argv; argv++)
		route_word(fd, *argv, index);
	return 0;
}

int sbx_host_role(int argc, char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (argc >= 4 && strcmp(argv[1], "tool") == 0)
		return be_tool(argv + 2);
	if (argc >= 6 && strcmp(argv[1], "net") == 0)
		return be_net(argv + 2);
	die("this is a part of sbxfs, started by it");
}
