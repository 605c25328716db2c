/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what all control files and folders do alike.  Knows: synth.h's tables.  Any thread. */
#include "synth.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "fs.h"
#include "open.h"
#include "reply.h"
#include "run.h"
#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALUE_MAX (1024 * 1024) /* bytes of one value file */
#define LINES_MAX (64u * 1024 * 1024) /* bytes of a text of several lines */
#define LISTED_ATTR_S 0.1 /* nor for attributes of a folder that it has just listed: ls -l */
#define FOLDER_ENTRY_S 1.0 /* the kernel need not ask again for a folder by that name */

struct sbx_ref sbx_ref_get(const struct sbx_ref *ref)
{
	if (ref->box)
		sbx_box_get(ref->box);
	if (ref->slot)
		sbx_slot_get(ref->slot);
	if (ref->run)
		sbx_run_get(ref->run);
	return *ref;
}

void sbx_ref_put(struct sbx_ref *ref)
{
	sbx_run_put(ref->run); /* the box last: the others lean on it */
	sbx_slot_put(ref->slot);
	sbx_box_put(ref->box);
	*ref = (struct sbx_ref){ 0 };
}

uint64_t sbx_ref_ino(const struct sbx_ref *ref, unsigned int index)
{
	if (ref->run)
		return sbx_run_ino(ref->run, index);
	if (ref->slot)
		return ref->slot->ino_base | index;
	if (ref->box)
		return ref->box->ino_base | index;
	if (ref->template) /* blocks of the highest numbers, which are never given out either */
		return SBX_INO_CONTROL | UINT64_C(0x7fffffffff000000) |
		       (uint64_t)(ref->template - sbx_fs.config->templates) << 8 | index;
	return SBX_INO_CONTROL | index; /* block 0 is never given out */
}

void sbx_attr_init(struct stat *attr, uint64_t ino, mode_t mode, uint64_t size)
{
	memset(attr, 0, sizeof(*attr));
	attr->st_ino = ino;
	attr->st_mode = mode;
	attr->st_nlink = S_ISDIR(mode) ? 2 : 1;
	attr->st_uid = sbx_fs.uid;
	attr->st_gid = sbx_fs.gid;
	attr->st_size = (off_t)size;
	attr->st_blocks = (blkcnt_t)((size + 511) / 512); /* else cp thinks the file is sparse */
	attr->st_blksize = 4096;
	attr->st_mtim = sbx_fs.since; /* not "now": tar says "file changed as we read it" */
	attr->st_atim = attr->st_ctim = attr->st_mtim;
}

const struct sbx_file *sbx_folder_find(const struct sbx_folder *folder, const char *name)
{
	size_t i;

	for (i = 0; i < folder->n; i++) {
		if (strcmp(folder->files[i].name, name) == 0)
			return &folder->files[i];
	}
	return NULL;
}

static int alive(const struct sbx_synth *node)
{
	if (node->ref.box && sbx_box_deleted(node->ref.box))
		return -ESTALE;
	if (node->parent && node->parent->alive)
		return node->parent->alive(&node->ref);
	if (node->folder && node->folder->alive)
		return node->folder->alive(&node->ref);
	return 0;
}

static mode_t file_type(const struct sbx_file *file)
{
	if (file->folder)
		return S_IFDIR;
	return file->flags & SBX_FILE_LINK ? S_IFLNK : S_IFREG;
}

/* @text: may be NULL; else it gets what the file reads now */
static int attributes(const struct sbx_synth *node, struct stat *attr, struct sbx_buf *text)
{
	struct sbx_buf own = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	int r = 0;

	if (node->folder) {
		sbx_attr_init(attr, node->node.id, S_IFDIR | node->folder->mode, 0);
		if (node->folder->links)
			attr->st_nlink = node->folder->links;
		return 0;
	}
	if (node->file->flags & SBX_FILE_LOG) {
		sbx_attr_init(attr, node->node.id, S_IFREG | node->file->mode,
			      node->file->length(&node->ref));
		return 0;
	}
	if (node->file->read)
		r = node->file->read(&node->ref, text ? text : &own, &err);
	if (r == -EIO) /* it exists, but reading it fails: open() tells */
		r = 0;
	sbx_attr_init(attr, node->node.id, file_type(node->file) | node->file->mode,
		      text ? text->len : own.len);
	sbx_buf_done(&own);
	return r;
}

void sbx_synth_done(struct sbx_node *node)
{
	sbx_ref_put(&sbx_synth_of(node)->ref);
}

int sbx_synth_node(const struct sbx_ref *ref, const struct sbx_folder *parent, const struct sbx_file *file,
		   const struct sbx_folder *folder, uint64_t ino, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_node *node = sbx_node_find(NULL, ino);
	struct sbx_synth *fresh;
	int r;

	if (!node) {
		fresh = calloc(1, sizeof(*fresh));
		if (!fresh)
			return -ENOMEM;
		fresh->node.ops = folder ? (folder->ops ? folder->ops : &sbx_folder_ops) : &sbx_text_ops;
		fresh->ref = sbx_ref_get(ref);
		fresh->file = file;
		fresh->folder = folder;
		fresh->parent = parent;
		node = sbx_node_add(&fresh->node, NULL, ino);
		if (node != &fresh->node) { /* somebody else was first */
			sbx_ref_put(&fresh->ref);
			free(fresh);
		}
	}
	r = attributes(sbx_synth_of(node), attr, NULL);
	if (r < 0) {
		sbx_node_forget(node, 1);
		return r;
	}
	*ret = node;
	return 0;
}

/* ---- folders ---- */

int sbx_folder_lookup(struct sbx_synth *dir, const char *name, struct sbx_node **ret, struct stat *attr)
{
	const struct sbx_file *file = sbx_folder_find(dir->folder, name);
	int r = alive(dir);

	if (r < 0)
		return r;
	if (!file)
		return dir->folder->lookup ? dir->folder->lookup(&dir->ref, name, ret, attr) : -ENOENT;
	if (file->node)
		return file->node(&dir->ref, file, ret, attr);
	return sbx_synth_node(&dir->ref, dir->folder, file, file->folder, sbx_ref_ino(&dir->ref, file->index),
			      ret, attr);
}

/*
 * How long the kernel need not ask for a name again: for a path through BOX/run or BOX/workspace this saves two of three
 * questions.  rmdir() makes the kernel forget at once; a box that goes by itself answers ESTALE, and then the kernel asks.
 * Attributes are not kept longer than a listing takes: through them a handle of a deleted box would still look alive.
 */
static double entry_timeout_s(const struct sbx_synth *dir, const char *name, const struct stat *attr)
{
	if (!S_ISDIR(attr->st_mode))
		return 0;
	return dir->folder->steady || sbx_folder_find(dir->folder, name) ? FOLDER_ENTRY_S : 0;
}

void sbx_folder_op_lookup(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_synth *synth = sbx_synth_of(dir);
	struct sbx_node *node;
	struct stat attr;
	int r = sbx_folder_lookup(synth, name, &node, &attr);

	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_reply_entry(req, node, &attr, 0, entry_timeout_s(synth, name, &attr));
}

void sbx_folder_op_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct stat attr;
	int r = alive(synth);

	(void)fi;
	if (r == 0)
		r = attributes(synth, &attr, NULL);
	if (r < 0)
		sbx_reply_err(req, r);
	else
		fuse_reply_attr(req, &attr, 0);
}

/* times and modes are taken and forgotten: rsync -a and cp -p set them; owners stay */
void sbx_folder_op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			   struct fuse_file_info *fi)
{
	if (((to_set & FUSE_SET_ATTR_UID) && attr->st_uid != sbx_fs.uid) ||
	    ((to_set & FUSE_SET_ATTR_GID) && attr->st_gid != sbx_fs.gid)) {
		sbx_reply_err(req, -EPERM);
		return;
	}
	sbx_folder_op_getattr(req, node, fi);
}

void sbx_folder_op_mkdir(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode)
{
	struct sbx_synth *synth = sbx_synth_of(dir);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_node *node;
	struct stat attr;
	int r = alive(synth);

	(void)mode;
	if (r == 0 && sbx_folder_find(synth->folder, name))
		r = -EEXIST;
	if (r == 0 && !synth->folder->mkdir)
		r = -EPERM;
	if (r == 0)
		r = synth->folder->mkdir(&synth->ref, name, &node, &attr, &err);
	if (r == 0)
		sbx_reply_entry(req, node, &attr, 0, entry_timeout_s(synth, name, &attr));
	else if (err.code)
		sbx_fail(req, synth->ref.box, "mkdir", name, &err, r);
	else
		sbx_reply_err(req, r);
}

void sbx_folder_op_rmdir(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_synth *synth = sbx_synth_of(dir);
	const struct sbx_file *file = sbx_folder_find(synth->folder, name);
	struct sbx_err err = SBX_ERR_INIT;
	int r = alive(synth);

	if (r == 0 && file) /* so that rm -rf BOX ends in the delete */
		r = file->folder || file->node ? 0 : -ENOTDIR;
	else if (r == 0 && !synth->folder->rmdir)
		r = -ENOENT;
	else if (r == 0)
		r = synth->folder->rmdir(&synth->ref, name, &err);
	if (r < 0 && err.code && r != -ENOENT)
		sbx_fail(req, synth->ref.box, "rmdir", name, &err, r);
	else
		sbx_reply_err(req, r);
}

/* a name that is not in the table but is found, as those in the table: nothing changes, so that rm -rf BOX goes through */
static int unlink_found(struct sbx_synth *dir, const char *name)
{
	struct sbx_node *node;
	struct stat attr;
	int r = dir->folder->lookup ? dir->folder->lookup(&dir->ref, name, &node, &attr) : -ENOENT;

	if (r < 0)
		return r;
	sbx_node_forget(node, 1);
	return S_ISDIR(attr.st_mode) ? -EISDIR : 0;
}

void sbx_folder_op_unlink(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_synth *synth = sbx_synth_of(dir);
	const struct sbx_file *file = sbx_folder_find(synth->folder, name);
	int r = alive(synth);

	if (r == 0 && !file)
		r = unlink_found(synth, name);
	else if (r == 0 && file->folder)
		r = -EISDIR;
	else if (r == 0 && file->reset)
		file->reset(&synth->ref);
	sbx_reply_err(req, r);
}

static void op_rename(fuse_req_t req, struct sbx_node *dir, const char *name, struct sbx_node *new_dir,
		      const char *new_name, unsigned int flags)
{
	(void)dir;
	(void)name;
	(void)new_dir;
	(void)new_name;
	(void)flags;
	sbx_reply_err(req, -EPERM); /* not EXDEV: mv would copy, run and delete */
}

/* ---- listing: the names are taken at opendir, so that offsets stay right whatever comes and goes ---- */

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
					  file_type(file));
	}
	if (r == 0 && dir->folder->list)
		r = dir->folder->list(&dir->ref, names);
	return r;
}

void sbx_folder_op_opendir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	struct sbx_names *names;
	int r = alive(dir);

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
	int r = alive(dir);

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
			e.entry_timeout = entry_timeout_s(dir, item->name, &e.attr);
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

const struct sbx_node_ops sbx_folder_ops = {
	.done = sbx_synth_done,
	.lookup = sbx_folder_op_lookup,
	.getattr = sbx_folder_op_getattr,
	.setattr = sbx_folder_op_setattr,
	.mkdir = sbx_folder_op_mkdir,
	.unlink = sbx_folder_op_unlink,
	.rmdir = sbx_folder_op_rmdir,
	.rename = op_rename,
	.opendir = sbx_folder_op_opendir,
	.readdir = sbx_folder_op_readdir,
	.releasedir = sbx_folder_op_releasedir,
};

/* ---- text files ---- */

struct text {
	struct sbx_open open;
	struct sbx_lock lock;
	struct sbx_buf snapshot; /* what this open reads */
	struct sbx_buf lines;	 /* guarded by lock: SBX_FILE_LINES, what was written so far */
	bool dirty;		 /* guarded by lock */
	bool writes, append;
	off_t base;		 /* O_APPEND: bytes that were there at open */
};

static struct text *text_of(struct fuse_file_info *fi)
{
	return (struct text *)(uintptr_t)fi->fh;
}

static void text_free(struct text *text)
{
	sbx_open_remove(&text->open);
	sbx_buf_done(&text->snapshot);
	sbx_buf_done(&text->lines);
	sbx_lock_done(&text->lock);
	free(text);
}

static void text_drop(struct sbx_open *open)
{
	text_free(sbx_container_of(open, struct text, open));
}

static void text_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	const struct sbx_file *file = synth->file;
	int access = fi->flags & O_ACCMODE, r = alive(synth);
	struct sbx_err err = SBX_ERR_INIT;
	struct text *text;

	if (r == 0 && access != O_RDONLY && !file->write)
		r = -EACCES; /* root passes the mode bits */
	if (r == 0 && access != O_WRONLY && !file->read && !file->read_at)
		r = -EACCES;
	text = r == 0 ? calloc(1, sizeof(*text)) : NULL;
	if (!text) {
		sbx_reply_err(req, r < 0 ? r : -ENOMEM);
		return;
	}
	sbx_lock_init(&text->lock);
	sbx_open_add(&text->open, text_drop);
	text->writes = access != O_RDONLY;
	text->append = (fi->flags & O_APPEND) != 0;
	if (file->read && (access != O_WRONLY || (file->flags & SBX_FILE_LINES)))
		r = file->read(&synth->ref, &text->snapshot, &err);
	if (r == 0 && text->writes && (file->flags & SBX_FILE_LINES)) {
		if (fi->flags & O_TRUNC)
			text->dirty = true;
		else
			r = sbx_buf_append(&text->lines, sbx_buf_str(&text->snapshot), text->snapshot.len);
	}
	if (r < 0) {
		text_free(text);
		if (err.code)
			sbx_fail(req, synth->ref.box, "open", file->name, &err, r);
		else
			sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)text;
	fi->direct_io = 1;
	fi->keep_cache = 0;
	fi->noflush = !(file->flags & SBX_FILE_LINES);
	if (fuse_reply_open(req, fi) == -ENOENT)
		text_free(text);
}

static void text_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct text *text = text_of(fi);
	SBX_CLEANUP(sbx_freep) char *buf = NULL;
	int r = alive(synth);
	ssize_t n = 0;

	if (r == 0) {
		buf = malloc(size ? size : 1);
		r = buf ? 0 : -ENOMEM;
	}
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	/* a copy: the file may be closed, and the snapshot freed, before the reply's call returns */
	if (synth->file->flags & SBX_FILE_LOG) {
		n = synth->file->read_at(&synth->ref, (uint64_t)off, buf, size);
	} else if ((size_t)off < text->snapshot.len) {
		size_t left = text->snapshot.len - (size_t)off;

		n = (ssize_t)(left < size ? left : size);
		memcpy(buf, text->snapshot.data + off, (size_t)n);
	}
	if (n < 0)
		sbx_reply_err(req, (int)n);
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static void text_write(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		       struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct text *text = text_of(fi);
	struct sbx_buf value = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	int r = alive(synth);
	size_t len;

	if (r == 0)
		r = sbx_buf_flatten(&value, in, VALUE_MAX * 2);
	len = value.len;
	if (r < 0) {
		sbx_reply_err(req, r);
	} else if (synth->file->flags & SBX_FILE_LINES) {
		sbx_lock(&text->lock);
		if (text->append)
			off = (off_t)text->lines.len; /* the kernel's offset is a guess */
		if ((uint64_t)off + len > LINES_MAX)
			r = -EFBIG;
		else
			r = sbx_buf_write(&text->lines, (size_t)off, sbx_buf_str(&value), len);
		text->dirty = text->dirty || r == 0;
		sbx_unlock(&text->lock);
		if (r < 0)
			sbx_reply_err(req, r);
		else
			fuse_reply_write(req, len);
	} else {
		r = len > VALUE_MAX ? -EFBIG
				    : synth->file->write(&synth->ref, sbx_buf_str(&value), len, &err);
		if (r == 0)
			fuse_reply_write(req, len);
		else if (err.code)
			sbx_fail(req, synth->ref.box, "write", synth->file->name, &err, r);
		else
			sbx_reply_err(req, r);
	}
	sbx_buf_done(&value);
}

/* the value as it is now takes effect; every close() of a copy of the descriptor comes here */
static void text_flush(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct text *text = text_of(fi);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf value = SBX_BUF_INIT;
	int r = 0;

	sbx_lock(&text->lock);
	if (text->dirty) {
		text->dirty = false;
		r = sbx_buf_append(&value, sbx_buf_str(&text->lines), text->lines.len);
		sbx_unlock(&text->lock);
		if (r == 0)
			r = alive(synth);
		if (r == 0)
			r = synth->file->write(&synth->ref, sbx_buf_str(&value), value.len, &err);
		sbx_buf_done(&value);
	} else {
		sbx_unlock(&text->lock);
	}
	if (r < 0 && err.code)
		sbx_fail(req, synth->ref.box, "close", synth->file->name, &err, r);
	else
		sbx_reply_err(req, r);
}

static void text_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			 struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);

	if ((to_set & FUSE_SET_ATTR_SIZE) && !synth->file->write) {
		sbx_reply_err(req, -EACCES);
		return;
	}
	if ((to_set & FUSE_SET_ATTR_SIZE) && fi && (synth->file->flags & SBX_FILE_LINES)) {
		struct text *text = text_of(fi);
		int r = -EFBIG;

		if ((uint64_t)attr->st_size <= LINES_MAX) {
			sbx_lock(&text->lock);
			r = sbx_buf_resize(&text->lines, (size_t)attr->st_size);
			text->dirty = true;
			sbx_unlock(&text->lock);
		}
		if (r < 0) {
			sbx_reply_err(req, r);
			return;
		}
	}
	sbx_folder_op_setattr(req, node, attr, to_set, fi);
}

static void text_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	(void)node;
	text_free(text_of(fi));
	sbx_reply_err(req, 0);
}

static void text_fsync(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi)
{
	(void)node;
	(void)datasync;
	(void)fi;
	sbx_reply_err(req, 0);
}

static void text_readlink(fuse_req_t req, struct sbx_node *node)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct sbx_buf text = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	int r = alive(synth);

	if (r == 0)
		r = synth->file->flags & SBX_FILE_LINK ? synth->file->read(&synth->ref, &text, &err) : -EINVAL;
	if (r == 0 && text.len == 0)
		r = -ENOENT;
	if (r < 0)
		sbx_reply_err(req, r);
	else
		fuse_reply_readlink(req, text.data);
	sbx_buf_done(&text);
}

const struct sbx_node_ops sbx_text_ops = {
	.done = sbx_synth_done,
	.getattr = sbx_folder_op_getattr,
	.setattr = text_setattr,
	.readlink = text_readlink,
	.open = text_open,
	.read = text_read,
	.write_buf = text_write,
	.flush = text_flush,
	.release = text_release,
	.fsync = text_fsync,
};
