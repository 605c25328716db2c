/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what lies in a box: its runs and background processes, its slots, its env.  Knows: run.h, slot.h.  Any thread. */
#include "box_own.h"

#include "base/buf.h"
#include "base/text.h"
#include "catalog.h"
#include "run.h"
#include "settings.h"
#include "slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- runs ---- */

static uint64_t output_limit(struct sbx_box *box)
{
	struct sbx_pbox_info info;

	sbx_box_ops(box)->box_info(box->pbox, &info);
	return info.limits.output_bytes;
}

/* gives @run its ID and a place in the list, with a reference; a background process has them already */
static void list_run_locked(struct sbx_box *box, struct sbx_run *run) SBX_REQUIRES(box->lock)
{
	if (run->listed)
		return;
	sbx_lock(&run->lock);
	run->id = box->next_id++;
	sbx_unlock(&run->lock);
	sbx_run_get(run);
	run->listed = true;
	sbx_list_append(&box->runs, &run->link);
}

static struct sbx_run *find_label_locked(struct sbx_box *box, const char *label) SBX_REQUIRES(box->lock)
{
	struct sbx_list *p;

	sbx_list_for_each (p, &box->runs) {
		struct sbx_run *run = sbx_container_of(p, struct sbx_run, link);

		if (run->label && strcmp(run->label, label) == 0)
			return run;
	}
	return NULL;
}

/* how many were named and have no command yet */
static unsigned int unstarted_locked(struct sbx_box *box) SBX_REQUIRES(box->lock)
{
	struct sbx_list *p;
	unsigned int n = 0;

	sbx_list_for_each (p, &box->runs)
		n += sbx_run_state(sbx_container_of(p, struct sbx_run, link)) == SBX_RUN_NONE;
	return n;
}

int sbx_box_process_new(struct sbx_box *box, const char *label, struct sbx_run **ret, struct sbx_err *err)
{
	struct sbx_run *run;
	int r = 0;

	if (label && (!sbx_text_box_name(label) || strspn(label, "0123456789") == strlen(label) ||
		      strcmp(label, "new") == 0 || strcmp(label, "last") == 0))
		return sbx_err_set(err, EINVAL,
				   "process name '%.80s': letters, digits, '.', '_', '-', up to 63, not digits only", label);
	if (atomic_load(&box->active) >= SBX_RUNS_MAX)
		return sbx_err_set(err, EAGAIN, "%u programs are going on in '%s': wait for some to end",
				   SBX_RUNS_MAX, box->name);
	run = sbx_run_new(box, SBX_RUN_NONE);
	if (!run)
		return sbx_err_set(err, ENOMEM, "no memory for a process");
	run->background = true;
	run->timeout_ms = UINT64_MAX;
	run->label = label ? strdup(label) : NULL;
	run->cwd = strdup("");
	run->box_env = sbx_box_env_vector(box);
	run->output_bytes = output_limit(box);
	if ((label && !run->label) || !run->cwd || !run->box_env) {
		sbx_run_put(run);
		return sbx_err_set(err, ENOMEM, "no memory for a process");
	}
	sbx_lock(&box->lock);
	if (box->deleted)
		r = -ESTALE;
	else if (label && find_label_locked(box, label))
		r = -EEXIST;
	else if (label && unstarted_locked(box) >= SBX_UNSTARTED_MAX)
		r = sbx_err_set(err, ENOSPC, "%u processes in '%s' have no command yet: write it, or rmdir some",
				SBX_UNSTARTED_MAX, box->name);
	else
		list_run_locked(box, run);
	sbx_unlock(&box->lock);
	if (r < 0) {
		sbx_run_put(run);
		return r;
	}
	*ret = run;
	return 0;
}

struct sbx_run *sbx_box_find_label(struct sbx_box *box, const char *label)
{
	struct sbx_run *run;

	sbx_lock(&box->lock);
	run = find_label_locked(box, label);
	if (run)
		sbx_run_get(run);
	sbx_unlock(&box->lock);
	return run;
}

struct sbx_run *sbx_box_last_process(struct sbx_box *box)
{
	struct sbx_run *run = NULL;
	struct sbx_list *p;

	sbx_lock(&box->lock);
	for (p = box->runs.prev; p != &box->runs && !run; p = p->prev) {
		struct sbx_run *r = sbx_container_of(p, struct sbx_run, link);

		if (r->background)
			run = sbx_run_get(r);
	}
	sbx_unlock(&box->lock);
	return run;
}

/* ---- env ---- */

int sbx_box_env_read(struct sbx_box *box, struct sbx_buf *out)
{
	int r;

	sbx_lock(&box->lock);
	r = sbx_buf_text(out, box->env ? box->env : "");
	sbx_unlock(&box->lock);
	return r;
}

int sbx_box_env_write(struct sbx_box *box, const char *text, size_t len, struct sbx_err *err)
{
	struct sbx_buf value = SBX_BUF_INIT;
	int r = sbx_env_check(text, len, err);

	if (r < 0)
		return r;
	sbx_buf_append(&value, text, len);
	if (len > 0 && text[len - 1] != '\n')
		sbx_buf_text(&value, "\n");
	if (value.failed) {
		sbx_buf_done(&value);
		return sbx_err_set(err, ENOMEM, "no memory for env");
	}
	sbx_lock(&box->lock);
	free(box->env);
	box->env = value.data;
	sbx_unlock(&box->lock);
	sbx_box_settings_changed(box);
	return 0;
}

char **sbx_box_env_vector(struct sbx_box *box)
{
	char **v;

	sbx_lock(&box->lock);
	v = sbx_lines(box->env ? box->env : "", box->env ? strlen(box->env) : 0, true);
	sbx_unlock(&box->lock);
	return v;
}

int sbx_box_submit(struct sbx_box *box, struct sbx_run *run, struct sbx_err *err)
{
	if (atomic_load(&box->active) >= SBX_RUNS_MAX)
		return sbx_err_set(err, EAGAIN, "%u runs are going on in '%s': wait for some to end",
				   SBX_RUNS_MAX, box->name);
	sbx_lock(&box->lock);
	if (box->deleted) {
		sbx_unlock(&box->lock);
		return sbx_err_set(err, ESTALE, "the sandbox was deleted");
	}
	atomic_fetch_add(&box->active, 1);
	atomic_fetch_add(&box->catalog->runs_started, 1);
	sbx_lock(&run->lock);
	run->active = true;
	sbx_unlock(&run->lock);
	list_run_locked(box, run);
	sbx_unlock(&box->lock);
	if (sbx_box_start_or_wait(box, run))
		sbx_monitor_active(&box->monitor);
	return 0;
}

/* over, and not a process that still waits for its command */
static bool run_ended(struct sbx_run *run)
{
	enum sbx_run_state state = sbx_run_state(run);

	return state != SBX_RUN_NONE && sbx_run_over(run);
}

void sbx_box_run_over(struct sbx_box *box)
{
	struct sbx_list *p, *tmp, drop;
	unsigned int kept = 0;

	sbx_list_init(&drop);
	sbx_lock(&box->lock);
	sbx_list_for_each (p, &box->runs)
		kept += run_ended(sbx_container_of(p, struct sbx_run, link));
	sbx_list_for_each_safe (p, tmp, &box->runs) {
		struct sbx_run *run = sbx_container_of(p, struct sbx_run, link);

		if (kept <= SBX_RUNS_KEPT)
			break;
		if (!run_ended(run) || atomic_load(&run->shown) > 0)
			continue;
		kept--;
		run->listed = false;
		sbx_list_remove(p);
		sbx_list_append(&drop, p);
	}
	sbx_unlock(&box->lock);
	while (!sbx_list_empty(&drop)) {
		struct sbx_run *run = sbx_list_first(&drop, struct sbx_run, link);

		sbx_list_remove(&run->link);
		sbx_run_put(run);
	}
}

struct sbx_run *sbx_box_find_run(struct sbx_box *box, uint64_t id)
{
	struct sbx_run *found = NULL;
	struct sbx_list *p;

	sbx_lock(&box->lock);
	sbx_list_for_each (p, &box->runs) {
		struct sbx_run *run = sbx_container_of(p, struct sbx_run, link);

		if (sbx_run_id(run) == id) {
			found = sbx_run_get(run);
			break;
		}
	}
	sbx_unlock(&box->lock);
	return found;
}

void sbx_box_forget_run(struct sbx_box *box, struct sbx_run *run)
{
	bool listed;

	sbx_run_end(run);
	sbx_lock(&box->lock);
	listed = run->listed;
	run->listed = false;
	if (listed)
		sbx_list_remove(&run->link);
	if (run->waiting) /* else whoever took it may be walking its list */
		sbx_list_remove(&run->wait_link);
	run->waiting = false;
	sbx_unlock(&box->lock);
	if (listed)
		sbx_run_put(run);
}

/* ---- slots ---- */

static struct sbx_slot *find_slot_locked(struct sbx_box *box, const char *name) SBX_REQUIRES(box->lock)
{
	struct sbx_list *p;

	sbx_list_for_each (p, &box->slots) {
		struct sbx_slot *slot = sbx_container_of(p, struct sbx_slot, link);

		if (strcmp(slot->name, name) == 0)
			return slot;
	}
	return NULL;
}

int sbx_box_slot_new(struct sbx_box *box, const char *name, struct sbx_slot **ret, struct sbx_err *err)
{
	struct sbx_slot *slot;
	int r;

	if (!sbx_text_box_name(name))
		return sbx_err_set(err, EINVAL,
				   "slot name '%s': up to 63 letters, digits, '.', '_', '-', the first a letter or digit",
				   name);
	r = sbx_slot_new(box, name, &slot, err);
	if (r < 0)
		return r;
	sbx_lock(&box->lock);
	if (box->deleted)
		r = -ESTALE;
	else if (find_slot_locked(box, name))
		r = -EEXIST;
	else if (box->slots_n >= SBX_SLOTS_MAX)
		r = sbx_err_set(err, ENOSPC, "a sandbox has at most %u slots", SBX_SLOTS_MAX);
	if (r < 0) {
		sbx_unlock(&box->lock);
		sbx_slot_put(slot);
		return r;
	}
	sbx_list_append(&box->slots, &slot->link);
	box->slots_n++;
	*ret = sbx_slot_get(slot);
	sbx_unlock(&box->lock);
	sbx_box_settings_changed(box);
	return 0;
}

int sbx_box_slot_remove(struct sbx_box *box, const char *name)
{
	struct sbx_slot *slot;

	sbx_lock(&box->lock);
	slot = find_slot_locked(box, name);
	if (slot) {
		sbx_list_remove(&slot->link);
		box->slots_n--;
	}
	sbx_unlock(&box->lock);
	if (!slot)
		return -ENOENT;
	sbx_slot_remove(slot);
	sbx_slot_put(slot);
	sbx_box_settings_changed(box);
	return 0;
}

struct sbx_slot *sbx_box_slot_find(struct sbx_box *box, const char *name)
{
	struct sbx_slot *slot;

	sbx_lock(&box->lock);
	slot = find_slot_locked(box, name);
	if (slot)
		sbx_slot_get(slot);
	sbx_unlock(&box->lock);
	return slot;
}

void sbx_box_slots(struct sbx_box *box, void (*each)(void *data, struct sbx_slot *slot), void *data)
{
	struct sbx_list *p;

	sbx_lock(&box->lock);
	sbx_list_for_each (p, &box->slots)
		each(data, sbx_container_of(p, struct sbx_slot, link));
	sbx_unlock(&box->lock);
}
