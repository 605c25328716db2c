/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the nodes below BOX/workspace.  Any thread. */
#ifndef SBX_FS_TREE_WORKSPACE_H
#define SBX_FS_TREE_WORKSPACE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdbool.h>

struct sbx_box;
struct sbx_node;

/* what is done with a link that leads outside: shown as .outside/..., or readlink is EPERM */
enum sbx_links { SBX_LINKS_OUTSIDE, SBX_LINKS_EPERM };

/* sbx_workspace_setup - before the session starts. @others_readonly: -o allow_other is on */
void sbx_workspace_setup(enum sbx_links links);

/*
 * sbx_workspace_node - the node of @box's workspace folder, with one lookup counted, and its attributes.
 * 0 or -errno.  Used by tree_box.c for LOOKUP and READDIRPLUS of "workspace".
 */
int sbx_workspace_node(struct sbx_box *box, struct sbx_node **ret, struct stat *attr);

#endif
