/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: open files of a workspace.  An open file is a local descriptor whatever the provider, so reading and writing are here,
 * in one place.  FUSE workers; open and create also on the thread that a provider completes on.
 *
 * Measured: a buffer per thread beats a fresh one per READ (what libfuse does without splice) by far.
 */
#include "workspace.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "box.h"
#include "open.h"
#include "reply.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLED_S 2			/* DESIGN section 5 */
#define COPY_MAX (UINT64_C(64) << 20)	/* per COPY_FILE_RANGE: the caller asks again */
#define BUFFER_ALIGN 4096		/* O_DIRECT */

struct handle {
	struct sbx_open open;
	struct ws_node *node; /* counted */
	struct sbx_fhandle fh;
	bool direct; /* O_DIRECT: only from aligned memory */
};

static struct sbx_lock stamp_lock = SBX_LOCK_INIT;

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

struct sbx_fhandle *ws_fhandle(const struct fuse_file_info *fi)
{
	return fi ? &handle_of(fi)->fh : NULL;
}

/* ---- one buffer per thread ---- */

struct buffer {
	char *data;
	size_t size;
};

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;
static bool buffer_keyed; /* written once, before any reader */

static void buffer_free(void *data)
{
	struct buffer *b = data;

	free(b->data);
	free(b);
}

static void buffer_init(void)
{
	buffer_keyed = pthread_key_create(&buffer_key, buffer_free) == 0;
}

/* at least @size bytes, aligned for O_DIRECT; the thread's until its next call.  NULL: no memory */
static char *buffer_get(size_t size)
{
	struct buffer *b;

	pthread_once(&buffer_once, buffer_init);
	if (!buffer_keyed)
		return NULL;
	b = pthread_getspecific(buffer_key);
	if (!b) {
		b = calloc(1, sizeof(*b));
		if (!b || pthread_setspecific(buffer_key, b) != 0) {
			free(b);
			return NULL;
		}
	}
	if (b->size < size) {
		free(b->data);
		b->size = 0;
		b->data = aligned_alloc(BUFFER_ALIGN,
					(size + BUFFER_ALIGN - 1) & ~(size_t)(BUFFER_ALIGN - 1));
		if (b->data)
			b->size = size;
	}
	return b->data;
}

/* ---- open, create, release ---- */

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/*
 * May the kernel keep the pages that it has? Only if nothing says that the file changed, and a change just before
 * they were read would have shown.  Else they are dropped, and what it reads now is remembered.
 */
static bool pages_kept(struct ws_node *ws, const struct sbx_fattr *attr)
{
	struct timespec now = sbx_clock_wall();
	bool same;

	sbx_lock(&stamp_lock);
	same = ws->stamp.settled && ws->stamp.size == attr->size &&
	       same_time(ws->stamp.mtime, attr->mtime) && same_time(ws->stamp.ctime, attr->ctime);
	if (!same)
		ws->stamp = (struct ws_stamp){
			.mtime = attr->mtime,
			.ctime = attr->ctime,
			.size = attr->size,
			.settled = now.tv_sec - attr->mtime.tv_sec > SETTLED_S,
		};
	sbx_unlock(&stamp_lock);
	return same;
}

static void handle_free(struct handle *h)
{
	h->node->files->close(h->node->fnode, &h->fh);
	sbx_box_closed(h->node->box);
	sbx_node_unref(&h->node->node);
	free(h);
}

static void handle_drop(struct sbx_open *open)
{
	handle_free(sbx_container_of(open, struct handle, open));
}

static void handle_close(struct handle *h)
{
	sbx_open_remove(&h->open);
	handle_free(h);
}

/* fills job->fi; -ENOMEM, -ESTALE: the file is closed again */
static int handle_new(struct ws_job *job, struct ws_node *ws)
{
	struct handle *h = calloc(1, sizeof(*h));
	int r = h ? sbx_box_opened(ws->box) : -ENOMEM;

	if (r < 0) {
		ws->files->close(ws->fnode, &job->freq.fh);
		free(h);
		return r;
	}
	h->node = ws_of(sbx_node_ref(&ws->node));
	h->fh = job->freq.fh;
	h->direct = job->fi.flags & O_DIRECT;
	sbx_open_add(&h->open, handle_drop);
	job->fi.fh = (uintptr_t)h;
	/* nothing happens at close(): the kernel need not ask */
	job->fi.noflush = ws->files->flush == NULL;
	return 0;
}

static void finish_open(struct ws_job *job, int r)
{
	if (r == 0)
		r = handle_new(job, job->node);
	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	job->fi.keep_cache = pages_kept(job->node, &job->freq.attr);
	if (fuse_reply_open(job->req, &job->fi) < 0)
		handle_close(handle_of(&job->fi));
	ws_job_free(job);
}

void ws_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct ws_job *job = ws_job_new(req, node, "open", finish_open);

	if (!job)
		return;
	job->fi = *fi;
	ws_job_run(job, job->node->files->open(job->node->fnode, fi->flags, &job->freq));
}

static void finish_create(struct ws_job *job, int r)
{
	struct sbx_fnode *fnode = job->freq.node;
	struct sbx_node *node = NULL;
	struct stat st;

	if (r == 0) {
		ws_attr_take(job);
		/* the file's node first: it holds the fnode that the handle is about */
		node = ws_node_take(job);
		if (!node)
			job->node->files->close(fnode, &job->freq.fh); /* the handle holds its fnode */
		r = node ? handle_new(job, ws_of(node)) : -ENOMEM;
	}
	if (r < 0) {
		if (node)
			sbx_node_forget(node, 1);
		ws_job_end(job, r);
		return;
	}
	job->fi.keep_cache = pages_kept(ws_of(node), &job->attr);
	ws_stat(&job->attr, &st);
	if (sbx_reply_create(job->req, node, &st, 0, 0, &job->fi) < 0)
		handle_close(handle_of(&job->fi)); /* it holds the node, whose lookup was given back */
	ws_job_free(job);
}

void ws_create(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct ws_job *job;

	if (ws_refused(req, dir, "create", name))
		return;
	job = ws_job_new(req, dir, "create", finish_create);
	if (!job)
		return;
	job->fi = *fi;
	ws_job_run(job, job->node->files->create(job->node->fnode, name, fi->flags, mode,
						 &job->freq));
}

void ws_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	handle_close(handle_of(fi));
	sbx_reply_err(req, 0);
}

/* ---- bytes ---- */

/* ENOSYS for one file would be remembered for all of the mount */
static int minus_errno(void)
{
	return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

void ws_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
	     struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	char *buf;
	ssize_t n;

	if (ws_dead(req, ws_of(node), "read"))
		return;
	buf = buffer_get(size);
	if (!buf) {
		sbx_reply_err(req, -ENOMEM);
		return;
	}
	n = pread(h->fh.fd, buf, size, off);
	if (n < 0)
		sbx_reply_err(req, minus_errno());
	else
		fuse_reply_buf(req, buf, (size_t)n);
}

static bool no_room(fuse_req_t req, struct ws_node *ws, const char *op)
{
	struct sbx_err err = SBX_ERR_INIT;
	int r = ws->files->room ? ws->files->room(ws->fnode, &err) : 0;

	if (r < 0)
		sbx_fail(req, ws->box, op, NULL, &err, r);
	return r < 0;
}

/* the bytes of a request as they are in memory; NULL: they are in a pipe */
static const char *in_memory(const struct fuse_bufvec *in, size_t *ret_size)
{
	if (in->count != 1 || in->buf[0].flags & FUSE_BUF_IS_FD)
		return NULL;
	*ret_size = in->buf[0].size - in->off;
	return (const char *)in->buf[0].mem + in->off;
}

/* brought together in the thread's buffer */
static int flatten(struct fuse_bufvec *in, const char **ret, size_t *ret_size)
{
	size_t size = fuse_buf_size(in);
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(size);
	ssize_t n;

	out.buf[0].mem = buffer_get(size);
	if (!out.buf[0].mem)
		return -ENOMEM;
	n = fuse_buf_copy(&out, in, 0);
	if (n < 0)
		return (int)n;
	*ret = out.buf[0].mem;
	*ret_size = (size_t)n;
	return 0;
}

static ssize_t write_fully(int fd, const char *data, size_t size, off_t off)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pwrite(fd, data + done, size - done, off + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return done > 0 ? (ssize_t)done : n < 0 ? minus_errno() : -EIO;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t write_bytes(const struct handle *h, struct fuse_bufvec *in, off_t off)
{
	struct fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(in));
	const char *data = h->direct ? NULL : in_memory(in, &out.buf[0].size);
	size_t size = out.buf[0].size;
	int r;

	/*
	 * An append must be one write() to be one piece among others' (the descriptor has O_APPEND: the offset does not
	 * count), and splice refuses such descriptors; O_DIRECT wants aligned memory.
	 */
	if (!data && (h->fh.append || h->direct)) {
		r = flatten(in, &data, &size);
		if (r < 0)
			return r;
	}
	if (data)
		return write_fully(h->fh.fd, data, size, off);
	out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	out.buf[0].fd = h->fh.fd;
	out.buf[0].pos = off;
	return fuse_buf_copy(&out, in, 0);
}

void ws_write_buf(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		  struct fuse_file_info *fi)
{
	ssize_t n;

	if (ws_dead(req, ws_of(node), "write") || no_room(req, ws_of(node), "write"))
		return;
	n = write_bytes(handle_of(fi), in, off);
	if (n < 0)
		sbx_reply_err(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}

static void finish_sync(struct ws_job *job, int r)
{
	ws_job_end(job, r);
}

void ws_flush(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct ws_job *job;

	if (!ws_of(node)->files->flush) {
		sbx_reply_err(req, 0);
		return;
	}
	job = ws_job_new(req, node, "close", finish_sync);
	if (job)
		ws_job_run(job, job->node->files->flush(job->node->fnode, ws_fhandle(fi),
							&job->freq));
}

void ws_fsync(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi)
{
	struct ws_job *job = ws_job_new(req, node, "fsync", finish_sync);

	if (job)
		ws_job_run(job, job->node->files->fsync(job->node->fnode, ws_fhandle(fi),
							datasync != 0, &job->freq));
}

void ws_fallocate(fuse_req_t req, struct sbx_node *node, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi)
{
	bool frees = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE);

	if (ws_dead(req, ws_of(node), "fallocate") ||
	    (!frees && no_room(req, ws_of(node), "fallocate")))
		return;
	sbx_reply_err(req, fallocate(handle_of(fi)->fh.fd, mode, off, len) < 0 ? minus_errno() : 0);
}

void ws_lseek(fuse_req_t req, struct sbx_node *node, off_t off, int whence,
	      struct fuse_file_info *fi)
{
	off_t at;

	if (ws_dead(req, ws_of(node), "lseek"))
		return;
	at = lseek(handle_of(fi)->fh.fd, off, whence); /* the descriptor's own offset is used by nobody */
	if (at < 0)
		sbx_reply_err(req, minus_errno());
	else
		fuse_reply_lseek(req, at);
}

void ws_copy_file_range(fuse_req_t req, struct sbx_node *in, off_t off_in,
			struct fuse_file_info *fi_in, struct sbx_node *out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	ssize_t n;

	if (in->ops != &ws_ops || out->ops != &ws_ops) {
		sbx_reply_err(req, -EXDEV); /* the kernel then reads and writes */
		return;
	}
	if (ws_dead(req, ws_of(in), "copy") || ws_dead(req, ws_of(out), "copy") ||
	    no_room(req, ws_of(out), "copy"))
		return;
	n = copy_file_range(handle_of(fi_in)->fh.fd, &off_in, handle_of(fi_out)->fh.fd, &off_out,
			    len < COPY_MAX ? len : COPY_MAX, (unsigned int)flags);
	if (n < 0)
		sbx_reply_err(req, minus_errno());
	else
		fuse_reply_write(req, (size_t)n);
}
