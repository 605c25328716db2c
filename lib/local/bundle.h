/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the OCI bundle of a box: config.json and the skeleton of its root.  Blocks shortly on local files. */
#ifndef SBX_LOCAL_BUNDLE_H
#define SBX_LOCAL_BUNDLE_H

#include "config.h"

#include <stdbool.h>
#include <stdint.h>

struct sbx_err;

struct sbx_bundle {
	const char *dir;	/* absolute; made anew */
	const char *hostname;
	const char *workspace;	/* path on the host */
	const char *init_path;	/* path on the host */
	const char *rootfs;	/* NULL = the host's /usr */
	const char *cgroups_path; /* NULL = the runtime's choice */
	enum sbx_network network;
	const char *net_tool; /* with SBX_NET_NAT: the program that carries it */
	const struct sbx_limits *limits;
	bool with_limits; /* cgroup limits can be had */
	bool root;	  /* the daemon is root: subordinate ids from id_base */
	uint32_t id_base;
};

/* processes of our own that come on top of the pids limit: the init and one supervisor for each run */
#define SBX_BUNDLE_PIDS_EXTRA 64

/* sbx_bundle_make - 0 or -errno.  Something half-made may be left; sbx_bundle_remove copes. */
int sbx_bundle_make(const struct sbx_bundle *b, struct sbx_err *err);
/* sbx_bundle_resources - the cpu, memory and pids limits as JSON for the runtime's `update`, malloc'ed; NULL: no memory */
char *sbx_bundle_resources(const struct sbx_limits *limits);
/* sbx_bundle_remove - no error if there is none */
void sbx_bundle_remove(const char *dir);

#endif
