/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_box.  Knows: the provider's lifecycle slots, slot.h, run.h.
 * Threads: on_state, on_progress and on_trouble run on the loop; the rest any.
 */
#include "box_own.h"

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

#define RETRY_MS 20 /* after a start for which the daemon had no descriptor */

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

static void each_waiting(struct sbx_box *box, struct sbx_list *todo, const struct sbx_err *why)
{
	while (!sbx_list_empty(todo)) {
		struct sbx_run *run = sbx_list_first(todo, struct sbx_run, wait_link);

		sbx_list_remove(&run->wait_link);
		if (why)
			sbx_run_refuse(run, SBX_RUN_LOST, why);
		else
			sbx_box_start_or_wait(box, run);
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

/* the descriptors of programs that ended meanwhile are there again */
static void on_retry(struct sbx_timer *timer)
{
	struct sbx_box *box = sbx_container_of(timer, struct sbx_box, retry_timer);
	struct sbx_list todo;

	sbx_list_init(&todo);
	sbx_lock(&box->lock);
	box->starved = false;
	if (box->state == SBX_BOX_RUNNING && !box->stopping) /* else the next event takes them */
		take_waiting_locked(box, &todo);
	sbx_unlock(&box->lock);
	if (!sbx_list_empty(&todo))
		sbx_monitor_active(&box->monitor);
	each_waiting(box, &todo, NULL);
	sbx_box_put(box);
}

static void starve(struct sbx_box *box)
{
	bool was;

	sbx_lock(&box->lock);
	was = box->starved;
	box->starved = true;
	sbx_unlock(&box->lock);
	if (was)
		return;
	sbx_box_get(box);
	sbx_timer_set(box->catalog->loop, &box->retry_timer, RETRY_MS);
}

/* at the end of a box; what waits is refused by the caller */
static void end_starving(struct sbx_box *box)
{
	if (!sbx_timer_cancel(box->catalog->loop, &box->retry_timer))
		return;
	sbx_lock(&box->lock);
	box->starved = false;
	sbx_unlock(&box->lock);
	sbx_box_put(box); /* the timer's */
}

bool sbx_box_start_or_wait(struct sbx_box *box, struct sbx_run *run)
{
	struct sbx_err why = SBX_ERR_INIT;
	enum sbx_box_state before;
	uint64_t seen = UINT64_MAX;
	bool now, wait, start;
	int r;

	do {
		sbx_lock(&box->lock);
		before = box->state;
		/* it said no, and nothing was told since: its end is on the way */
		now = before == SBX_BOX_RUNNING && !box->stopping && !box->starved && box->events_n != seen;
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
		r = now ? sbx_run_start(run) : 0;
		if (r == -EMFILE)
			starve(box);
	} while (r < 0);
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

	if (state != SBX_BOX_DELETING) /* that was told when it was asked for, with its reason */
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
	box->retry_timer.fn = on_retry;
	box->next_id = 1;
	box->used.at_ms = (int64_t)sbx_clock_ms();
	box->state = template ? SBX_BOX_CREATING : SBX_BOX_STOPPED;
	box->template = template; /* before the first event, which may come at once */
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
	if (!template) { /* there are no events before it is started */
		catalog->ops->box_info(box->pbox, &info);
		box->template = sbx_config_template(catalog->config, info.template ? info.template : "default");
		sbx_settings_load(box);
	}
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
	end_starving(box);
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
	end_starving(box);
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
