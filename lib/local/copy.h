/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: copying a file or a tree of the host into a workspace: exact, and without ever following a link inside of either.
 * Not on the loop: it blocks.
 */
#ifndef SBX_LOCAL_COPY_H
#define SBX_LOCAL_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_err;
struct sbx_template_file;

struct sbx_copy {
	int root_fd; /* of the workspace */
	uid_t uid;   /* what is made belongs to them */
	gid_t gid;
	bool (*stop)(void *data); /* true: no more */
	bool (*full)(void *data); /* true: nothing more may be written */
	void *data;
	atomic_uint_fast64_t files, bytes; /* counted so far; any thread reads them */
};

/*
 * sbx_copy_count - how much sbx_copy_run will have to do with @file: adds to copy->files, bytes.
 * sbx_copy_run - copies @file, adds to copy->files, bytes.
 *
 * Links are copied as links, holes as holes, with permissions (no set-uid or the like) and times of modification; hard links become
 * files of their own.  A file appears whole.  What has a name already is left as it is, but a folder is merged with one: so a copy
 * that was broken off is finished by another one.
 * 0; -ECANCELED (stop); -ENOSPC (full, or the disk); -EINVAL: something that is no file, folder or link; -ELOOP: too deep;
 * -ENOTDIR: something else is in the way of a folder; what the host said.  Reasons name the file.
 */
int sbx_copy_count(struct sbx_copy *copy, const struct sbx_template_file *file, struct sbx_err *err);
int sbx_copy_run(struct sbx_copy *copy, const struct sbx_template_file *file, struct sbx_err *err);

#endif
