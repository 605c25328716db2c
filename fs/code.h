/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the files that are written into a run folder: code (what starts a run) and scratch files of editors and tools.  They
 * live in memory and never leave the daemon but as a run's code.  A run starts at RELEASE of a handle that wrote, or at a
 * rename onto a code name.  Any thread.
 */
#ifndef SBX_FS_CODE_H
#define SBX_FS_CODE_H

#include "node.h"
#include "synth.h"

#include <stdbool.h>
#include <sys/types.h>

struct sbx_slot;

/* what readers of results must know of a slot's writers */
enum sbx_saving {
	SBX_SAVING_NOT,	    /* no handle that wrote is open on a code file */
	SBX_SAVING_WRITING, /* one is, and its writer is at work */
	SBX_SAVING_CLOSING, /* one was closed, or its writer is gone: the run starts in a moment */
};
enum sbx_saving sbx_code_saving(struct sbx_slot *slot);

/* sbx_code_held_by - does process (or thread) @pid itself hold an open handle that wrote? Looks at /proc/PID/fdinfo. */
bool sbx_code_held_by(struct sbx_slot *slot, pid_t pid);

/* for tree_run.c's folder: the files of a slot by name (one lookup counted), and their names.  -ENOENT */
int sbx_code_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr);
int sbx_code_list(const struct sbx_ref *ref, struct sbx_names *names);
bool sbx_code_exists(struct sbx_slot *slot, const char *name);

/* the requests that make and move them; @ref->slot is the folder's.  Each answers @req. */
void sbx_code_create(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode,
		     struct fuse_file_info *fi);
void sbx_code_mknod(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode);
void sbx_code_symlink(fuse_req_t req, const struct sbx_ref *ref, const char *target, const char *name);
/* sbx_code_unlink - 0 or -ENOENT */
int sbx_code_unlink(const struct sbx_ref *ref, const char *name);
/*
 * sbx_code_rename - within one folder.  @setting: takes the text of the file when @new_name is a setting; NULL: it is not.
 */
void sbx_code_rename(fuse_req_t req, const struct sbx_ref *ref, const char *name, const char *new_name,
		     unsigned int flags, const struct sbx_file *setting);

#endif
