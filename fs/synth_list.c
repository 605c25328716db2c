/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: listings: the names are taken at opendir, so that offsets stay right whatever comes and goes.  Any thread. */
#include "synth_own.h"

#include "base/lock.h"
#include "open.h"
#include "reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_ATTR_S 0.1 /* the kernel need not ask for attributes of a folder that it has just listed: ls -l */

struct name {
	uint64_t ino;
	mode_t type;
	char name[];
};

struct sbx_names {
	struct sbx_open open;
	struct name **items;
	size_t n, room;
	struct sbx_lock lock; /* two READDIRs on one handle */
};

int sbx_names_add(struct sbx_names *names, const char *name, uint64_t ino, mode_t type)
{
	size_t len = strlen(name) + 1;
	struct name *item;

	if (names->n == names->room) {
		size_t room = names->room ? names->room * 2 : 32;
		struct name **items = realloc(names->items, room * sizeof(struct name *));

		if (!items)
			return -ENOMEM;
		names->items = items;
		names->room = room;
	}
	item = malloc(sizeof(*item) + len);
	if (!item)
		return -ENOMEM;
	item->ino = ino;
	item->type = type;
	memcpy(item->name, name, len);
	names->items[names->n++] = item;
	return 0;
}

static void names_free(struct sbx_names *names)
{
	size_t i;

	sbx_open_remove(&names->open);
	for (i = 0; i < names->n; i++)
		free(names->items[i]);
	free(names->items);
	sbx_lock_done(&names->lock);
	free(names);
}

static void names_drop(struct sbx_open *open)
{
	names_free(sbx_container_of(open, struct sbx_names, open));
}

static int fill(const struct sbx_synth *dir, struct sbx_names *names)
{
	size_t i;
	int r;

	r = sbx_names_add(names, ".", dir->node.id, S_IFDIR);
	if (r == 0)
		r = sbx_names_add(names, "..", dir->node.id, S_IFDIR);
	for (i = 0; r == 0 && i < dir->folder->n; i++) {
		const struct sbx_file *file = &dir->folder->files[i];

		if (!(file->flags & SBX_FILE_HIDDEN))
			r = sbx_names_add(names, file->name, sbx_ref_ino(&dir->ref, file->index),
					  sbx_synth_type(file));
	}
	if (r == 0 && dir->folder->list)
		r = dir->folder->list(&dir->ref, names);
	return r;
}

void sbx_folder_op_opendir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	struct sbx_names *names;
	int r = sbx_synth_alive(dir);

	names = r == 0 ? calloc(1, sizeof(*names)) : NULL;
	if (!names) {
		sbx_reply_err(req, r < 0 ? r : -ENOMEM);
		return;
	}
	sbx_lock_init(&names->lock);
	sbx_open_add(&names->open, names_drop);
	r = fill(dir, names);
	if (r < 0) {
		names_free(names);
		sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)names;
	if (fuse_reply_open(req, fi) == -ENOENT)
		names_free(names);
}

/* offset 0 = from the start: rewinddir() must show what is there now */
static void refill(const struct sbx_synth *dir, struct sbx_names *names)
{
	struct sbx_names fresh = { .lock = SBX_LOCK_INIT };
	size_t i;

	if (fill(dir, &fresh) < 0) {
		for (i = 0; i < fresh.n; i++)
			free(fresh.items[i]);
		free(fresh.items);
		return;
	}
	for (i = 0; i < names->n; i++)
		free(names->items[i]);
	free(names->items);
	names->items = fresh.items;
	names->n = fresh.n;
	names->room = fresh.room;
}

void sbx_folder_op_readdir(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
			   struct fuse_file_info *fi, bool plus)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	struct sbx_names *names = (struct sbx_names *)(uintptr_t)fi->fh;
	char *buf = malloc(size);
	size_t used = 0, i;
	int r = sbx_synth_alive(dir);

	if (r < 0 || !buf) {
		free(buf);
		sbx_reply_err(req, r < 0 ? r : -ENOMEM);
		return;
	}
	sbx_lock(&names->lock);
	if (off == 0)
		refill(dir, names);
	for (i = off < 0 ? 0 : (size_t)off; i < names->n; i++) {
		struct name *item = names->items[i];
		struct fuse_entry_param e = { 0 };
		struct sbx_node *child = NULL;
		size_t need;

		e.attr.st_ino = item->ino;
		e.attr.st_mode = item->type;
		if (plus && i >= 2) {
			if (sbx_folder_lookup(dir, item->name, &child, &e.attr) < 0)
				continue; /* gone since */
			e.ino = sbx_node_id(child);
			e.entry_timeout = sbx_synth_entry_timeout_s(dir, item->name, &e.attr);
			e.attr_timeout = e.entry_timeout > 0 ? LISTED_ATTR_S : 0;
			need = fuse_add_direntry_plus(req, buf + used, size - used, item->name, &e,
						      (off_t)i + 1);
		} else if (plus) {
			need = fuse_add_direntry_plus(req, buf + used, size - used, item->name, &e,
						      (off_t)i + 1);
		} else {
			need = fuse_add_direntry(req, buf + used, size - used, item->name, &e.attr,
						 (off_t)i + 1);
		}
		if (need > size - used) {
			if (child)
				sbx_node_forget(child, 1);
			break;
		}
		used += need;
	}
	sbx_unlock(&names->lock);
	fuse_reply_buf(req, buf, used);
	free(buf);
}

void sbx_folder_op_releasedir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	(void)node;
	names_free((struct sbx_names *)(uintptr_t)fi->fh);
	sbx_reply_err(req, 0);
}
