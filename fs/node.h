/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the inodes that the kernel knows: identity, lookup counts, and the vtable of each kind.
 * A nodeid is the address of the node (FUSE_ROOT_ID is the root), alive while the kernel or a handle or a
 * parked request holds it.  Any thread; one lock for the table.
 */
#ifndef SBX_FS_NODE_H
#define SBX_FS_NODE_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "base/list.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_node;

/*
 * One vtable per kind of node.  A slot answers @req exactly once (at once, or later through park.h or a provider's
 * completion), and never blocks.  NULL slots are answered by ops.c: ENOTDIR/EPERM/EOPNOTSUPP as fits.
 * @node stays valid until the answer: for later answers take sbx_node_ref().
 */
struct sbx_node_ops {
	/* free what the node points to; called once, no lock held, the node itself is freed behind it */
	void (*done)(struct sbx_node *node);

	/* box - whose node it is, not counted: as long as the node.  NULL: of none */
	struct sbx_box *(*box)(const struct sbx_node *node);
	bool open_is_use; /* opening it, also for reading, is use of the box: see lib/use.h.  Changes always are */

	void (*lookup)(fuse_req_t req, struct sbx_node *dir, const char *name);
	void (*getattr)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	void (*setattr)(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			struct fuse_file_info *fi);
	void (*readlink)(fuse_req_t req, struct sbx_node *node);
	void (*mknod)(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode, dev_t rdev);
	void (*mkdir)(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode);
	void (*unlink)(fuse_req_t req, struct sbx_node *dir, const char *name);
	void (*rmdir)(fuse_req_t req, struct sbx_node *dir, const char *name);
	void (*symlink)(fuse_req_t req, const char *target, struct sbx_node *dir, const char *name);
	void (*rename)(fuse_req_t req, struct sbx_node *dir, const char *name, struct sbx_node *new_dir,
		       const char *new_name, unsigned int flags);
	void (*link)(fuse_req_t req, struct sbx_node *node, struct sbx_node *new_dir,
		     const char *new_name);
	void (*open)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	void (*create)(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode,
		       struct fuse_file_info *fi);
	void (*read)(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
		     struct fuse_file_info *fi);
	void (*write_buf)(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
			  struct fuse_file_info *fi);
	void (*flush)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	void (*release)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	void (*fsync)(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi);
	void (*opendir)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	/* @plus: READDIRPLUS */
	void (*readdir)(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
			struct fuse_file_info *fi, bool plus);
	void (*releasedir)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
	void (*fsyncdir)(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi);
	void (*statfs)(fuse_req_t req, struct sbx_node *node);
	void (*poll)(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi,
		     struct fuse_pollhandle *ph);
	void (*fallocate)(fuse_req_t req, struct sbx_node *node, int mode, off_t off, off_t len,
			  struct fuse_file_info *fi);
	void (*lseek)(fuse_req_t req, struct sbx_node *node, off_t off, int whence,
		      struct fuse_file_info *fi);
	void (*copy_file_range)(fuse_req_t req, struct sbx_node *in, off_t off_in,
				struct fuse_file_info *fi_in, struct sbx_node *out, off_t off_out,
				struct fuse_file_info *fi_out, size_t len, int flags);
};

/* First member of every kind of node. */
struct sbx_node {
	const struct sbx_node_ops *ops;
	const void *owner; /* with @id the key in the table: who has this node (an fnode), or NULL */
	uint64_t id;	   /* for control nodes the inode number */
	uint64_t nlookup;  /* guarded by the table's lock */
	atomic_uint refs;  /* one for nlookup > 0, one per sbx_node_ref */
	bool hashed;	   /* guarded by the table's lock */
	struct sbx_list link;
};

/* sbx_node_of - the node behind a nodeid from the kernel */
struct sbx_node *sbx_node_of(fuse_ino_t ino);
/* sbx_node_id - the nodeid to tell the kernel */
fuse_ino_t sbx_node_id(const struct sbx_node *node);

/*
 * sbx_node_find - look the key up; if it is there, count one lookup and return it, else NULL.
 * sbx_node_add - the same, but if it is not there @fresh (malloc'ed, ops set, rest zeroed) is put in with
 * one lookup.  Returns the node in the table; when that is not @fresh, @fresh is still the caller's.
 */
struct sbx_node *sbx_node_find(const void *owner, uint64_t id);
struct sbx_node *sbx_node_add(struct sbx_node *fresh, const void *owner, uint64_t id);
/* sbx_node_unhash - the key may be used by a new node now; this one lives on while it is held */
void sbx_node_unhash(struct sbx_node *node);
/* sbx_node_forget - the kernel (or a failed reply) gives back @n lookups */
void sbx_node_forget(struct sbx_node *node, uint64_t n);
/* one reference that keeps @node alive; both any thread */
struct sbx_node *sbx_node_ref(struct sbx_node *node);
void sbx_node_unref(struct sbx_node *node);

/* sbx_node_root_set - @node (static lifetime) is FUSE_ROOT_ID */
void sbx_node_root_set(struct sbx_node *node);
/* sbx_node_count - for stats and tests */
uint64_t sbx_node_count(void);
/* sbx_node_drop_all - at the end, when no request can come any more: frees all */
void sbx_node_drop_all(void);

/* control inode numbers: bit 63 is set, so that they never meet a workspace's number */
#define SBX_INO_CONTROL (UINT64_C(1) << 63)

#endif
