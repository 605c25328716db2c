/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: an open folder of a workspace: a descriptor of its own and a buffer of entries.  Offsets are the file
 * system's own cookies, so that seekdir after a change means what it means there.  One FUSE worker
 * at a time per open folder (the kernel holds its lock), several if threads share the descriptor: a lock.
 */
#include "folder.h"

#include "base/cleanup.h"
#include "fnode.h"
#include "local.h"
#include "provider.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRIES_SIZE 32768

struct sbx_fdir {
	int fd;
	const struct sbx_pbox *box; /* kept by the folder's fnode */
	off_t off; /* of the entry at @pos; -1: the descriptor is somewhere else */
	size_t pos, len;
	char entries[ENTRIES_SIZE] __attribute__((aligned(8)));
};

int sbx_local_opendir(struct sbx_fnode *dir, struct sbx_freq *req)
{
	struct sbx_fdir *d;
	int fd, r = sbx_fnode_dir_get(dir);

	if (r < 0)
		return r;
	fd = openat(r, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	sbx_fnode_dir_put(dir);
	if (r < 0)
		return r;
	d = malloc(sizeof(*d)); /* not cleared: 32K that are filled before they are read */
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	d->fd = fd;
	d->box = dir->box;
	d->off = 0;
	d->pos = d->len = 0;
	req->dir = d;
	return 0;
}

static int seek(struct sbx_fdir *d, off_t off)
{
	d->pos = d->len = 0;
	d->off = -1;
	if (lseek(d->fd, off, SEEK_SET) < 0)
		return -errno;
	d->off = off;
	return 0;
}

int sbx_local_readdir(struct sbx_fdir *d, off_t off, struct sbx_fdirent *ret, struct sbx_freq *req)
{
	const struct dirent64 *e;
	ssize_t n;
	int r;

	/* at 0 always: rewinddir() must see what is new */
	if (off != d->off || (off == 0 && d->pos > 0)) {
		r = seek(d, off);
		if (r < 0)
			return r;
	}
	for (;;) {
		if (d->pos == d->len) {
			n = getdents64(d->fd, d->entries, sizeof(d->entries));
			if (n < 0)
				return -errno;
			d->pos = 0;
			d->len = (size_t)n;
			if (n == 0) {
				ret->name = NULL;
				return 0;
			}
		}
		e = (const struct dirent64 *)(const void *)(d->entries + d->pos);
		d->pos += e->d_reclen;
		d->off = e->d_off;
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			break;
	}
	ret->name = e->d_name;
	ret->ino = sbx_local_ino(d->box, e->d_ino);
	ret->type = DTTOIF(e->d_type);
	ret->next = e->d_off;
	return 0;
}

void sbx_local_closedir(struct sbx_fdir *d)
{
	if (!d)
		return;
	close(d->fd);
	free(d);
}
