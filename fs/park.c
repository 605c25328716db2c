/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: requests that wait.  Knows: gate.h for waking, loop.h for deadlines, /proc for signals.
 * Threads: FUSE workers park; workers and the loop wake; the list of those with a signal is the loop's alone.  A struct
 * that ever waited is freed on the loop, so that its timer and its task can never meet freed memory.
 */
#include "park.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIGNAL_LOOK_MS 20 /* the kernel tells of a signal only once */

static struct sbx_loop *loop;
static uint64_t max_wait_ms = UINT64_MAX;
static struct sbx_lock park_lock = SBX_LOCK_INIT;
static struct sbx_list all;	/* guarded by park_lock */
static unsigned int all_n;	/* guarded by park_lock */
static bool closed;		/* guarded by park_lock */
static struct sbx_list signals; /* loop thread */
static struct sbx_timer signal_timer, close_timer;

static void run_parked(struct sbx_parked *p);

/*
 * Does a signal wait that ends the system call of this thread?  SIGCHLD, SIGCONT, SIGWINCH and SIGURG arrive all the time and do
 * not; nor does a stop: it takes effect when the wait is over.
 */
static bool signal_ends(pid_t tid)
{
	char path[64], text[4096], *line;
	unsigned long long thread = 0, process = 0, blocked = 0, harmless;
	ssize_t n;

	if (tid == 0)
		return true; /* cannot be looked at */
	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	n = sbx_proc_read(path, text, sizeof(text));
	if (n <= 0) /* gone; but not if there was no descriptor to look */
		return n == 0 || n == -ENOENT || n == -ESRCH;
	line = strstr(text, "\nSigPnd:");
	if (!line || sscanf(line, "\nSigPnd: %llx ShdPnd: %llx SigBlk: %llx", &thread, &process, &blocked) != 3)
		return true;
	harmless = 1ull << (SIGCHLD - 1) | 1ull << (SIGCONT - 1) | 1ull << (SIGWINCH - 1) |
		   1ull << (SIGURG - 1) | 1ull << (SIGSTOP - 1) | 1ull << (SIGTSTP - 1) |
		   1ull << (SIGTTIN - 1) | 1ull << (SIGTTOU - 1);
	return ((thread | process) & ~blocked & ~harmless) != 0;
}

static void free_task(struct sbx_task *task)
{
	struct sbx_parked *p = sbx_container_of(task, struct sbx_parked, task);

	if (p->watched)
		sbx_list_remove(&p->signal);
	sbx_timer_cancel(loop, &p->timer);
	free(p);
}

/* the one end of a request; the caller owns it */
static void end(struct sbx_parked *p, int r)
{
	if (!p->waited) {
		p->finish(p, r);
		free(p);
		return;
	}
	fuse_req_interrupt_func(p->req, NULL, NULL); /* waits for a running on_interrupt() */
	p->finish(p, r);
	sbx_lock(&park_lock); /* counted until it is answered: behind sbx_park_drain() nodes and handles are freed */
	sbx_list_remove(&p->link);
	all_n--;
	sbx_unlock(&park_lock);
	p->task.fn = free_task; /* behind a look_task that may be queued */
	sbx_loop_post(loop, &p->task);
}

static void on_wake(struct sbx_waiter *waiter)
{
	run_parked(sbx_container_of(waiter, struct sbx_parked, waiter));
}

static void on_deadline(struct sbx_timer *timer)
{
	struct sbx_parked *p = sbx_container_of(timer, struct sbx_parked, timer);

	if (sbx_gate_cancel(&p->waiter))
		run_parked(p);
	else /* not queued yet, or being looked at, or over and not freed yet */
		sbx_timer_set(loop, &p->timer, 1);
}

static void look_at_signals(struct sbx_timer *timer)
{
	struct sbx_list *i, *tmp;

	(void)timer;
	sbx_list_for_each_safe (i, tmp, &signals) {
		struct sbx_parked *p = sbx_container_of(i, struct sbx_parked, signal);

		if (!signal_ends(p->pid) || !sbx_gate_cancel(&p->waiter))
			continue; /* not queued at this moment: it is being looked at, next time then */
		sbx_list_remove(&p->signal);
		p->watched = false;
		end(p, -EINTR);
	}
	if (!sbx_list_empty(&signals))
		sbx_timer_set(loop, &signal_timer, SIGNAL_LOOK_MS);
}

struct look {
	struct sbx_task task;
	struct sbx_parked *p;
};

static void look_task(struct sbx_task *task)
{
	struct look *look = sbx_container_of(task, struct look, task);
	struct sbx_parked *p = look->p;

	free(look);
	if (!p->watched) {
		p->watched = true;
		sbx_list_append(&signals, &p->signal);
	}
	look_at_signals(NULL);
}

/* libfuse holds the request's own mutex here, so @p cannot end meanwhile: end() waits for it */
static void on_interrupt(fuse_req_t req, void *data)
{
	struct sbx_parked *p = data;
	struct look *look;

	(void)req;
	if (atomic_exchange(&p->interrupted, true))
		return;
	look = calloc(1, sizeof(*look));
	if (!look)
		return;
	look->task.fn = look_task;
	look->p = p;
	sbx_loop_post(loop, &look->task); /* comes before free_task: that is posted after end() */
}

static void run_parked(struct sbx_parked *p)
{
	uint64_t now;
	int r;

	for (;;) {
		p->again_ms = 0;
		r = p->attempt(p);
		if (r != -EAGAIN)
			break;
		now = sbx_clock_ms();
		if (!p->not_limited && max_wait_ms != UINT64_MAX) {
			uint64_t spent = now - p->since_ms;

			if (spent >= max_wait_ms) {
				r = -ETIMEDOUT;
				break;
			}
			if (p->again_ms == 0 || p->again_ms > max_wait_ms - spent)
				p->again_ms = max_wait_ms - spent;
		}
		sbx_lock(&park_lock);
		if (closed) {
			sbx_unlock(&park_lock);
			r = -ESHUTDOWN;
			break;
		}
		if (!p->waited) {
			p->waited = true;
			sbx_list_append(&all, &p->link);
			all_n++;
			sbx_unlock(&park_lock);
			fuse_req_interrupt_func(p->req, on_interrupt, p);
		} else {
			sbx_unlock(&park_lock);
		}
		/* before it is queued, for after that it may be over at once; a timer too many only looks again */
		if (p->again_ms > 0)
			sbx_timer_set(loop, &p->timer, p->again_ms);
		if (sbx_gate_wait(p->gate, p->seen, &p->waiter) == SBX_GATE_QUEUED)
			return; /* @p is not ours any more */
	}
	end(p, r);
}

void sbx_park_run(struct sbx_parked *p)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(p->req);

	p->pid = ctx ? ctx->pid : 0;
	p->since_ms = sbx_clock_ms();
	p->waiter.wake = on_wake;
	sbx_list_init(&p->waiter.link);
	sbx_list_init(&p->link);
	sbx_list_init(&p->signal);
	p->timer.fn = on_deadline;
	atomic_init(&p->interrupted, false);
	run_parked(p);
}

void sbx_park_setup(struct sbx_loop *the_loop, uint64_t max_wait)
{
	loop = the_loop;
	max_wait_ms = max_wait;
	sbx_list_init(&all);
	sbx_list_init(&signals);
	signal_timer.fn = look_at_signals;
	closed = false;
}

/* answers all that are queued now; one that is being looked at meanwhile sees @closed, or is met next time */
static void close_some(struct sbx_timer *timer)
{
	struct sbx_list *i;
	unsigned int left;

	(void)timer;
	for (;;) {
		struct sbx_parked *mine = NULL;

		sbx_lock(&park_lock);
		sbx_list_for_each (i, &all) {
			struct sbx_parked *p = sbx_container_of(i, struct sbx_parked, link);

			if (sbx_gate_cancel(&p->waiter)) {
				mine = p;
				break;
			}
		}
		left = all_n;
		sbx_unlock(&park_lock);
		if (!mine)
			break;
		end(mine, -ESHUTDOWN);
	}
	if (left > 0)
		sbx_timer_set(loop, &close_timer, 5);
}

void sbx_park_shutdown(void)
{
	sbx_lock(&park_lock);
	closed = true;
	sbx_unlock(&park_lock);
	close_timer.fn = close_some;
	close_some(NULL);
}

void sbx_park_drain(void)
{
	const struct timespec moment = { 0, 1000000 };

	while (sbx_park_count() > 0)
		nanosleep(&moment, NULL);
}

unsigned int sbx_park_count(void)
{
	unsigned int n;

	sbx_lock(&park_lock);
	n = all_n;
	sbx_unlock(&park_lock);
	return n;
}
