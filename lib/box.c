/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_box.  Knows: the provider's lifecycle slots, slot.h, run.h.
 * Threads: on_state, on_progress and on_trouble run on the loop; the rest any.
 */
#include "box.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "catalog.h"
#include "config.h"
#include "run.h"
#include "settings.h"
#include "slot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
	[SBX_BOX_CREATING] = "creating", [SBX_BOX_RUNNING] = "running",
	[SBX_BOX_PAUSED] = "paused",	 [SBX_BOX_STOPPED] = "stopped",
	[SBX_BOX_FAILED] = "failed",	 [SBX_BOX_DELETING] = "deleting",
	[SBX_BOX_GONE] = "deleting",
};

const char *sbx_box_state_name(enum sbx_box_state state)
{
	return state_names[state];
}

struct sbx_box *sbx_box_get(struct sbx_box *box)
{
	atomic_fetch_add(&box->refs, 1);
	return box;
}

/* for an event of the provider, which holds no reference: false if the last one is gone already */
static bool get_alive(struct sbx_box *box)
{
	unsigned int refs = atomic_load(&box->refs);

	while (refs > 0) {
		if (atomic_compare_exchange_weak(&box->refs, &refs, refs + 1))
			return true;
	}
	return false;
}

static void on_free(struct sbx_task *task)
{
	struct sbx_box *box = sbx_container_of(task, struct sbx_box, free_task);

	sbx_lock_done(&box->lock);
	sbx_lock_done(&box->save_lock);
	free(box);
}

void sbx_box_put(struct sbx_box *box)
{
	struct sbx_list *p, *tmp;

	if (!box || atomic_fetch_sub(&box->refs, 1) != 1)
		return;
	sbx_list_for_each_safe (p, tmp, &box->slots)
		sbx_slot_put(sbx_container_of(p, struct sbx_slot, link));
	sbx_slot_put(box->run);
	sbx_list_for_each_safe (p, tmp, &box->runs)
		sbx_run_put(sbx_container_of(p, struct sbx_run, link));
	free(box->env);
	sbx_monitor_done(&box->monitor);
	if (box->pbox)
		box->catalog->ops->box_put(box->pbox);
	/* an event may be on its way into get_alive() at this moment, on the loop: there comes the end */
	box->free_task.fn = on_free;
	if (sbx_loop_inside(box->catalog->loop))
		on_free(&box->free_task);
	else
		sbx_loop_post(box->catalog->loop, &box->free_task);
}

const struct sbx_provider_ops *sbx_box_ops(const struct sbx_box *box)
{
	return box->catalog->ops;
}

struct sbx_pbox *sbx_box_pbox(const struct sbx_box *box)
{
	return box->pbox;
}

const char *sbx_box_name(const struct sbx_box *box)
{
	return box->name;
}

const struct sbx_languages *sbx_box_languages(const struct sbx_box *box)
{
	return box->template ? &box->template->languages : &box->catalog->config->languages;
}

bool sbx_box_deleted(struct sbx_box *box)
{
	bool deleted;

	sbx_lock(&box->lock);
	deleted = box->deleted;
	sbx_unlock(&box->lock);
	return deleted;
}

/* takes all runs that wait for the box, each with a reference; from now on their wait_link is the caller's */
static void take_waiting_locked(struct sbx_box *box, struct sbx_list *todo) SBX_REQUIRES(box->lock)
{
	struct sbx_list *p;

	sbx_list_for_each (p, &box->waiting)
		sbx_run_get(sbx_container_of(p, struct sbx_run, wait_link))->waiting = false;
	sbx_list_splice(todo, &box->waiting);
}

static bool start_or_wait(struct sbx_box *box, struct sbx_run *run);

static void each_waiting(struct sbx_box *box, struct sbx_list *todo, const struct sbx_err *why)
{
	while (!sbx_list_empty(todo)) {
		struct sbx_run *run = sbx_list_first(todo, struct sbx_run, wait_link);

		sbx_list_remove(&run->wait_link);
		if (why)
			sbx_run_refuse(run, SBX_RUN_LOST, why);
		else
			start_or_wait(box, run);
		sbx_run_put(run);
	}
}

/* box->state is CREATING and `starting` set; what waits is refused if it cannot be */
static int start_box(struct sbx_box *box, enum sbx_box_state before, struct sbx_err *err)
{
	struct sbx_err why = SBX_ERR_INIT;
	struct sbx_list todo;
	int r = sbx_box_ops(box)->box_start(box->pbox, &why);

	if (r == 0)
		return 0;
	sbx_list_init(&todo);
	sbx_lock(&box->lock);
	box->starting = false;
	box->state = before;
	take_waiting_locked(box, &todo);
	sbx_unlock(&box->lock);
	sbx_gate_notify(&box->gate);
	sbx_err_wrap(&why, r, "the sandbox could not be started");
	each_waiting(box, &todo, &why);
	if (err)
		*err = why;
	return r;
}

/*
 * @run is PENDING and listed, in no list of those that wait: it starts now if the box runs (true), else when it does; a stopped
 * one is woken.
 */
static bool start_or_wait(struct sbx_box *box, struct sbx_run *run)
{
	struct sbx_err why = SBX_ERR_INIT;
	enum sbx_box_state before;
	uint64_t seen = UINT64_MAX;
	bool now, wait, start;

	do {
		sbx_lock(&box->lock);
		before = box->state;
		/* it said no, and nothing was told since: its end is on the way */
		now = before == SBX_BOX_RUNNING && !box->stopping && box->events_n != seen;
		seen = box->events_n;
		wait = !now && !box->deleted && run->listed;
		start = wait && (before == SBX_BOX_STOPPED || before == SBX_BOX_FAILED);
		if (wait) {
			run->waiting = true;
			sbx_list_append(&box->waiting, &run->wait_link);
		}
		if (start) {
			box->starting = true;
			box->state = SBX_BOX_CREATING;
		}
		sbx_unlock(&box->lock);
	} while (now && sbx_run_start(run) == -EAGAIN);
	if (start) {
		start_box(box, before, NULL); /* the run tells why not */
	} else if (!now && !wait) {
		sbx_err_set(&why, ECANCELED, "ended before it started");
		sbx_run_refuse(run, SBX_RUN_LOST, &why);
	}
	return now;
}

static int call_stop(struct sbx_box *box, struct sbx_err *err)
{
	int r = sbx_box_ops(box)->box_stop(box->pbox, err);

	if (r < 0) {
		sbx_lock(&box->lock);
		box->stopping = box->start_again = false;
		sbx_unlock(&box->lock);
	}
	return r;
}

static void on_state(void *data, enum sbx_box_state state, const struct sbx_err *why)
{
	struct sbx_box *box = data;
	struct sbx_err reason = SBX_ERR_INIT;
	struct sbx_list todo;
	bool deleted, start = false, stop;

	if (!get_alive(box))
		return;
	sbx_list_init(&todo);
	sbx_lock(&box->lock);
	deleted = box->deleted;
	if (!deleted) {
		box->state = state;
		if (state == SBX_BOX_RUNNING) {
			if (box->used.idle_stopped)
				box->last = (struct sbx_err)SBX_ERR_INIT;
			box->used.idle_stopped = false;
			box->used.at_ms = (int64_t)sbx_clock_ms(); /* however long it took */
		}
		if (why && why->code) /* whoever sees the state finds its reason in `error` */
			box->last = *why;
	}
	box->events_n++;
	box->starting = false;
	box->pausing = false;
	stop = box->stop_later && !deleted && (state == SBX_BOX_CREATING || state == SBX_BOX_RUNNING);
	box->stop_later = false;
	if (state == SBX_BOX_STOPPED || state == SBX_BOX_FAILED) {
		start = state == SBX_BOX_STOPPED && !deleted && (box->start_again || !sbx_list_empty(&box->waiting));
		box->stopping = box->start_again = false;
	}
	if (start) { /* a run, or `start`, came while it was being stopped */
		box->state = SBX_BOX_CREATING;
		box->starting = true;
	}
	if ((state == SBX_BOX_RUNNING && !box->stopping) || state == SBX_BOX_FAILED || deleted)
		take_waiting_locked(box, &todo);
	sbx_unlock(&box->lock);

	sbx_catalog_event(box->catalog, box->name, "%s%s%s", state == SBX_BOX_GONE ? "deleted" : state_names[state],
			  why && why->code ? ": " : "", why && why->code ? why->text : "");
	if (why && why->code && !deleted)
		sbx_box_fail(box, "start", NULL, why);
	if (state == SBX_BOX_FAILED || deleted) {
		sbx_err_set(&reason, deleted ? ECANCELED : EIO, "the sandbox %s%s%s",
			    deleted ? "was deleted" : "could not be started",
			    why && why->code ? ": " : "", why && why->code ? why->text : "");
		each_waiting(box, &todo, &reason);
	} else {
		if (state == SBX_BOX_RUNNING)
			sbx_monitor_restarted(&box->monitor);
		if (state == SBX_BOX_RUNNING && !sbx_list_empty(&todo))
			sbx_monitor_active(&box->monitor);
		each_waiting(box, &todo, NULL);
	}
	if (stop)
		call_stop(box, NULL);
	if (start) {
		struct sbx_err failed = SBX_ERR_INIT;

		if (start_box(box, SBX_BOX_STOPPED, &failed) < 0)
			sbx_box_fail(box, "start", NULL, &failed);
	}
	sbx_gate_notify(&box->gate);
	if (state == SBX_BOX_RUNNING || state == SBX_BOX_FAILED)
		sbx_policy_watch(&box->catalog->policy, box);
	if (state == SBX_BOX_GONE)
		sbx_catalog_gone(box->catalog, box);
	sbx_box_put(box);
}

static void on_progress(void *data, const char *text)
{
	struct sbx_box *box = data;

	if (!get_alive(box))
		return;
	sbx_catalog_event(box->catalog, box->name, "%s", text);
	sbx_box_put(box);
}

static void on_trouble(void *data, const char *op, const struct sbx_err *why)
{
	struct sbx_box *box = data;

	sbx_catalog_event(box->catalog, box->name, "%s", why->text);
	sbx_box_fail(box, op, NULL, why);
	sbx_gate_notify(&box->gate);
}

static const struct sbx_box_events box_events = { .state = on_state, .progress = on_progress, .trouble = on_trouble };

int sbx_box_new(struct sbx_catalog *catalog, const char *name, const struct sbx_template *template,
		struct sbx_box **ret, struct sbx_err *err)
{
	struct sbx_box *box = calloc(1, sizeof(*box));
	struct sbx_pbox_info info;
	int r;

	if (!box)
		return sbx_err_set(err, ENOMEM, "no memory for sandbox '%s'", name);
	atomic_init(&box->refs, 1);
	box->catalog = catalog;
	strncpy(box->name, name, sizeof(box->name) - 1);
	box->ino_base = sbx_catalog_ino(catalog, 1);
	box->monitor_ino = sbx_catalog_ino(catalog, SBX_MONITOR_INOS / 256);
	sbx_gate_init(&box->gate);
	sbx_lock_init(&box->lock);
	sbx_lock_init(&box->save_lock);
	sbx_monitor_init(&box->monitor, box);
	sbx_list_init(&box->deleting);
	sbx_list_init(&box->slots);
	sbx_list_init(&box->runs);
	sbx_list_init(&box->waiting);
	box->next_id = 1;
	box->used.at_ms = (int64_t)sbx_clock_ms();
	box->state = template ? SBX_BOX_CREATING : SBX_BOX_STOPPED;
	r = sbx_slot_new(box, "", &box->run, err);
	if (r == 0 && template)
		r = catalog->ops->box_create(catalog->provider, name, template, &box_events, box,
					     &box->pbox, err);
	else if (r == 0)
		r = catalog->ops->box_open(catalog->provider, name, &box_events, box, &box->pbox, err);
	if (r < 0) {
		sbx_box_put(box);
		return r;
	}
	catalog->ops->box_info(box->pbox, &info);
	box->template = sbx_config_template(catalog->config, info.template ? info.template : "default");
	if (!template)
		sbx_settings_load(box);
	*ret = box;
	return 0;
}

/* every run gets SIGKILL, every one that waits is refused */
static void end_runs(struct sbx_box *box, const struct sbx_err *why)
{
	struct sbx_list todo, *p;
	struct sbx_run **going = NULL;
	size_t n = 0, room = 0, i;

	sbx_list_init(&todo);
	sbx_lock(&box->lock);
	take_waiting_locked(box, &todo);
	sbx_list_for_each (p, &box->runs)
		room++;
	going = calloc(room ? room : 1, sizeof(struct sbx_run *));
	if (going) {
		sbx_list_for_each (p, &box->runs)
			going[n++] = sbx_run_get(sbx_container_of(p, struct sbx_run, link));
	}
	sbx_unlock(&box->lock);
	each_waiting(box, &todo, why);
	for (i = 0; i < n; i++) {
		sbx_run_kill(going[i]);
		sbx_run_put(going[i]);
	}
	free(going);
}

void sbx_box_delete(struct sbx_box *box)
{
	struct sbx_err why = SBX_ERR_INIT;
	struct sbx_slot **slots = NULL;
	struct sbx_list *p;
	size_t n = 0, i;

	sbx_err_set(&why, ECANCELED, "the sandbox was deleted");
	sbx_catalog_deleting(box->catalog, box);
	sbx_monitor_stop(&box->monitor);
	sbx_lock(&box->lock);
	box->deleted = true;
	box->state = SBX_BOX_DELETING;
	slots = calloc(box->slots_n + 1, sizeof(struct sbx_slot *));
	if (slots) {
		sbx_list_for_each (p, &box->slots)
			slots[n++] = sbx_slot_get(sbx_container_of(p, struct sbx_slot, link));
	}
	sbx_unlock(&box->lock);
	sbx_lock(&box->save_lock); /* a save that goes on ends first; none comes after it */
	box->catalog->ops->box_delete(box->pbox);
	sbx_unlock(&box->save_lock);
	end_runs(box, &why);
	sbx_gate_notify(&box->gate);
	sbx_gate_notify(&box->run->gate);
	for (i = 0; i < n; i++) {
		sbx_gate_notify(&slots[i]->gate);
		sbx_slot_put(slots[i]);
	}
	free(slots);
}

void sbx_box_close(struct sbx_box *box)
{
	struct sbx_err why = SBX_ERR_INIT;

	sbx_err_set(&why, ESHUTDOWN, "the mount has ended");
	sbx_monitor_stop(&box->monitor);
	if (sbx_use_closing(box))
		sbx_settings_save(box);
	end_runs(box, &why);
}

enum sbx_box_state sbx_box_state(struct sbx_box *box, struct sbx_err *why)
{
	enum sbx_box_state state;

	sbx_lock(&box->lock);
	state = box->stopping && box->start_again ? SBX_BOX_CREATING : box->state;
	if (why)
		*why = box->last;
	sbx_unlock(&box->lock);
	return state;
}

static int verb_start(struct sbx_box *box, struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(box);
	enum sbx_box_state before;
	bool resume, start = false;

	sbx_lock(&box->lock);
	before = box->state;
	resume = !box->stopping && (before == SBX_BOX_PAUSED || (before == SBX_BOX_RUNNING && box->pausing));
	if (box->stop_later) {
		box->stopping = box->stop_later = false; /* it is starting anyway */
	} else if (box->stopping) {
		box->start_again = true;
	} else if (before == SBX_BOX_STOPPED || before == SBX_BOX_FAILED) {
		start = box->starting = true;
		box->state = SBX_BOX_CREATING;
	}
	box->pausing = box->pausing && !resume;
	sbx_unlock(&box->lock);
	if (resume)
		return ops->box_resume(box->pbox, err);
	return start ? start_box(box, before, err) : 0;
}

/* @again: and start then.  @still: see sbx_box_stop_if, NULL: in any case */
static int verb_stop(struct sbx_box *box, bool again, bool (*still)(struct sbx_box *box, void *data), void *data,
		     struct sbx_err *err)
{
	bool stop, later;

	sbx_lock(&box->lock);
	if (still && !still(box, data)) {
		sbx_unlock(&box->lock);
		return -EBUSY;
	}
	/* STOPPED will come only if there is something to stop */
	stop = !box->stopping && !(again && box->starting) &&
	       (box->state == SBX_BOX_RUNNING || box->state == SBX_BOX_PAUSED || box->state == SBX_BOX_CREATING);
	later = stop && box->starting;
	if (stop)
		box->stopping = true;
	if (later)
		box->stop_later = true;
	if (box->stopping)
		box->start_again = again;
	sbx_unlock(&box->lock);
	if (!stop)
		return again ? verb_start(box, err) : 0;
	return later ? 0 : call_stop(box, err);
}

int sbx_box_stop_if(struct sbx_box *box, bool (*still)(struct sbx_box *box, void *data), void *data,
		    struct sbx_err *err)
{
	return verb_stop(box, false, still, data, err);
}

int sbx_box_verb(struct sbx_box *box, const char *verb, size_t len, struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(box);
	enum sbx_box_state state = sbx_box_state(box, NULL);
	bool pause;
	int r;

	verb = sbx_text_trim(verb, &len);
	if (len == 5 && memcmp(verb, "start", 5) == 0)
		return verb_start(box, err);
	if (len == 4 && memcmp(verb, "stop", 4) == 0)
		return verb_stop(box, false, NULL, NULL, err);
	if (len == 5 && memcmp(verb, "pause", 5) == 0) {
		if (state == SBX_BOX_PAUSED)
			return 0;
		sbx_lock(&box->lock);
		pause = box->state == SBX_BOX_RUNNING && !box->stopping;
		box->pausing = pause;
		sbx_unlock(&box->lock);
		if (!pause)
			return sbx_err_set(err, EINVAL, "the sandbox is %s: only a running one can pause",
					   state == SBX_BOX_RUNNING ? "being stopped" : state_names[state]);
		r = ops->box_pause(box->pbox, err);
		if (r < 0) {
			sbx_lock(&box->lock);
			box->pausing = false;
			sbx_unlock(&box->lock);
		}
		return r;
	}
	if (len == 7 && memcmp(verb, "restart", 7) == 0)
		return verb_stop(box, true, NULL, NULL, err);
	return sbx_err_set(err, EINVAL, "'%.*s' is not one of start, stop, pause, restart",
			   (int)(len > 40 ? 40 : len), verb);
}

void sbx_box_fail(struct sbx_box *box, const char *op, const char *path, const struct sbx_err *err)
{
	sbx_lock(&box->lock);
	box->last = *err;
	sbx_unlock(&box->lock);
	sbx_catalog_fail(box->catalog, box->name, op, path, err);
}

void sbx_box_error(struct sbx_box *box, struct sbx_buf *out)
{
	sbx_lock(&box->lock);
	if (box->last.code)
		sbx_buf_printf(out, "%s\n", box->last.text);
	sbx_unlock(&box->lock);
}

void sbx_box_error_clear(struct sbx_box *box)
{
	sbx_lock(&box->lock);
	box->last = (struct sbx_err)SBX_ERR_INIT;
	sbx_unlock(&box->lock);
}

void sbx_box_settings_changed(struct sbx_box *box)
{
	if (!box->loading)
		sbx_settings_save(box);
}

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
	if (start_or_wait(box, run))
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
