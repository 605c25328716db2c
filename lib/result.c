/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: result.json of a run.  Its length is known when the run is over (run->utf8 counts while output arrives), its
 * text is made at the first read and kept in a spool.  Any thread.
 */
#include "run_own.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "box.h"
#include "catalog.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (48u * 1024) /* bytes per step; a multiple of 3 for base64 */

static const char *const stream_keys[2] = { "stdout", "stderr" };

/* all before the text of stdout; @run->lock held */
static void head_locked(struct sbx_run *run, struct sbx_buf *out) SBX_REQUIRES(run->lock)
{
	char when[SBX_CLOCK_TEXT_MAX];
	const char *abbrev;

	sbx_buf_printf(out, "{\n  \"id\": %llu,\n", (unsigned long long)run->id);
	if (run->state == SBX_RUN_LOST || run->state == SBX_RUN_REFUSED)
		sbx_buf_text(out, "  \"exitCode\": null,\n");
	else
		sbx_buf_printf(out, "  \"exitCode\": %d,\n",
			       run->state == SBX_RUN_SIGNALED ? 128 + run->code_or_signal
							      : run->code_or_signal);
	if (run->state == SBX_RUN_SIGNALED) {
		abbrev = sigabbrev_np(run->code_or_signal);
		if (abbrev)
			sbx_buf_printf(out, "  \"signal\": \"SIG%s\",\n", abbrev);
		else
			sbx_buf_printf(out, "  \"signal\": \"%d\",\n", run->code_or_signal);
	} else {
		sbx_buf_text(out, "  \"signal\": null,\n");
	}
	sbx_buf_printf(out, "  \"timedOut\": %s,\n  \"oom\": %s,\n  \"truncated\": %s,\n",
		       run->timed_out ? "true" : "false", run->oom ? "true" : "false",
		       run->truncated ? "true" : "false");
	sbx_buf_text(out, "  \"language\": \"");
	if (run->language)
		sbx_json_escape(out, run->language, strlen(run->language));
	if (run->started.tv_sec)
		sbx_buf_printf(out, "\",\n  \"startedAt\": \"%s\",\n  \"durationMs\": %llu,\n",
			       sbx_clock_format(run->started, when),
			       (unsigned long long)(run->ended_ms - run->started_ms));
	else
		sbx_buf_text(out, "\",\n  \"startedAt\": null,\n  \"durationMs\": 0,\n");
	sbx_buf_text(out, "  \"error\": ");
	if (run->why.code) {
		struct sbx_utf8 check = { 0 };

		sbx_utf8_feed(&check, run->why.text, strlen(run->why.text));
		sbx_buf_text(out, "\"");
		if (sbx_utf8_ok(&check))
			sbx_json_escape(out, run->why.text, strlen(run->why.text));
		else
			sbx_buf_text(out, sbx_errno_name(run->why.code));
		sbx_buf_text(out, "\"");
	} else {
		sbx_buf_text(out, "null");
	}
}

/* what stands before the text of stream @i, and the text's length in the JSON */
static uint64_t key_locked(struct sbx_run *run, int i, struct sbx_buf *out) SBX_REQUIRES(run->lock)
{
	uint64_t len = sbx_spool_len(&run->spool[i]);
	bool text = sbx_utf8_ok(&run->utf8[i]);

	sbx_buf_printf(out, ",\n  \"%sBytes\": %llu,\n  \"%sDropped\": %llu,\n  \"%sEncoding\": \"%s\",\n  \"%s\": \"",
		       stream_keys[i], (unsigned long long)len, stream_keys[i],
		       (unsigned long long)run->dropped[i], stream_keys[i], text ? "utf-8" : "base64",
		       stream_keys[i]);
	return text ? run->utf8[i].json_len : (len + 2) / 3 * 4;
}

static const char tail[] = "\"\n}\n";

/* NONE has no result either */
static bool has_result_locked(struct sbx_run *run) SBX_REQUIRES(run->lock)
{
	return run->state != SBX_RUN_NONE && sbx_run_state_over(run->state);
}

uint64_t sbx_run_json_len(struct sbx_run *run)
{
	struct sbx_buf text = SBX_BUF_INIT;
	uint64_t len = 0;

	sbx_lock(&run->lock);
	if (has_result_locked(run)) {
		head_locked(run, &text);
		len = key_locked(run, SBX_STDOUT, &text);
		sbx_buf_text(&text, "\"");
		len += key_locked(run, SBX_STDERR, &text);
		len += text.len + sizeof(tail) - 1;
	}
	sbx_unlock(&run->lock);
	sbx_buf_done(&text);
	return len;
}

static int add(struct sbx_spool *json, int dir_fd, struct sbx_buf *text)
{
	int r = text->failed ? -ENOMEM : sbx_spool_append(json, dir_fd, sbx_buf_str(text), text->len);

	text->len = 0;
	return r;
}

/* the whole text; the run is over, so its spools stand still */
static int make(struct sbx_run *run, struct sbx_spool *json)
{
	int dir_fd = run->box->catalog->spool_dir, i, r;
	SBX_CLEANUP(sbx_freep) char *piece = malloc(PIECE);
	struct sbx_buf text = SBX_BUF_INIT;

	if (!piece)
		return -ENOMEM;
	sbx_lock(&run->lock);
	head_locked(run, &text);
	sbx_unlock(&run->lock);
	for (i = 0; i < 2; i++) {
		bool is_text;
		uint64_t off = 0;
		ssize_t n;

		sbx_lock(&run->lock);
		key_locked(run, i, &text);
		is_text = sbx_utf8_ok(&run->utf8[i]);
		sbx_unlock(&run->lock);
		do {
			n = sbx_spool_read(&run->spool[i], off, piece, PIECE);
			if (n < 0) {
				sbx_buf_done(&text);
				return (int)n;
			}
			off += (uint64_t)n;
			if (is_text)
				sbx_json_escape(&text, piece, (size_t)n);
			else
				sbx_base64(&text, piece, (size_t)n);
			r = add(json, dir_fd, &text);
			if (r < 0) {
				sbx_buf_done(&text);
				return r;
			}
		} while (n == (ssize_t)PIECE);
		sbx_buf_text(&text, i == 0 ? "\"" : tail);
	}
	r = add(json, dir_fd, &text);
	sbx_buf_done(&text);
	return r;
}

ssize_t sbx_run_json_read(struct sbx_run *run, uint64_t off_bytes, char *buf, size_t size)
{
	struct sbx_spool *json, *fresh;
	bool over;
	int r;

	sbx_lock(&run->lock);
	over = has_result_locked(run);
	json = run->json;
	sbx_unlock(&run->lock);
	if (!over)
		return 0;
	if (!json) {
		fresh = malloc(sizeof(*fresh));
		if (!fresh)
			return -ENOMEM;
		sbx_spool_init(fresh);
		r = make(run, fresh);
		sbx_lock(&run->lock);
		if (r == 0 && !run->json)
			run->json = sbx_take(fresh);
		json = run->json;
		sbx_unlock(&run->lock);
		if (fresh) {
			sbx_spool_done(fresh);
			free(fresh);
		}
		if (!json)
			return r;
	}
	return sbx_spool_read(json, off_bytes, buf, size);
}
