/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading folders of a workspace: the opendir, readdir and closedir of lib/provider.h. */
#ifndef SBX_LOCAL_FOLDER_H
#define SBX_LOCAL_FOLDER_H

#include <sys/types.h>

struct sbx_fdir;
struct sbx_fdirent;
struct sbx_fnode;
struct sbx_freq;

int sbx_local_opendir(struct sbx_fnode *dir, struct sbx_freq *req);
int sbx_local_readdir(struct sbx_fdir *dir, off_t off, struct sbx_fdirent *ret, struct sbx_freq *req);
void sbx_local_closedir(struct sbx_fdir *dir);

#endif
