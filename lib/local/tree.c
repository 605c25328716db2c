/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: deleting a tree that a sandbox has filled.  Depth is not bounded by the stack or by descriptors:
 * one folder is open at a time, and ".." is never walked by name; deep folders are moved up instead.
 * Any thread but the loop.
 */
#include "local/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 64 /* deeper folders are moved to the top of the tree and deleted there */

struct removal {
	int top_fd;
	dev_t dev;
	unsigned int moved;
	struct sbx_removal *told;
};

static int open_dir(int dir_fd, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir_fd, name, flags), path_fd;
	char self[64];

	if (fd >= 0 || errno != EACCES)
		return fd;
	/* a folder without permissions, ours all the same; chmod through O_PATH so that no link is followed */
	path_fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (path_fd < 0)
		return -1;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	if (chmod(self, 0700) == 0)
		fd = openat(dir_fd, name, flags);
	close(path_fd);
	return fd;
}

static int gone(struct removal *r)
{
	atomic_fetch_add(&r->told->removed, 1);
	return 0;
}

static int remove_below(struct removal *r, int fd, unsigned int depth);

static int remove_entry(struct removal *r, int dir_fd, const char *name, unsigned int depth)
{
	char moved[32];
	struct stat st;
	int fd, e;

	if (r->told->stop && *r->told->stop)
		return -ECANCELED;
	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return gone(r);
	if (errno != EISDIR && errno != EPERM && errno != EACCES)
		return -errno;
	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return gone(r);
	if (depth >= DEPTH_MAX) {
		snprintf(moved, sizeof(moved), ".sbxfs-deep-%u", r->moved++);
		return renameat(dir_fd, name, r->top_fd, moved) == 0 ? 0 : -errno;
	}
	fd = open_dir(dir_fd, name);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) != 0 || st.st_dev != r->dev) {
		close(fd);
		return -EXDEV;
	}
	e = remove_below(r, fd, depth + 1); /* closes fd */
	if (e == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		e = -errno;
	return e < 0 ? e : gone(r);
}

static int remove_below(struct removal *r, int fd, unsigned int depth)
{
	struct dirent *ent;
	struct stat st;
	DIR *d;
	int e = 0, one, again;

	if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	d = fdopendir(fd);
	if (!d) {
		e = -errno;
		close(fd);
		return e;
	}
	/* the top gets new entries (moved ones) while it is read: look again until it is empty */
	do {
		again = 0;
		rewinddir(d);
		while ((ent = readdir(d))) {
			if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
				continue;
			one = remove_entry(r, dirfd(d), ent->d_name, depth);
			if (one == -ECANCELED) {
				closedir(d);
				return one;
			}
			if (one < 0)
				e = one; /* go on with the others; the rest is told */
			else
				again = 1;
		}
	} while (again && e == 0);
	closedir(d);
	return e;
}

int sbx_tree_remove(int dir_fd, const char *name, struct sbx_removal *removal)
{
	struct sbx_removal own = { .stop = NULL };
	struct removal r = { .told = removal ? removal : &own };
	struct stat st;
	int fd, e;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT ? 0 : -errno;
	fd = open_dir(dir_fd, name);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0) {
		e = -errno;
		close(fd);
		return e;
	}
	r.dev = st.st_dev;
	r.top_fd = dup(fd); /* remove_below closes its own */
	if (r.top_fd < 0) {
		e = -errno;
		close(fd);
		return e;
	}
	fcntl(r.top_fd, F_SETFD, FD_CLOEXEC);
	e = remove_below(&r, fd, 0);
	close(r.top_fd);
	if (e == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		e = -errno;
	return e;
}
