/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what all of fs/ shares: the session, the catalog, the options of this mount.  Set in main.c before the session runs,
 * read-only after that: any thread.
 */
#ifndef SBX_FS_FS_H
#define SBX_FS_FS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct sbx_catalog;
struct sbx_config;

struct sbx_fs {
	struct fuse_session *se;
	struct sbx_catalog *catalog;
	const struct sbx_config *config;
	const char *source;	/* "local" */
	const char *mountpoint; /* absolute */
	bool allow_other;	/* others may read, never write */
	uid_t uid;		/* the mounting user: owner of all files shown */
	gid_t gid;
	struct timespec since; /* when it was mounted */
	bool boxes_go; /* a policy `cleanup` may delete boxes */
	regex_t *deny; /* policy.deny, compiled */
	size_t deny_n;
};

extern struct sbx_fs sbx_fs;

/* sbx_ops - the table for fuse_session_new */
extern const struct fuse_lowlevel_ops sbx_ops;

/* sbx_set_ready - main.c's: called by ops.c when the kernel has greeted us: the mount answers */
void sbx_set_ready(void);

#endif
