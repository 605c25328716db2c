/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the queues of all gates, under one lock (waiting is rare, the lock is held for a few
 * instructions).  Any thread.
 */
#include "gate.h"

#include "base/lock.h"

static struct sbx_lock gate_lock = SBX_LOCK_INIT;

void sbx_gate_init(struct sbx_gate *gate)
{
	gate->seq = 0;
	sbx_list_init(&gate->waiters);
}

uint64_t sbx_gate_seen(struct sbx_gate *gate)
{
	uint64_t seen;

	sbx_lock(&gate_lock);
	seen = gate->seq;
	sbx_unlock(&gate_lock);
	return seen;
}

enum sbx_gate_result sbx_gate_wait(struct sbx_gate *gate, uint64_t seen, struct sbx_waiter *waiter)
{
	enum sbx_gate_result r = SBX_GATE_CHANGED;

	sbx_lock(&gate_lock);
	if (gate->seq == seen) {
		waiter->gate = gate;
		sbx_list_append(&gate->waiters, &waiter->link);
		r = SBX_GATE_QUEUED;
	}
	sbx_unlock(&gate_lock);
	return r;
}

bool sbx_gate_cancel(struct sbx_waiter *waiter)
{
	bool was;

	sbx_lock(&gate_lock);
	was = waiter->gate != NULL;
	if (was) {
		sbx_list_remove(&waiter->link);
		waiter->gate = NULL;
	}
	sbx_unlock(&gate_lock);
	return was;
}

void sbx_gate_notify(struct sbx_gate *gate)
{
	struct sbx_list woken;

	sbx_list_init(&woken);
	sbx_lock(&gate_lock);
	gate->seq++;
	sbx_list_splice(&woken, &gate->waiters);
	while (!sbx_list_empty(&woken)) {
		struct sbx_waiter *w = sbx_list_first(&woken, struct sbx_waiter, link);

		/* from here on sbx_gate_cancel answers false for it; the rest can still be cancelled */
		sbx_list_remove(&w->link);
		w->gate = NULL;
		sbx_unlock(&gate_lock);
		w->wake(w);
		sbx_lock(&gate_lock);
	}
	sbx_unlock(&gate_lock);
}
