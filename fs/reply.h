/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: answers to the kernel, and where a failure is told to the user (the box's `error`, .sbxfs/errors, the log).
 * Any thread.
 */
#ifndef SBX_FS_REPLY_H
#define SBX_FS_REPLY_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

struct sbx_node;
struct sbx_box;
struct sbx_buf;
struct sbx_err;

/* sbx_reply_err - @r: 0 or -errno.  Here the sign turns. */
void sbx_reply_err(fuse_req_t req, int r);

/*
 * sbx_reply_entry - answer LOOKUP, MKDIR, MKNOD, SYMLINK, LINK with @node, of which the caller has counted one lookup (it is
 * given back if the kernel does not take the answer).  @attr: st_ino, st_mode, ... complete.
 */
void sbx_reply_entry(fuse_req_t req, struct sbx_node *node, const struct stat *attr,
		     double attr_timeout_s, double entry_timeout_s);
/* sbx_reply_create - the same for CREATE.  Returns 0, or <0: the kernel did not take it, @fi is to be closed */
int sbx_reply_create(fuse_req_t req, struct sbx_node *node, const struct stat *attr,
		     double attr_timeout_s, double entry_timeout_s, const struct fuse_file_info *fi);

/*
 * sbx_fail - answer -errno and tell the reason where users look: @box's `error` (NULL: none), .sbxfs/errors, the log.
 * @op: "write", "open" ...   @path: inside the mount, for the list, may be NULL
 */
void sbx_fail(fuse_req_t req, struct sbx_box *box, const char *op, const char *path,
	      const struct sbx_err *err, int r);

/* sbx_buf_flatten - what WRITE brought, as one piece of at most @max bytes into @out.  -EFBIG, -ENOMEM, -errno */
int sbx_buf_flatten(struct sbx_buf *out, struct fuse_bufvec *in, size_t max);

/* sbx_owner - who owns everything in the mount: the mounting user */
uid_t sbx_owner_uid(void);
gid_t sbx_owner_gid(void);

#endif
