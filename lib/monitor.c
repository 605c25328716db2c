/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_monitor.  Knows: the provider's usage slot.  Threads: on_tick is the loop's; the rest any. */
#include "monitor.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "provider.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define BASE_MIN_MS 200 /* a percentage over less time says nothing */

/* one reading; false: the box does not run, or nothing is known */
static bool take(struct sbx_monitor *m, struct sbx_sample *s)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(m->box);
	struct sbx_usage usage;

	if (!ops->usage || sbx_box_state(m->box, NULL) != SBX_BOX_RUNNING ||
	    ops->usage(sbx_box_pbox(m->box), &usage, NULL) < 0)
		return false;
	s->when = sbx_clock_wall();
	s->at_ms = sbx_clock_ms();
	s->cpu_us = usage.cpu_us;
	s->memory_bytes = usage.memory_bytes;
	s->pids = usage.pids;
	s->cpu_percent = -1;
	return true;
}

static double percent(const struct sbx_sample *from, const struct sbx_sample *to)
{
	if (from->cpu_us == UINT64_MAX || to->cpu_us == UINT64_MAX || to->cpu_us < from->cpu_us ||
	    to->at_ms <= from->at_ms)
		return -1;
	return (double)(to->cpu_us - from->cpu_us) / 10.0 / (double)(to->at_ms - from->at_ms);
}

/* a sample into the ring */
static void keep_locked(struct sbx_monitor *m, struct sbx_sample *s) SBX_REQUIRES(m->lock)
{
	if (m->have_base)
		s->cpu_percent = percent(&m->base, s);
	m->base = *s;
	m->have_base = true;
	m->newest = *s;
	if (!m->ring)
		m->ring = calloc(SBX_MONITOR_SAMPLES, sizeof(*m->ring));
	if (!m->ring)
		return;
	m->ring[m->next] = *s;
	m->next = (m->next + 1) % SBX_MONITOR_SAMPLES;
	if (m->n < SBX_MONITOR_SAMPLES)
		m->n++;
}

static void on_tick(struct sbx_timer *timer)
{
	struct sbx_monitor *m = sbx_container_of(timer, struct sbx_monitor, timer);
	struct sbx_box *box = m->box;
	struct sbx_sample s;
	bool have = take(m, &s), go_on;

	sbx_lock(&m->lock);
	if (have)
		keep_locked(m, &s);
	go_on = have && !m->stopped && (atomic_load(&box->active) > 0 ||
			 (m->looked_ms && sbx_clock_ms() - m->looked_ms < SBX_MONITOR_LOOK_MS));
	m->ticking = go_on;
	if (go_on)
		sbx_timer_set(box->catalog->loop, timer, SBX_MONITOR_STEP_MS);
	else
		m->have_base = false; /* what comes later is not compared with this */
	sbx_unlock(&m->lock);
	if (!go_on)
		sbx_box_put(box);
}

void sbx_monitor_init(struct sbx_monitor *m, struct sbx_box *box)
{
	m->box = box;
	m->timer.fn = on_tick;
	sbx_lock_init(&m->lock);
}

void sbx_monitor_done(struct sbx_monitor *m)
{
	free(m->ring);
	sbx_lock_done(&m->lock);
}

/* sees to it that the timer goes; the first sample is taken now, to compare with */
static void start(struct sbx_monitor *m, bool looks)
{
	struct sbx_sample s;
	bool fresh, have;

	sbx_lock(&m->lock);
	if (looks)
		m->looked_ms = sbx_clock_ms();
	fresh = !m->ticking && !m->stopped;
	if (fresh) {
		m->ticking = true;
		sbx_box_get(m->box);
	}
	sbx_unlock(&m->lock);
	if (!fresh)
		return;
	have = take(m, &s);
	sbx_lock(&m->lock);
	if (have)
		keep_locked(m, &s);
	have = have && !m->stopped;
	m->ticking = have;
	if (have) /* under the lock: sbx_monitor_stop either sees the timer or is seen */
		sbx_timer_set(m->box->catalog->loop, &m->timer, SBX_MONITOR_STEP_MS);
	sbx_unlock(&m->lock);
	if (!have)
		sbx_box_put(m->box);
}

void sbx_monitor_active(struct sbx_monitor *m)
{
	start(m, false);
}

void sbx_monitor_stop(struct sbx_monitor *m)
{
	bool mine;

	sbx_lock(&m->lock);
	m->stopped = true;
	mine = sbx_timer_cancel(m->box->catalog->loop, &m->timer);
	if (mine)
		m->ticking = false;
	sbx_unlock(&m->lock);
	if (mine)
		sbx_box_put(m->box);
}

void sbx_monitor_restarted(struct sbx_monitor *m)
{
	sbx_lock(&m->lock);
	m->have_base = false;
	sbx_unlock(&m->lock);
}

static uint64_t memory_limit(struct sbx_monitor *m)
{
	struct sbx_pbox_info info;

	sbx_box_ops(m->box)->box_info(sbx_box_pbox(m->box), &info);
	return info.limits.memory_bytes;
}

int sbx_monitor_usage(struct sbx_monitor *m, struct sbx_buf *out, struct sbx_err *err)
{
	uint64_t limit = memory_limit(m);
	struct sbx_sample s, base;
	bool have_base;

	(void)err;
	start(m, true);
	if (!take(m, &s))
		return 0; /* nothing runs: nothing is used */
	sbx_lock(&m->lock);
	base = m->base;
	have_base = m->have_base;
	if (have_base && s.at_ms - base.at_ms >= BASE_MIN_MS) {
		s.cpu_percent = percent(&base, &s);
		m->newest = s;
	} else if (have_base) {
		s.cpu_percent = m->newest.cpu_percent;
	}
	sbx_unlock(&m->lock);
	if (s.cpu_percent >= 0)
		sbx_buf_printf(out, "cpu_percent %.1f\n", s.cpu_percent);
	if (s.cpu_us != UINT64_MAX)
		sbx_buf_printf(out, "cpu_seconds %.3f\n", (double)s.cpu_us / 1e6);
	if (s.memory_bytes != UINT64_MAX)
		sbx_buf_printf(out, "memory_bytes %" PRIu64 "\n", s.memory_bytes);
	if (s.memory_bytes != UINT64_MAX && limit != UINT64_MAX && limit > 0)
		sbx_buf_printf(out, "memory_percent %.1f\n", (double)s.memory_bytes * 100 / (double)limit);
	if (s.pids != UINT64_MAX)
		sbx_buf_printf(out, "pids %" PRIu64 "\n", s.pids);
	return out->failed ? -ENOMEM : 0;
}

int sbx_monitor_history(struct sbx_monitor *m, uint64_t span_ms, struct sbx_buf *out)
{
	uint64_t limit = memory_limit(m), now;
	size_t i;

	start(m, true);
	now = sbx_clock_ms();
	sbx_buf_text(out, "time\tcpu_percent\tmemory_bytes\tmemory_percent\n");
	sbx_lock(&m->lock);
	for (i = 0; i < m->n; i++) {
		const struct sbx_sample *s =
			&m->ring[(m->next + SBX_MONITOR_SAMPLES - m->n + i) % SBX_MONITOR_SAMPLES];
		char when[SBX_CLOCK_TEXT_MAX];

		if (now - s->at_ms > span_ms)
			continue;
		sbx_buf_printf(out, "%s\t", sbx_clock_format(s->when, when));
		if (s->cpu_percent >= 0)
			sbx_buf_printf(out, "%.1f\t", s->cpu_percent);
		else
			sbx_buf_text(out, "-\t");
		if (s->memory_bytes == UINT64_MAX)
			sbx_buf_text(out, "-\t-\n");
		else if (limit == UINT64_MAX || limit == 0)
			sbx_buf_printf(out, "%" PRIu64 "\t-\n", s->memory_bytes);
		else
			sbx_buf_printf(out, "%" PRIu64 "\t%.1f\n", s->memory_bytes,
				       (double)s->memory_bytes * 100 / (double)limit);
	}
	sbx_unlock(&m->lock);
	return out->failed ? -ENOMEM : 0;
}
