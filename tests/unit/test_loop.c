/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/loop.c: tasks, watches and timers.  Waits for events, never sleeps to hope. */
#include "unit.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "loop.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static struct sbx_loop *loop;
static sem_t sem;

static void wait_sem(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 10;
	while (sem_timedwait(&sem, &t) != 0) {
		if (errno != EINTR)
			fail_msg("nothing came within 10 seconds");
	}
}

static int start(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;

	sem_init(&sem, 0, 0);
	if (sbx_loop_new(&loop, &err) < 0 || sbx_loop_start(loop, &err) < 0)
		return -1;
	return 0;
}

static int stop(void **state)
{
	sbx_loop_stop(loop);
	sbx_loop_free(loop);
	sem_destroy(&sem);
	return 0;
}

/* ---- tasks ---- */

struct job {
	struct sbx_task task;
	int number;
	bool inside;
};

static int order[1000];
static int order_n;

static void on_job(struct sbx_task *task)
{
	struct job *job = sbx_container_of(task, struct job, task);

	job->inside = sbx_loop_inside(loop);
	if (order_n < (int)COUNT(order))
		order[order_n++] = job->number;
	sem_post(&sem);
}

static void tasks_run_on_the_loop_in_their_order(void **state)
{
	static struct job jobs[1000];
	int i;

	order_n = 0;
	assert_false(sbx_loop_inside(loop));
	for (i = 0; i < 1000; i++) {
		jobs[i] = (struct job){ .task.fn = on_job, .number = i };
		sbx_loop_post(loop, &jobs[i].task);
	}
	for (i = 0; i < 1000; i++)
		wait_sem();
	for (i = 0; i < 1000; i++) {
		assert_int_equal(order[i], i);
		assert_true(jobs[i].inside);
	}
}

static void on_block(struct sbx_task *task)
{
	struct job *job = sbx_container_of(task, struct job, task);
	/* two posts of one task while the loop is busy here */
	static struct job twice = { .task.fn = on_job, .number = 7 };

	sbx_loop_post(loop, &twice.task);
	sbx_loop_post(loop, &twice.task);
	job->inside = true;
	sem_post(&sem);
}

static void on_free(struct sbx_task *task)
{
	free(sbx_container_of(task, struct job, task));
	sem_post(&sem);
}

static void a_task_that_is_queued_stays_queued_once(void **state)
{
	struct job block = { .task.fn = on_block };
	struct job *last = calloc(1, sizeof(*last));

	order_n = 0;
	sbx_loop_post(loop, &block.task);
	wait_sem();
	wait_sem();
	last->task.fn = on_free; /* a task may free itself */
	sbx_loop_post(loop, &last->task);
	wait_sem();
	assert_int_equal(order_n, 1);
}

static void what_was_posted_runs_before_the_loop_stops(void **state)
{
	static struct job jobs[1000];
	int i;

	order_n = 0;
	for (i = 0; i < 1000; i++) {
		jobs[i] = (struct job){ .task.fn = on_job, .number = i };
		sbx_loop_post(loop, &jobs[i].task);
	}
	sbx_loop_stop(loop);
	assert_int_equal(order_n, 1000);
}

/* ---- watches ---- */

struct pipe_watch {
	struct sbx_watch watch;
	struct sbx_watch *other; /* deleted when this one fires */
	char got[2][64]; /* per call */
	uint32_t events[2];
	int calls;
};

static void on_readable(struct sbx_watch *watch, uint32_t events)
{
	struct pipe_watch *p = sbx_container_of(watch, struct pipe_watch, watch);
	int call = p->calls++ & 1;
	ssize_t n = read(watch->fd, p->got[call], sizeof(p->got[call]) - 1);

	p->events[call] = events;
	p->got[call][n > 0 ? n : 0] = '\0';
	if (p->other)
		sbx_watch_del(loop, p->other);
	if (n <= 0)
		sbx_watch_del(loop, watch);
	sem_post(&sem);
}

static void a_watch_sees_bytes_and_the_end(void **state)
{
	struct pipe_watch p = { .watch.fn = on_readable };
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	p.watch.fd = fds[0];
	assert_int_equal(sbx_watch_add(loop, &p.watch, EPOLLIN), 0);
	assert_int_equal(write(fds[1], "hello", 5), 5);
	wait_sem();
	assert_string_equal(p.got[0], "hello");
	assert_true(p.events[0] & EPOLLIN);
	close(fds[1]);
	wait_sem();
	assert_true(p.events[1] & EPOLLHUP);
	assert_int_equal(p.calls, 2);
	close(fds[0]);
}

struct both {
	struct sbx_task task;
	struct pipe_watch *a, *b;
};

static void on_add_both(struct sbx_task *task)
{
	struct both *both = sbx_container_of(task, struct both, task);

	sbx_watch_add(loop, &both->a->watch, EPOLLIN);
	sbx_watch_add(loop, &both->b->watch, EPOLLIN);
}

static void on_del_both(struct sbx_task *task)
{
	struct both *both = sbx_container_of(task, struct both, task);

	sbx_watch_del(loop, &both->a->watch);
	sbx_watch_del(loop, &both->b->watch);
	sem_post(&sem);
}

/* both are readable in one turn of epoll_wait; whichever comes first deletes the other */
static void a_deleted_watch_gets_no_event_that_was_fetched(void **state)
{
	int i;

	for (i = 0; i < 200; i++) {
		struct pipe_watch a = { .watch.fn = on_readable }, b = { .watch.fn = on_readable };
		struct both both = { .task.fn = on_add_both, .a = &a, .b = &b };
		struct both end = { .task.fn = on_del_both, .a = &a, .b = &b };
		int fa[2], fb[2];

		assert_int_equal(pipe(fa) | pipe(fb), 0);
		assert_int_equal(write(fa[1], "x", 1) + write(fb[1], "x", 1), 2);
		a.watch.fd = fa[0];
		b.watch.fd = fb[0];
		a.other = &b.watch;
		b.other = &a.watch;
		sbx_loop_post(loop, &both.task);
		wait_sem();
		sbx_loop_post(loop, &end.task); /* runs after the turn in which the first one fired */
		wait_sem();
		assert_int_equal(a.calls + b.calls, 1);
		close(fa[1]);
		close(fb[1]);
		close(fa[0]);
		close(fb[0]);
	}
}

static void a_bad_descriptor_is_refused(void **state)
{
	struct sbx_watch watch = { .fn = NULL, .fd = -1 };

	assert_int_equal(sbx_watch_add(loop, &watch, EPOLLIN), -EBADF);
	assert_false(watch.on);
}

/* ---- timers ---- */

struct alarm {
	struct sbx_timer timer;
	uint64_t fired_ms;
	int number, fired;
	uint64_t again_ms; /* set itself again from its own function, once */
};

static void on_alarm(struct sbx_timer *timer)
{
	struct alarm *a = sbx_container_of(timer, struct alarm, timer);

	a->fired_ms = sbx_clock_ms();
	if (order_n < (int)COUNT(order))
		order[order_n++] = a->number;
	if (++a->fired == 1 && a->again_ms)
		sbx_timer_set(loop, timer, a->again_ms);
	sem_post(&sem);
}

static void timers_fire_in_the_order_of_their_time_and_never_early(void **state)
{
	static struct alarm alarms[200];
	uint64_t start_ms = sbx_clock_ms();
	int i;

	order_n = 0;
	for (i = 0; i < 200; i++) {
		alarms[i] = (struct alarm){ .timer.fn = on_alarm, .number = i };
		sbx_timer_set(loop, &alarms[i].timer, 20 + (uint64_t)(i * 77 % 200));
	}
	for (i = 0; i < 200; i++)
		wait_sem();
	for (i = 0; i < 200; i++) {
		assert_true(alarms[i].fired_ms >= start_ms + 20 + (uint64_t)(i * 77 % 200));
		assert_int_equal(alarms[i].fired, 1);
		if (i > 0) /* at_ms is the time that the loop promised */
			assert_true(alarms[order[i - 1]].timer.at_ms <= alarms[order[i]].timer.at_ms);
	}
}

static void a_cancelled_timer_does_not_fire(void **state)
{
	struct alarm a = { .timer.fn = on_alarm }, b = { .timer.fn = on_alarm, .number = 1 };

	order_n = 0;
	assert_false(sbx_timer_cancel(loop, &a.timer));
	sbx_timer_set(loop, &a.timer, 20);
	sbx_timer_set(loop, &b.timer, 40);
	assert_true(sbx_timer_cancel(loop, &a.timer));
	assert_false(sbx_timer_cancel(loop, &a.timer));
	wait_sem();
	assert_int_equal(a.fired, 0);
	assert_int_equal(b.fired, 1);
	assert_false(sbx_timer_cancel(loop, &b.timer));
}

static void setting_again_replaces(void **state)
{
	struct alarm a = { .timer.fn = on_alarm }, b = { .timer.fn = on_alarm, .number = 1 };
	uint64_t start_ms = sbx_clock_ms();

	order_n = 0;
	sbx_timer_set(loop, &a.timer, 60000);
	sbx_timer_set(loop, &b.timer, 50);
	sbx_timer_set(loop, &a.timer, 1); /* earlier than what the loop sleeps for */
	wait_sem();
	assert_int_equal(order[0], 0);
	assert_true(a.fired_ms - start_ms < 10000);
	wait_sem();
	assert_int_equal(a.fired, 1);
}

static void a_timer_can_set_itself_again(void **state)
{
	struct alarm a = { .timer.fn = on_alarm, .again_ms = 1 };

	order_n = 0;
	sbx_timer_set(loop, &a.timer, 0);
	wait_sem();
	wait_sem();
	assert_int_equal(a.fired, 2);
}

/* random sets and cancels against a plain model: the heap must agree on what is set */
static void the_heap_survives_random_sets_and_cancels(void **state)
{
	static struct alarm alarms[300];
	static bool set[300];
	unsigned int seed = 42;
	int i;

	memset(set, 0, sizeof(set));
	for (i = 0; i < 300; i++)
		alarms[i] = (struct alarm){ .timer.fn = on_alarm };
	for (i = 0; i < 30000; i++) {
		int k;

		seed = seed * 1103515245 + 12345;
		k = (int)((seed >> 8) % 300);
		if (seed & 0x40000000) {
			sbx_timer_set(loop, &alarms[k].timer, 3600000 + (seed >> 16) % 5000);
			set[k] = true;
		} else {
			if (sbx_timer_cancel(loop, &alarms[k].timer) != set[k])
				fail_msg("timer %d at step %d", k, i);
			set[k] = false;
		}
	}
	for (i = 0; i < 300; i++) {
		assert_int_equal(sbx_timer_cancel(loop, &alarms[i].timer), set[i]);
		assert_int_equal(alarms[i].fired, 0);
	}
}

static void on_mask(struct sbx_task *task)
{
	struct job *job = sbx_container_of(task, struct job, task);
	sigset_t now;

	pthread_sigmask(SIG_SETMASK, NULL, &now);
	job->number = sigismember(&now, SIGTERM) && sigismember(&now, SIGINT) && sigismember(&now, SIGCHLD);
	sem_post(&sem);
}

static void signals_are_blocked_on_the_loop_thread(void **state)
{
	struct job job = { .task.fn = on_mask };

	sbx_loop_post(loop, &job.task);
	wait_sem();
	assert_true(job.number);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, start, stop)
	static const struct CMUnitTest tests[] = {
		T(tasks_run_on_the_loop_in_their_order),
		T(a_task_that_is_queued_stays_queued_once),
		T(what_was_posted_runs_before_the_loop_stops),
		T(a_watch_sees_bytes_and_the_end),
		T(a_deleted_watch_gets_no_event_that_was_fetched),
		T(a_bad_descriptor_is_refused),
		T(timers_fire_in_the_order_of_their_time_and_never_early),
		T(a_cancelled_timer_does_not_fire),
		T(setting_again_replaces),
		T(a_timer_can_set_itself_again),
		T(the_heap_survives_random_sets_and_cancels),
		T(signals_are_blocked_on_the_loop_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
