/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct fuse_lowlevel_ops: find the node, check that the caller may change things, call the node's vtable.  No behaviour
 * of its own, but that it counts what is use of a box.  Threads: FUSE workers.
 */
#include "fs.h"

#include "box.h"
#include "node.h"
#include "reply.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>

/* with -o allow_other others may look, but never change: also where a file's mode would let them */
static bool may_change(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return !sbx_fs.allow_other || ctx->uid == sbx_fs.uid || ctx->uid == 0;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* RELEASE goes through the kernel's background queue: never let readers hold it up */
	conn->max_background = 1000;
	conn->congestion_threshold = 1000;
	conn->want &= ~(unsigned int)FUSE_CAP_WRITEBACK_CACHE; /* the kernel would own sizes and times */
	if (conn->capable & FUSE_CAP_SPLICE_READ)
		conn->want |= FUSE_CAP_SPLICE_READ;
	if (conn->capable & FUSE_CAP_SPLICE_WRITE)
		conn->want |= FUSE_CAP_SPLICE_WRITE;
	if (conn->capable & FUSE_CAP_SPLICE_MOVE)
		conn->want |= FUSE_CAP_SPLICE_MOVE;
	conn->want |= conn->capable & FUSE_CAP_ATOMIC_O_TRUNC; /* without it `: > code.py` is not seen as a save */
	conn->want |= conn->capable & FUSE_CAP_PARALLEL_DIROPS;
	sbx_set_ready();
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_node *dir = sbx_node_of(parent);

	if (dir->ops->lookup)
		dir->ops->lookup(req, dir, name);
	else
		sbx_reply_err(req, -ENOTDIR);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	sbx_node_forget(sbx_node_of(ino), n);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	size_t i;

	for (i = 0; i < count; i++)
		sbx_node_forget(sbx_node_of(forgets[i].ino), forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_node *node = sbx_node_of(ino);

	node->ops->getattr(req, node, fi);
}

/* what a request does: looks, changes things (only for those who may), or goes on with what an OPEN has allowed */
enum how { LOOKS, CHANGES, GOES_ON };

static void used(const struct sbx_node *node)
{
	struct sbx_box *box = node->ops->box ? node->ops->box(node) : NULL;

	if (box)
		sbx_box_used(box);
}

/* One request of an inode; if the vtable has no slot, @missing. */
#define NODE_OP(ino, slot, how, missing, ...)                                                   \
	do {                                                                                       \
		struct sbx_node *node_ = sbx_node_of(ino);                                         \
                                                                                                   \
		if ((how) == CHANGES && !may_change(req)) {                                        \
			sbx_reply_err(req, -EACCES);                                               \
			break;                                                                     \
		}                                                                                  \
		if ((how) != LOOKS)                                                                \
			used(node_);                                                               \
		if (!node_->ops->slot)                                                        \
			sbx_reply_err(req, (missing));                                             \
		else                                                                               \
			node_->ops->slot(__VA_ARGS__);                                             \
	} while (0)

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	NODE_OP(ino, setattr, CHANGES, -EPERM, req, node_, attr, to_set, fi);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	NODE_OP(ino, readlink, LOOKS, -EINVAL, req, node_);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	NODE_OP(parent, mknod, CHANGES, -EPERM, req, node_, name, mode, rdev);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	NODE_OP(parent, mkdir, CHANGES, -EPERM, req, node_, name, mode);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	NODE_OP(parent, unlink, CHANGES, -EPERM, req, node_, name);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	NODE_OP(parent, rmdir, CHANGES, -EPERM, req, node_, name);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	NODE_OP(parent, symlink, CHANGES, -EPERM, req, target, node_, name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned int flags)
{
	NODE_OP(parent, rename, CHANGES, -EPERM, req, node_, name, sbx_node_of(new_parent), new_name, flags);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name)
{
	/* asked of the folder: who makes names there knows what may be linked */
	NODE_OP(new_parent, link, CHANGES, -EPERM, req, sbx_node_of(ino), node_, new_name);
}

static bool open_changes(const struct fuse_file_info *fi)
{
	return (fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	enum how how = open_changes(fi) ? CHANGES : sbx_node_of(ino)->ops->open_is_use ? GOES_ON : LOOKS;

	NODE_OP(ino, open, how, -EISDIR, req, node_, fi);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	NODE_OP(parent, create, CHANGES, -EPERM, req, node_, name, mode, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	NODE_OP(ino, read, LOOKS, -EINVAL, req, node_, size, off, fi);
}

static void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off, struct fuse_file_info *fi)
{
	NODE_OP(ino, write_buf, GOES_ON, -EINVAL, req, node_, in, off, fi);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	NODE_OP(ino, flush, LOOKS, 0, req, node_, fi);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	NODE_OP(ino, release, LOOKS, 0, req, node_, fi);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	NODE_OP(ino, fsync, LOOKS, 0, req, node_, datasync, fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	NODE_OP(ino, opendir, LOOKS, -ENOTDIR, req, node_, fi);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	NODE_OP(ino, readdir, LOOKS, -ENOTDIR, req, node_, size, off, fi, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	NODE_OP(ino, readdir, LOOKS, -ENOTDIR, req, node_, size, off, fi, true);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	NODE_OP(ino, releasedir, LOOKS, 0, req, node_, fi);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	NODE_OP(ino, fsyncdir, LOOKS, 0, req, node_, datasync, fi);
}

/* of control folders: from memory, nothing is there to run out of */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_node *node = sbx_node_of(ino);
	struct statvfs st = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255 };

	if (node->ops->statfs)
		node->ops->statfs(req, node);
	else
		fuse_reply_statfs(req, &st);
}

static void op_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct sbx_node *node = sbx_node_of(ino);

	if (node->ops->poll) {
		node->ops->poll(req, node, fi, ph);
		return;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	fuse_reply_poll(req, 0x145); /* POLLIN POLLOUT POLLRDNORM POLLWRNORM: as any regular file */
}

/* ENOSYS is remembered for the whole mount: EOPNOTSUPP where only one kind of file cannot */
static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	NODE_OP(ino, fallocate, CHANGES, -EOPNOTSUPP, req, node_, mode, off, len, fi);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	NODE_OP(ino, lseek, LOOKS, -EINVAL, req, node_, off, whence, fi);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
			       fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct sbx_node *from = sbx_node_of(in);

	/* both ends of one kind, or cp falls back to read and write on EXDEV */
	if (sbx_node_of(out)->ops != from->ops)
		sbx_reply_err(req, -EXDEV);
	else
		NODE_OP(in, copy_file_range, CHANGES, -EOPNOTSUPP, req, node_, off_in, fi_in, sbx_node_of(out), off_out,
			fi_out, len, flags);
}

/* no ioctls, but ENOSYS would say so for all for ever */
static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
		     unsigned int flags, const void *in, size_t in_size, size_t out_size)
{
	(void)ino;
	(void)cmd;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)in;
	(void)in_size;
	(void)out_size;
	sbx_reply_err(req, -ENOTTY);
}

/* xattrs: none, and ENOSYS is remembered: they would cost 40 % of small writes */
const struct fuse_lowlevel_ops sbx_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.create = op_create,
	.read = op_read,
	.write_buf = op_write_buf,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.poll = op_poll,
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.ioctl = op_ioctl,
};
