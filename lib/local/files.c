/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the files part of the local provider: system calls on one name in one folder that is held open.
 * Knows fnode.h (which file, which folder) and local.h (whose workspace).  Everything completes at once.
 *
 * Code in the box renames, swaps and links while this runs.  So nothing here follows a link or resolves two
 * names; whatever is opened is compared with its fnode before it is used; O_NONBLOCK keeps FIFOs and leases from making
 * anybody wait.  A call that acts on a name without looking first (unlink, rename, chown of what was just made) can at
 * worst hit another file of the same workspace: the box's own.  FUSE workers.
 */
#include "base/cleanup.h"
#include "base/err.h"
#include "file.h"
#include "fnode.h"
#include "folder.h"
#include "links.h"
#include "local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define OPEN_ALWAYS (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define OPEN_MASK (O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC | O_DIRECT)
#define TRIES 8 /* a name that code in the box makes and removes while we create it */

/* a folder held open, or -errno in fd */
struct held {
	struct sbx_fnode *dir;
	int fd;
};

static struct held hold(struct sbx_fnode *dir)
{
	return (struct held){ dir, sbx_fnode_dir_get(dir) };
}

static void held_done(struct held *h)
{
	if (h->fd >= 0)
		sbx_fnode_dir_put(h->dir);
}

static void fopen_putp(struct sbx_fopen **open)
{
	sbx_fopen_put(*open);
}

/* the kernel gives single names; this keeps it so for every other caller */
static int name_check(const char *name)
{
	if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL;
	return strlen(name) > NAME_MAX ? -ENAMETOOLONG : 0;
}

static int room(struct sbx_fnode *node, struct sbx_err *err)
{
	if (!sbx_local_disk_full(node->box))
		return 0;
	return sbx_err_set(err, ENOSPC,
			   "the file system of the state folder is down to its reserve: "
			   "free space there, or delete files or sandboxes");
}

/* the folder where something is to be made: also the name and the room for it are checked */
static struct held hold_to_make(struct sbx_fnode *dir, const char *name, struct sbx_freq *req)
{
	int r = name_check(name);

	if (r == 0)
		r = room(dir, &req->err);
	return r < 0 ? (struct held){ dir, r } : hold(dir);
}

/* the answer of everything that finds or makes a name */
static int answer_entry(struct sbx_fnode *dir, const char *name, const struct statx *stx,
			struct sbx_freq *req)
{
	req->node = sbx_fnode_take(dir, name, stx);
	if (!req->node)
		return -ENOMEM;
	sbx_local_attr(dir->box, stx, &req->attr);
	return 0;
}

static int local_root(struct sbx_pbox *box, struct sbx_freq *req)
{
	int fd = sbx_local_workspace_fd(box, &req->err);
	struct statx stx;
	int r = fd < 0 ? fd : sbx_local_look(fd, "", &stx);

	if (r < 0)
		return r;
	req->node = sbx_fnode_root(box, fd, &stx);
	if (!req->node)
		return -ENOMEM;
	sbx_local_attr(box, &stx, &req->attr);
	return 0;
}

static int local_lookup(struct sbx_fnode *dir, const char *name, struct sbx_freq *req)
{
	struct statx stx;
	int r = name_check(name);
	SBX_CLEANUP(held_done) struct held at = hold(dir);

	if (r < 0 || at.fd < 0)
		return r < 0 ? r : at.fd;
	r = sbx_local_look(at.fd, name, &stx);
	return r < 0 ? r : answer_entry(dir, name, &stx, req);
}

/* ---- open files ---- */

static int answer_open(struct sbx_fnode *node, int fd, int flags, struct sbx_freq *req)
{
	struct sbx_fopen *open = sbx_fnode_opened(node, fd);

	if (!open) {
		close(fd);
		return -ENOMEM;
	}
	req->fh.fd = fd;
	req->fh.append = flags & O_APPEND;
	req->fh.priv = open;
	return 0;
}

/* by the place; a file that lost its name but is open can be opened again through its handle */
static int open_file(struct sbx_fnode *node, int flags)
{
	int r = sbx_local_open_at_place(node, (flags & OPEN_MASK) | OPEN_ALWAYS);
	SBX_CLEANUP(fopen_putp) struct sbx_fopen *open = NULL;
	char path[SBX_PROC_MAX];

	if (r != -ESTALE)
		return r;
	open = sbx_fnode_any_open(node);
	if (!open)
		return r;
	r = openat(AT_FDCWD, sbx_proc_path(open->fd, path),
		   (flags & OPEN_MASK) | (OPEN_ALWAYS & ~O_NOFOLLOW));
	return r < 0 ? -errno : r;
}

static int local_open(struct sbx_fnode *node, int flags, struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	struct statx stx;
	int r;

	if (node->type != S_IFREG) /* never: a FIFO would wait for code in the box */
		return sbx_err_set(&req->err, ENXIO, "only regular files can be opened");
	fd = open_file(node, flags);
	if (fd == -EWOULDBLOCK)
		return sbx_err_set(&req->err, EAGAIN, "code in the sandbox holds a lease on the file");
	if (fd < 0)
		return fd;
	/* not in openat: only now it is known to be the right file */
	if (flags & O_TRUNC && ftruncate(fd, 0) < 0)
		return -errno;
	r = sbx_local_look(fd, "", &stx);
	if (r < 0)
		return r;
	sbx_local_attr(node->box, &stx, &req->attr);
	return answer_open(node, sbx_take_fd(fd), flags, req);
}

/* the box's own user owns it, not the daemon's */
static int own_fd(struct sbx_fnode *dir, int fd)
{
	uid_t uid = sbx_local_pbox_uid(dir->box);
	gid_t gid = sbx_local_pbox_gid(dir->box);

	if (uid == geteuid() && gid == getegid())
		return 0;
	return fchown(fd, uid, gid) < 0 ? -errno : 0;
}

static int own_name(struct sbx_fnode *dir, int fd, const char *name)
{
	uid_t uid = sbx_local_pbox_uid(dir->box);
	gid_t gid = sbx_local_pbox_gid(dir->box);

	if (uid == geteuid() && gid == getegid())
		return 0;
	return fchownat(fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/*
 * Makes @name, or opens what code in the box made there since the kernel looked.  Is it no regular file, then -ESTALE: the
 * kernel looks again, and follows a link, or not, by its own rules.
 */
static int create_file(struct sbx_fnode *dir, int dir_fd, const char *name, int flags, mode_t mode)
{
	int fd, r, i;

	for (i = 0; i < TRIES; i++) {
		fd = openat(dir_fd, name, (flags & OPEN_MASK) | OPEN_ALWAYS | O_CREAT | O_EXCL, mode);
		if (fd >= 0) {
			r = own_fd(dir, fd);
			if (r < 0)
				close(fd);
			return r < 0 ? r : fd;
		}
		if (errno != EEXIST || flags & O_EXCL)
			return -errno;
		fd = openat(dir_fd, name, (flags & OPEN_MASK) | OPEN_ALWAYS);
		if (fd >= 0)
			return fd;
		if (errno != ENOENT)
			return errno == EWOULDBLOCK ? -EAGAIN : sbx_local_gone(errno);
	}
	return -ESTALE;
}

static int local_create(struct sbx_fnode *dir, const char *name, int flags, mode_t mode,
			struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	struct statx stx;
	SBX_CLEANUP(held_done) struct held at = hold_to_make(dir, name, req);
	int r;

	if (at.fd < 0)
		return at.fd;
	fd = create_file(dir, at.fd, name, flags, sbx_local_mode(mode));
	if (fd < 0)
		return fd;
	r = sbx_local_look(fd, "", &stx);
	if (r < 0)
		return r;
	if (!S_ISREG(stx.stx_mode))
		return -ESTALE;
	if (flags & O_TRUNC && stx.stx_size > 0) {
		if (ftruncate(fd, 0) < 0)
			return -errno;
		r = sbx_local_look(fd, "", &stx);
		if (r < 0)
			return r;
	}
	r = answer_entry(dir, name, &stx, req);
	if (r < 0)
		return r;
	r = answer_open(req->node, sbx_take_fd(fd), flags, req);
	if (r < 0)
		sbx_fnode_put(req->node, 1);
	return r;
}

static void local_close(struct sbx_fnode *node, struct sbx_fhandle *fh)
{
	sbx_fnode_closed(fh->priv);
}

/* @fh NULL: a folder, its names */
static int local_fsync(struct sbx_fnode *node, struct sbx_fhandle *fh, bool datasync,
		       struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_closep) int own = -1;
	int fd;

	if (fh) {
		fd = fh->fd;
	} else {
		SBX_CLEANUP(held_done) struct held at = hold(node);

		if (at.fd < 0)
			return at.fd;
		fd = own = openat(at.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	}
	return (datasync ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0;
}

/* ---- names ---- */

/* what was just made, unless code in the box was there in between */
static int answer_made(struct sbx_fnode *dir, int fd, const char *name, mode_t type,
		       struct sbx_freq *req)
{
	struct statx stx;
	int r = sbx_local_look(fd, name, &stx);

	if (r < 0 || (stx.stx_mode & S_IFMT) != type)
		return r < 0 && r != -ENOENT ? r : -ESTALE;
	return answer_entry(dir, name, &stx, req);
}

static int local_mkdir(struct sbx_fnode *dir, const char *name, mode_t mode, struct sbx_freq *req)
{
	SBX_CLEANUP(held_done) struct held at = hold_to_make(dir, name, req);

	if (at.fd < 0)
		return at.fd;
	if (mkdirat(at.fd, name, mode & 07777) < 0)
		return -errno;
	own_name(dir, at.fd, name); /* gone already? then answer_made says so */
	return answer_made(dir, at.fd, name, S_IFDIR, req);
}

static int local_mknod(struct sbx_fnode *dir, const char *name, mode_t mode, struct sbx_freq *req)
{
	mode_t type = mode & S_IFMT ? mode & S_IFMT : S_IFREG;
	SBX_CLEANUP(held_done) struct held at = hold_to_make(dir, name, req);

	if (at.fd < 0)
		return at.fd;
	if (type != S_IFREG && type != S_IFIFO && type != S_IFSOCK)
		return sbx_err_set(&req->err, EPERM, "a workspace has no devices");
	if (mknodat(at.fd, name, type | sbx_local_mode(mode), 0) < 0)
		return -errno;
	own_name(dir, at.fd, name);
	return answer_made(dir, at.fd, name, type, req);
}

static int local_symlink(struct sbx_fnode *dir, const char *name, const char *target,
			 struct sbx_freq *req)
{
	SBX_CLEANUP(held_done) struct held at = hold_to_make(dir, name, req);

	if (at.fd < 0)
		return at.fd;
	if (symlinkat(target, at.fd, name) < 0)
		return -errno;
	own_name(dir, at.fd, name);
	return answer_made(dir, at.fd, name, S_IFLNK, req);
}

static int local_link(struct sbx_fnode *node, struct sbx_fnode *dir, const char *name,
		      struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_grip_done) struct sbx_grip g = SBX_GRIP_INIT;
	char path[SBX_PROC_MAX];
	int r;
	SBX_CLEANUP(held_done) struct held at = hold_to_make(dir, name, req);

	if (at.fd < 0)
		return at.fd;
	if (node->type == S_IFDIR)
		return -EPERM;
	if (node->box != dir->box)
		return -EXDEV;
	r = sbx_grip_get(node, &g);
	if (r < 0)
		return r;
	if (linkat(AT_FDCWD, sbx_proc_path(g.fd, path), at.fd, name, AT_SYMLINK_FOLLOW) < 0)
		return errno == ENOENT ? -ESTALE : -errno;
	r = answer_made(dir, at.fd, name, node->type, req);
	if (r == 0 && req->attr.ino != sbx_local_ino(node->box, node->ino)) {
		sbx_fnode_put(req->node, 1);
		return -ESTALE;
	}
	return r;
}

static int remove_name(struct sbx_fnode *dir, const char *name, int flags)
{
	int r = name_check(name);
	SBX_CLEANUP(held_done) struct held at = hold(dir);

	if (r < 0 || at.fd < 0)
		return r < 0 ? r : at.fd;
	return unlinkat(at.fd, name, flags) < 0 ? -errno : 0;
}

static int local_unlink(struct sbx_fnode *dir, const char *name, struct sbx_freq *req)
{
	return remove_name(dir, name, 0);
}

/* is SBX_LINK_OUTSIDE all that the folder has? */
static bool only_hidden(int fd)
{
	struct dirent *e;
	bool hidden = false, other = false;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	DIR *d = own >= 0 ? fdopendir(own) : NULL;

	if (!d) {
		sbx_closep(&own);
		return false;
	}
	while (!other && (e = readdir(d))) {
		if (strcmp(e->d_name, SBX_LINK_OUTSIDE) == 0)
			hidden = true;
		else
			other = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	}
	closedir(d);
	return hidden && !other;
}

/* what a sandbox made under the name that the host never sees goes with its folder: that is empty for the host */
static int local_rmdir(struct sbx_fnode *dir, const char *name, struct sbx_freq *req)
{
	int r = remove_name(dir, name, AT_REMOVEDIR);
	SBX_CLEANUP(sbx_closep) int fd = -1;

	if (r != -ENOTEMPTY && r != -EEXIST)
		return r;
	{
		SBX_CLEANUP(held_done) struct held at = hold(dir);

		if (at.fd >= 0)
			fd = openat(at.fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0 || !only_hidden(fd) || sbx_local_discard(dir->box, fd, SBX_LINK_OUTSIDE) < 0)
		return r;
	return remove_name(dir, name, AT_REMOVEDIR);
}

static int local_rename(struct sbx_fnode *dir, const char *name, struct sbx_fnode *new_dir,
			const char *new_name, unsigned int flags, struct sbx_freq *req)
{
	struct statx stx, other;
	bool exchange = flags & RENAME_EXCHANGE;
	int r = name_check(name);
	SBX_CLEANUP(held_done) struct held from = hold(dir);
	SBX_CLEANUP(held_done) struct held to = hold(new_dir);

	if (r == 0)
		r = name_check(new_name);
	if (r < 0 || from.fd < 0 || to.fd < 0)
		return r < 0 ? r : from.fd < 0 ? from.fd : to.fd;
	if (dir->box != new_dir->box)
		return -EXDEV;
	if (flags & ~(unsigned int)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL; /* RENAME_WHITEOUT is a device */
	if (renameat2(from.fd, name, to.fd, new_name, flags) < 0)
		return -errno;
	/* code in the box may be quicker: then nothing there is what we had, and fnode.c refuses it */
	if (sbx_local_look(to.fd, new_name, &stx) < 0)
		memset(&stx, 0, sizeof(stx));
	if (exchange && sbx_local_look(from.fd, name, &other) < 0)
		memset(&other, 0, sizeof(other));
	sbx_fnode_moved(dir, name, new_dir, new_name, &stx, exchange ? &other : NULL);
	return 0;
}

static int local_statfs(struct sbx_fnode *node, struct sbx_freq *req)
{
	int fd = sbx_local_workspace_fd(node->box, &req->err);

	if (fd < 0)
		return fd;
	return fstatvfs(fd, req->statvfs) < 0 ? -errno : 0;
}

static unsigned int local_depth(struct sbx_fnode *node)
{
	return sbx_fnode_depth(node);
}

const struct sbx_file_ops sbx_local_file_ops = {
	.root = local_root,
	.forget = sbx_fnode_put,
	.depth = local_depth,
	.lookup = local_lookup,
	.getattr = sbx_local_getattr,
	.setattr = sbx_local_setattr,
	.readlink = sbx_local_readlink,
	.open = local_open,
	.create = local_create,
	.flush = NULL, /* what was written is in the file already */
	.fsync = local_fsync,
	.close = local_close,
	.mkdir = local_mkdir,
	.mknod = local_mknod,
	.symlink = local_symlink,
	.link = local_link,
	.unlink = local_unlink,
	.rmdir = local_rmdir,
	.rename = local_rename,
	.opendir = sbx_local_opendir,
	.readdir = sbx_local_readdir,
	.closedir = sbx_local_closedir,
	.statfs = local_statfs,
	.room = room,
};
