/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the I/O thread.  Knows: epoll, a heap of timers, a queue of tasks.
 * Threads: the public functions any (see loop.h); run() is the loop thread.
 */
#include "loop.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 128

struct sbx_loop {
	int epoll_fd;
	int wake_fd;
	pthread_t thread;
	bool started;
	struct epoll_event events[EVENTS_MAX]; /* loop thread */
	int events_n, events_i;		       /* loop thread */

	struct sbx_lock lock;
	bool stopping;		  /* guarded by lock */
	bool awake;		  /* guarded by lock: no wake-up needed */
	struct sbx_list tasks;	  /* guarded by lock */
	struct sbx_timer **heap;  /* guarded by lock */
	size_t heap_n, heap_room; /* guarded by lock */
};

int sbx_loop_new(struct sbx_loop **ret, struct sbx_err *err)
{
	struct sbx_loop *loop = calloc(1, sizeof(*loop));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	int e;

	if (!loop)
		return sbx_err_set(err, ENOMEM, "no memory for the I/O loop");
	sbx_lock_init(&loop->lock);
	sbx_list_init(&loop->tasks);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->epoll_fd < 0 || loop->wake_fd < 0 ||
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &ev) < 0) {
		e = errno;
		sbx_loop_free(loop);
		return sbx_err_sys(err, e, "cannot make the I/O loop");
	}
	*ret = loop;
	return 0;
}

static void wake(struct sbx_loop *loop)
{
	uint64_t one = 1;
	ssize_t r = write(loop->wake_fd, &one, sizeof(one)); /* EAGAIN: it is awake already */

	(void)r;
}

bool sbx_loop_inside(const struct sbx_loop *loop)
{
	return loop->started && pthread_equal(pthread_self(), loop->thread);
}

void sbx_loop_post(struct sbx_loop *loop, struct sbx_task *task)
{
	bool need = false;

	sbx_lock(&loop->lock);
	if (!task->queued) {
		task->queued = true;
		sbx_list_append(&loop->tasks, &task->link);
		need = !loop->awake;
		loop->awake = true;
	}
	sbx_unlock(&loop->lock);
	if (need)
		wake(loop);
}

int sbx_watch_add(struct sbx_loop *loop, struct sbx_watch *watch, uint32_t epoll_events)
{
	struct epoll_event ev = { .events = epoll_events, .data.ptr = watch };

	watch->on = true;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &ev) < 0) {
		watch->on = false;
		return -errno;
	}
	return 0;
}

int sbx_watch_set(struct sbx_loop *loop, struct sbx_watch *watch, uint32_t epoll_events)
{
	struct epoll_event ev = { .events = epoll_events, .data.ptr = watch };

	if (!watch->on)
		return sbx_watch_add(loop, watch, epoll_events);
	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &ev) < 0 ? -errno : 0;
}

void sbx_watch_del(struct sbx_loop *loop, struct sbx_watch *watch)
{
	int i;

	if (!watch->on)
		return;
	watch->on = false;
	epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	for (i = loop->events_i; i < loop->events_n; i++) { /* fetched, not yet delivered */
		if (loop->events[i].data.ptr == watch)
			loop->events[i].data.ptr = loop;
	}
}

/* ---- timers: a binary heap, earliest first ---- */

static void heap_put(struct sbx_loop *loop, size_t i, struct sbx_timer *t)
{
	loop->heap[i] = t;
	t->heap = i + 1;
}

static void heap_up_locked(struct sbx_loop *loop, size_t i) SBX_REQUIRES(loop->lock)
{
	struct sbx_timer *t = loop->heap[i];

	while (i > 0 && loop->heap[(i - 1) / 2]->at_ms > t->at_ms) {
		heap_put(loop, i, loop->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	heap_put(loop, i, t);
}

static void heap_down_locked(struct sbx_loop *loop, size_t i) SBX_REQUIRES(loop->lock)
{
	struct sbx_timer *t = loop->heap[i];

	for (;;) {
		size_t c = 2 * i + 1;

		if (c >= loop->heap_n)
			break;
		if (c + 1 < loop->heap_n && loop->heap[c + 1]->at_ms < loop->heap[c]->at_ms)
			c++;
		if (loop->heap[c]->at_ms >= t->at_ms)
			break;
		heap_put(loop, i, loop->heap[c]);
		i = c;
	}
	heap_put(loop, i, t);
}

static void heap_remove_locked(struct sbx_loop *loop, struct sbx_timer *t) SBX_REQUIRES(loop->lock)
{
	size_t i = t->heap - 1;
	struct sbx_timer *last = loop->heap[--loop->heap_n];

	t->heap = 0;
	if (last == t)
		return;
	heap_put(loop, i, last);
	heap_down_locked(loop, i);
	heap_up_locked(loop, last->heap - 1);
}

void sbx_timer_set(struct sbx_loop *loop, struct sbx_timer *timer, uint64_t delay_ms)
{
	bool need = false;

	sbx_lock(&loop->lock);
	if (timer->heap)
		heap_remove_locked(loop, timer);
	if (loop->heap_n == loop->heap_room) {
		size_t room = loop->heap_room ? loop->heap_room * 2 : 64;
		struct sbx_timer **heap = realloc(loop->heap, room * sizeof(struct sbx_timer *));

		if (!heap) { /* a timer that cannot be kept fires at once rather than never */
			sbx_unlock(&loop->lock);
			timer->fn(timer);
			return;
		}
		loop->heap = heap;
		loop->heap_room = room;
	}
	if (__builtin_add_overflow(sbx_clock_ms(), delay_ms, &timer->at_ms))
		timer->at_ms = UINT64_MAX; /* a timeout may be any number */
	loop->heap[loop->heap_n++] = timer;
	heap_up_locked(loop, loop->heap_n - 1);
	if (timer->heap == 1 && !loop->awake) {
		need = true;
		loop->awake = true;
	}
	sbx_unlock(&loop->lock);
	if (need)
		wake(loop);
}

bool sbx_timer_cancel(struct sbx_loop *loop, struct sbx_timer *timer)
{
	bool was;

	sbx_lock(&loop->lock);
	was = timer->heap != 0;
	if (was)
		heap_remove_locked(loop, timer);
	sbx_unlock(&loop->lock);
	return was;
}

/* ---- the thread ---- */

/* runs posted tasks and due timers; returns ms until the next timer, -1 = none, -2 = stop */
static int run_due(struct sbx_loop *loop)
{
	struct sbx_list todo;
	uint64_t now;
	int wait_ms;

	sbx_list_init(&todo);
	for (;;) {
		struct sbx_timer *t = NULL;

		sbx_lock(&loop->lock);
		loop->awake = true;
		if (!sbx_list_empty(&loop->tasks)) {
			struct sbx_task *task =
				sbx_list_first(&loop->tasks, struct sbx_task, link);

			sbx_list_remove(&task->link);
			task->queued = false;
			sbx_unlock(&loop->lock);
			task->fn(task);
			continue;
		}
		now = sbx_clock_ms();
		if (loop->heap_n > 0 && loop->heap[0]->at_ms <= now) {
			t = loop->heap[0];
			heap_remove_locked(loop, t);
			sbx_unlock(&loop->lock);
			t->fn(t);
			continue;
		}
		if (loop->stopping)
			wait_ms = -2;
		else if (loop->heap_n == 0)
			wait_ms = -1;
		else if (loop->heap[0]->at_ms - now > 3600000)
			wait_ms = 3600000;
		else
			wait_ms = (int)(loop->heap[0]->at_ms - now);
		loop->awake = false;
		sbx_unlock(&loop->lock);
		return wait_ms;
	}
}

static void *run(void *data)
{
	struct sbx_loop *loop = data;
	uint64_t junk;
	int wait_ms;

	while ((wait_ms = run_due(loop)) != -2) {
		int n = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, wait_ms);

		loop->events_n = n > 0 ? n : 0;
		for (loop->events_i = 0; loop->events_i < loop->events_n;) {
			struct epoll_event ev = loop->events[loop->events_i++];
			struct sbx_watch *watch = ev.data.ptr;

			if (!watch) {
				ssize_t r = read(loop->wake_fd, &junk, sizeof(junk));

				(void)r;
			} else if ((void *)watch != (void *)loop) {
				watch->fn(watch, ev.events);
			}
		}
		loop->events_n = 0;
	}
	return NULL;
}

int sbx_loop_start(struct sbx_loop *loop, struct sbx_err *err)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	loop->started = true;
	r = pthread_create(&loop->thread, NULL, run, loop);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0) {
		loop->started = false;
		return sbx_err_sys(err, r, "cannot start the I/O thread");
	}
	return 0;
}

void sbx_loop_stop(struct sbx_loop *loop)
{
	if (!loop->started)
		return;
	sbx_lock(&loop->lock);
	loop->stopping = true;
	sbx_unlock(&loop->lock);
	wake(loop);
	pthread_join(loop->thread, NULL);
	loop->started = false;
}

void sbx_loop_free(struct sbx_loop *loop)
{
	if (!loop)
		return;
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	if (loop->wake_fd >= 0)
		close(loop->wake_fd);
	free(loop->heap);
	sbx_lock_done(&loop->lock);
	free(loop);
}
