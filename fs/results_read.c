/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: open result files: reading them, `stream`, which waits for more, and poll().
 * Threads: FUSE workers, and the loop for those that waited.
 */
#include "results_own.h"

#include "base/lock.h"
#include "box.h"
#include "gate.h"
#include "park.h"
#include "reply.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

void sbx_result_handle_free(struct result_handle *handle)
{
	sbx_open_remove(&handle->open);
	sbx_run_put(handle->run);
	sbx_lock_done(&handle->lock);
	free(handle);
}

void sbx_result_handle_drop(struct sbx_open *open)
{
	struct result_handle *handle = sbx_container_of(open, struct result_handle, open);
	struct fuse_pollhandle *poll;
	bool mine;

	if (sbx_gate_cancel(&handle->waiter)) {
		sbx_lock(&handle->lock);
		handle->polling = false;
		sbx_unlock(&handle->lock);
	}
	sbx_lock(&handle->lock);
	poll = handle->poll;
	handle->poll = NULL;
	handle->closed = true;
	mine = !handle->polling; /* else on_wake runs right now and frees it */
	sbx_unlock(&handle->lock);
	if (poll)
		fuse_pollhandle_destroy(poll);
	if (mine)
		sbx_result_handle_free(handle);
}

/* ---- read ---- */

static ssize_t read_now(struct sbx_run *run, enum sbx_result which, uint64_t off, char *buf, size_t size)
{
	struct sbx_buf text = SBX_BUF_INIT;
	ssize_t n = 0;

	switch (which) {
	case SBX_RESULT_STDOUT:
		return sbx_run_read(run, SBX_STDOUT, off, buf, size);
	case SBX_RESULT_STDERR:
		return sbx_run_read(run, SBX_STDERR, off, buf, size);
	case SBX_RESULT_EXIT:
		n = sbx_run_exit_text(run, &text, NULL);
		if (n == 0 && off < text.len) {
			n = (ssize_t)(text.len - off < size ? text.len - off : size);
			memcpy(buf, text.data + off, (size_t)n);
		}
		sbx_buf_done(&text);
		return n;
	case SBX_RESULT_JSON:
		return sbx_run_json_read(run, off, buf, size);
	case SBX_RESULT_LOGS:
	case SBX_RESULT_STREAM:
		return sbx_run_logs_read(run, off, buf, size);
	}
	return -EIO;
}

struct reading {
	struct sbx_parked parked;
	struct result_node *node; /* counted */
	struct sbx_run *run;	  /* counted */
	uint64_t off;
	size_t size;
	bool nonblock, nothing_yet;
	struct result_handle *handle; /* open until this is answered */
	char *buf;
	ssize_t n;
};

static int read_attempt(struct sbx_parked *parked)
{
	struct reading *rd = (struct reading *)parked;
	bool over;

	parked->gate = &rd->run->gate;
	parked->seen = sbx_gate_seen(parked->gate);
	over = sbx_result_over(rd->run); /* before looking for bytes: none can come after it */
	rd->n = read_now(rd->run, rd->node->which, rd->off, rd->buf, rd->size);
	if (rd->n != 0)
		return rd->n < 0 ? (int)rd->n : 0;
	if (over)
		return 0;
	if (sbx_box_deleted(rd->node->ref.box))
		return -ECANCELED;
	rd->nothing_yet = rd->nonblock; /* -EAGAIN is for the reader then, not for park.c */
	return rd->nonblock ? 0 : -EAGAIN;
}

static void read_finish(struct sbx_parked *parked, int r)
{
	struct reading *rd = (struct reading *)parked;

	if (r == 0 && rd->nothing_yet)
		r = -EAGAIN;
	if (r == 0)
		atomic_store(&rd->handle->pos, rd->off + (uint64_t)rd->n);
	if (r < 0) {
		sbx_result_fail(rd->node, "read", r);
		sbx_reply_err(parked->req, r);
	} else {
		fuse_reply_buf(parked->req, rd->buf, (size_t)rd->n);
	}
	free(rd->buf);
	sbx_run_put(rd->run);
	sbx_node_unref(&rd->node->node);
}

static struct result_handle *handle_of(struct fuse_file_info *fi)
{
	return (struct result_handle *)(uintptr_t)fi->fh;
}

void sbx_result_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct result_node *result = result_of(node);
	struct result_handle *handle = handle_of(fi);
	char *buf = malloc(size ? size : 1);
	struct reading *rd;
	ssize_t n;

	if (!buf) {
		sbx_reply_err(req, -ENOMEM);
		return;
	}
	if (result->which != SBX_RESULT_STREAM) {
		n = read_now(handle->run, result->which, (uint64_t)off, buf, size);
		if (n < 0)
			sbx_reply_err(req, (int)n);
		else
			fuse_reply_buf(req, buf, (size_t)n);
		free(buf);
		return;
	}
	rd = calloc(1, sizeof(*rd));
	if (!rd) {
		free(buf);
		sbx_reply_err(req, -ENOMEM);
		return;
	}
	rd->parked.req = req;
	rd->parked.attempt = read_attempt;
	rd->parked.finish = read_finish;
	rd->parked.not_limited = true;
	rd->node = result_of(sbx_node_ref(node));
	rd->run = sbx_run_get(handle->run);
	rd->off = (uint64_t)off;
	rd->size = size;
	rd->handle = handle;
	rd->nonblock = (fi->flags & O_NONBLOCK) != 0;
	rd->buf = buf;
	sbx_park_run(&rd->parked);
}

/* ---- poll ---- */

/* more output or the end: tell the kernel, which asks again */
static void on_wake(struct sbx_waiter *waiter)
{
	struct result_handle *handle = sbx_container_of(waiter, struct result_handle, waiter);
	struct fuse_pollhandle *poll;
	bool closed;

	sbx_lock(&handle->lock);
	handle->polling = false;
	poll = handle->poll;
	handle->poll = NULL;
	closed = handle->closed;
	sbx_unlock(&handle->lock);
	if (poll) {
		fuse_lowlevel_notify_poll(poll);
		fuse_pollhandle_destroy(poll);
	}
	if (closed) /* sbx_result_handle_drop left it to us */
		sbx_result_handle_free(handle);
}

void sbx_result_poll(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct result_node *result = result_of(node);
	struct result_handle *handle = handle_of(fi);
	struct fuse_pollhandle *old = NULL;
	uint64_t seen;
	bool queue = false;

	if (result->which != SBX_RESULT_STREAM) {
		if (ph)
			fuse_pollhandle_destroy(ph);
		fuse_reply_poll(req, POLLIN | POLLRDNORM);
		return;
	}
	seen = sbx_gate_seen(&handle->run->gate);
	if (ph) {
		sbx_lock(&handle->lock);
		old = handle->poll; /* one per open file is kept */
		handle->poll = ph;
		queue = !handle->polling;
		handle->polling = true;
		sbx_unlock(&handle->lock);
	}
	if (old)
		fuse_pollhandle_destroy(old);
	if (queue) {
		bool queued = false;

		handle->waiter.wake = on_wake;
		while (!queued && !sbx_result_over(handle->run)) {
			queued = sbx_gate_wait(&handle->run->gate, seen, &handle->waiter) == SBX_GATE_QUEUED;
			if (!queued)
				seen = sbx_gate_seen(&handle->run->gate);
		}
		if (!queued) {
			sbx_lock(&handle->lock);
			handle->polling = false;
			sbx_unlock(&handle->lock);
		}
	}
	/* behind the queueing, so that nothing falls between */
	if (sbx_result_over(handle->run) || sbx_run_logs_len(handle->run) > atomic_load(&handle->pos))
		fuse_reply_poll(req, POLLIN | POLLRDNORM);
	else
		fuse_reply_poll(req, 0);
}

void sbx_result_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	(void)node;
	sbx_result_handle_drop(&handle_of(fi)->open);
	sbx_reply_err(req, 0);
}
