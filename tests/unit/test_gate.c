/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/gate.c: waiting without losing a change, also between threads. */
#include "unit.h"

#include "base/list.h"
#include "gate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct waiting {
	struct sbx_waiter waiter;
	int woken;
	struct sbx_gate *gate;	   /* to notify or to wait at again, from wake() */
	struct waiting *to_cancel; /* from wake() */
	bool cancelled;
};

static void on_wake(struct sbx_waiter *w)
{
	struct waiting *x = sbx_container_of(w, struct waiting, waiter);

	x->woken++;
	if (x->to_cancel)
		x->cancelled = sbx_gate_cancel(&x->to_cancel->waiter);
	if (x->gate && x->woken == 1)
		assert_int_equal(sbx_gate_wait(x->gate, sbx_gate_seen(x->gate), &x->waiter), SBX_GATE_QUEUED);
}

static void a_waiter_is_woken_once(void **state)
{
	struct waiting a = { .waiter.wake = on_wake }, b = { .waiter.wake = on_wake };
	struct sbx_gate gate;

	sbx_gate_init(&gate);
	assert_int_equal(sbx_gate_wait(&gate, sbx_gate_seen(&gate), &a.waiter), SBX_GATE_QUEUED);
	assert_int_equal(sbx_gate_wait(&gate, sbx_gate_seen(&gate), &b.waiter), SBX_GATE_QUEUED);
	assert_int_equal(a.woken, 0);
	sbx_gate_notify(&gate);
	assert_int_equal(a.woken, 1);
	assert_int_equal(b.woken, 1);
	sbx_gate_notify(&gate);
	assert_int_equal(a.woken, 1);
	assert_false(sbx_gate_cancel(&a.waiter));
}

static void a_change_since_looking_is_not_slept_over(void **state)
{
	struct waiting a = { .waiter.wake = on_wake };
	struct sbx_gate gate;
	uint64_t seen;

	sbx_gate_init(&gate);
	seen = sbx_gate_seen(&gate);
	sbx_gate_notify(&gate);
	assert_int_equal(sbx_gate_wait(&gate, seen, &a.waiter), SBX_GATE_CHANGED);
	assert_int_equal(sbx_gate_wait(&gate, sbx_gate_seen(&gate), &a.waiter), SBX_GATE_QUEUED);
	sbx_gate_notify(&gate);
	assert_int_equal(a.woken, 1);
}

static void who_cancels_is_not_woken(void **state)
{
	struct waiting a = { .waiter.wake = on_wake }, b = { .waiter.wake = on_wake };
	struct sbx_gate gate;

	sbx_gate_init(&gate);
	sbx_gate_wait(&gate, sbx_gate_seen(&gate), &a.waiter);
	sbx_gate_wait(&gate, sbx_gate_seen(&gate), &b.waiter);
	assert_true(sbx_gate_cancel(&a.waiter));
	assert_false(sbx_gate_cancel(&a.waiter));
	sbx_gate_notify(&gate);
	assert_int_equal(a.woken, 0);
	assert_int_equal(b.woken, 1);
}

static void one_that_is_woken_can_cancel_the_next(void **state)
{
	struct waiting a = { .waiter.wake = on_wake }, b = { .waiter.wake = on_wake };
	struct sbx_gate gate;

	sbx_gate_init(&gate);
	a.to_cancel = &b;
	sbx_gate_wait(&gate, sbx_gate_seen(&gate), &a.waiter);
	sbx_gate_wait(&gate, sbx_gate_seen(&gate), &b.waiter);
	sbx_gate_notify(&gate);
	assert_true(a.cancelled);
	assert_int_equal(b.woken, 0);
}

static void one_that_is_woken_can_wait_again(void **state)
{
	struct waiting a = { .waiter.wake = on_wake };
	struct sbx_gate gate;

	sbx_gate_init(&gate);
	a.gate = &gate;
	sbx_gate_wait(&gate, sbx_gate_seen(&gate), &a.waiter);
	sbx_gate_notify(&gate); /* must end, though it queues itself meanwhile */
	assert_int_equal(a.woken, 1);
	sbx_gate_notify(&gate);
	assert_int_equal(a.woken, 2);
}

/* ---- stress: no wake is lost, none comes twice, cancel and notify agree on who has the object ---- */

#define ROUNDS 30000

struct job {
	struct sbx_waiter waiter;
	atomic_int answers;
};

static struct sbx_gate stress_gate;
static atomic_int woken, cancelled, changed, done;

static void on_job(struct sbx_waiter *w)
{
	struct job *job = sbx_container_of(w, struct job, waiter);

	if (atomic_fetch_add(&job->answers, 1) == 0)
		atomic_fetch_add(&woken, 1);
}

static void *notifier(void *data)
{
	while (!atomic_load(&done))
		sbx_gate_notify(&stress_gate);
	return NULL;
}

static void *stress_waiter(void *data)
{
	struct job *jobs = data;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		struct job *job = &jobs[i];
		uint64_t seen = sbx_gate_seen(&stress_gate);

		job->waiter.wake = on_job;
		if (sbx_gate_wait(&stress_gate, seen, &job->waiter) == SBX_GATE_CHANGED) {
			atomic_fetch_add(&job->answers, 1);
			atomic_fetch_add(&changed, 1);
		} else if (i % 3 == 0 && sbx_gate_cancel(&job->waiter)) {
			atomic_fetch_add(&job->answers, 1);
			atomic_fetch_add(&cancelled, 1);
		}
	}
	return NULL;
}

static void every_wait_is_answered_exactly_once(void **state)
{
	struct job *jobs[2];
	pthread_t waiters[2], notifiers[2];
	int t, i;

	sbx_gate_init(&stress_gate);
	for (t = 0; t < 2; t++) {
		jobs[t] = calloc(ROUNDS, sizeof(struct job));
		assert_non_null(jobs[t]);
		assert_int_equal(pthread_create(&notifiers[t], NULL, notifier, NULL), 0);
		assert_int_equal(pthread_create(&waiters[t], NULL, stress_waiter, jobs[t]), 0);
	}
	for (t = 0; t < 2; t++)
		pthread_join(waiters[t], NULL);
	atomic_store(&done, 1);
	for (t = 0; t < 2; t++)
		pthread_join(notifiers[t], NULL);
	sbx_gate_notify(&stress_gate);
	for (t = 0; t < 2; t++) {
		for (i = 0; i < ROUNDS; i++) {
			if (atomic_load(&jobs[t][i].answers) != 1)
				fail_msg("wait %d got %d answers", i, atomic_load(&jobs[t][i].answers));
		}
		free(jobs[t]);
	}
	assert_int_equal(atomic_load(&woken) + atomic_load(&cancelled) + atomic_load(&changed), 2 * ROUNDS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_waiter_is_woken_once),
		cmocka_unit_test(a_change_since_looking_is_not_slept_over),
		cmocka_unit_test(who_cancels_is_not_woken),
		cmocka_unit_test(one_that_is_woken_can_cancel_the_next),
		cmocka_unit_test(one_that_is_woken_can_wait_again),
		cmocka_unit_test(every_wait_is_answered_exactly_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
