/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: code and scratch files of run folders by name: lookup, unlink, rename.
 * Knows: slot.h (to start runs), language.h (which names are code).
 * Threads: any; all of one folder's files are guarded by its one lock, which is never held across a call to lib/ or libfuse.
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

#define FILES_MAX 256 /* code and scratch files of one folder */

static void codes_free(void *data)
{
	struct codes *codes = data;
	struct sbx_list *i, *tmp;

	sbx_list_for_each_safe (i, tmp, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);

		free(file->target);
		sbx_buf_done(&file->text);
		free(file);
	}
	sbx_lock_done(&codes->lock);
	free(codes);
}

static struct sbx_lock make_lock = SBX_LOCK_INIT;

/* the slot's files; made at the first use.  NULL: no memory */
struct codes *sbx_codes_of(struct sbx_slot *slot)
{
	struct codes *codes;

	sbx_lock(&make_lock);
	codes = slot->files;
	if (!codes) {
		codes = calloc(1, sizeof(*codes));
		if (codes) {
			sbx_lock_init(&codes->lock);
			sbx_list_init(&codes->files);
			codes->languages = sbx_box_languages(slot->box);
			slot->files_free = codes_free;
			slot->files = codes;
		}
	}
	sbx_unlock(&make_lock);
	return codes;
}

void sbx_code_put_locked(struct code_file *file)
{
	if (--file->refs > 0)
		return;
	free(file->target);
	sbx_buf_done(&file->text);
	free(file);
}

static struct code_file *find_locked(struct codes *codes, const char *name) SBX_REQUIRES(codes->lock)
{
	struct sbx_list *i;

	sbx_list_for_each (i, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);

		if (strcmp(file->name, name) == 0)
			return file;
	}
	return NULL;
}

static void unlink_locked(struct code_file *file)
{
	sbx_list_remove(&file->link);
	file->codes->files_n--;
	file->linked = false;
	sbx_code_put_locked(file);
}

bool sbx_code_name(const struct codes *codes, const char *name)
{
	return sbx_language_of_name(codes->languages, name) != NULL;
}

/* a dirty handle of it means: a run is about to start */
bool sbx_code_starts_run_locked(const struct code_file *file)
{
	return file->linked && !file->target && !file->folder && sbx_code_name(file->codes, file->name);
}

void sbx_code_attr_locked(const struct code_file *file, struct stat *attr)
{
	uint64_t size = file->text.len;

	if (file->target)
		size = strlen(file->target);
	else if (file->latest) /* fstat() carries no handle: else ftruncate + mmap fails */
		size = file->latest->text.len + (file->latest->append ? size : 0);
	sbx_attr_init(attr, file->ino, file->target ? S_IFLNK | 0777 : S_IFREG | file->mode, size);
	attr->st_mtim = attr->st_ctim = attr->st_atim = file->mtime;
}

uint64_t sbx_code_folder_size_locked(struct codes *codes)
{
	struct sbx_list *i;
	uint64_t size = 0;

	sbx_list_for_each (i, &codes->files)
		size += sbx_container_of(i, struct code_file, link)->text.len;
	return size;
}

/* ---- nodes ---- */

/* takes the caller's reference on @file */
int sbx_code_node(const struct sbx_ref *ref, struct code_file *file, struct sbx_node **ret)
{
	struct code_node *fresh = calloc(1, sizeof(*fresh));
	struct codes *codes = file->codes;
	struct sbx_node *node;

	if (fresh) {
		fresh->node.ops = &sbx_code_ops;
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
	sbx_lock(&codes->lock);
	sbx_code_put_locked(file);
	sbx_unlock(&codes->lock);
	return fresh ? 0 : -ENOMEM;
}

int sbx_code_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	struct code_file *file;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (file && file->folder) /* its node is tree_scratch.c's */
		file = NULL;
	if (file) {
		file->refs++;
		sbx_code_attr_locked(file, attr);
	}
	sbx_unlock(&codes->lock);
	return file ? sbx_code_node(ref, file, ret) : -ENOENT;
}

bool sbx_code_exists(struct sbx_slot *slot, const char *name)
{
	struct codes *codes = sbx_codes_of(slot);
	bool there;

	if (!codes)
		return false;
	sbx_lock(&codes->lock);
	there = find_locked(codes, name) != NULL;
	sbx_unlock(&codes->lock);
	return there;
}

/* the name of @name in @folder; NULL: it is not in it */
static const char *name_in(const char *name, const char *folder)
{
	size_t n = folder ? strlen(folder) : 0;

	if (!folder)
		return strchr(name, '/') ? NULL : name;
	return strncmp(name, folder, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

static mode_t type_of(const struct code_file *file)
{
	return file->folder ? S_IFDIR : file->target ? S_IFLNK : S_IFREG;
}

int sbx_code_list(const struct sbx_ref *ref, const char *folder, struct sbx_names *names)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	struct sbx_list *i;
	int r = 0;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	sbx_list_for_each (i, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);
		const char *name = name_in(file->name, folder);

		if (r == 0 && name)
			r = sbx_names_add(names, name, file->ino, type_of(file));
	}
	sbx_unlock(&codes->lock);
	return r;
}

/* the scratch folder of the name's first @len bytes */
static bool holder_locked(struct codes *codes, const char *name, size_t len) SBX_REQUIRES(codes->lock)
{
	struct sbx_list *i;

	sbx_list_for_each (i, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);

		if (file->folder && strlen(file->name) == len && memcmp(file->name, name, len) == 0)
			return true;
	}
	return false;
}

/* a new file in the folder, with one reference more for the caller; -EEXIST, -ENOSPC, -ENAMETOOLONG, -ENOMEM */
int sbx_code_file_new(const struct sbx_ref *ref, const char *name, mode_t mode, const char *target,
		    struct code_file **ret)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	const char *slash = strchr(name, '/');
	struct code_file *file;
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
	file->ino = sbx_catalog_ino(sbx_fs.catalog, 1);
	file->mode = mode & 07777;
	file->folder = S_ISDIR(mode);
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
	if (r == 0 && slash && !holder_locked(codes, name, (size_t)(slash - name)))
		r = -ESTALE; /* removed since it was looked up */
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
bool sbx_code_denied(const char *text, size_t len, struct sbx_err *err)
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

void sbx_code_clean_locked(struct code_handle *h)
{
	if (h->dirty)
		h->file->codes->dirty_n--;
	h->dirty = false;
	if (h->file->latest == h)
		h->file->latest = NULL;
}

/* ---- names ---- */

int sbx_code_unlink(const struct sbx_ref *ref, const char *name)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	struct code_file *file;
	int r = -ENOENT;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (file && file->folder) {
		r = -EISDIR;
	} else if (file) {
		struct sbx_list *i;

		r = 0;
		sbx_list_for_each (i, &file->handles) /* nothing of it runs any more */
			sbx_code_clean_locked(sbx_container_of(i, struct code_handle, link));
		unlink_locked(file);
	}
	sbx_unlock(&codes->lock);
	if (r == 0)
		sbx_gate_notify(&ref->slot->gate);
	return r;
}

/* ---- scratch folders ---- */

int sbx_code_folder_new(const struct sbx_ref *ref, const char *name, uint64_t *ret_ino)
{
	struct code_file *file;
	int r = sbx_code_file_new(ref, name, S_IFDIR | 0755, NULL, &file);

	if (r < 0)
		return r;
	*ret_ino = file->ino;
	sbx_lock(&file->codes->lock);
	sbx_code_put_locked(file);
	sbx_unlock(&file->codes->lock);
	return 0;
}

int sbx_code_folder_find(struct sbx_slot *slot, const char *name, uint64_t *ret_ino)
{
	struct codes *codes = sbx_codes_of(slot);
	struct code_file *file;
	int r = -ENOENT;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (file && file->folder) {
		*ret_ino = file->ino;
		r = 0;
	}
	sbx_unlock(&codes->lock);
	return r;
}

int sbx_code_folder_name(struct sbx_slot *slot, uint64_t ino, char ret[NAME_MAX + 1])
{
	struct codes *codes = sbx_codes_of(slot);
	struct sbx_list *i;
	int r = -ESTALE;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	sbx_list_for_each (i, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);

		if (file->folder && file->ino == ino) {
			strcpy(ret, file->name);
			r = 0;
		}
	}
	sbx_unlock(&codes->lock);
	return r;
}

int sbx_code_folder_remove(const struct sbx_ref *ref, const char *name)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	struct code_file *file;
	struct sbx_list *i;
	int r = 0;

	if (!codes)
		return -ENOMEM;
	sbx_lock(&codes->lock);
	file = find_locked(codes, name);
	if (!file)
		r = -ENOENT;
	else if (!file->folder)
		r = -ENOTDIR;
	sbx_list_for_each (i, &codes->files) {
		if (r == 0 && name_in(sbx_container_of(i, struct code_file, link)->name, name))
			r = -ENOTEMPTY;
	}
	if (r == 0)
		unlink_locked(file);
	sbx_unlock(&codes->lock);
	return r;
}

/* what is open and dirty is saved now, so that the name's text is whole, and does not run a second time at its RELEASE */
static void settle_locked(struct code_file *file)
{
	struct sbx_list *i;

	sbx_list_for_each (i, &file->handles) {
		struct code_handle *h = sbx_container_of(i, struct code_handle, link);

		if (!h->dirty || h->refused)
			continue;
		if (!h->shared && h->append) {
			sbx_buf_append(&file->text, sbx_buf_str(&h->text), h->text.len);
			h->text.len = 0;
		} else if (!h->shared && h == file->latest) {
			sbx_buf_resize(&file->text, 0);
			sbx_buf_append(&file->text, sbx_buf_str(&h->text), h->text.len);
		}
		sbx_code_clean_locked(h);
	}
}

/* the text of @file for a run, if its name is code now; @ret stays empty and false comes otherwise */
static bool text_locked(struct code_file *file, struct sbx_buf *ret, int *r)
{
	if (!sbx_code_starts_run_locked(file))
		return false;
	settle_locked(file);
	*r = sbx_buf_append(ret, sbx_buf_str(&file->text), file->text.len);
	return true;
}

void sbx_code_rename(fuse_req_t req, const struct sbx_ref *ref, const char *name, const char *new_name,
		     unsigned int flags, const struct sbx_file *setting)
{
	struct codes *codes = sbx_codes_of(ref->slot);
	struct sbx_buf text = SBX_BUF_INIT, other_text = SBX_BUF_INIT;
	struct sbx_err err = SBX_ERR_INIT;
	bool run = false, other_run = false;
	const char *denied = new_name, *slash = strchr(new_name, '/');
	struct code_file *file, *other;
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
	else if (slash && !holder_locked(codes, new_name, (size_t)(slash - new_name)))
		r = -ESTALE;
	else if ((flags & RENAME_NOREPLACE) && other)
		r = -EEXIST;
	else if (file->folder)
		r = -EPERM;
	else if (other && other->folder)
		r = -EISDIR;
	else if ((sbx_code_name(codes, new_name) || setting) && file->target)
		r = -EPERM; /* a link under a control name */
	else if ((flags & RENAME_EXCHANGE) && other->target && sbx_code_name(codes, name))
		r = -EPERM;
	if (r == 0 && (setting || sbx_code_name(codes, new_name))) {
		settle_locked(file);
		if (!setting && sbx_fs.deny_n > 0 && sbx_code_denied(sbx_buf_str(&file->text), file->text.len, &err))
			r = -EACCES;
	}
	if (r == 0 && (flags & RENAME_EXCHANGE) && sbx_code_name(codes, name)) { /* the other one becomes code */
		settle_locked(other);
		if (sbx_fs.deny_n > 0 && sbx_code_denied(sbx_buf_str(&other->text), other->text.len, &err))
			r = -EACCES;
		denied = name;
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
				sbx_code_clean_locked(sbx_container_of(i, struct code_handle, link));
			unlink_locked(other);
		}
		strcpy(file->name, new_name);
		run = text_locked(file, &text, &r);
	}
	sbx_unlock(&codes->lock);
	if (r == -EACCES)
		sbx_slot_refuse(ref->slot, denied, &err);
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

