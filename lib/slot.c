/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_slot.  Knows: run.h, box.h.  Any thread. */
#include "slot.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "catalog.h"
#include "config.h"
#include "language.h"
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const setting_names[SBX_SETTINGS] = { "args",  "cwd",     "env",
							  "stdin", "timeout", "language" };

const char *sbx_setting_name(enum sbx_setting which)
{
	return setting_names[which];
}

int sbx_slot_new(struct sbx_box *box, const char *name, struct sbx_slot **ret, struct sbx_err *err)
{
	struct sbx_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return sbx_err_set(err, ENOMEM, "no memory for the slot '%s'", name);
	atomic_init(&slot->refs, 1);
	slot->box = box;
	strncpy(slot->name, name, sizeof(slot->name) - 1);
	slot->ino_base = sbx_catalog_ino(box->catalog, 1);
	sbx_gate_init(&slot->gate);
	sbx_list_init(&slot->link);
	sbx_lock_init(&slot->lock);
	slot->newest = sbx_run_new(box, SBX_RUN_NONE);
	slot->coming = sbx_run_new(box, SBX_RUN_COMING);
	if (!slot->newest || !slot->coming) {
		sbx_slot_put(slot);
		return sbx_err_set(err, ENOMEM, "no memory for the slot '%s'", name);
	}
	atomic_fetch_add(&slot->newest->shown, 1);
	*ret = slot;
	return 0;
}

struct sbx_slot *sbx_slot_get(struct sbx_slot *slot)
{
	atomic_fetch_add(&slot->refs, 1);
	return slot;
}

void sbx_slot_put(struct sbx_slot *slot)
{
	unsigned int i;

	if (!slot || atomic_fetch_sub(&slot->refs, 1) != 1)
		return;
	if (slot->files)
		slot->files_free(slot->files);
	for (i = 0; i < SBX_SETTINGS; i++)
		free(slot->text[i]);
	if (slot->newest)
		atomic_fetch_sub(&slot->newest->shown, 1);
	sbx_run_put(slot->newest);
	sbx_run_put(slot->coming);
	sbx_lock_done(&slot->lock);
	free(slot);
}

void sbx_slot_remove(struct sbx_slot *slot)
{
	sbx_lock(&slot->lock);
	slot->removed = true;
	sbx_unlock(&slot->lock);
	sbx_gate_notify(&slot->gate);
}

bool sbx_slot_removed(struct sbx_slot *slot)
{
	bool removed;

	sbx_lock(&slot->lock);
	removed = slot->removed;
	sbx_unlock(&slot->lock);
	return removed;
}

/* ---- settings ---- */

static uint64_t default_timeout(struct sbx_slot *slot)
{
	struct sbx_pbox_info info;

	sbx_box_ops(slot->box)->box_info(sbx_box_pbox(slot->box), &info);
	return info.limits.timeout_ms;
}

int sbx_slot_read(struct sbx_slot *slot, enum sbx_setting which, struct sbx_buf *out)
{
	char number[SBX_TEXT_NUMBER_MAX];
	int r = 0;

	sbx_lock(&slot->lock);
	if (slot->text[which]) {
		r = sbx_buf_append(out, slot->text[which], slot->text_len[which]);
		sbx_unlock(&slot->lock);
		return r;
	}
	sbx_unlock(&slot->lock);
	switch (which) {
	case SBX_SET_CWD:
		return sbx_buf_text(out, ".\n");
	case SBX_SET_TIMEOUT:
		return sbx_buf_printf(out, "%s\n",
				      sbx_text_print_duration(default_timeout(slot), number));
	case SBX_SET_LANGUAGE:
		return sbx_buf_text(out, "auto\n");
	case SBX_SET_ARGS:
	case SBX_SET_ENV:
	case SBX_SET_STDIN:
	case SBX_SETTINGS:
		break;
	}
	return 0;
}

static int check_env(const char *text, size_t len, struct sbx_err *err)
{
	unsigned int line = 0;
	size_t i = 0;

	while (i < len) {
		const char *p = text + i, *nl = memchr(p, '\n', len - i), *eq;
		size_t n = nl ? (size_t)(nl - p) : len - i;

		line++;
		i += n + 1;
		if (n == 0)
			continue;
		eq = memchr(p, '=', n);
		if (!eq)
			return sbx_err_set(err, EINVAL, "env: line %u has no '=': write NAME=value",
					   line);
		if (!sbx_text_env_name(p, (size_t)(eq - p)))
			return sbx_err_set(err, EINVAL,
					   "env: line %u: a name is letters, digits and '_'", line);
		if (n >= 128 * 1024)
			return sbx_err_set(err, EINVAL, "env: line %u is longer than 128K", line);
	}
	return 0;
}

static int check_lines(const char *what, const char *text, size_t len, struct sbx_err *err)
{
	size_t i = 0;

	if (memchr(text, '\0', len))
		return sbx_err_set(err, EINVAL, "%s: a NUL byte cannot be passed to a program", what);
	while (i < len) {
		const char *nl = memchr(text + i, '\n', len - i);
		size_t n = nl ? (size_t)(nl - (text + i)) : len - i;

		if (n >= 128 * 1024)
			return sbx_err_set(err, EINVAL, "%s: a line is longer than 128K", what);
		i += n + 1;
	}
	return 0;
}

int sbx_env_check(const char *text, size_t len, struct sbx_err *err)
{
	int r = len > SBX_SETTING_MAX ? sbx_err_set(err, EFBIG, "env: too long") : check_lines("env", text, len, err);

	return r < 0 ? r : check_env(text, len, err);
}

/* the read form of a good value; malloc'ed */
static int take_value(struct sbx_slot *slot, enum sbx_setting which, const char *text, size_t len,
		      struct sbx_buf *out, struct sbx_err *err)
{
	char path[PATH_MAX], number[SBX_TEXT_NUMBER_MAX], known[256];
	const char *name = setting_names[which];
	uint64_t ms;
	int r;

	if (len > (which == SBX_SET_STDIN ? SBX_STDIN_MAX : SBX_SETTING_MAX))
		return sbx_err_set(err, EFBIG, "%s: too long", name);
	switch (which) {
	case SBX_SET_ARGS:
	case SBX_SET_ENV:
		r = which == SBX_SET_ENV ? sbx_env_check(text, len, err) : check_lines(name, text, len, err);
		if (r < 0)
			return r;
		r = sbx_buf_append(out, text, len);
		if (r == 0 && len > 0 && text[len - 1] != '\n') /* it is text: whole lines are read back */
			r = sbx_buf_text(out, "\n");
		return r;
	case SBX_SET_STDIN:
		return sbx_buf_append(out, text, len);
	case SBX_SET_CWD:
		text = sbx_text_trim(text, &len);
		r = sbx_text_subpath(text, len, path, sizeof(path));
		if (r == 0 && memchr(text, '\n', len)) /* two lines are no value */
			r = -EINVAL;
		if (r < 0)
			return sbx_err_set(err, -r,
					   "cwd: '%.*s' is not a folder below the workspace: write a "
					   "relative path without '..'",
					   (int)(len > 200 ? 200 : len), text);
		return sbx_buf_printf(out, "%s\n", path[0] ? path : ".");
	case SBX_SET_TIMEOUT:
		r = sbx_text_duration(text, len, &ms);
		if (r < 0 || ms == 0)
			return sbx_err_set(err, EINVAL,
					   "timeout: write a time such as 30s, 500ms, 5m or max");
		return sbx_buf_printf(out, "%s\n", sbx_text_print_duration(ms, number));
	case SBX_SET_LANGUAGE:
		text = sbx_text_trim(text, &len);
		if (len == 0 || len >= sizeof(known))
			return sbx_err_set(err, EINVAL, "language: write a name, or auto");
		memcpy(known, text, len);
		known[len] = '\0';
		if (!sbx_language_known(sbx_box_languages(slot->box), known)) {
			char list[256];

			return sbx_err_set(err, EINVAL, "language: '%.60s' is not known; known are %s",
					   known,
					   sbx_language_list(sbx_box_languages(slot->box), list,
							     sizeof(list)));
		}
		return sbx_buf_printf(out, "%s\n", known);
	case SBX_SETTINGS:
		break;
	}
	return sbx_err_set(err, EINVAL, "no such setting");
}

int sbx_slot_write(struct sbx_slot *slot, enum sbx_setting which, const char *text, size_t len,
		   struct sbx_err *err)
{
	struct sbx_buf value = SBX_BUF_INIT;
	int r = take_value(slot, which, text, len, &value, err);

	if (r < 0) {
		sbx_buf_done(&value);
		return r;
	}
	sbx_lock(&slot->lock);
	free(slot->text[which]);
	slot->text[which] = value.data; /* NULL when empty: the default of args, env, stdin */
	slot->text_len[which] = value.len;
	sbx_unlock(&slot->lock);
	sbx_box_settings_changed(slot->box);
	return 0;
}

void sbx_slot_reset(struct sbx_slot *slot, enum sbx_setting which)
{
	sbx_lock(&slot->lock);
	free(slot->text[which]);
	slot->text[which] = NULL;
	slot->text_len[which] = 0;
	sbx_unlock(&slot->lock);
	sbx_box_settings_changed(slot->box);
}

/* ---- runs ---- */

struct sbx_run *sbx_slot_newest(struct sbx_slot *slot)
{
	struct sbx_run *run;

	sbx_lock(&slot->lock);
	run = sbx_run_get(slot->newest);
	sbx_unlock(&slot->lock);
	return run;
}

struct sbx_run *sbx_slot_coming(struct sbx_slot *slot)
{
	struct sbx_run *run;

	sbx_lock(&slot->lock);
	run = sbx_run_get(slot->coming);
	sbx_unlock(&slot->lock);
	return run;
}

/* text of several lines -> vector; empty lines are dropped only where @skip_empty */
char **sbx_lines(const char *text, size_t len, bool skip_empty)
{
	size_t n = 0, i;
	char **v, **p;

	for (i = 0; i < len; i++)
		n += text[i] == '\n';
	v = calloc(n + 2, sizeof(*v));
	if (!v)
		return NULL;
	p = v;
	for (i = 0; i < len;) {
		const char *nl = memchr(text + i, '\n', len - i);
		size_t k = nl ? (size_t)(nl - (text + i)) : len - i;

		if (k > 0 || !skip_empty) {
			*p = strndup(text + i, k);
			if (!*p) {
				sbx_strv_free(v);
				return NULL;
			}
			p++;
		}
		i += k + 1;
	}
	return v;
}

/* takes the settings of now into @run; -ENOMEM */
static int snapshot(struct sbx_slot *slot, struct sbx_run *run)
{
	struct sbx_pbox_info info;
	uint64_t ms;
	int r = 0;

	sbx_box_ops(slot->box)->box_info(sbx_box_pbox(slot->box), &info);
	run->timeout_ms = info.limits.timeout_ms;
	run->output_bytes = info.limits.output_bytes;
	sbx_lock(&slot->lock);
	run->args = sbx_lines(slot->text[SBX_SET_ARGS], slot->text_len[SBX_SET_ARGS], false);
	run->env = sbx_lines(slot->text[SBX_SET_ENV], slot->text_len[SBX_SET_ENV], true);
	if (slot->text[SBX_SET_CWD] && strcmp(slot->text[SBX_SET_CWD], ".\n") != 0)
		run->cwd = strndup(slot->text[SBX_SET_CWD], slot->text_len[SBX_SET_CWD] - 1);
	else
		run->cwd = strdup("");
	if (slot->text[SBX_SET_LANGUAGE])
		run->setting = strndup(slot->text[SBX_SET_LANGUAGE],
				       slot->text_len[SBX_SET_LANGUAGE] - 1);
	else
		run->setting = strdup("auto");
	if (slot->text[SBX_SET_TIMEOUT] &&
	    sbx_text_duration(slot->text[SBX_SET_TIMEOUT], slot->text_len[SBX_SET_TIMEOUT], &ms) == 0)
		run->timeout_ms = ms;
	if (slot->text_len[SBX_SET_STDIN] > 0) {
		run->stdin_text = malloc(slot->text_len[SBX_SET_STDIN]);
		if (run->stdin_text) {
			run->stdin_len = slot->text_len[SBX_SET_STDIN];
			memcpy(run->stdin_text, slot->text[SBX_SET_STDIN], run->stdin_len);
		} else {
			r = -ENOMEM;
		}
	}
	sbx_unlock(&slot->lock);
	run->box_env = sbx_box_env_vector(slot->box);
	if (!run->args || !run->env || !run->box_env || !run->cwd || !run->setting)
		r = -ENOMEM;
	return r;
}

/* makes the coming run the newest one; returns it counted, NULL: no memory.  @state: what it becomes */
static struct sbx_run *promote(struct sbx_slot *slot, enum sbx_run_state state)
{
	struct sbx_run *fresh = sbx_run_new(slot->box, SBX_RUN_COMING), *run, *old;

	if (!fresh)
		return NULL;
	sbx_lock(&slot->lock);
	run = slot->coming;
	old = slot->newest;
	slot->coming = fresh;
	slot->newest = sbx_run_get(run);
	atomic_fetch_add(&run->shown, 1);
	atomic_fetch_sub(&old->shown, 1);
	sbx_unlock(&slot->lock);
	sbx_lock(&run->lock);
	run->state = state;
	sbx_unlock(&run->lock);
	sbx_run_put(old);
	return run;
}

int sbx_slot_run(struct sbx_slot *slot, const char *name, const char *code, size_t len,
		 struct sbx_err *err)
{
	struct sbx_run *run, *prepared;
	int r;

	if (sbx_box_deleted(slot->box) || sbx_slot_removed(slot))
		return sbx_err_set(err, ESTALE, "the sandbox or slot was deleted");
	if (len == 0) {
		run = promote(slot, SBX_RUN_NONE);
		if (!run)
			return sbx_err_set(err, ENOMEM, "no memory");
		sbx_gate_notify(&slot->gate);
		sbx_gate_notify(&run->gate);
		sbx_run_put(run);
		return 0;
	}
	/* everything that can fail comes before the coming run is taken */
	prepared = sbx_run_new(slot->box, SBX_RUN_PENDING);
	if (!prepared)
		return sbx_err_set(err, ENOMEM, "no memory for a run");
	prepared->name = strdup(name);
	prepared->code = malloc(len);
	r = snapshot(slot, prepared);
	if (r < 0 || !prepared->name || !prepared->code) {
		sbx_run_put(prepared);
		return sbx_err_set(err, ENOMEM, "no memory for a run of %zu bytes", len);
	}
	memcpy(prepared->code, code, len);
	prepared->code_len = len;
	run = promote(slot, SBX_RUN_PENDING);
	if (!run) {
		sbx_run_put(prepared);
		return sbx_err_set(err, ENOMEM, "no memory for a run");
	}
	sbx_run_adopt(run, prepared);
	sbx_run_put(prepared);
	r = sbx_box_submit(slot->box, run, err);
	if (r < 0)
		sbx_run_refuse(run, SBX_RUN_REFUSED, err);
	sbx_gate_notify(&slot->gate);
	sbx_run_put(run);
	return r;
}

void sbx_slot_refuse(struct sbx_slot *slot, const char *name, const struct sbx_err *why)
{
	struct sbx_run *run = promote(slot, SBX_RUN_PENDING);

	if (!run)
		return;
	run->name = strdup(name);
	sbx_run_refuse(run, SBX_RUN_REFUSED, why);
	sbx_gate_notify(&slot->gate);
	sbx_run_put(run);
}

struct sbx_run *sbx_slot_coming_release(struct sbx_slot *slot, struct sbx_run *coming)
{
	struct sbx_run *run;
	bool is_coming;

	sbx_lock(&slot->lock);
	is_coming = slot->coming == coming;
	run = sbx_run_get(is_coming ? slot->newest : coming);
	if (is_coming) {
		sbx_lock(&coming->lock);
		coming->ino_base = sbx_catalog_ino(slot->box->catalog, 1);
		sbx_unlock(&coming->lock);
	}
	sbx_unlock(&slot->lock);
	return run;
}
