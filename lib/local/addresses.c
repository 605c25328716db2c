/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the words for what a box must not reach.  Any thread. */
#include "local/addresses.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

int sbx_addresses_add(struct sbx_addresses *a, const char *fmt, ...)
{
	va_list ap;
	int r;

	if (a->n + 1 >= a->room) {
		size_t room = a->room ? 2 * a->room : 32;
		char **list = realloc(a->list, room * sizeof(*list));

		if (!list)
			return -ENOMEM;
		a->list = list;
		a->room = room;
	}
	va_start(ap, fmt);
	r = vasprintf(&a->list[a->n], fmt, ap);
	va_end(ap);
	if (r < 0) {
		a->list[a->n] = NULL;
		return -ENOMEM;
	}
	a->list[++a->n] = NULL;
	return 0;
}

int sbx_addresses_unreachable(struct sbx_addresses *a)
{
	static const char *const always[] = { "127.0.0.0/8", "169.254.0.0/16", "::/128", "::1/128", "fd00:ec2::254/128" };
	struct ifaddrs *all, *one;
	char text[INET6_ADDRSTRLEN];
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < sizeof(always) / sizeof(always[0]); i++)
		r = sbx_addresses_add(a, "-%s", always[i]);
	if (r < 0)
		return r;
	if (getifaddrs(&all) != 0)
		return -errno;
	for (one = all; r == 0 && one; one = one->ifa_next) {
		const struct sockaddr *sa = one->ifa_addr;

		if (sa && sa->sa_family == AF_INET &&
		    inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, text, sizeof(text)))
			r = sbx_addresses_add(a, "-%s/32", text);
		else if (sa && sa->sa_family == AF_INET6 &&
			 inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, text, sizeof(text)))
			r = sbx_addresses_add(a, "-%s/128", text);
	}
	freeifaddrs(all);
	return r;
}

void sbx_addresses_done(struct sbx_addresses *a)
{
	size_t i;

	for (i = 0; i < a->n; i++)
		free(a->list[i]);
	free(a->list);
}
