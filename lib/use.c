/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_used, and what is done to a box that nobody uses.  Threads: see use.h. */
#include "use.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORE_MS_MIN 60000

/* ---- use ---- */

static int64_t now_ms(void)
{
	return (int64_t)sbx_clock_ms();
}

static int64_t wall_ms(void)
{
	struct timespec t = sbx_clock_wall();

	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool does_something(const struct sbx_cleanup *c)
{
	return c->idle_ms != UINT64_MAX || c->max_age_ms != UINT64_MAX;
}

const struct sbx_cleanup *sbx_use_policy(const struct sbx_box *box)
{
	const struct sbx_cleanup *c = box->template ? &box->template->cleanup : &box->catalog->config->cleanup;

	return does_something(c) ? c : NULL;
}

bool sbx_use_any(const struct sbx_config *config)
{
	bool any = does_something(&config->cleanup);
	size_t i;

	for (i = 0; i < config->templates_n; i++)
		any = any || does_something(&config->templates[i].cleanup);
	return any;
}

/* how old may the stored time be? A disk write per use would be dear, and an hour need not be known to the second */
static int64_t store_step_ms(const struct sbx_cleanup *c)
{
	uint64_t least = c->idle_ms < c->max_age_ms ? c->idle_ms : c->max_age_ms;

	return least / 16 > STORE_MS_MIN ? (int64_t)(least / 16) : STORE_MS_MIN;
}

void sbx_box_used(struct sbx_box *box)
{
	const struct sbx_cleanup *c = sbx_use_policy(box);
	int64_t now;
	bool store;

	if (!c)
		return;
	sbx_lock(&box->lock);
	now = now_ms(); /* under the lock: it must not go back */
	box->used.at_ms = now;
	store = !box->deleted && !sbx_loop_inside(box->catalog->loop) && now - box->used.stored_ms >= store_step_ms(c);
	if (store)
		box->used.stored_ms = now;
	sbx_unlock(&box->lock);
	if (store)
		sbx_box_settings_changed(box);
}

int sbx_box_opened(struct sbx_box *box)
{
	bool deleted;

	sbx_lock(&box->lock);
	deleted = box->deleted;
	if (!deleted)
		box->used.open++;
	sbx_unlock(&box->lock);
	return deleted ? -ESTALE : 0;
}

void sbx_box_closed(struct sbx_box *box)
{
	sbx_lock(&box->lock);
	box->used.open--;
	box->used.at_ms = now_ms();
	sbx_unlock(&box->lock);
}

/* ---- no use ---- */

static void fill_locked(struct sbx_box *box, const struct sbx_pbox_info *info, int64_t mounted_ms, int64_t now,
			struct sbx_use *ret) SBX_REQUIRES(box->lock)
{
	int64_t age = wall_ms() - ((int64_t)info->created.tv_sec * 1000 + info->created.tv_nsec / 1000000);

	ret->busy = atomic_load(&box->active) > 0 || box->used.open > 0 || box->state == SBX_BOX_CREATING;
	ret->up = (box->state == SBX_BOX_RUNNING || box->state == SBX_BOX_PAUSED) && !box->stopping;
	ret->used_ms = box->used.at_ms;
	ret->made_ms = now - (age > 0 ? age : 0);
	ret->mounted_ms = mounted_ms;
}

/* what a look needs; asked before box->lock is taken, as it comes from the provider */
struct question {
	const struct sbx_cleanup *cleanup;
	int64_t mounted_ms;
	struct sbx_pbox_info info;
	const struct sbx_err *why;
};

static struct question ask(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
			   const struct sbx_err *why)
{
	struct question q = { .cleanup = cleanup, .mounted_ms = mounted_ms, .why = why };

	sbx_box_ops(box)->box_info(sbx_box_pbox(box), &q.info);
	return q;
}

static enum sbx_cleanup_action decide_locked(struct sbx_box *box, const struct question *q, int64_t *ret_next_ms)
	SBX_REQUIRES(box->lock)
{
	int64_t now = now_ms();
	struct sbx_use use;

	*ret_next_ms = INT64_MAX;
	if (box->deleted || q->info.foreign)
		return SBX_CLEANUP_NOTHING;
	fill_locked(box, &q->info, q->mounted_ms, now, &use);
	return sbx_cleanup_decide(q->cleanup, &use, now, ret_next_ms);
}

enum sbx_cleanup_action sbx_use_decide(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
				       int64_t *ret_next_ms)
{
	struct question q = ask(box, cleanup, mounted_ms, NULL);
	enum sbx_cleanup_action action;

	sbx_lock(&box->lock);
	action = decide_locked(box, &q, ret_next_ms);
	sbx_unlock(&box->lock);
	return action;
}

/* with box->lock held */
static bool still_idle(struct sbx_box *box, void *data) SBX_NO_TSA
{
	struct question *q = data;
	int64_t next;

	if (decide_locked(box, q, &next) != SBX_CLEANUP_STOP)
		return false;
	box->last = *q->why;
	box->used.idle_stopped = true;
	return true;
}

void sbx_use_stop(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
		  const struct sbx_err *why)
{
	struct sbx_err told = *why, failed = SBX_ERR_INIT;
	struct question q = ask(box, cleanup, mounted_ms, &told);
	int r;

	sbx_err_wrap(&told, -told.code, "stopped");
	r = sbx_box_stop_if(box, still_idle, &q, &failed);
	if (r == 0)
		sbx_catalog_event(box->catalog, box->name, "stopping: %s", why->text);
	else if (r != -EBUSY)
		sbx_box_fail(box, "cleanup", NULL, &failed);
}

void sbx_use_delete(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
		    const struct sbx_err *why)
{
	struct question q = ask(box, cleanup, mounted_ms, why);
	enum sbx_cleanup_action action;
	int64_t next;
	bool now;

	sbx_lock(&box->lock);
	action = decide_locked(box, &q, &next);
	now = action == SBX_CLEANUP_IDLE_DELETE || action == SBX_CLEANUP_AGE_DELETE;
	if (now) { /* from here on nobody can begin to use it */
		box->deleted = true;
		box->state = SBX_BOX_DELETING;
	}
	sbx_unlock(&box->lock);
	if (now)
		sbx_catalog_remove(box->catalog, box, why);
}

/* ---- what outlives the mount ---- */

void sbx_use_print(struct sbx_box *box, struct sbx_buf *out)
{
	char text[32];
	int n;

	if (!sbx_use_policy(box))
		return;
	sbx_lock(&box->lock);
	n = snprintf(text, sizeof(text), "%" PRId64, wall_ms() - (now_ms() - box->used.at_ms));
	sbx_unlock(&box->lock);
	sbx_buf_printf(out, "= used %d\n%s\n", n, text);
}

bool sbx_use_load(struct sbx_box *box, const char *text, size_t len)
{
	char copy[32], *end;
	int64_t ago;

	if (len == 0 || len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	errno = 0;
	ago = wall_ms() - strtoll(copy, &end, 10);
	if (errno || *end || end == copy)
		return false;
	sbx_lock(&box->lock);
	if (ago > 0) /* else the clock was set back: the mount counts */
		box->used.at_ms = now_ms() - ago;
	box->used.stored_ms = box->used.at_ms;
	sbx_unlock(&box->lock);
	return true;
}

bool sbx_use_closing(struct sbx_box *box)
{
	bool newer;

	if (!sbx_use_policy(box))
		return false;
	sbx_lock(&box->lock);
	if (atomic_load(&box->active) > 0 || box->used.open > 0)
		box->used.at_ms = now_ms();
	newer = box->used.at_ms != box->used.stored_ms;
	box->used.stored_ms = box->used.at_ms;
	sbx_unlock(&box->lock);
	return newer;
}
