/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the private face of file.c: one file of a workspace as such. */
#ifndef SBX_LOCAL_FILE_H
#define SBX_LOCAL_FILE_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

struct sbx_fattr;
struct sbx_fhandle;
struct sbx_fnode;
struct sbx_fopen;
struct sbx_freq;
struct sbx_fset;
struct sbx_pbox;

/* slots of sbx_file_ops */
int sbx_local_getattr(struct sbx_fnode *node, const struct sbx_fhandle *fh, struct sbx_freq *req);
int sbx_local_setattr(struct sbx_fnode *node, const struct sbx_fhandle *fh,
		      const struct sbx_fset *set, struct sbx_freq *req);
int sbx_local_readlink(struct sbx_fnode *node, struct sbx_freq *req);

/* sbx_local_look - statx of @name in the folder @fd, or with "" of @fd itself.  0 or -errno */
int sbx_local_look(int fd, const char *name, struct statx *ret);
void sbx_local_attr(const struct sbx_pbox *box, const struct statx *stx, struct sbx_fattr *ret);
/* sbx_local_mode - permission bits that a file (not a folder) may get */
mode_t sbx_local_mode(mode_t mode);
/* sbx_local_gone - -errno of an open, or -ESTALE where it says that something else took the place */
int sbx_local_gone(int err);
/* sbx_local_open_at_place - opens @node by its name if it is still there, else -ESTALE; the caller's descriptor */
int sbx_local_open_at_place(struct sbx_fnode *node, int flags);

/* something that is surely one fnode: a folder's descriptor, an open handle's, or one by its place */
struct sbx_grip {
	int fd;			/* O_PATH, or an open handle's; -1 when nothing is held */
	bool own;		/* fd is closed at the end */
	struct sbx_fnode *dir;	/* held folder, or NULL */
	struct sbx_fopen *open; /* held handle, or NULL */
};

#define SBX_GRIP_INIT                                                                              \
	{                                                                                          \
		.fd = -1                                                                           \
	}

/* sbx_grip_get - 0 or -errno, -ESTALE; sbx_grip_done in any case */
int sbx_grip_get(struct sbx_fnode *node, struct sbx_grip *ret);
void sbx_grip_done(struct sbx_grip *g);

#define SBX_PROC_MAX 32

/* sbx_proc_path - a path to the very file behind a descriptor, also an O_PATH one: nothing is looked up.  Returns @buf */
const char *sbx_proc_path(int fd, char buf[SBX_PROC_MAX]);

#endif
