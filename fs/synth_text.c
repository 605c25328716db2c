/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: open text files: a snapshot for who reads, values for who writes, and links.  Any thread. */
#include "synth_own.h"
#include "write_later.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/lock.h"
#include "open.h"
#include "reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX (1024 * 1024) /* bytes of one value file */
#define LINES_MAX (64u * 1024 * 1024) /* bytes of a text of several lines */

struct text {
	struct sbx_open open;
	struct sbx_lock lock;
	struct sbx_buf snapshot; /* what this open reads */
	struct sbx_buf lines;	 /* guarded by lock: SBX_FILE_LINES, what was written so far */
	bool dirty;		 /* guarded by lock */
	bool append;
	uint64_t next, left_out; /* guarded by lock, SBX_FILE_LOG: where the last read ended; what lies before offset 0 */
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
	int access = fi->flags & O_ACCMODE, r = sbx_synth_alive(synth);
	struct sbx_err err = SBX_ERR_INIT;
	struct text *text;

	if (r == 0 && access != O_RDONLY && !file->write && !file->write_later)
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
	text->append = (fi->flags & O_APPEND) != 0;
	if (file->read && (access != O_WRONLY || (file->flags & SBX_FILE_LINES)))
		r = file->read(&synth->ref, &text->snapshot, &err);
	if (r == 0 && access != O_RDONLY && (file->flags & SBX_FILE_LINES)) {
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

/*
 * A log that has dropped its oldest lines.  Who reads from the start, or goes on where he was, is given what is there still: his
 * offset 0 is the oldest line.  Any other offset is one of the whole, as stat() and SEEK_END have it: there empty lines stand for
 * what has gone.
 */
static size_t read_log(const struct sbx_synth *synth, struct text *text, uint64_t off, char *buf, size_t size)
{
	uint64_t want, at;
	bool goes_on;
	size_t n;

	sbx_lock(&text->lock);
	goes_on = off == 0 || off == text->next;
	if (off == 0 || !goes_on)
		text->left_out = 0;
	at = want = off + text->left_out;
	n = synth->file->read_at(&synth->ref, &at, buf, size);
	if (at > want && goes_on) {
		text->left_out += at - want;
	} else if (at > want) {
		n = at - want < size ? (size_t)(at - want) : size;
		memset(buf, '\n', n);
	}
	text->next = off + n;
	sbx_unlock(&text->lock);
	return n;
}

static void text_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
		      struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct text *text = text_of(fi);
	SBX_CLEANUP(sbx_freep) char *buf = NULL;
	int r = sbx_synth_alive(synth);
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
		n = (ssize_t)read_log(synth, text, (uint64_t)off, buf, size);
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
	int r = sbx_synth_alive(synth);
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
		if (len > VALUE_MAX)
			r = -EFBIG;
		else if (synth->file->write_later)
			r = sbx_write_later(req, synth, sbx_buf_str(&value), len, &err);
		else
			r = synth->file->write(&synth->ref, sbx_buf_str(&value), len, &err);
		if (r == -EINPROGRESS)
			; /* it answers @req */
		else if (r == 0)
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
			r = sbx_synth_alive(synth);
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

/* the texts of several lines of an open file */
static int cut_open(struct text *text, off_t size)
{
	int r;

	sbx_lock(&text->lock);
	r = sbx_buf_resize(&text->lines, (size_t)size);
	text->dirty = true;
	sbx_unlock(&text->lock);
	return r;
}

/* truncate() by path: the value as it is now, cut, counts at once */
static int cut_value(struct sbx_synth *synth, off_t size, struct sbx_err *err)
{
	struct sbx_buf value = SBX_BUF_INIT;
	int r = sbx_synth_alive(synth);

	if (r == 0)
		r = synth->file->read(&synth->ref, &value, err);
	if (r == 0)
		r = sbx_buf_resize(&value, (size_t)size);
	if (r == 0)
		r = synth->file->write(&synth->ref, sbx_buf_str(&value), value.len, err);
	sbx_buf_done(&value);
	return r;
}

void sbx_text_op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			 struct fuse_file_info *fi)
{
	struct sbx_synth *synth = sbx_synth_of(node);
	struct sbx_err err = SBX_ERR_INIT;
	int r = 0;

	if (to_set & FUSE_SET_ATTR_SIZE) {
		if (!synth->file->write && !synth->file->write_later)
			r = -EACCES;
		else if ((uint64_t)attr->st_size > LINES_MAX)
			r = -EFBIG;
		else if ((synth->file->flags & SBX_FILE_LINES) && fi)
			r = cut_open(text_of(fi), attr->st_size);
		else if (synth->file->flags & SBX_FILE_LINES)
			r = cut_value(synth, attr->st_size, &err);
	}
	if (r < 0 && err.code)
		sbx_fail(req, synth->ref.box, "truncate", synth->file->name, &err, r);
	else if (r < 0)
		sbx_reply_err(req, r);
	else
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
	int r = sbx_synth_alive(synth);

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
	.box = sbx_synth_box,
	.done = sbx_synth_done,
	.getattr = sbx_folder_op_getattr,
	.setattr = sbx_text_op_setattr,
	.readlink = text_readlink,
	.open = text_open,
	.read = text_read,
	.write_buf = text_write,
	.flush = text_flush,
	.release = text_release,
	.fsync = text_fsync,
};
