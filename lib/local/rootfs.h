/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the skeleton of a box's root: empty mount points, links, a small generated /etc; and which
 * folders of the host are bound onto it.  Nothing is ever made in the host's own folders.
 */
#ifndef SBX_LOCAL_ROOTFS_H
#define SBX_LOCAL_ROOTFS_H

#include <stddef.h>
#include <sys/types.h>

struct sbx_bundle;
struct sbx_err;

#define SBX_ROOTFS_INIT "/.sbxfs-init" /* the in-sandbox program inside the box */

/* sbx_rootfs_make - make "rootfs" in @dir_fd */
int sbx_rootfs_make(int dir_fd, const struct sbx_bundle *b, struct sbx_err *err);
/* sbx_rootfs_binds - call @add for every folder or file of the host that is bound read-only */
void sbx_rootfs_binds(const struct sbx_bundle *b,
		      void (*add)(void *data, const char *dest, const char *source), void *data);
/* sbx_rootfs_file - a new file with @len bytes; 0 or -errno */
int sbx_rootfs_file(int dir_fd, const char *name, const char *text, size_t len, mode_t mode);

/*
 * sbx_rootfs_find - the first of @names that is a program in the search path of a box.
 * "python3>=3.11" asks for a version, told by the name behind the links.
 * @rootfs: NULL = the host's /usr.  NULL: none.  Any thread.
 */
const char *sbx_rootfs_find(const char *rootfs, const char *const *names);

#endif
