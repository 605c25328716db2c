/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the one I/O thread: descriptors (epoll), timers and posted tasks.  All callbacks run on that
 * thread, never with a lock of the loop held, and never block.
 */
#ifndef SBX_LOOP_H
#define SBX_LOOP_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct sbx_err;
struct sbx_loop;

/* a piece of work for the loop thread; embedded in the caller's object, zeroed before first use */
struct sbx_task {
	void (*fn)(struct sbx_task *task);
	struct sbx_list link; /* the loop's */
	bool queued;	      /* the loop's */
};

/* a descriptor; embedded in the caller's object */
struct sbx_watch {
	void (*fn)(struct sbx_watch *watch, uint32_t epoll_events);
	int fd;
	bool on; /* the loop's */
};

/* a point in time; embedded in the caller's object, zeroed before first use */
struct sbx_timer {
	void (*fn)(struct sbx_timer *timer);
	uint64_t at_ms; /* the loop's: sbx_clock_ms() time */
	size_t heap;	/* the loop's: place in the heap + 1; 0 = not set */
};

/* sbx_loop_new - makes the loop; no thread yet.  Fails with errno of epoll_create1, eventfd. */
int sbx_loop_new(struct sbx_loop **ret, struct sbx_err *err);
/* sbx_loop_start - starts the thread (all signals blocked in it). */
int sbx_loop_start(struct sbx_loop *loop, struct sbx_err *err);
/*
 * sbx_loop_stop - runs what is posted already, ends the thread, joins it.  Not on the loop thread.
 * sbx_loop_free - after sbx_loop_stop; watches and timers still there are forgotten.
 */
void sbx_loop_stop(struct sbx_loop *loop);
void sbx_loop_free(struct sbx_loop *loop);

/* sbx_loop_inside - is this the loop thread? Any thread. */
bool sbx_loop_inside(const struct sbx_loop *loop);

/*
 * sbx_loop_post - run @task->fn on the loop thread, soon, in order of posting.
 * Any thread.  A task that is queued already stays queued once.  @task may be freed in its fn.
 */
void sbx_loop_post(struct sbx_loop *loop, struct sbx_task *task);

/*
 * sbx_watch_add - call @watch->fn when @watch->fd has @epoll_events (level-triggered).
 * Any thread; fn can run before this returns.  0 or -errno of epoll_ctl.
 * sbx_watch_set changes the events, sbx_watch_del ends it: loop thread only; after it
 * returns, fn is not called any more (also not for events already fetched), and @watch may be freed.
 */
int sbx_watch_add(struct sbx_loop *loop, struct sbx_watch *watch, uint32_t epoll_events);
int sbx_watch_set(struct sbx_loop *loop, struct sbx_watch *watch, uint32_t epoll_events);
void sbx_watch_del(struct sbx_loop *loop, struct sbx_watch *watch);

/*
 * sbx_timer_set - call @timer->fn once, @delay_ms from now; an earlier setting is replaced.
 * sbx_timer_cancel - true: it was set and will not fire now.  false: it was not set, or fires right now
 * on the loop thread (on the loop thread itself: never; a cancelled timer may be freed there).
 * Any thread.
 */
void sbx_timer_set(struct sbx_loop *loop, struct sbx_timer *timer, uint64_t delay_ms);
bool sbx_timer_cancel(struct sbx_loop *loop, struct sbx_timer *timer);

#endif
