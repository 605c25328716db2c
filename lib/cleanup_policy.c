/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_policy: one timer for all boxes, set to the moment when something can be due first.
 * Threads: on_timer is the loop's; see cleanup_policy.h.
 */
#include "cleanup_policy.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "use.h"

#include <errno.h>
#include <stdlib.h>

#define GRACE_MS 60000
#define LOOK_MS_MAX 3600000 /* the age is measured by the clock on the wall, which may be set */

static int64_t later(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* @ms are many, and UINT64_MAX is for ever */
static int64_t after(int64_t from, uint64_t ms)
{
	return ms > INT64_MAX / 2 ? INT64_MAX : from + (int64_t)ms;
}

static uint64_t grace(uint64_t ms)
{
	return ms < GRACE_MS ? ms : GRACE_MS;
}

enum sbx_cleanup_action sbx_cleanup_decide(const struct sbx_cleanup *c, const struct sbx_use *use, int64_t now_ms,
					   int64_t *ret_next_ms)
{
	int64_t used = use->busy ? now_ms : use->used_ms, next = INT64_MAX, at;

	if (c->max_age_ms != UINT64_MAX) {
		at = later(after(use->made_ms, c->max_age_ms),
			   later(after(used, grace(c->max_age_ms)), after(use->mounted_ms, grace(c->max_age_ms))));
		if (at <= now_ms)
			return SBX_CLEANUP_AGE_DELETE;
		next = at;
	}
	if (c->idle_ms != UINT64_MAX && (use->up || use->busy || c->idle_deletes)) {
		at = later(after(used, c->idle_ms), after(use->mounted_ms, grace(c->idle_ms)));
		if (at <= now_ms)
			return c->idle_deletes ? SBX_CLEANUP_IDLE_DELETE : SBX_CLEANUP_STOP;
		if (at < next)
			next = at;
	}
	*ret_next_ms = next;
	return SBX_CLEANUP_NOTHING;
}

/* ---- the timer ---- */

/* no later than @at_ms */
static void set_locked(struct sbx_policy *p, int64_t at_ms, int64_t now_ms) SBX_REQUIRES(p->lock)
{
	if (p->stopped || p->at_ms <= at_ms || at_ms == INT64_MAX)
		return;
	if (at_ms > now_ms + LOOK_MS_MAX)
		at_ms = now_ms + LOOK_MS_MAX;
	if (p->at_ms <= at_ms)
		return;
	p->at_ms = at_ms;
	sbx_timer_set(p->catalog->loop, &p->timer, at_ms > now_ms ? (uint64_t)(at_ms - now_ms) : 0);
}

static void say(const struct sbx_cleanup *c, enum sbx_cleanup_action action, struct sbx_err *ret)
{
	char n[SBX_TEXT_NUMBER_MAX];

	if (action == SBX_CLEANUP_AGE_DELETE)
		sbx_err_set(ret, ECANCELED, "older than %s s (cleanup.max_age)",
			    sbx_text_print_duration(c->max_age_ms, n));
	else
		sbx_err_set(ret, ECANCELED, "not used for %s s (cleanup.idle)", sbx_text_print_duration(c->idle_ms, n));
}

/* does what is due with @box; when to look again */
static int64_t look(struct sbx_policy *p, struct sbx_box *box)
{
	const struct sbx_cleanup *c = sbx_use_policy(box);
	struct sbx_err why = SBX_ERR_INIT;
	enum sbx_cleanup_action action;
	int64_t next = INT64_MAX;

	if (!c)
		return next;
	action = sbx_use_decide(box, c, p->mounted_ms, &next);
	if (action == SBX_CLEANUP_NOTHING)
		return next;
	say(c, action, &why);
	/* each looks again, under the box's lock: it may be in use by now */
	if (action == SBX_CLEANUP_STOP)
		sbx_use_stop(box, c, p->mounted_ms, &why);
	else
		sbx_use_delete(box, c, p->mounted_ms, &why);
	if (sbx_use_decide(box, c, p->mounted_ms, &next) != SBX_CLEANUP_NOTHING)
		next = (int64_t)sbx_clock_ms() + GRACE_MS; /* the provider could not */
	return next;
}

static void on_timer(struct sbx_timer *timer)
{
	struct sbx_policy *p = sbx_container_of(timer, struct sbx_policy, timer);
	struct sbx_box **boxes = NULL;
	int64_t next = INT64_MAX, at, now;
	size_t n = 0, i;
	bool stopped;

	sbx_lock(&p->lock);
	p->at_ms = INT64_MAX;
	stopped = p->stopped;
	p->working = !stopped;
	sbx_unlock(&p->lock);
	if (stopped)
		return;
	if (sbx_catalog_snapshot(p->catalog, &boxes, &n) < 0)
		next = (int64_t)sbx_clock_ms() + GRACE_MS;
	for (i = 0; i < n; i++) {
		at = look(p, boxes[i]);
		if (at < next)
			next = at;
		sbx_box_put(boxes[i]);
	}
	free(boxes);
	now = (int64_t)sbx_clock_ms();
	sbx_lock(&p->lock);
	set_locked(p, next, now);
	p->working = false;
	pthread_cond_broadcast(&p->idle);
	sbx_unlock(&p->lock);
}

void sbx_policy_watch(struct sbx_policy *p, struct sbx_box *box)
{
	const struct sbx_cleanup *c = sbx_use_policy(box);
	int64_t next = INT64_MAX, now;

	if (!c)
		return;
	now = (int64_t)sbx_clock_ms();
	if (sbx_use_decide(box, c, p->mounted_ms, &next) != SBX_CLEANUP_NOTHING)
		next = now;
	sbx_lock(&p->lock);
	set_locked(p, next, now);
	sbx_unlock(&p->lock);
}

void sbx_policy_init(struct sbx_policy *p, struct sbx_catalog *catalog)
{
	p->catalog = catalog;
	p->timer.fn = on_timer;
	p->mounted_ms = (int64_t)sbx_clock_ms();
	p->at_ms = INT64_MAX;
	sbx_lock_init(&p->lock);
	pthread_cond_init(&p->idle, NULL);
}

void sbx_policy_stop(struct sbx_policy *p)
{
	sbx_lock(&p->lock);
	p->stopped = true;
	sbx_timer_cancel(p->catalog->loop, &p->timer);
	while (p->working)
		pthread_cond_wait(&p->idle, &p->lock.mutex);
	sbx_unlock(&p->lock);
}

void sbx_policy_done(struct sbx_policy *p)
{
	pthread_cond_destroy(&p->idle);
	sbx_lock_done(&p->lock);
}
