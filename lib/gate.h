/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: "wait until something changed since I looked", without a thread.  A gate belongs to an
 * object (a run, a slot, a box); whoever changes the object notifies the gate after unlocking.
 * The one place where requests wait.  Any thread.
 */
#ifndef SBX_GATE_H
#define SBX_GATE_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct sbx_gate {
	uint64_t seq;		 /* guarded by the one lock in gate.c */
	struct sbx_list waiters; /* guarded by it too */
};

/* one who waits; embedded in the caller's object, zeroed before first use */
struct sbx_waiter {
	void (*wake)(struct sbx_waiter *waiter); /* on the notifier's thread, no lock held */
	struct sbx_list link;			 /* gate.c's */
	struct sbx_gate *gate;			 /* gate.c's: where it is queued, NULL = nowhere */
};

enum sbx_gate_result {
	SBX_GATE_QUEUED,  /* wake() will be called once; the object is not the caller's any more */
	SBX_GATE_CHANGED, /* something changed since @seen: look again */
};

void sbx_gate_init(struct sbx_gate *gate);

/* sbx_gate_seen - take this before looking at the object, so that no change is missed. */
uint64_t sbx_gate_seen(struct sbx_gate *gate);

/* sbx_gate_wait - queue @waiter unless the gate was notified after @seen was taken. */
enum sbx_gate_result sbx_gate_wait(struct sbx_gate *gate, uint64_t seen, struct sbx_waiter *waiter);

/* sbx_gate_cancel - true: it was queued and is the caller's again.  false: it was being woken. */
bool sbx_gate_cancel(struct sbx_waiter *waiter);

/*
 * sbx_gate_notify - wake all who wait at @gate, and let those who look meanwhile look again.
 * Never with a lock of ours held.  Waiters are called one after another on this thread.
 */
void sbx_gate_notify(struct sbx_gate *gate);

#endif
