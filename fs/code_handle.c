/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: open code and scratch files: each handle that writes code has a text of its own, saved at RELEASE, which starts the
 * run.  Threads: any, see code.c.
 */
#include "code_file.h"

#include "base/clock.h"
#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "fs.h"
#include "gate.h"
#include "language.h"
#include "reply.h"
#include "slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER_MAX (64u * 1024 * 1024) /* bytes of all scratch files of one folder */

static struct code_handle *handle_of(struct fuse_file_info *fi)
{
	return (struct code_handle *)(uintptr_t)fi->fh;
}

static void handle_free(struct code_handle *handle)
{
	sbx_open_remove(&handle->open);
	sbx_buf_done(&handle->text);
	free(handle);
}

static void dirty_locked(struct code_handle *h)
{
	struct code_file *file = h->file;

	if (!h->dirty)
		file->codes->dirty_n++;
	h->dirty = true;
	h->flushed = false;
	if (!h->shared)
		file->latest = h;
	file->mtime = sbx_clock_wall();
}

static void handle_drop(struct sbx_open *open)
{
	struct code_handle *h = sbx_container_of(open, struct code_handle, open);
	struct codes *codes = h->file->codes;

	sbx_lock(&codes->lock);
	sbx_code_clean_locked(h);
	sbx_list_remove(&h->link);
	sbx_code_put_locked(h->file);
	sbx_unlock(&codes->lock);
	handle_free(h);
}

/* a handle for @fi->flags on @file, counted; -ENOMEM */
static int handle_new(fuse_req_t req, struct code_file *file, int flags, struct code_handle **ret)
{
	struct code_handle *h = calloc(1, sizeof(*h));
	int r = 0;

	if (!h)
		return -ENOMEM;
	sbx_open_add(&h->open, handle_drop);
	h->file = file;
	h->writes = (flags & O_ACCMODE) != O_RDONLY;
	h->append = (flags & O_APPEND) != 0;
	h->opener = fuse_req_ctx(req)->pid;
	sbx_list_init(&h->link);
	sbx_lock(&file->codes->lock);
	h->shared = !sbx_code_name(file->codes, file->name);
	if (h->writes && (flags & O_TRUNC)) {
		if (h->shared)
			sbx_buf_resize(&file->text, 0);
		h->append = h->append && h->shared; /* >> after a truncate is the whole text */
		dirty_locked(h);
	} else if (h->writes && !h->shared && !h->append) {
		r = sbx_buf_append(&h->text, sbx_buf_str(&file->text), file->text.len);
	}
	if (r == 0) {
		file->refs++;
		if (h->writes)
			sbx_list_append(&file->handles, &h->link);
	}
	sbx_unlock(&file->codes->lock);
	if (r < 0) {
		handle_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

static void op_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct code_handle *h;
	int r = sbx_box_deleted(code->ref.box) || sbx_slot_removed(code->ref.slot) ? -ESTALE : 0;

	if (r == 0)
		r = handle_new(req, code->file, fi->flags, &h);
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->keep_cache = 0; /* cached, else mmap(MAP_SHARED) is ENODEV; but not over an open */
	if (fuse_reply_open(req, fi) == -ENOENT)
		handle_drop(&h->open);
}

/* of a file that was just made; takes the caller's reference on @file */
static int node_and_attr(const struct sbx_ref *ref, struct code_file *file, struct sbx_node **ret, struct stat *attr)
{
	sbx_lock(&file->codes->lock);
	sbx_code_attr_locked(file, attr);
	sbx_unlock(&file->codes->lock);
	return sbx_code_node(ref, file, ret);
}

void sbx_code_create(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode,
		     struct fuse_file_info *fi)
{
	struct sbx_node *node;
	struct code_handle *h = NULL;
	struct code_file *file;
	struct stat attr;
	int r = sbx_code_file_new(ref, name, mode, NULL, &file);

	if (r == 0) {
		r = handle_new(req, file, fi->flags, &h);
		if (r < 0) {
			sbx_code_unlink(ref, name);
			sbx_lock(&file->codes->lock);
			sbx_code_put_locked(file);
			sbx_unlock(&file->codes->lock);
		}
	}
	if (r == 0) {
		r = node_and_attr(ref, file, &node, &attr);
		if (r < 0)
			handle_drop(&h->open);
	}
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->keep_cache = 0;
	if (sbx_reply_create(req, node, &attr, 0, 0, fi) == -ENOENT)
		handle_drop(&h->open);
}

/* answers MKNOD and SYMLINK with a new file */
static void answer_new(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode, const char *target)
{
	struct sbx_node *node;
	struct code_file *file;
	struct stat attr;
	int r = sbx_code_file_new(ref, name, mode, target, &file);

	if (r == 0)
		r = node_and_attr(ref, file, &node, &attr);
	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_reply_entry(req, node, &attr, 0, 0);
}

void sbx_code_mknod(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode)
{
	if (S_ISREG(mode))
		answer_new(req, ref, name, mode, NULL);
	else
		sbx_reply_err(req, -EPERM);
}

void sbx_code_symlink(fuse_req_t req, const struct sbx_ref *ref, const char *target, const char *name)
{
	struct codes *codes = sbx_codes_of(ref->slot);

	if (!codes)
		sbx_reply_err(req, -ENOMEM);
	else if (sbx_code_name(codes, name)) /* a link under a control name */
		sbx_reply_err(req, -EPERM);
	else
		answer_new(req, ref, name, 0777, target);
}

static void op_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct code_handle *h = handle_of(fi);
	struct code_file *file = h->file;
	struct sbx_buf out = SBX_BUF_INIT;
	const struct sbx_buf *parts[2];
	size_t skip = (size_t)off, i;
	int r = 0;

	(void)node;
	sbx_lock(&file->codes->lock);
	parts[0] = h->writes && !h->shared && !h->append ? &h->text : &file->text;
	parts[1] = h->writes && !h->shared && h->append ? &h->text : NULL;
	for (i = 0; i < 2 && parts[i] && out.len < size; i++) {
		size_t len = parts[i]->len;

		if (skip >= len) {
			skip -= len;
			continue;
		}
		len -= skip;
		if (len > size - out.len)
			len = size - out.len;
		r = sbx_buf_append(&out, parts[i]->data + skip, len);
		skip = 0;
	}
	sbx_unlock(&file->codes->lock);
	if (r < 0)
		sbx_reply_err(req, r);
	else
		fuse_reply_buf(req, out.data, out.len);
	sbx_buf_done(&out);
}

/* @h's text with @len bytes at @off; limits and policy are checked.  The lock is held. */
static int write_locked(struct code_handle *h, const char *bytes, size_t len, off_t off, struct sbx_err *err)
{
	struct code_file *file = h->file;
	struct sbx_buf *text = h->shared ? &file->text : &h->text;
	uint64_t limit = sbx_fs.config->code_bytes, have = h->append && !h->shared ? file->text.len : 0;
	int r;

	if (h->append)
		off = (off_t)text->len; /* the kernel's offset is a guess */
	if ((uint64_t)off + len + have > limit)
		return sbx_err_set(err, EFBIG, "code is at most %llu bytes here (code_max in the configuration)",
				   (unsigned long long)limit);
	if (h->shared && (uint64_t)off + len > text->len &&
	    sbx_code_folder_size_locked(file->codes) + ((uint64_t)off + len - text->len) > FOLDER_MAX)
		return sbx_err_set(err, ENOSPC, "scratch files in a run folder may have %u bytes together",
				   FOLDER_MAX);
	r = sbx_buf_write(text, (size_t)off, bytes, len);
	if (r < 0)
		return r;
	dirty_locked(h);
	h->refused = sbx_fs.deny_n > 0 && (!h->shared || sbx_code_starts_run_locked(file)) &&
		     sbx_code_denied(text->data, text->len, err);
	return h->refused ? -EACCES : 0;
}

static void op_write(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		     struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct code_handle *h = handle_of(fi);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf bytes = SBX_BUF_INIT;
	char name[NAME_MAX + 1] = "";
	ssize_t n = 0;
	int r;

	r = sbx_buf_flatten(&bytes, in, SIZE_MAX / 4); /* before the lock: it reads from the kernel's pipe */
	n = (ssize_t)bytes.len;
	if (r == 0) {
		sbx_lock(&h->file->codes->lock);
		r = write_locked(h, bytes.data, (size_t)n, off, &err);
		memcpy(name, h->file->name, sizeof(name));
		sbx_unlock(&h->file->codes->lock);
	}
	sbx_buf_done(&bytes);
	if (r == -EACCES)
		sbx_slot_refuse(code->ref.slot, name, &err);
	if (r == 0)
		fuse_reply_write(req, (size_t)n);
	else if (err.code)
		sbx_fail(req, code->ref.box, "write", name, &err, r);
	else
		sbx_reply_err(req, r);
}

static void op_flush(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct code_handle *h = handle_of(fi);

	(void)node;
	sbx_lock(&h->file->codes->lock);
	if (h->dirty)
		h->flushed = true;
	sbx_unlock(&h->file->codes->lock);
	sbx_reply_err(req, 0);
}

/* saves what the handle has; true: a run of @name with @text is to start */
static bool commit_locked(struct code_handle *h, char *name, struct sbx_buf *text, int *ret)
{
	struct code_file *file = h->file;

	*ret = 0;
	if (!h->dirty || h->refused)
		return false;
	if (!h->shared) {
		if (h->append) {
			*ret = sbx_buf_append(&file->text, sbx_buf_str(&h->text), h->text.len);
		} else {
			sbx_buf_done(&file->text);
			file->text = h->text;
			h->text = (struct sbx_buf)SBX_BUF_INIT;
		}
	}
	if (!sbx_code_starts_run_locked(file))
		return false;
	strcpy(name, file->name);
	if (*ret == 0)
		*ret = sbx_buf_append(text, sbx_buf_str(&file->text), file->text.len);
	return true;
}

static void op_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct code_handle *h = handle_of(fi);
	struct codes *codes = h->file->codes;
	struct sbx_buf text = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	char name[NAME_MAX + 1] = "";
	bool run, was_dirty;
	int r = 0;

	sbx_lock(&codes->lock);
	was_dirty = h->dirty;
	run = commit_locked(h, name, &text, &r);
	sbx_unlock(&codes->lock);
	/* what each write brought was let through; together, or with what was there before, it may not be */
	if (run && r == 0 && sbx_fs.deny_n > 0 && sbx_code_denied(sbx_buf_str(&text), text.len, &err))
		sbx_slot_refuse(code->ref.slot, name, &err);
	else if (run && r == 0)
		r = sbx_slot_run(code->ref.slot, name, sbx_buf_str(&text), text.len, &err);
	else if (run)
		sbx_err_set(&err, ENOMEM, "no memory for the code");
	/* readers look for dirty handles: this one goes only now that the run is the newest */
	handle_drop(&h->open);
	if (r < 0 && !sbx_box_deleted(code->ref.box)) /* nobody hears an error of RELEASE */
		sbx_box_fail(code->ref.box, "close", name, &err);
	if (was_dirty)
		sbx_gate_notify(&code->ref.slot->gate);
	sbx_buf_done(&text);
	sbx_reply_err(req, 0);
}

static void op_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct stat attr;

	(void)fi;
	if (sbx_box_deleted(code->ref.box)) {
		sbx_reply_err(req, -ESTALE);
		return;
	}
	sbx_lock(&code->file->codes->lock);
	sbx_code_attr_locked(code->file, &attr);
	if (!code->file->linked)
		attr.st_nlink = 0;
	sbx_unlock(&code->file->codes->lock);
	fuse_reply_attr(req, &attr, 0);
}

static void op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct code_file *file = code->file;
	struct code_handle *h = fi ? handle_of(fi) : NULL;
	struct stat now;
	int r = 0;

	if (sbx_box_deleted(code->ref.box))
		r = -ESTALE;
	if (((to_set & FUSE_SET_ATTR_UID) && attr->st_uid != sbx_fs.uid) ||
	    ((to_set & FUSE_SET_ATTR_GID) && attr->st_gid != sbx_fs.gid))
		r = -EPERM;
	if (r == 0 && (to_set & FUSE_SET_ATTR_SIZE) && (uint64_t)attr->st_size > sbx_fs.config->code_bytes)
		r = -EFBIG;
	sbx_lock(&file->codes->lock);
	if (r == 0 && (to_set & FUSE_SET_ATTR_SIZE)) {
		bool own = h && h->writes && !h->shared;

		if (own && h->append) { /* what is to be appended cannot be cut below the text: it becomes the whole */
			h->append = false;
			sbx_buf_done(&h->text);
			r = sbx_buf_append(&h->text, sbx_buf_str(&file->text), file->text.len);
		}
		if (r == 0 && !own && (uint64_t)attr->st_size > file->text.len &&
		    sbx_code_folder_size_locked(file->codes) + (uint64_t)attr->st_size - file->text.len > FOLDER_MAX)
			r = -ENOSPC;
		if (r == 0)
			r = sbx_buf_resize(own ? &h->text : &file->text, (size_t)attr->st_size);
		if (r == 0 && h && h->writes)
			dirty_locked(h);
	}
	if (r == 0 && (to_set & FUSE_SET_ATTR_MODE))
		file->mode = attr->st_mode & 07777;
	if (r == 0 && (to_set & FUSE_SET_ATTR_MTIME_NOW))
		file->mtime = sbx_clock_wall();
	else if (r == 0 && (to_set & FUSE_SET_ATTR_MTIME))
		file->mtime = attr->st_mtim;
	sbx_code_attr_locked(file, &now);
	sbx_unlock(&file->codes->lock);
	if (r < 0)
		sbx_reply_err(req, r);
	else
		fuse_reply_attr(req, &now, 0);
}

static void op_readlink(fuse_req_t req, struct sbx_node *node)
{
	struct code_node *code = (struct code_node *)node;

	if (code->file->target)
		fuse_reply_readlink(req, code->file->target);
	else
		sbx_reply_err(req, -EINVAL);
}

static void op_fsync(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi)
{
	(void)node;
	(void)datasync;
	(void)fi;
	sbx_reply_err(req, 0); /* a save is over at close, whatever was synced before */
}

static void node_done(struct sbx_node *node)
{
	struct code_node *code = (struct code_node *)node;
	struct codes *codes = code->file->codes;

	sbx_lock(&codes->lock);
	sbx_code_put_locked(code->file);
	sbx_unlock(&codes->lock);
	sbx_ref_put(&code->ref);
}

static struct sbx_box *op_box(const struct sbx_node *node)
{
	return sbx_container_of(node, const struct code_node, node)->ref.box;
}

const struct sbx_node_ops sbx_code_ops = {
	.box = op_box,
	.done = node_done,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.open = op_open,
	.read = op_read,
	.write_buf = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
};

