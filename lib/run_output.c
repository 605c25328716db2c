/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a run has put out, and its texts: stdout, stderr, both in order, status, exit, error.  Any thread. */
#include "run_own.h"

#include "base/buf.h"
#include "box.h"
#include "catalog.h"
#include "config.h"

#include <errno.h>
#include <stdio.h>

/* @len bytes more in logs; a chunk of the same stream as the last only grows */
static void note_chunk_locked(struct sbx_run *run, enum sbx_stream which, size_t len)
	SBX_REQUIRES(run->lock)
{
	if (run->logs_cut)
		return;
	if (run->log_len > 0 && run->last_stream != which) {
		struct sbx_chunk chunk = { .end = run->log_len,
					   .own_end = run->stream_len[run->last_stream],
					   .which = run->last_stream };

		/* they count too: bytes in turn on stdout and stderr make 24 times as much of them */
		if (atomic_load(&run->box->spooled) + sizeof(chunk) > run->box->catalog->config->spool_bytes ||
		    sbx_spool_append(&run->chunks, run->box->catalog->spool_dir, (char *)&chunk,
				     sizeof(chunk)) < 0) {
			run->logs_cut = true;
			run->truncated = true;
			return;
		}
		atomic_fetch_add(&run->box->spooled, sizeof(chunk));
	}
	run->last_stream = which;
	run->log_len += len;
	run->stream_len[which] += len;
}

void sbx_run_output(void *data, enum sbx_stream which, const char *bytes, size_t len)
{
	struct sbx_run *run = data;
	struct sbx_box *box = run->box;
	uint64_t have = sbx_spool_len(&run->spool[which]), take = len, limit = run->output_bytes;
	uint64_t box_limit = box->catalog->config->spool_bytes;
	uint64_t box_have = atomic_load(&box->spooled);
	int r = 0;

	if (have + take > limit)
		take = limit > have ? limit - have : 0;
	if (box_have + take > box_limit)
		take = box_limit > box_have ? box_limit - box_have : 0;
	if (take > 0)
		r = sbx_spool_append(&run->spool[which], box->catalog->spool_dir, bytes, take);
	sbx_lock(&run->lock);
	if (r < 0) { /* disk full: the program goes on, the loss is told */
		take = 0;
		if (run->why.code == 0)
			sbx_err_sys(&run->why, -r, "output could not be kept");
	}
	if (take > 0) {
		sbx_utf8_feed(&run->utf8[which], bytes, take);
		note_chunk_locked(run, which, take);
	}
	if (take < len) {
		run->truncated = true;
		run->dropped[which] += len - take;
	}
	sbx_unlock(&run->lock);
	atomic_fetch_add(&box->spooled, take);
	if (take > 0)
		sbx_gate_notify(&run->gate);
}

/* a message of ours at the end of stderr: what a shell would say for 126 and 127 */
void sbx_run_say(struct sbx_run *run, const char *text)
{
	char line[SBX_ERR_TEXT_MAX + 16];
	int n = snprintf(line, sizeof(line), "sbxfs: %s\n", text);

	if (n > 0)
		sbx_run_output(run, SBX_STDERR, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

int sbx_run_status_text(struct sbx_run *run, struct sbx_buf *out)
{
	sbx_lock(&run->lock);
	switch (run->state) {
	case SBX_RUN_NONE:
	case SBX_RUN_COMING:
		sbx_buf_text(out, "none");
		break;
	case SBX_RUN_PENDING:
		sbx_buf_text(out, "pending");
		break;
	case SBX_RUN_RUNNING: /* until the program is there it still waits */
		sbx_buf_text(out, run->pid ? "running" : "pending");
		break;
	case SBX_RUN_EXITED:
		sbx_buf_printf(out, "exited %d", run->code_or_signal);
		break;
	case SBX_RUN_SIGNALED:
		sbx_buf_printf(out, "signaled %d", run->code_or_signal);
		break;
	case SBX_RUN_TIMEOUT:
		sbx_buf_text(out, "timeout");
		break;
	case SBX_RUN_LOST:
		sbx_buf_text(out, "lost");
		break;
	case SBX_RUN_REFUSED:
		sbx_buf_text(out, "refused");
		break;
	}
	if (run->truncated)
		sbx_buf_text(out, " truncated");
	if (run->oom)
		sbx_buf_text(out, " oom");
	sbx_unlock(&run->lock);
	sbx_buf_text(out, "\n");
	return out->failed ? -ENOMEM : 0;
}

int sbx_run_exit_text(struct sbx_run *run, struct sbx_buf *out, struct sbx_err *err)
{
	int r = 0;

	sbx_lock(&run->lock);
	switch (run->state) {
	case SBX_RUN_EXITED:
	case SBX_RUN_TIMEOUT:
		sbx_buf_printf(out, "%d\n", run->code_or_signal);
		break;
	case SBX_RUN_SIGNALED:
		sbx_buf_printf(out, "%d\n", 128 + run->code_or_signal);
		break;
	case SBX_RUN_LOST:
	case SBX_RUN_REFUSED:
		r = sbx_err_set(err, EIO, "%s", run->why.text);
		break;
	case SBX_RUN_NONE:
	case SBX_RUN_COMING:
	case SBX_RUN_PENDING:
	case SBX_RUN_RUNNING:
		break;
	}
	sbx_unlock(&run->lock);
	return r ? r : out->failed ? -ENOMEM : 0;
}

int sbx_run_error_text(struct sbx_run *run, struct sbx_buf *out)
{
	sbx_lock(&run->lock);
	if (run->why.code)
		sbx_buf_printf(out, "%s\n", run->why.text);
	sbx_unlock(&run->lock);
	return out->failed ? -ENOMEM : 0;
}

ssize_t sbx_run_read(struct sbx_run *run, enum sbx_stream which, uint64_t off_bytes, char *buf,
		     size_t size)
{
	return sbx_spool_read(&run->spool[which], off_bytes, buf, size);
}

uint64_t sbx_run_len(struct sbx_run *run, enum sbx_stream which)
{
	return sbx_spool_len(&run->spool[which]);
}

uint64_t sbx_run_logs_len(struct sbx_run *run)
{
	uint64_t len;

	sbx_lock(&run->lock);
	len = run->log_len;
	sbx_unlock(&run->lock);
	return len;
}

ssize_t sbx_run_logs_read(struct sbx_run *run, uint64_t off_bytes, char *buf, size_t size)
{
	struct sbx_chunk chunk, newest;
	uint64_t n, lo, hi;
	size_t done = 0;

	sbx_lock(&run->lock);
	n = sbx_spool_len(&run->chunks) / sizeof(chunk);
	newest = (struct sbx_chunk){ .end = run->log_len,
				     .own_end = run->stream_len[run->last_stream],
				     .which = run->last_stream };
	sbx_unlock(&run->lock);
	for (lo = 0, hi = n; lo < hi;) { /* the first chunk whose end lies behind @off_bytes */
		uint64_t i = (lo + hi) / 2;

		if (sbx_spool_read(&run->chunks, i * sizeof(chunk), (char *)&chunk, sizeof(chunk)) !=
		    sizeof(chunk))
			return -EIO;
		if (chunk.end <= off_bytes)
			lo = i + 1;
		else
			hi = i;
	}
	for (; done < size && off_bytes < newest.end; lo++) {
		uint64_t left;
		ssize_t got;

		if (lo >= n)
			chunk = newest;
		else if (sbx_spool_read(&run->chunks, lo * sizeof(chunk), (char *)&chunk,
					sizeof(chunk)) != sizeof(chunk))
			return -EIO;
		left = chunk.end - off_bytes;
		got = sbx_spool_read(&run->spool[chunk.which], chunk.own_end - left, buf + done,
				     left < size - done ? left : size - done);
		if (got <= 0)
			return done > 0 ? (ssize_t)done : got;
		done += (size_t)got;
		off_bytes += (uint64_t)got;
	}
	return (ssize_t)done;
}
