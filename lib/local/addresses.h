/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which addresses a box with `network: nat` must not reach, as words for lib/init/host.c.  Any thread. */
#ifndef SBX_LOCAL_ADDRESSES_H
#define SBX_LOCAL_ADDRESSES_H

#include <stddef.h>

/* a list of words that grows; ends with NULL.  Zeroed before first use. */
struct sbx_addresses {
	char **list;
	size_t n, room;
};

/* sbx_addresses_add - one word more.  0 or -ENOMEM. */
int sbx_addresses_add(struct sbx_addresses *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * sbx_addresses_unreachable - "-ADDRESS/BITS" for loopback, for what is never routed (link-local, where clouds have
 * their metadata), and for every address that the host itself has now.  0 or -errno.
 */
int sbx_addresses_unreachable(struct sbx_addresses *a);
void sbx_addresses_done(struct sbx_addresses *a);

#endif
