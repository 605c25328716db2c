/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what lib/local/files.c, lib/provider.c and the tests may know of the local provider.
 * The struct behind sbx_pbox is in lib/local/internal.h.
 */
#ifndef SBX_LOCAL_LOCAL_H
#define SBX_LOCAL_LOCAL_H

#include "../provider.h"

#include <stdbool.h>
#include <sys/types.h>

/* the vtable; its files slot is filled with sbx_local_file_ops (files.c) by sbx_local_ops_init */
extern struct sbx_provider_ops sbx_local_ops;
/* files.c */
extern const struct sbx_file_ops sbx_local_file_ops;

/*
 * sbx_local_pbox_get, sbx_local_pbox_put - one reference: fnodes keep their box alive with it, also
 * after rmdir.  get returns @box.  Any thread; put may free.
 */
struct sbx_pbox *sbx_local_pbox_get(struct sbx_pbox *box);
void sbx_local_pbox_put(struct sbx_pbox *box);

/*
 * sbx_local_workspace_fd - O_RDONLY|O_DIRECTORY descriptor of the workspace folder, or -errno with a reason: its volume cannot be
 * mounted.  The box's: it stays open as long as @box is referenced, also after rmdir.  Any thread.
 */
int sbx_local_workspace_fd(struct sbx_pbox *box, struct sbx_err *err);
/* sbx_local_ino - what st_ino shows of file @ino: two boxes with volumes of their own must not show the same number */
uint64_t sbx_local_ino(const struct sbx_pbox *box, uint64_t ino);

/*
 * sbx_local_discard - take @name in @dir_fd, a folder of the workspace, away from there, with all below it; it is deleted behind.
 * Any thread.  0 or -errno
 */
int sbx_local_discard(struct sbx_pbox *box, int dir_fd, const char *name);

/* the HOST ids that files in the workspace must have (the box's uid and gid 1000, or the user's own) */
uid_t sbx_local_pbox_uid(const struct sbx_pbox *box);
gid_t sbx_local_pbox_gid(const struct sbx_pbox *box);

/*
 * sbx_local_disk_full - would host writes into this box eat into the reserve of the state file system?
 * True from when the watcher found it below the reserve until it is above it again.  Asks statfs at most every
 * 100 ms.  Any thread; cheap.
 */
bool sbx_local_disk_full(struct sbx_pbox *box);

/*
 * sbx_local_no_limits - why cpu, memory and pids limits (and pause) cannot be had here; NULL: they can, or it is not
 * known yet (before the first box runs).  Lives as long as the provider.  Any thread.
 */
const char *sbx_local_no_limits(struct sbx_pbox *box);

#endif
