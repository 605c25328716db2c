/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the table of fnodes of all boxes, and the descriptors of their folders.  One lock, never held
 * across a system call; what must be closed or given back is collected and done after it.  Any thread.
 */
#include "fnode.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/table.h"
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define DEPTH_MAX PATH_MAX /* no text of a link has more "../" */
#define LIFT_MS 1000	   /* longer than the kernel needs from our answer to a rename until it has moved its entry */

static struct sbx_lock table_lock = SBX_LOCK_INIT;
static struct sbx_table table SBX_GUARDED_BY(table_lock);
static bool table_ready SBX_GUARDED_BY(table_lock);
static size_t stale_count SBX_GUARDED_BY(table_lock); /* in no table any more, but still held */
static struct sbx_list idle SBX_GUARDED_BY(table_lock); /* open folders that nobody uses now */
static unsigned int folders_open SBX_GUARDED_BY(table_lock);
static unsigned int folders_max SBX_GUARDED_BY(table_lock);

/* a regular file is found by what it is, everything else by where it is */
static uint64_t hash_file(const struct sbx_pbox *box, uint64_t dev, uint64_t ino)
{
	return sbx_hash_mix(sbx_hash_mix(sbx_hash_mix(1, (uintptr_t)box), dev), ino);
}

static uint64_t hash_place(const struct sbx_fnode *dir, const char *name)
{
	uint64_t h = sbx_hash_mix(2, (uintptr_t)dir);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return sbx_hash_mix(h, 0);
}

static uint64_t hash_of(const struct sbx_fnode *node)
{
	if (!node->parent) /* the workspace: by its box alone */
		return sbx_hash_mix(3, (uintptr_t)node->box);
	return node->type == S_IFREG ? hash_file(node->box, node->dev, node->ino)
				     : hash_place(node->parent, node->name);
}

static uint64_t hash_item(const struct sbx_list *item)
{
	return hash_of(sbx_container_of(item, struct sbx_fnode, link));
}

static void table_init_locked(void) SBX_REQUIRES(table_lock)
{
	struct rlimit limit;

	if (table_ready)
		return;
	sbx_table_init(&table, hash_item);
	sbx_list_init(&idle);
	if (folders_max == 0)
		folders_max = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 4000000
				      ? (unsigned int)limit.rlim_cur / 4 + 8
				      : 1000000;
	table_ready = true;
}

static uint64_t stx_dev(const struct statx *stx)
{
	return (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
}

bool sbx_fnode_same(const struct sbx_fnode *node, const struct statx *stx)
{
	/* file systems without a birth time give 0 here: then it is device and number alone */
	return node->ino == stx->stx_ino && node->dev == stx_dev(stx) &&
	       node->born_s == stx->stx_btime.tv_sec && node->born_ns == stx->stx_btime.tv_nsec &&
	       node->type == (stx->stx_mode & S_IFMT);
}

static struct sbx_fnode *fnode_new(struct sbx_pbox *box, const char *name, const struct statx *stx)
{
	size_t len = strlen(name) + 1;
	struct sbx_fnode *node = calloc(1, sizeof(*node) + len);

	if (!node)
		return NULL;
	sbx_list_init(&node->link);
	sbx_list_init(&node->idle);
	sbx_list_init(&node->opens);
	node->box = box;
	node->dev = stx_dev(stx);
	node->ino = stx->stx_ino;
	node->born_s = stx->stx_btime.tv_sec;
	node->born_ns = stx->stx_btime.tv_nsec;
	node->type = stx->stx_mode & S_IFMT;
	node->fd = -1;
	node->refs = 1;
	memcpy(node->first_name, name, len);
	node->name = node->first_name;
	return node;
}

/* returns the number of references of @node that are left */
static uint64_t drop_locked(struct sbx_fnode *node, uint64_t n) SBX_REQUIRES(table_lock)
{
	node->refs -= n;
	if (node->refs > 0)
		return node->refs;
	if (node->stale)
		stale_count--;
	else
		sbx_table_remove(&table, &node->link);
	sbx_list_remove(&node->idle);
	if (node->fd >= 0 && node->parent)
		folders_open--;
	return 0;
}

/* up the tree in a loop: a box can nest folders deeper than a stack is long */
void sbx_fnode_put(struct sbx_fnode *node, uint64_t n)
{
	while (node && n > 0) {
		struct sbx_fnode *parent;
		uint64_t left;

		sbx_lock(&table_lock);
		left = drop_locked(node, n);
		sbx_unlock(&table_lock);
		if (left > 0)
			return;
		parent = node->parent;
		if (node->fd >= 0 && parent)
			close(node->fd);
		if (!parent)
			sbx_local_pbox_put(node->box);
		if (node->name != node->first_name)
			free(node->name);
		free(node);
		node = parent;
		n = 1;
	}
}

struct sbx_fnode *sbx_fnode_root(struct sbx_pbox *box, int fd, const struct statx *stx)
{
	SBX_CLEANUP(sbx_freep) struct sbx_fnode *fresh = fnode_new(box, "", stx);
	struct sbx_fnode *node = NULL;
	struct sbx_list *list, *pos;

	if (!fresh)
		return NULL;
	fresh->root = true;
	fresh->fd = fd; /* the box's, which this reference keeps open */
	sbx_lock(&table_lock);
	table_init_locked();
	list = sbx_table_bucket(&table, hash_of(fresh));
	sbx_list_for_each(pos, list) {
		struct sbx_fnode *at = sbx_container_of(pos, struct sbx_fnode, link);

		if (!at->parent && at->box == box) {
			node = at;
			node->refs++;
			break;
		}
	}
	if (!node) {
		node = sbx_take(fresh);
		sbx_local_pbox_get(box);
		sbx_table_add(&table, &node->link);
	}
	sbx_unlock(&table_lock);
	return node;
}

static struct sbx_fnode *find_locked(struct sbx_fnode *dir, const char *name,
				     const struct statx *stx) SBX_REQUIRES(table_lock)
{
	bool file = S_ISREG(stx->stx_mode);
	struct sbx_list *list, *pos;

	list = sbx_table_bucket(&table, file ? hash_file(dir->box, stx_dev(stx), stx->stx_ino)
				  : hash_place(dir, name));
	sbx_list_for_each(pos, list) {
		struct sbx_fnode *node = sbx_container_of(pos, struct sbx_fnode, link);

		if (sbx_fnode_same(node, stx) && node->box == dir->box && node->parent &&
		    (file || (node->parent == dir && strcmp(node->name, name) == 0)))
			return node;
	}
	return NULL;
}

/*
 * Gives @node another place.  @copy: malloc'ed name, taken; the old one is left in it.  Returns the parent to put, or NULL.
 */
static struct sbx_fnode *place_locked(struct sbx_fnode *node, struct sbx_fnode *dir, char **copy)
	SBX_REQUIRES(table_lock)
{
	struct sbx_fnode *old = node->parent;
	char *name = node->name;

	dir->refs++;
	node->parent = dir;
	node->name = *copy;
	*copy = name == node->first_name ? NULL : name;
	return old;
}

struct sbx_fnode *sbx_fnode_take(struct sbx_fnode *dir, const char *name, const struct statx *stx)
{
	SBX_CLEANUP(sbx_freep) char *copy = NULL;
	struct sbx_fnode *node, *old = NULL;

	sbx_lock(&table_lock);
	table_init_locked();
	node = find_locked(dir, name, stx);
	if (node) {
		node->refs++;
		/* a hard link, or renamed in the box: from now on by this name */
		if (node->parent != dir || strcmp(node->name, name) != 0) {
			copy = strdup(name);
			if (copy)
				old = place_locked(node, dir, &copy);
		}
	} else {
		node = fnode_new(dir->box, name, stx);
		if (node) {
			node->parent = dir;
			dir->refs++;
			sbx_table_add(&table, &node->link);
		}
	}
	sbx_unlock(&table_lock);
	sbx_fnode_put(old, 1);
	return node;
}

static unsigned int depth_locked(struct sbx_fnode *node, uint64_t now_ms) SBX_REQUIRES(table_lock)
{
	unsigned int depth = 0, lift = 0;

	for (; node->parent && depth < DEPTH_MAX; node = node->parent) {
		if (node->stale) /* where the kernel has it is unknown: no "../" at all */
			return 0;
		depth++;
		if (node->lift > 0 && now_ms < node->lift_until_ms)
			lift += node->lift;
	}
	return depth > lift ? depth - lift : 0;
}

/* depth_locked counts the names on the way; an entry of @node lies as deep as @node has names */
unsigned int sbx_fnode_depth(struct sbx_fnode *node)
{
	unsigned int depth;
	uint64_t now_ms = sbx_clock_ms();

	sbx_lock(&table_lock);
	depth = depth_locked(node, now_ms);
	sbx_unlock(&table_lock);
	return node->type == S_IFDIR || depth == 0 ? depth : depth - 1;
}

struct move {
	struct sbx_fnode *dir;
	const char *name;
	const struct statx *stx; /* what is at the new place now */
	struct sbx_fnode *new_dir;
	char *copy;		 /* new name, malloc'ed */
	struct sbx_list taken;	 /* all that were at the old place and are not regular files */
	struct sbx_fnode *put;	 /* old parent to give back */
};

static void take_off_locked(struct move *m) SBX_REQUIRES(table_lock)
{
	struct sbx_list *list = sbx_table_bucket(&table, hash_place(m->dir, m->name)), *pos, *next;

	sbx_list_for_each_safe(pos, next, list) {
		struct sbx_fnode *node = sbx_container_of(pos, struct sbx_fnode, link);

		if (node->parent == m->dir && node->type != S_IFREG &&
		    strcmp(node->name, m->name) == 0) {
			sbx_table_remove(&table, pos);
			sbx_list_append(&m->taken, pos);
		}
	}
}

/*
 * What was taken off is put in at the new place if it is what the rename moved.  If code in the box swapped names meanwhile
 * we cannot tell what the kernel will have there: such an fnode is refused from now on.
 */
static void put_in_locked(struct move *m, uint64_t now_ms) SBX_REQUIRES(table_lock)
{
	struct sbx_list *pos, *next;

	if (S_ISREG(m->stx->stx_mode)) {
		struct sbx_fnode *node = find_locked(m->new_dir, "", m->stx);

		if (node && m->copy)
			m->put = place_locked(node, m->new_dir, &m->copy);
	}
	sbx_list_for_each_safe(pos, next, &m->taken) {
		struct sbx_fnode *node = sbx_container_of(pos, struct sbx_fnode, link);
		unsigned int before = depth_locked(node, now_ms), after;

		sbx_list_remove(pos);
		if (!m->copy || !sbx_fnode_same(node, m->stx)) {
			node->stale = true;
			stale_count++;
			continue;
		}
		m->put = place_locked(node, m->new_dir, &m->copy);
		free(sbx_take(m->copy));
		/*
		 * The kernel moves its entry after our answer.  Until then a link in there must not get more "../" than
		 * its old place allows.
		 */
		node->lift = 0;
		after = depth_locked(node, now_ms);
		node->lift = after > before ? after - before : 0;
		node->lift_until_ms = now_ms + LIFT_MS;
		sbx_table_add(&table, pos);
	}
}

void sbx_fnode_moved(struct sbx_fnode *dir, const char *name, struct sbx_fnode *new_dir,
		     const char *new_name, const struct statx *stx, const struct statx *exchanged)
{
	struct move there = { .dir = dir, .name = name, .stx = stx, .new_dir = new_dir,
			      .copy = strdup(new_name) };
	struct move back = { .dir = new_dir, .name = new_name, .stx = exchanged, .new_dir = dir,
			     .copy = exchanged ? strdup(name) : NULL };
	uint64_t now_ms = sbx_clock_ms();

	sbx_list_init(&there.taken);
	sbx_list_init(&back.taken);
	sbx_lock(&table_lock);
	take_off_locked(&there);
	if (exchanged)
		take_off_locked(&back);
	put_in_locked(&there, now_ms);
	if (exchanged)
		put_in_locked(&back, now_ms);
	sbx_unlock(&table_lock);
	free(there.copy);
	free(back.copy);
	sbx_fnode_put(there.put, 1);
	sbx_fnode_put(back.put, 1);
}

/* ---- descriptors of folders ---- */

static int use_locked(struct sbx_fnode *dir) SBX_REQUIRES(table_lock)
{
	dir->refs++;
	if (dir->users++ == 0)
		sbx_list_remove(&dir->idle);
	return dir->fd;
}

static void close_some(void)
{
	for (;;) {
		struct sbx_fnode *dir;
		int fd;

		sbx_lock(&table_lock);
		if (folders_open <= folders_max || sbx_list_empty(&idle)) {
			sbx_unlock(&table_lock);
			return;
		}
		dir = sbx_list_first(&idle, struct sbx_fnode, idle);
		sbx_list_remove(&dir->idle);
		fd = sbx_take_fd(dir->fd);
		folders_open--;
		sbx_unlock(&table_lock);
		close(fd);
	}
}

/* opens @name in the folder @fd; only if it is still @dir */
static int open_folder(int fd, const char *name, const struct sbx_fnode *dir)
{
	SBX_CLEANUP(sbx_closep) int sub = -1;
	struct statx stx;

	sub = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ESTALE : -errno;
	if (statx(sub, "", AT_EMPTY_PATH, SBX_FNODE_STATX, &stx) < 0)
		return -errno;
	if (!sbx_fnode_same(dir, &stx))
		return -ESTALE;
	return sbx_take_fd(sub);
}

int sbx_fnode_dir_get(struct sbx_fnode *dir)
{
	for (;;) {
		struct sbx_fnode *child, *parent;
		char name[NAME_MAX + 1];
		int fd, sub;
		bool kept;

		sbx_lock(&table_lock);
		if (dir->type != S_IFDIR || dir->stale) {
			sbx_unlock(&table_lock);
			return dir->type != S_IFDIR ? -ENOTDIR : -ESTALE;
		}
		if (dir->fd >= 0) {
			fd = use_locked(dir);
			sbx_unlock(&table_lock);
			return fd;
		}
		/* the uppermost that is closed; the workspace itself never is */
		for (child = dir; child->parent->fd < 0; child = child->parent)
			;
		parent = child->parent;
		fd = use_locked(parent);
		child->refs++;
		strcpy(name, child->name); /* no longer than NAME_MAX: the kernel knew it */
		sbx_unlock(&table_lock);

		sub = open_folder(fd, name, child);
		sbx_fnode_dir_put(parent);
		kept = false;
		sbx_lock(&table_lock);
		if (sub >= 0 && child->fd < 0) {
			kept = true;
			child->fd = sub;
			folders_open++;
			sbx_list_append(&idle, &child->idle);
		}
		sbx_unlock(&table_lock);
		sbx_fnode_put(child, 1);
		if (sub < 0)
			return sub;
		if (!kept)
			close(sub); /* another thread was first */
		close_some();
	}
}

void sbx_fnode_dir_put(struct sbx_fnode *dir)
{
	sbx_lock(&table_lock);
	if (--dir->users == 0 && dir->parent)
		sbx_list_append(&idle, &dir->idle);
	if (dir->refs > 1) { /* the usual case, in one turn */
		dir->refs--;
		dir = NULL;
	}
	sbx_unlock(&table_lock);
	sbx_fnode_put(dir, 1);
}

int sbx_fnode_place(struct sbx_fnode *node, struct sbx_fplace *ret)
{
	int fd = -1;

	ret->dir = NULL;
	sbx_lock(&table_lock);
	if (!node->parent || node->stale || node->parent->stale) {
		sbx_unlock(&table_lock);
		return -ESTALE;
	}
	strcpy(ret->name, node->name);
	ret->dir = node->parent;
	if (ret->dir->fd >= 0)
		fd = use_locked(ret->dir);
	else
		ret->dir->refs++;
	sbx_unlock(&table_lock);
	if (fd < 0) {
		fd = sbx_fnode_dir_get(ret->dir);
		sbx_fnode_put(ret->dir, 1);
		if (fd < 0) {
			ret->dir = NULL;
			return fd;
		}
	}
	ret->fd = fd;
	return 0;
}

void sbx_fnode_place_put(struct sbx_fplace *place)
{
	if (place->dir)
		sbx_fnode_dir_put(place->dir);
	place->dir = NULL;
}

/* ---- open files ---- */

struct sbx_fopen *sbx_fnode_opened(struct sbx_fnode *node, int fd)
{
	struct sbx_fopen *open = calloc(1, sizeof(*open));

	if (!open)
		return NULL;
	open->node = node;
	open->fd = fd;
	sbx_lock(&table_lock);
	node->refs++;
	sbx_list_append(&node->opens, &open->link);
	sbx_unlock(&table_lock);
	return open;
}

static void fopen_free(struct sbx_fopen *open)
{
	close(open->fd);
	sbx_fnode_put(open->node, 1);
	free(open);
}

void sbx_fnode_closed(struct sbx_fopen *open)
{
	bool last;

	sbx_lock(&table_lock);
	sbx_list_remove(&open->link);
	open->closed = true;
	last = open->users == 0;
	sbx_unlock(&table_lock);
	if (last)
		fopen_free(open);
}

struct sbx_fopen *sbx_fnode_any_open(struct sbx_fnode *node)
{
	struct sbx_fopen *open = NULL;

	sbx_lock(&table_lock);
	if (!sbx_list_empty(&node->opens)) {
		open = sbx_list_first(&node->opens, struct sbx_fopen, link);
		open->users++;
	}
	sbx_unlock(&table_lock);
	return open;
}

void sbx_fopen_put(struct sbx_fopen *open)
{
	bool last;

	if (!open)
		return;
	sbx_lock(&table_lock);
	last = --open->users == 0 && open->closed;
	sbx_unlock(&table_lock);
	if (last)
		fopen_free(open);
}

void sbx_fnode_limit(unsigned int folders)
{
	sbx_lock(&table_lock);
	table_init_locked();
	folders_max = folders > 8 ? folders : 8; /* fewer would be closed while a path is opened */
	sbx_unlock(&table_lock);
}

void sbx_fnode_counts(uint64_t *ret_nodes, unsigned int *ret_folders)
{
	sbx_lock(&table_lock);
	table_init_locked();
	*ret_nodes = table.used + stale_count;
	*ret_folders = folders_open;
	sbx_unlock(&table_lock);
}
