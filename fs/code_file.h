/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what code.c (names), code_handle.c (open files) and code_saving.c (what readers ask) share.  Nobody else includes it.
 * ..._locked: the folder's lock is held; clang cannot follow file->codes->lock to codes->lock, so it is not annotated.
 */
#ifndef SBX_FS_CODE_FILE_H
#define SBX_FS_CODE_FILE_H

#include "code.h"
#include "node.h"
#include "open.h"
#include "synth.h"

#include "base/buf.h"
#include "base/list.h"
#include "base/lock.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct codes;
struct sbx_languages;

struct code_file {
	struct codes *codes; /* as long as the slot, which every holder holds */
	unsigned int refs;   /* guarded by codes->lock: list, node, handles */
	struct sbx_list link; /* guarded by codes->lock */
	bool linked;	      /* guarded by codes->lock */
	char name[NAME_MAX + 1]; /* guarded by codes->lock; in a scratch folder FOLDER/NAME */
	uint64_t ino;
	char *target;	      /* a symlink's, fixed; NULL: a regular file, or */
	bool folder;	      /* fixed: a scratch folder */
	mode_t mode;	      /* guarded by codes->lock: permission bits */
	struct timespec mtime; /* guarded by codes->lock */
	struct sbx_buf text;  /* guarded by codes->lock: what was saved last */
	struct sbx_list handles; /* guarded by codes->lock: those that write */
	struct code_handle *latest;	 /* guarded by codes->lock: wrote last, and is dirty */
};

struct code_handle {
	struct sbx_open open;
	struct code_file *file;
	struct sbx_list link;
	bool writes, append;
	bool shared;  /* of a scratch file: writes go to the file at once */
	pid_t opener; /* thread that opened it */
	/* guarded by codes->lock: */
	struct sbx_buf text; /* private: the whole text, or with @append what is added */
	bool dirty, flushed, refused;
};

struct codes {
	const struct sbx_languages *languages; /* fixed */
	struct sbx_lock lock;
	struct sbx_list files; /* guarded by lock */
	unsigned int files_n;  /* guarded by lock */
	unsigned int dirty_n;  /* guarded by lock: dirty handles */
};

struct code_node {
	struct sbx_node node;
	struct sbx_ref ref;
	struct code_file *file;
};

/* code_handle.c: the vtable of their nodes */
extern const struct sbx_node_ops sbx_code_ops;

/* the slot's files; made at the first use.  NULL: no memory */
struct codes *sbx_codes_of(struct sbx_slot *slot);
/* a new file, with one reference more for the caller; -EEXIST, -ENOSPC, -ENAMETOOLONG, -ENOMEM */
int sbx_code_file_new(const struct sbx_ref *ref, const char *name, mode_t mode, const char *target,
		      struct code_file **ret);
/* its node, one lookup counted; takes the caller's reference on @file.  -ENOMEM */
int sbx_code_node(const struct sbx_ref *ref, struct code_file *file, struct sbx_node **ret);
/* is @name "code" or "code.EXT"? */
bool sbx_code_name(const struct codes *codes, const char *name);
/* does policy.deny refuse it? Then the reason is set */
bool sbx_code_denied(const char *text, size_t len, struct sbx_err *err);

void sbx_code_put_locked(struct code_file *file);
/* a dirty handle of it means: a run is about to start */
bool sbx_code_starts_run_locked(const struct code_file *file);
void sbx_code_attr_locked(const struct code_file *file, struct stat *attr);
uint64_t sbx_code_folder_size_locked(struct codes *codes);
/* the handle has nothing to save any more */
void sbx_code_clean_locked(struct code_handle *handle);

#endif
