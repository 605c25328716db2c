/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the volume of a box whose disk is limited: an ext4 file system in a sparse file of the box's folder, mounted through a loop
 * device.  The kernel refuses what goes beyond it, whoever writes.  In the folder:
 *   disk.img          the image; space is given back to the host when files are deleted (discard)
 *   disk/             where it is mounted
 *   disk/workspace/   the workspace
 *   disk/ballast      takes what the image has beyond the limit, so that the limit can change while the box runs
 * Only root can have one.  Blocks for some milliseconds; any thread, one call at a time for one box.
 */
#ifndef SBX_LOCAL_VOLUME_H
#define SBX_LOCAL_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_err;
struct sbx_removal;

/* sbx_volume_possible - 0, or -EOPNOTSUPP with what is missing */
int sbx_volume_possible(struct sbx_err *err);
/*
 * sbx_volume_make - in the box's folder @dir_fd, mounted, with an empty workspace/ that belongs to @uid, @gid.
 * Something half-made may be left: sbx_volume_unmount, then delete the folder.
 */
int sbx_volume_make(int dir_fd, uint64_t limit_bytes, uid_t uid, gid_t gid, struct sbx_err *err);
/* sbx_volume_open - a descriptor of its workspace folder, mounted if it is not; or -errno */
int sbx_volume_open(int dir_fd, struct sbx_err *err);
/* sbx_volume_limit - change the limit.  -EBUSY: more than that is in use, with the reason */
int sbx_volume_limit(int dir_fd, uint64_t limit_bytes, struct sbx_err *err);
/*
 * sbx_volume_empty - delete what is in the volume of box folder @name in @dir_fd, and unmount it: what was deleted need not be written to
 * the disk first, as it is at an unmount.  0 (also when there is none), -ECANCELED when *removal->stop: unmounted all the same
 */
int sbx_volume_empty(int dir_fd, const char *name, struct sbx_removal *removal);
/* sbx_volume_unmount - the volume of box folder @name in @dir_fd; what still uses it keeps it a while.  No error if there is none. */
void sbx_volume_unmount(int dir_fd, const char *name);

#endif
