/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: which file of a workspace an fnode stands for, and the descriptors of folders.  files.c does the work.
 *
 * An fnode is one thing for ever: device, inode number and birth time are compared whenever a name is used, and a
 * difference is -ESTALE (the kernel then looks the name up again).
 *
 * A regular file is one fnode however many names it has, so that its hard links share one inode of the mount: one page
 * cache, one set of locks.  (parent, name) is only the newest way to it.  Everything else is an fnode per place: if code in the
 * box moves a folder, that is a new fnode, and the kernel never moves a folder that it knows to another depth,
 * where a link that was checked at its old depth would climb out.
 *
 * Only folders in use and open files have descriptors.  Folders are kept open, the least used ones closed when there are many.
 */
#ifndef SBX_LOCAL_FNODE_H
#define SBX_LOCAL_FNODE_H

#include "base/list.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct sbx_fnode;
struct sbx_pbox;

/* an open file; getattr and chmod of a file that has lost its name go through it */
struct sbx_fopen {
	struct sbx_fnode *node; /* counted */
	int fd;
	unsigned int users; /* guarded by the lock of fnode.c */
	bool closed;	    /* guarded by it: the last user closes */
	struct sbx_list link;
};

struct sbx_fnode {
	struct sbx_list link;	  /* in the table, guarded by the lock of fnode.c as all below but for the constants */
	struct sbx_fnode *parent; /* counted; NULL: the workspace itself */
	char *name;		  /* points to first_name, or is malloc'ed */
	uint64_t refs;
	struct sbx_pbox *box;	  /* constant */
	uint64_t dev, ino;	  /* constant */
	int64_t born_s;		  /* constant */
	uint32_t born_ns;	  /* constant */
	mode_t type;		  /* constant; S_IFMT bits */
	bool root;		  /* constant; the workspace itself */
	bool stale;		  /* not in the table: the kernel may have it at another place than we do: refused */
	int fd;			  /* folders: O_PATH, or -1 */
	unsigned int users;	  /* of fd; > 0: it stays open */
	struct sbx_list idle;	  /* folders: open and not in use, oldest first */
	struct sbx_list opens;	  /* regular files: struct sbx_fopen */
	unsigned int lift;	  /* it was moved this much deeper, and until lift_until_ms links are judged as before */
	uint64_t lift_until_ms;
	char first_name[];
};

/* what statx is asked for everywhere */
#define SBX_FNODE_STATX (STATX_BASIC_STATS | STATX_BTIME)

/* sbx_fnode_root - the fnode of the workspace of @box, counted; NULL: no memory */
struct sbx_fnode *sbx_fnode_root(struct sbx_pbox *box, int fd, const struct statx *stx);
/* sbx_fnode_take - the fnode of what @stx describes, found as @name in @dir; counted.  NULL: no memory */
struct sbx_fnode *sbx_fnode_take(struct sbx_fnode *dir, const char *name, const struct statx *stx);
void sbx_fnode_put(struct sbx_fnode *node, uint64_t n);
/* sbx_fnode_same - is @stx that very file? */
bool sbx_fnode_same(const struct sbx_fnode *node, const struct statx *stx);
/* sbx_fnode_depth - a folder: of its entries; else of @node itself.  0: in the workspace.  No more than PATH_MAX. */
unsigned int sbx_fnode_depth(struct sbx_fnode *node);
/*
 * sbx_fnode_moved - the mount renamed @name in @dir to @new_name in @new_dir; @stx is what is there now.  Before the
 * kernel hears of it.  @exchanged: what is at the old place now, NULL: nothing was exchanged
 */
void sbx_fnode_moved(struct sbx_fnode *dir, const char *name, struct sbx_fnode *new_dir,
		     const char *new_name, const struct statx *stx, const struct statx *exchanged);

/*
 * sbx_fnode_dir_get - the O_PATH descriptor of a folder, opened again if need be; stays open and @dir stays alive until
 * dir_put.  -ESTALE: the place has another file now; -ENOTDIR, errno of openat.
 */
int sbx_fnode_dir_get(struct sbx_fnode *dir);
void sbx_fnode_dir_put(struct sbx_fnode *dir);

/* the folder and the name by which @node can be reached */
struct sbx_fplace {
	struct sbx_fnode *dir; /* NULL: nothing is held */
	int fd;
	char name[NAME_MAX + 1];
};

/* sbx_fnode_place - also -ESTALE for the workspace itself, which has no name.  Give back with sbx_fnode_place_put. */
int sbx_fnode_place(struct sbx_fnode *node, struct sbx_fplace *ret);
void sbx_fnode_place_put(struct sbx_fplace *place);

/* sbx_fnode_opened - @node is open as @fd, which is taken.  NULL: no memory, @fd is still the caller's */
struct sbx_fopen *sbx_fnode_opened(struct sbx_fnode *node, int fd);
void sbx_fnode_closed(struct sbx_fopen *open);
/* any open handle of @node, kept open until sbx_fopen_put; NULL: none */
struct sbx_fopen *sbx_fnode_any_open(struct sbx_fnode *node);
void sbx_fopen_put(struct sbx_fopen *open);

/* for tests: at most this many folders open (else a quarter of RLIMIT_NOFILE), and how many there are */
void sbx_fnode_limit(unsigned int folders);
void sbx_fnode_counts(uint64_t *ret_nodes, unsigned int *ret_folders);

#endif
