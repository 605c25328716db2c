/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one file of a workspace as such: its attributes, its link text, and how to get hold of it without being
 * led to another one.  See files.c for the rules.  FUSE workers.
 */
#include "file.h"

#include "base/cleanup.h"
#include "fnode.h"
#include "local.h"
#include "provider.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

void sbx_local_attr(const struct sbx_pbox *box, const struct statx *stx, struct sbx_fattr *ret)
{
	*ret = (struct sbx_fattr){
		.ino = sbx_local_ino(box, stx->stx_ino),
		.mode = stx->stx_mode,
		.nlink = stx->stx_nlink,
		.size = stx->stx_size,
		.blocks = stx->stx_blocks,
		.blksize = stx->stx_blksize,
		.rdev = (uint32_t)makedev(stx->stx_rdev_major, stx->stx_rdev_minor),
		.atime = { stx->stx_atime.tv_sec, stx->stx_atime.tv_nsec },
		.mtime = { stx->stx_mtime.tv_sec, stx->stx_mtime.tv_nsec },
		.ctime = { stx->stx_ctime.tv_sec, stx->stx_ctime.tv_nsec },
	};
}

int sbx_local_look(int fd, const char *name, struct statx *ret)
{
	int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);

	return statx(fd, name, flags, SBX_FNODE_STATX, ret) < 0 ? -errno : 0;
}

/* set-user-ID and set-group-ID programs are nothing that a workspace needs; on folders the bit is about groups */
mode_t sbx_local_mode(mode_t mode)
{
	mode &= 07777;
	return mode & ~(mode_t)(S_ISUID | S_ISGID);
}

void sbx_grip_done(struct sbx_grip *g)
{
	if (g->own)
		close(g->fd);
	if (g->dir)
		sbx_fnode_dir_put(g->dir);
	sbx_fopen_put(g->open);
}

/* a folder's or an open file's descriptor; leaves fd -1 if there is none */
static int grip_held(struct sbx_fnode *node, struct sbx_grip *ret)
{
	if (node->type == S_IFDIR) {
		ret->fd = sbx_fnode_dir_get(node);
		if (ret->fd < 0)
			return ret->fd;
		ret->dir = node;
	} else if (node->type == S_IFREG) {
		ret->open = sbx_fnode_any_open(node);
		ret->fd = ret->open ? ret->open->fd : -1;
	}
	return 0;
}

/* somebody took the name away, or put something else there */
int sbx_local_gone(int err)
{
	return err == ENOENT || err == ELOOP || err == ENOTDIR || err == ENXIO || err == EISDIR
		       ? -ESTALE
		       : -err;
}

/* opens @node at its place with @flags, if it is still there */
int sbx_local_open_at_place(struct sbx_fnode *node, int flags)
{
	SBX_CLEANUP(sbx_fnode_place_put) struct sbx_fplace place;
	SBX_CLEANUP(sbx_closep) int fd = -1;
	struct statx stx;
	int r = sbx_fnode_place(node, &place);

	if (r < 0)
		return r;
	fd = openat(place.fd, place.name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return sbx_local_gone(errno);
	r = sbx_local_look(fd, "", &stx);
	if (r < 0)
		return r;
	return sbx_fnode_same(node, &stx) ? sbx_take_fd(fd) : -ESTALE;
}

int sbx_grip_get(struct sbx_fnode *node, struct sbx_grip *ret)
{
	int r = grip_held(node, ret);

	if (r < 0 || ret->fd >= 0)
		return r;
	r = sbx_local_open_at_place(node, O_PATH);
	if (r < 0)
		return r;
	ret->fd = r;
	ret->own = true;
	return 0;
}

/* a path that leads to the very file behind a descriptor, also an O_PATH one: nothing is looked up */
const char *sbx_proc_path(int fd, char buf[SBX_PROC_MAX])
{
	snprintf(buf, SBX_PROC_MAX, "/proc/self/fd/%d", fd);
	return buf;
}

static int look_at_place(struct sbx_fnode *node, struct statx *ret)
{
	SBX_CLEANUP(sbx_fnode_place_put) struct sbx_fplace place;
	int r = sbx_fnode_place(node, &place);

	if (r == 0)
		r = sbx_local_look(place.fd, place.name, ret);
	if (r == -ENOENT || (r == 0 && !sbx_fnode_same(node, ret)))
		return -ESTALE;
	return r;
}

static int look_at(struct sbx_fnode *node, const struct sbx_fhandle *fh, struct statx *ret)
{
	SBX_CLEANUP(sbx_grip_done) struct sbx_grip g = SBX_GRIP_INIT;
	int r;

	if (fh)
		return sbx_local_look(fh->fd, "", ret);
	/* a folder that was not entered yet is not opened for this */
	if (node->type == S_IFDIR && !node->root) {
		r = look_at_place(node, ret);
		if (r != -ESTALE)
			return r;
	}
	r = grip_held(node, &g);
	if (r < 0)
		return r;
	return g.fd >= 0 ? sbx_local_look(g.fd, "", ret) : look_at_place(node, ret);
}

int sbx_local_getattr(struct sbx_fnode *node, const struct sbx_fhandle *fh, struct sbx_freq *req)
{
	struct statx stx;
	int r = look_at(node, fh, &stx);

	if (r < 0)
		return r;
	sbx_local_attr(node->box, &stx, &req->attr);
	return 0;
}

static int set_size(struct sbx_fnode *node, const struct sbx_fhandle *fh, uint64_t size)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;

	if (size > INT64_MAX)
		return -EFBIG;
	if (fh && ftruncate(fh->fd, (off_t)size) == 0)
		return 0;
	if (fh && errno != EINVAL && errno != EBADF) /* those: open for reading only */
		return -errno;
	if (node->type != S_IFREG)
		return -EINVAL;
	fd = sbx_local_open_at_place(node, O_WRONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static struct timespec time_of(const struct sbx_fset *set, unsigned int is, unsigned int now,
			       struct timespec t)
{
	if (set->mask & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	return set->mask & is ? t : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(const struct sbx_grip *g, const struct sbx_fset *set)
{
	const struct timespec times[2] = {
		time_of(set, SBX_FSET_ATIME, SBX_FSET_ATIME_NOW, set->atime),
		time_of(set, SBX_FSET_MTIME, SBX_FSET_MTIME_NOW, set->mtime),
	};
	char path[SBX_PROC_MAX];

	if (g->open && futimens(g->fd, times) == 0)
		return 0;
	return utimensat(AT_FDCWD, sbx_proc_path(g->fd, path), times, 0) < 0 ? -errno : 0;
}

static int set_mode(const struct sbx_grip *g, const struct sbx_fnode *node, mode_t mode)
{
	char path[SBX_PROC_MAX];

	mode = node->type == S_IFDIR ? mode & 07777 : sbx_local_mode(mode);
	if (g->open)
		return fchmod(g->fd, mode) < 0 ? -errno : 0;
	/* a link's own mode means nothing and cannot be set */
	if (node->type == S_IFLNK)
		return -EOPNOTSUPP;
	return chmod(sbx_proc_path(g->fd, path), mode) < 0 ? -errno : 0;
}

#define FSET_TIMES                                                                                 \
	(SBX_FSET_ATIME | SBX_FSET_MTIME | SBX_FSET_ATIME_NOW | SBX_FSET_MTIME_NOW)

int sbx_local_setattr(struct sbx_fnode *node, const struct sbx_fhandle *fh,
			 const struct sbx_fset *set, struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_grip_done) struct sbx_grip g = SBX_GRIP_INIT;
	int r = 0;

	if (set->mask & SBX_FSET_SIZE)
		r = set_size(node, fh, set->size);
	if (r == 0 && set->mask & (SBX_FSET_MODE | FSET_TIMES))
		r = sbx_grip_get(node, &g);
	if (r == 0 && set->mask & SBX_FSET_MODE)
		r = set_mode(&g, node, set->mode);
	if (r == 0 && set->mask & FSET_TIMES)
		r = set_times(&g, set);
	return r < 0 ? r : sbx_local_getattr(node, fh, req);
}

/* not compared with @node: another link that took its place is judged by the same place */
int sbx_local_readlink(struct sbx_fnode *node, struct sbx_freq *req)
{
	SBX_CLEANUP(sbx_fnode_place_put) struct sbx_fplace place;
	char text[PATH_MAX];
	ssize_t n;
	int r;

	if (node->type != S_IFLNK)
		return -EINVAL;
	r = sbx_fnode_place(node, &place);
	if (r < 0)
		return r;
	n = readlinkat(place.fd, place.name, text, sizeof(text));
	if (n < 0)
		return errno == EINVAL ? -ESTALE : sbx_local_gone(errno);
	if (n == sizeof(text))
		return -ENAMETOOLONG;
	req->text = strndup(text, (size_t)n);
	return req->text ? 0 : -ENOMEM;
}

