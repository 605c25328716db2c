/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: scratch folders of run/ and of slots, of names that begin with '.': some tools put a file there first and rename it onto the
 * code's name.  Their files are code.h's, bounded together with the others, and never leave the daemon.  Any thread.
 */
#ifndef SBX_FS_TREE_SCRATCH_H
#define SBX_FS_TREE_SCRATCH_H

#include "synth.h"

#include <limits.h>

/* slots of struct sbx_folder, for the folders that have them.  -ENOENT: no scratch folder of that name */
int sbx_scratch_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr);
int sbx_scratch_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		      struct sbx_err *err);
int sbx_scratch_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err);

/* sbx_scratch_name - what code.h calls @name of @dir, which may be a scratch folder.  -ESTALE: that is gone, -ENAMETOOLONG */
int sbx_scratch_name(const struct sbx_synth *dir, const char *name, char ret[NAME_MAX + 1]);

/* tree_run.c: the requests of all folders of code and scratch files */
extern const struct sbx_node_ops sbx_run_ops;

#endif
