/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: looking at /proc/self/mountinfo.  Any thread. */
#ifndef SBX_FS_MOUNTS_H
#define SBX_FS_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

/* sbx_mounts_find - the ID of the newest mount on @path (absolute, no links), -1: none */
int64_t sbx_mounts_find(const char *path);
/* sbx_mounts_ours - is the newest mount on @path an sbxfs? */
bool sbx_mounts_ours(const char *path);
/* sbx_mounts_has - is a mount with this ID still in the table? true too when the table cannot be read */
bool sbx_mounts_has(int64_t id);

#endif
