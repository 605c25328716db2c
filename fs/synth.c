/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: nodes and folders of control files: lookup, attributes, mkdir, rmdir, unlink.  Knows: synth.h's tables.  Any thread. */
#include "synth_own.h"

#include "base/buf.h"
#include "base/err.h"
#include "box.h"
#include "config.h"
#include "fs.h"
#include "reply.h"
#include "run.h"
#include "slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int sbx_synth_alive(const struct sbx_synth *node)
{
	if (node->ref.box && sbx_box_deleted(node->ref.box))
		return -ESTALE;
	if (node->parent && node->parent->alive)
		return node->parent->alive(&node->ref);
	if (node->folder && node->folder->alive)
		return node->folder->alive(&node->ref);
	return 0;
}

mode_t sbx_synth_type(const struct sbx_file *file)
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
	sbx_attr_init(attr, node->node.id, sbx_synth_type(node->file) | node->file->mode,
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
		if (folder)
			fresh->node.ops = folder->ops ? folder->ops : &sbx_folder_ops;
		else
			fresh->node.ops = file->ops ? file->ops : &sbx_text_ops;
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

struct sbx_box *sbx_synth_box(const struct sbx_node *node)
{
	return sbx_container_of(node, const struct sbx_synth, node)->ref.box;
}

/* ---- folders ---- */

/* what a line of @dir's table speaks about; not counted */
static struct sbx_ref line_ref(const struct sbx_synth *dir, const struct sbx_file *file)
{
	struct sbx_ref ref = dir->ref;

	if (file->arg)
		ref.arg = file->arg;
	return ref;
}

int sbx_folder_lookup(struct sbx_synth *dir, const char *name, struct sbx_node **ret, struct stat *attr)
{
	const struct sbx_file *file = sbx_folder_find(dir->folder, name);
	struct sbx_ref ref;
	int r = sbx_synth_alive(dir);

	if (r < 0)
		return r;
	if (!file)
		return dir->folder->lookup ? dir->folder->lookup(&dir->ref, name, ret, attr) : -ENOENT;
	if (file->node)
		return file->node(&dir->ref, file, ret, attr);
	ref = line_ref(dir, file);
	return sbx_synth_node(&ref, dir->folder, file, file->folder, sbx_ref_ino(&dir->ref, file->index), ret,
			      attr);
}

/*
 * How long the kernel need not ask for a name again: for a path through BOX/run or BOX/workspace this saves two of three
 * questions.  rmdir() makes the kernel forget at once; a box that goes by itself answers ESTALE, and then the kernel asks.
 * Attributes are not kept longer than a listing takes: through them a handle of a deleted box would still look alive.
 */
double sbx_synth_entry_timeout_s(const struct sbx_synth *dir, const char *name, const struct stat *attr)
{
	if (!S_ISDIR(attr->st_mode))
		return 0;
	if (sbx_fs.boxes_go && dir->folder == &sbx_root_folder) /* a new box may have that name at once */
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
		sbx_reply_entry(req, node, &attr, 0, sbx_synth_entry_timeout_s(synth, name, &attr));
}

void sbx_folder_op_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct stat attr;
	int r = sbx_synth_alive(synth);

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
	int r = sbx_synth_alive(synth);

	(void)mode;
	if (r == 0 && sbx_folder_find(synth->folder, name))
		r = -EEXIST;
	if (r == 0 && !synth->folder->mkdir)
		r = -EPERM;
	if (r == 0)
		r = synth->folder->mkdir(&synth->ref, name, &node, &attr, &err);
	if (r == 0)
		sbx_reply_entry(req, node, &attr, 0, sbx_synth_entry_timeout_s(synth, name, &attr));
	else if (err.code)
		sbx_fail(req, synth->ref.box, "mkdir", name, &err, r);
	else
		sbx_reply_err(req, r);
}

/*
 * A folder that stays: nothing changes, so that rm -rf BOX ends in the delete.  But the kernel holds the folder for dead from now
 * on, for all who find it there: they shall find a new one.
 */
static int rmdir_fixed(struct sbx_synth *dir, const char *name)
{
	struct sbx_node *node;
	struct stat attr;
	int r = sbx_folder_lookup(dir, name, &node, &attr);

	if (r < 0)
		return r;
	if (S_ISDIR(attr.st_mode))
		sbx_node_unhash(node);
	else
		r = -ENOTDIR;
	sbx_node_forget(node, 1);
	return r;
}

void sbx_folder_op_rmdir(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_synth *synth = sbx_synth_of(dir);
	struct sbx_err err = SBX_ERR_INIT;
	int r = sbx_synth_alive(synth);

	if (r == 0 && (sbx_folder_find(synth->folder, name) || !synth->folder->rmdir))
		r = rmdir_fixed(synth, name);
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
	int r = sbx_synth_alive(synth);

	if (r == 0 && !file) {
		r = unlink_found(synth, name);
	} else if (r == 0 && file->folder) {
		r = -EISDIR;
	} else if (r == 0 && file->reset) {
		struct sbx_ref ref = line_ref(synth, file);

		file->reset(&ref);
	}
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

const struct sbx_node_ops sbx_folder_ops = {
	.box = sbx_synth_box,
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
