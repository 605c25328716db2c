/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: code and scratch files of run folders, and the handles that write them.
 * Knows: slot.h (to start runs), language.h (which names are code).
 * Threads: any; all of one folder's files are guarded by its one lock, which is never held across a call to lib/ or libfuse.
 * (..._locked: the folder's lock is held; clang cannot follow file->codes->lock to codes->lock, so it is not annotated.)
 */
#include "code.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/text.h"
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

#define FILES_MAX 256			 /* code and scratch files of one folder */
#define FOLDER_MAX (64u * 1024 * 1024) /* bytes of all of them */

struct codes;

struct file {
	struct codes *codes; /* as long as the slot, which every holder holds */
	unsigned int refs;   /* guarded by codes->lock: list, node, handles */
	struct sbx_list link; /* guarded by codes->lock */
	bool linked;	      /* guarded by codes->lock */
	char name[NAME_MAX + 1]; /* guarded by codes->lock */
	uint64_t ino;
	char *target;	      /* a symlink's, fixed; NULL: a regular file */
	mode_t mode;	      /* guarded by codes->lock: permission bits */
	struct timespec mtime; /* guarded by codes->lock */
	struct sbx_buf text;  /* guarded by codes->lock: what was saved last */
	struct sbx_list handles; /* guarded by codes->lock: those that write */
	struct handle *latest;	 /* guarded by codes->lock: wrote last, and is dirty */
};

struct handle {
	struct file *file;
	struct sbx_list link;
	bool writes, append;
	bool shared;  /* of a scratch file: writes go to the file at once */
	pid_t opener; /* thread that opened it */
	/* guarded by codes->lock: */
	struct sbx_buf text; /* private: the whole text, or with @append what is added */
	bool dirty, flushed, refused;
};

struct codes {
	struct sbx_lock lock;
	struct sbx_list files; /* guarded by lock */
	unsigned int files_n;  /* guarded by lock */
	unsigned int dirty_n;  /* guarded by lock: dirty handles */
};

struct code_node {
	struct sbx_node node;
	struct sbx_ref ref;
	struct file *file;
};

static const struct sbx_node_ops code_ops;

static void codes_free(void *data)
{
	struct codes *codes = data;
	struct sbx_list *i, *tmp;

	sbx_list_for_each_safe (i, tmp, &codes->files) {
		struct file *file = sbx_container_of(i, struct file, link);

		free(file->target);
		sbx_buf_done(&file->text);
		free(file);
	}
	sbx_lock_done(&codes->lock);
	free(codes);
}

static struct sbx_lock make_lock = SBX_LOCK_INIT;

/* the slot's files; made at the first use.  NULL: no memory */
static struct codes *codes_of(struct sbx_slot *slot)
{
	struct codes *codes;

	sbx_lock(&make_lock);
	codes = slot->files;
	if (!codes) {
		codes = calloc(1, sizeof(*codes));
		if (codes) {
			sbx_lock_init(&codes->lock);
			sbx_list_init(&codes->files);
			slot->files_free = codes_free;
			slot->files = codes;
		}
	}
	sbx_unlock(&make_lock);
	return codes;
}

static void file_put_locked(struct file *file)
{
	if (--file->refs > 0)
		return;
	free(file->target);
	sbx_buf_done(&file->text);
	free(file);
}

static struct file *find_locked(struct codes *codes, const char *name) SBX_REQUIRES(codes->lock)
{
	struct sbx_list *i;

	sbx_list_for_each (i, &codes->files) {
		struct file *file = sbx_container_of(i, struct file, link);

		if (strcmp(file->name, name) == 0)
			return file;
	}
	return NULL;
}

static void unlink_locked(struct file *file)
{
	sbx_list_remove(&file->link);
	file->codes->files_n--;
	file->linked = false;
	file_put_locked(file);
}

static bool is_code(const char *name)
{
	return sbx_language_of_name(sbx_fs.config, name) != NULL;
}

/* a dirty handle of it means: a run is about to start */
static bool starts_run_locked(const struct file *file)
{
	return file->linked && !file->target && is_code(file->name);
}

static void attr_locked(const struct file *file, struct stat *attr)
{
	uint64_t size = file->text.len;

	if (file->target)
		size = strlen(file->target);
	else if (file->latest) /* fstat() carries no handle: else ftruncate + mmap fails */
		size = file->latest->text.len + (file->latest->append ? size : 0);
	sbx_attr_init(attr, file->ino, file->target ? S_IFLNK | 0777 : S_IFREG | file->mode, size);
	attr->st_mtim = attr->st_ctim = attr->st_atim = file->mtime;
}

static uint64_t folder_size_locked(struct codes *codes) SBX_REQUIRES(codes->lock)
{
	struct sbx_list *i;
	uint64_t size = 0;

	sbx_list_for_each (i, &codes->files)
		size += sbx_container_of(i, struct file, link)->text.len;
	return size;
}

/* ---- nodes ---- */

static void node_done(struct sbx_node *node)
{
	struct code_node *code = (struct code_node *)node;
	struct codes *codes = code->file->codes;

	sbx_lock(&codes->lock);
	file_put_locked(code->file);
	sbx_unlock(&codes->lock);
	sbx_ref_put(&code->ref);
}

/* takes the caller's reference on @file */
static int node_for(const struct sbx_ref *ref, struct file *file, struct sbx_node **ret)
{
	struct code_node *fresh = calloc(1, sizeof(*fresh));
	struct sbx_node *node;

	if (fresh) {
		fresh->node.ops = &code_ops;
		fresh->ref = sbx_ref_get(ref);
		fresh->file = file;
		node = sbx_node_add(&fresh->node, NULL, file->ino);
		if (node == &fresh->node) {
			*ret = node;
			return 0;
		}
		sbx_ref_put(&fresh->ref);
		free(fresh);
		*ret = node;
	}
	sbx_lock(&file->codes->lock);
	file_put_locked(file);
	sbx_unlock(&file->codes->lock);
	return fresh ? 0 : -ENOMEM;
}

int sbx_code_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct codes *codes = codes_of(ref->slot);
	struct file *file;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (file) {
		file->refs++;
		attr_locked(file, attr);
	}
	sbx_unlock(&codes->lock);
	return file ? node_for(ref, file, ret) : -ENOENT;
}

bool sbx_code_exists(struct sbx_slot *slot, const char *name)
{
	struct codes *codes = codes_of(slot);
	bool there;

	if (!codes)
		return false;
	sbx_lock(&codes->lock);
	there = find_locked(codes, name) != NULL;
	sbx_unlock(&codes->lock);
	return there;
}

int sbx_code_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct codes *codes = codes_of(ref->slot);
	struct sbx_list *i;
	int r = 0;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	sbx_list_for_each (i, &codes->files) {
		struct file *file = sbx_container_of(i, struct file, link);

		if (r == 0)
			r = sbx_names_add(names, file->name, file->ino, file->target ? S_IFLNK : S_IFREG);
	}
	sbx_unlock(&codes->lock);
	return r;
}

/* a new file in the folder, with one reference more for the caller; -EEXIST, -ENOSPC, -ENAMETOOLONG, -ENOMEM */
static int add_file(const struct sbx_ref *ref, const char *name, mode_t mode, const char *target,
		    struct file **ret)
{
	struct codes *codes = codes_of(ref->slot);
	struct file *file;
	int r = 0;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	file = codes ? calloc(1, sizeof(*file)) : NULL;
	if (!file)
		return -ENOMEM;
	file->codes = codes;
	file->refs = 2;
	file->linked = true;
	strcpy(file->name, name);
	file->ino = sbx_catalog_ino(sbx_fs.catalog);
	file->mode = mode & 07777;
	file->mtime = sbx_clock_wall();
	sbx_list_init(&file->handles);
	if (target) {
		file->target = strdup(target);
		if (!file->target)
			r = -ENOMEM;
	}
	sbx_lock(&codes->lock);
	if (r == 0 && find_locked(codes, name))
		r = -EEXIST;
	if (r == 0 && codes->files_n >= FILES_MAX)
		r = -ENOSPC;
	if (r == 0) {
		sbx_list_append(&codes->files, &file->link);
		codes->files_n++;
	}
	sbx_unlock(&codes->lock);
	if (r < 0) {
		free(file->target);
		free(file);
		return r;
	}
	*ret = file;
	return 0;
}

/* ---- policy ---- */

/* does a pattern of policy.deny match? Then the reason is set. */
static bool denied(const char *text, size_t len, struct sbx_err *err)
{
	size_t i;

	for (i = 0; i < sbx_fs.deny_n; i++) {
		regmatch_t range = { .rm_so = 0, .rm_eo = (regoff_t)len };

		if (regexec(&sbx_fs.deny[i], text, 1, &range, REG_STARTEND) == 0) {
			sbx_err_set(err, EACCES, "refused by policy.deny, pattern %zu: %s", i + 1,
				    sbx_fs.config->policy_deny[i]);
			return true;
		}
	}
	return false;
}

/* ---- handles ---- */

static struct handle *handle_of(struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

static void handle_free(struct handle *handle)
{
	sbx_buf_done(&handle->text);
	free(handle);
}

static void dirty_locked(struct handle *h)
{
	struct file *file = h->file;

	if (!h->dirty)
		file->codes->dirty_n++;
	h->dirty = true;
	h->flushed = false;
	if (!h->shared)
		file->latest = h;
	file->mtime = sbx_clock_wall();
}

static void clean_locked(struct handle *h)
{
	if (h->dirty)
		h->file->codes->dirty_n--;
	h->dirty = false;
	if (h->file->latest == h)
		h->file->latest = NULL;
}

/* a handle for @fi->flags on @file, counted; -ENOMEM */
static int handle_new(fuse_req_t req, struct file *file, int flags, struct handle **ret)
{
	struct handle *h = calloc(1, sizeof(*h));
	int r = 0;

	if (!h)
		return -ENOMEM;
	h->file = file;
	h->writes = (flags & O_ACCMODE) != O_RDONLY;
	h->append = (flags & O_APPEND) != 0;
	h->opener = fuse_req_ctx(req)->pid;
	sbx_list_init(&h->link);
	sbx_lock(&file->codes->lock);
	h->shared = !is_code(file->name);
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
	struct handle *h;
	int r = sbx_box_deleted(code->ref.box) || sbx_slot_removed(code->ref.slot) ? -ESTALE : 0;

	if (r == 0)
		r = handle_new(req, code->file, fi->flags, &h);
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->keep_cache = 0; /* cached, else mmap(MAP_SHARED) is ENODEV; but not over an open */
	fuse_reply_open(req, fi);
}

void sbx_code_create(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode,
		     struct fuse_file_info *fi)
{
	struct sbx_node *node;
	struct handle *h = NULL;
	struct file *file;
	struct stat attr;
	int r = add_file(ref, name, mode, NULL, &file);

	if (r == 0)
		r = handle_new(req, file, fi->flags, &h);
	if (r == 0) {
		sbx_lock(&file->codes->lock);
		attr_locked(file, &attr);
		sbx_unlock(&file->codes->lock);
		r = node_for(ref, file, &node);
	}
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	fi->fh = (uint64_t)(uintptr_t)h;
	fi->keep_cache = 0;
	sbx_reply_create(req, node, &attr, 0, 0, fi);
}

void sbx_code_mknod(fuse_req_t req, const struct sbx_ref *ref, const char *name, mode_t mode)
{
	struct sbx_node *node;
	struct file *file;
	struct stat attr;
	int r = S_ISREG(mode) ? add_file(ref, name, mode, NULL, &file) : -EPERM;

	if (r == 0) {
		sbx_lock(&file->codes->lock);
		attr_locked(file, &attr);
		sbx_unlock(&file->codes->lock);
		r = node_for(ref, file, &node);
	}
	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_reply_entry(req, node, &attr, 0, 0);
}

void sbx_code_symlink(fuse_req_t req, const struct sbx_ref *ref, const char *target, const char *name)
{
	struct sbx_node *node;
	struct file *file;
	struct stat attr;
	int r = is_code(name) ? -EPERM : add_file(ref, name, 0777, target, &file);

	if (r == 0) {
		sbx_lock(&file->codes->lock);
		attr_locked(file, &attr);
		sbx_unlock(&file->codes->lock);
		r = node_for(ref, file, &node);
	}
	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_reply_entry(req, node, &attr, 0, 0);
}

static void op_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	struct file *file = h->file;
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
static int write_locked(struct handle *h, const char *bytes, size_t len, off_t off, struct sbx_err *err)
{
	struct file *file = h->file;
	struct sbx_buf *text = h->shared ? &file->text : &h->text;
	uint64_t limit = sbx_fs.config->code_bytes, have = h->append && !h->shared ? file->text.len : 0;
	int r;

	if (h->append)
		off = (off_t)text->len; /* the kernel's offset is a guess */
	if ((uint64_t)off + len + have > limit)
		return sbx_err_set(err, EFBIG, "code is at most %llu bytes here (code_max in the configuration)",
				   (unsigned long long)limit);
	if (h->shared && (uint64_t)off + len > text->len &&
	    folder_size_locked(file->codes) + ((uint64_t)off + len - text->len) > FOLDER_MAX)
		return sbx_err_set(err, ENOSPC, "scratch files in a run folder may have %u bytes together",
				   FOLDER_MAX);
	r = sbx_buf_write(text, (size_t)off, bytes, len);
	if (r < 0)
		return r;
	dirty_locked(h);
	if (sbx_fs.deny_n > 0 && !h->shared && denied(text->data, text->len, err)) {
		h->refused = true;
		return -EACCES;
	}
	return 0;
}

static void op_write(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		     struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct handle *h = handle_of(fi);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf bytes = SBX_BUF_INIT;
	struct fuse_bufvec flat = FUSE_BUFVEC_INIT(fuse_buf_size(in));
	char name[NAME_MAX + 1] = "";
	ssize_t n = 0;
	int r;

	r = sbx_buf_resize(&bytes, flat.buf[0].size);
	if (r == 0) { /* before the lock: it reads from the kernel's pipe */
		flat.buf[0].mem = bytes.data;
		n = fuse_buf_copy(&flat, in, 0);
		r = n < 0 ? (int)n : 0;
	}
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
	struct handle *h = handle_of(fi);

	(void)node;
	sbx_lock(&h->file->codes->lock);
	if (h->dirty)
		h->flushed = true;
	sbx_unlock(&h->file->codes->lock);
	sbx_reply_err(req, 0);
}

/* saves what the handle has; true: a run of @name with @text is to start */
static bool commit_locked(struct handle *h, char *name, struct sbx_buf *text, int *ret)
{
	struct file *file = h->file;

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
	if (!starts_run_locked(file))
		return false;
	strcpy(name, file->name);
	if (*ret == 0)
		*ret = sbx_buf_append(text, sbx_buf_str(&file->text), file->text.len);
	return true;
}

static void op_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct handle *h = handle_of(fi);
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
	if (run && r == 0)
		r = sbx_slot_run(code->ref.slot, name, sbx_buf_str(&text), text.len, &err);
	else if (run)
		sbx_err_set(&err, ENOMEM, "no memory for the code");
	/* readers look for dirty handles: this one goes only now that the run is the newest */
	sbx_lock(&codes->lock);
	clean_locked(h);
	sbx_list_remove(&h->link);
	file_put_locked(h->file);
	sbx_unlock(&codes->lock);
	if (r < 0 && !sbx_box_deleted(code->ref.box)) /* nobody hears an error of RELEASE */
		sbx_box_fail(code->ref.box, "close", name, &err);
	if (was_dirty)
		sbx_gate_notify(&code->ref.slot->gate);
	sbx_buf_done(&text);
	handle_free(h);
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
	attr_locked(code->file, &attr);
	if (!code->file->linked)
		attr.st_nlink = 0;
	sbx_unlock(&code->file->codes->lock);
	fuse_reply_attr(req, &attr, 0);
}

static void op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct code_node *code = (struct code_node *)node;
	struct file *file = code->file;
	struct handle *h = fi ? handle_of(fi) : NULL;
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
	attr_locked(file, &now);
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

static const struct sbx_node_ops code_ops = {
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

/* ---- names ---- */

int sbx_code_unlink(const struct sbx_ref *ref, const char *name)
{
	struct codes *codes = codes_of(ref->slot);
	struct file *file;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (file) {
		struct sbx_list *i;

		sbx_list_for_each (i, &file->handles) /* nothing of it runs any more */
			clean_locked(sbx_container_of(i, struct handle, link));
		unlink_locked(file);
	}
	sbx_unlock(&codes->lock);
	if (file)
		sbx_gate_notify(&ref->slot->gate);
	return file ? 0 : -ENOENT;
}

/* what is open and dirty is saved now, so that the name's text is whole, and does not run a second time at its RELEASE */
static void settle_locked(struct file *file)
{
	struct sbx_list *i;

	sbx_list_for_each (i, &file->handles) {
		struct handle *h = sbx_container_of(i, struct handle, link);

		if (!h->dirty || h->refused)
			continue;
		if (!h->shared && h->append) {
			sbx_buf_append(&file->text, sbx_buf_str(&h->text), h->text.len);
			h->text.len = 0;
		} else if (!h->shared && h == file->latest) {
			sbx_buf_resize(&file->text, 0);
			sbx_buf_append(&file->text, sbx_buf_str(&h->text), h->text.len);
		}
		clean_locked(h);
	}
}

/* the text of @file for a run, if its name is code now; @ret stays empty and false comes otherwise */
static bool text_locked(struct file *file, struct sbx_buf *ret, int *r)
{
	if (!starts_run_locked(file))
		return false;
	settle_locked(file);
	*r = sbx_buf_append(ret, sbx_buf_str(&file->text), file->text.len);
	return true;
}

void sbx_code_rename(fuse_req_t req, const struct sbx_ref *ref, const char *name, const char *new_name,
		     unsigned int flags, const struct sbx_file *setting)
{
	struct codes *codes = codes_of(ref->slot);
	struct sbx_buf text = SBX_BUF_INIT, other_text = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	bool run = false, other_run = false;
	struct file *file, *other;
	int r = 0;

	if (!codes || strlen(new_name) > NAME_MAX) {
		sbx_reply_err(req, codes ? -ENAMETOOLONG : -ENOMEM);
		return;
	}
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	other = find_locked(codes, new_name);
	if (!file || ((flags & RENAME_EXCHANGE) && !other))
		r = -ENOENT;
	else if ((flags & RENAME_NOREPLACE) && other)
		r = -EEXIST;
	else if ((is_code(new_name) || setting) && file->target)
		r = -EPERM; /* a link under a control name */
	else if ((flags & RENAME_EXCHANGE) && other->target && is_code(name))
		r = -EPERM;
	if (r == 0 && (setting || is_code(new_name))) {
		settle_locked(file);
		if (!setting && sbx_fs.deny_n > 0 && denied(sbx_buf_str(&file->text), file->text.len, &err))
			r = -EACCES;
	}
	if (r == 0 && setting) { /* sed -i args: the file's text is the value, and the file is gone */
		r = sbx_buf_append(&text, sbx_buf_str(&file->text), file->text.len);
		if (r == 0)
			unlink_locked(file);
	} else if (r == 0 && (flags & RENAME_EXCHANGE)) {
		strcpy(file->name, new_name);
		strcpy(other->name, name);
		run = text_locked(file, &text, &r);
		if (r == 0)
			other_run = text_locked(other, &other_text, &r);
	} else if (r == 0 && file != other) {
		if (other) {
			struct sbx_list *i;

			sbx_list_for_each (i, &other->handles)
				clean_locked(sbx_container_of(i, struct handle, link));
			unlink_locked(other);
		}
		strcpy(file->name, new_name);
		run = text_locked(file, &text, &r);
	}
	sbx_unlock(&codes->lock);
	if (r == -EACCES)
		sbx_slot_refuse(ref->slot, new_name, &err);
	if (r == 0 && setting)
		r = setting->write(ref, sbx_buf_str(&text), text.len, &err);
	if (r == 0 && other_run)
		r = sbx_slot_run(ref->slot, name, sbx_buf_str(&other_text), other_text.len, &err);
	if (r == 0 && run)
		r = sbx_slot_run(ref->slot, new_name, sbx_buf_str(&text), text.len, &err);
	sbx_gate_notify(&ref->slot->gate);
	sbx_buf_done(&text);
	sbx_buf_done(&other_text);
	if (r < 0 && err.code)
		sbx_fail(req, ref->box, "rename", new_name, &err, r);
	else
		sbx_reply_err(req, r);
}

/* ---- what readers ask ---- */

/* gone, or a zombie that only waits to be reaped */
static bool thread_gone(pid_t tid)
{
	char path[64], text[512], *p;
	ssize_t n;
	int fd;

	if (tid == 0) /* of another pid namespace: cannot be told, so the longer wait */
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return true;
	text[n] = '\0';
	p = strrchr(text, ')');
	return !p || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X';
}

enum sbx_saving sbx_code_saving(struct sbx_slot *slot)
{
	enum sbx_saving saving = SBX_SAVING_NOT;
	struct codes *codes = codes_of(slot);
	pid_t openers[8];
	unsigned int n = 0;
	struct sbx_list *i, *k;

	if (!codes)
		return SBX_SAVING_NOT;
	sbx_lock(&codes->lock);
	if (codes->dirty_n > 0) {
		sbx_list_for_each (i, &codes->files) {
			struct file *file = sbx_container_of(i, struct file, link);

			if (!starts_run_locked(file))
				continue;
			sbx_list_for_each (k, &file->handles) {
				struct handle *h = sbx_container_of(k, struct handle, link);

				if (!h->dirty || h->refused)
					continue;
				if (h->flushed)
					saving = SBX_SAVING_CLOSING;
				else if (saving == SBX_SAVING_NOT)
					saving = SBX_SAVING_WRITING;
				if (!h->flushed && n < 8)
					openers[n++] = h->opener;
			}
		}
	}
	sbx_unlock(&codes->lock);
	while (saving == SBX_SAVING_WRITING && n > 0) {
		if (thread_gone(openers[--n]))
			saving = SBX_SAVING_CLOSING;
	}
	return saving;
}

bool sbx_code_held_by(struct sbx_slot *slot, pid_t pid)
{
	struct codes *codes = codes_of(slot);
	uint64_t inos[16];
	unsigned int n = 0, k;
	struct sbx_list *i;
	struct dirent *entry;
	char path[64];
	bool found = false;
	DIR *dir;

	if (!codes || pid == 0)
		return false;
	sbx_lock(&codes->lock);
	sbx_list_for_each (i, &codes->files) {
		struct file *file = sbx_container_of(i, struct file, link);

		if (starts_run_locked(file) && file->latest && n < 16)
			inos[n++] = file->ino;
	}
	sbx_unlock(&codes->lock);
	if (n == 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	dir = opendir(path);
	if (!dir)
		return false; /* another user's: the bounded wait decides */
	while (!found && (entry = readdir(dir))) {
		char text[512], *line;
		unsigned long long ino;
		unsigned int flags;
		ssize_t len;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (len <= 0)
			continue;
		text[len] = '\0';
		line = strstr(text, "flags:");
		if (!line || sscanf(line, "flags: %o", &flags) != 1 || (flags & O_ACCMODE) == O_RDONLY)
			continue;
		line = strstr(text, "\nino:");
		if (!line || sscanf(line, "\nino: %llu", &ino) != 1)
			continue;
		for (k = 0; k < n; k++)
			found = found || inos[k] == ino;
	}
	closedir(dir);
	return found;
}
