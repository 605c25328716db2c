/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what comes of a program: its output, the reports of its supervisor, its end.  Loop thread. */
#include "local/exec_own.h"

#include "base/log.h"
#include "init/protocol.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRAIN_PAUSE_MS 5 /* between two reads of output that nobody will see */

/* nobody wants to hear of it any more */
static bool quiet(struct sbx_exec *x)
{
	bool put;

	sbx_lock(&x->lock);
	put = x->put;
	sbx_unlock(&x->lock);
	return put;
}

/* ---- the end ---- */

void sbx_exec_finish(struct sbx_exec *x)
{
	uint64_t ooms;
	bool killed = WIFSIGNALED(x->end.status) ? WTERMSIG(x->end.status) == SIGKILL
						 : WEXITSTATUS(x->end.status) != 0;

	if (x->ended)
		return;
	x->ended = true;
	if (killed || x->end.lost) {
		sbx_lock(&x->box->lock);
		ooms = sbx_cgroup_oom_kills(&x->box->cgroup);
		x->end.oom = ooms > x->oom_base;
		sbx_unlock(&x->box->lock);
	}
	if (!quiet(x))
		x->events->ended(x->data, &x->end);
}

static void pipe_close(struct pipe_end *p)
{
	sbx_watch_del(p->exec->box->provider->loop, &p->watch);
	if (p->watch.fd >= 0)
		close(p->watch.fd);
	p->watch.fd = -1;
}

/* What the pipe holds at this moment still counts; what comes later does not. */
static void take_rest(struct pipe_end *p)
{
	struct sbx_exec *x = p->exec;
	char *buf = x->box->provider->io_buf;
	int held = 0;

	if (p->watch.fd < 0 || ioctl(p->watch.fd, FIONREAD, &held) != 0)
		return;
	for (;;) {
		size_t want = held > 0 && (size_t)held < IO_BUF_BYTES ? (size_t)held : IO_BUF_BYTES;
		ssize_t n = held > 0 ? read(p->watch.fd, buf, want) : 0;

		if (n <= 0)
			break;
		if (!quiet(x))
			x->events->output(x->data, p->which, buf, (size_t)n);
		held -= (int)n;
	}
}

void sbx_exec_gone(struct sbx_exec *x)
{
	struct sbx_loop *loop = x->box->provider->loop;

	if (x->gone)
		return;
	x->gone = true;
	sbx_lock(&x->lock);
	x->dead = true;
	sbx_unlock(&x->lock);
	sbx_watch_del(loop, &x->control);
	sbx_timer_cancel(loop, &x->drain_timer);
	sbx_timer_cancel(loop, &x->kill_timer);
	pipe_close(&x->pipes[0]);
	pipe_close(&x->pipes[1]);
	sbx_disk_active(x->box, -1);
	if (!quiet(x))
		x->events->gone(x->data);
	sbx_exec_unref(x); /* the loop's */
}

static void lose(struct sbx_exec *x)
{
	bool dead = sbx_container_check(x->box);

	take_rest(&x->pipes[0]);
	take_rest(&x->pipes[1]);
	x->end.lost = true;
	sbx_lock(&x->box->lock);
	if (dead && x->box->why.text[0])
		snprintf(x->end.reason, sizeof(x->end.reason), "%.190s", x->box->why.text);
	else if (dead)
		snprintf(x->end.reason, sizeof(x->end.reason), "the sandbox was stopped while it ran");
	else
		snprintf(x->end.reason, sizeof(x->end.reason),
			 "its supervisor in the sandbox was killed (how it ended is unknown)");
	sbx_unlock(&x->box->lock);
	sbx_exec_finish(x);
}

/* ---- reports of the supervisor ---- */

static void failed(struct sbx_exec *x, const struct sbx_run_report *r)
{
	static const char *const steps[] = {
		[SBX_STEP_SPEC] = "it could not be described to the sandbox",
		[SBX_STEP_CODE] = "its code could not be written into the sandbox",
		[SBX_STEP_FORK] = "no process could be made",
		[SBX_STEP_IDS] = "it could not be given its user",
	};
	const char *what = r->step >= SBX_STEP_SPEC && r->step <= SBX_STEP_IDS ? steps[r->step] : "it failed";
	int status = r->step == SBX_STEP_EXEC && r->error == ENOENT ? 127 : 126;

	if (r->step == SBX_STEP_EXEC && r->error == ENOENT)
		snprintf(x->end.reason, sizeof(x->end.reason), "'%s' is not in this sandbox, or its interpreter is not",
			 x->program);
	else if (r->step == SBX_STEP_EXEC)
		snprintf(x->end.reason, sizeof(x->end.reason), "'%s' cannot be run: %s", x->program, strerror(r->error));
	else if (r->step == SBX_STEP_CWD && r->error == EXDEV)
		snprintf(x->end.reason, sizeof(x->end.reason), "cwd '%s' is a link that leads out of the workspace", x->cwd);
	else if (r->step == SBX_STEP_CWD)
		snprintf(x->end.reason, sizeof(x->end.reason), "cwd '%s' cannot be entered: %s", x->cwd,
			 strerror(r->error));
	else
		snprintf(x->end.reason, sizeof(x->end.reason), "%s: %s%s", what, strerror(r->error),
			 r->error == EAGAIN ? " (the sandbox has as many processes as it may)" : "");
	x->end.status = status << 8;
	x->has_exit = true;
	sbx_exec_finish(x);
}

static void on_pipe(struct sbx_watch *watch, uint32_t events);

static void watch_pipes(struct sbx_exec *x)
{
	int i;

	for (i = 0; i < 2; i++) {
		struct pipe_end *p = &x->pipes[i];

		if (p->watch.fd < 0 || p->watch.on)
			continue;
		p->watch.fn = on_pipe;
		if (sbx_watch_add(x->box->provider->loop, &p->watch, EPOLLIN) < 0)
			pipe_close(p); /* no memory: better a SIGPIPE than a program that hangs */
	}
}

static void exited(struct sbx_exec *x, const struct sbx_run_report *r)
{
	x->end.status = r->status;
	x->end.cpu_ms = (r->user_us + r->sys_us) / 1000;
	x->has_exit = true;
	take_rest(&x->pipes[0]);
	take_rest(&x->pipes[1]);
	sbx_exec_finish(x);
}

static void take_report(struct sbx_exec *x, const struct sbx_run_report *r)
{
	if (r->type == SBX_REPORT_STARTED && !x->started && !x->ended) {
		x->started = true;
		if (!quiet(x) && x->events->started)
			x->events->started(x->data, r->pid);
	} else if (r->type == SBX_REPORT_FAILED && !x->started && !x->ended) {
		failed(x, r);
	} else if (r->type == SBX_REPORT_EXITED && x->started && !x->ended) {
		exited(x, r);
	}
}

void sbx_exec_on_control(struct sbx_watch *watch, uint32_t events)
{
	struct sbx_exec *x = sbx_container_of(watch, struct sbx_exec, control);
	struct sbx_run_report r;
	ssize_t n;

	(void)events;
	for (;;) {
		n = recv(x->control_fd, &r, sizeof(r), MSG_DONTWAIT);
		if (n == (ssize_t)sizeof(r)) {
			take_report(x, &r);
			continue;
		}
		if (n > 0) /* nothing of ours */
			continue;
		if (n < 0 && errno == EINTR)
			continue;
		break;
	}
	if (n < 0 && errno == EAGAIN) {
		/* only a program that goes on needs its pipes watched */
		if (x->started)
			watch_pipes(x);
		return;
	}
	if (!x->ended)
		lose(x);
	sbx_exec_gone(x);
}

/* ---- output ---- */

static void on_drain(struct sbx_timer *timer)
{
	watch_pipes(sbx_container_of(timer, struct sbx_exec, drain_timer));
}

static void on_pipe(struct sbx_watch *watch, uint32_t events)
{
	struct pipe_end *p = sbx_container_of(watch, struct pipe_end, watch);
	struct sbx_exec *x = p->exec;
	char *buf = x->box->provider->io_buf;
	ssize_t n = read(watch->fd, buf, IO_BUF_BYTES);

	(void)events;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		pipe_close(p);
		return;
	}
	if (n <= 0)
		return;
	if (!x->ended) {
		if (!quiet(x))
			x->events->output(x->data, p->which, buf, (size_t)n);
		return;
	}
	/* a background child: it shall not die of SIGPIPE, and not keep us busy either */
	sbx_watch_del(x->box->provider->loop, watch);
	x->drain_timer.fn = on_drain; /* always the same */
	if (!x->drain_timer.heap)
		sbx_timer_set(x->box->provider->loop, &x->drain_timer, DRAIN_PAUSE_MS);
}
