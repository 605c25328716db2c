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

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
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

/*
 * For tree_run.c's folders: the files of a slot by name (one lookup counted), and their names.  -ENOENT.  A file in a scratch
 * folder has the name FOLDER/NAME everywhere here; @folder: whose names are listed, NULL = those in no scratch folder
 */
int sbx_code_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr);
int sbx_code_list(const struct sbx_ref *ref, const char *folder, struct sbx_names *names);
bool sbx_code_exists(struct sbx_slot *slot, const char *name);

/*
 * Scratch folders: tools put a file there and rename it onto the code's name (rsync --delay-updates).  The number that tells them
 * apart is their inode's.  new: -EEXIST, -ENOSPC, ...; find: -ENOENT; name: -ESTALE when it is gone; remove: -ENOENT, -ENOTDIR, -ENOTEMPTY
 */
int sbx_code_folder_new(const struct sbx_ref *ref, const char *name, uint64_t *ret_ino);
int sbx_code_folder_find(struct sbx_slot *slot, const char *name, uint64_t *ret_ino);
int sbx_code_folder_name(struct sbx_slot *slot, uint64_t ino, char ret[NAME_MAX + 1]);
int sbx_code_folder_remove(const struct sbx_ref *ref, const char *name);

/* the requests that make and move them; @ref->slot is the folder's.  Each answers @req. */
void sbx_code_create(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode,
		     struct fuse_file_info *fi);
void sbx_code_mknod(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode);
void sbx_code_symlink(fuse_req_t req, const struct sbx_ref *ref, const char *target, const char *name);
/* sbx_code_unlink - 0, -ENOENT, or -EISDIR */
int sbx_code_unlink(const struct sbx_ref *ref, const char *name);
/*
 * sbx_code_rename - within the folders of one slot.  @setting: takes the text of the file when @new_name is a setting; NULL: it is not.
 */
void sbx_code_rename(fuse_req_t req, const struct sbx_ref *ref, const char *name, const char *new_name,
		     unsigned int flags, const struct sbx_file *setting);

#endif
