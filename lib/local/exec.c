/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: programs in boxes: starting them through the init, their output, their end.
 * Threads: start, signal, put any; all events and all of `on_` the loop.
 *
 * An exec has two references: the caller's, until put, and the loop's, until nothing of it is left (gone).
 */
#include "base/log.h"
#include "init/protocol.h"
#include "local/internal.h"
#include "local/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIPE_BYTES_ROOT (1 << 20)
#define PIPE_BYTES_USER (256 << 10) /* all pipes of an ordinary user share 64M */
#define DRAIN_PAUSE_MS 5	    /* between two reads of output that nobody will see */
#define KILL_PATIENCE_MS 1000	    /* then the init does the supervisor's work */
#define PENDING_RETRY_MS 10
#define RESERVE_MAX 64 /* descriptors that no new program takes */

enum start_fd { FD_SPEC, FD_CONTROL, FD_OUT, FD_ERR, FD_IN, FD_COUNT };

struct pipe_end {
	struct sbx_watch watch;
	struct sbx_exec *exec;
	enum sbx_stream which;
};

struct sbx_exec {
	struct sbx_pbox *box; /* counted */
	const struct sbx_exec_events *events;
	void *data;
	uint32_t id;
	int control_fd;
	struct sbx_watch control;
	struct pipe_end pipes[2];
	struct sbx_timer drain_timer, kill_timer;
	struct sbx_task blind, teardown;

	/* loop thread */
	bool started, ended, gone;
	bool has_exit; /* end.status is known */
	struct sbx_exec_end end;
	char program[80], cwd[80]; /* for reasons; cut */
	uint64_t oom_base;

	struct sbx_lock lock;
	unsigned int refs; /* guarded by lock */
	bool put;	   /* guarded by lock */
	bool dead;	   /* guarded by lock: gone, no timer may be set any more */

	/* until the message is with the init; guarded by box->lock */
	int start_fds[FD_COUNT];
	struct sbx_list pending;
};

static void exec_unref(struct sbx_exec *x)
{
	unsigned int left, i;

	sbx_lock(&x->lock);
	left = --x->refs;
	sbx_unlock(&x->lock);
	if (left)
		return;
	for (i = 0; i < FD_COUNT; i++) {
		if (x->start_fds[i] >= 0)
			close(x->start_fds[i]);
	}
	if (x->control_fd >= 0)
		close(x->control_fd);
	for (i = 0; i < 2; i++) {
		if (x->pipes[i].watch.fd >= 0)
			close(x->pipes[i].watch.fd);
	}
	sbx_local_pbox_put(x->box);
	sbx_lock_done(&x->lock);
	free(x);
}

/* nobody wants to hear of it any more */
static bool quiet(struct sbx_exec *x)
{
	bool put;

	sbx_lock(&x->lock);
	put = x->put;
	sbx_unlock(&x->lock);
	return put;
}

/* ---- the start message ---- */

static void close_start_fds(struct sbx_exec *x)
{
	int i;

	for (i = 0; i < FD_COUNT; i++) {
		if (x->start_fds[i] >= 0)
			close(x->start_fds[i]);
		x->start_fds[i] = -1;
	}
}

/* 0, -EAGAIN: no room in the socket, or -errno */
static int send_start(struct sbx_exec *x, int conn_fd)
{
	struct sbx_init_start m = { SBX_INIT_START, x->id };
	struct iovec iov = { &m, sizeof(m) };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(FD_COUNT * sizeof(int))];
	} control;
	size_t n = x->start_fds[FD_IN] >= 0 ? FD_COUNT : FD_COUNT - 1;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room,
			      .msg_controllen = CMSG_SPACE(n * sizeof(int)) };
	struct cmsghdr *c;

	memset(&control, 0, sizeof(control));
	c = CMSG_FIRSTHDR(&msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), x->start_fds, n * sizeof(int));
	if (sendmsg(conn_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return errno == ETOOMANYREFS || errno == ENOBUFS ? -EAGAIN : -errno;
	close_start_fds(x);
	return 0;
}

/* ---- the end ---- */

static void finish(struct sbx_exec *x)
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

static void exec_gone(struct sbx_exec *x)
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
	exec_unref(x); /* the loop's */
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
	finish(x);
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
	finish(x);
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
	finish(x);
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

static void on_control(struct sbx_watch *watch, uint32_t events)
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
	exec_gone(x);
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
	if (!x->drain_timer.heap)
		sbx_timer_set(x->box->provider->loop, &x->drain_timer, DRAIN_PAUSE_MS);
}

/* ---- starting ---- */

static void on_kill_patience(struct sbx_timer *timer);

/* the last ones are for what programs that go on need: their output has to be kept */
static bool scarce(int fd)
{
	struct rlimit limit;
	uint64_t reserve;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return false;
	reserve = limit.rlim_cur / 8 < RESERVE_MAX ? limit.rlim_cur / 8 : RESERVE_MAX;
	return (uint64_t)fd + reserve >= limit.rlim_cur;
}

static int make_fds(struct sbx_exec *x, const struct sbx_exec_spec *spec, struct sbx_err *err)
{
	int pair[2], p[2], i, size = x->box->provider->state->root ? PIPE_BYTES_ROOT : PIPE_BYTES_USER;
	char path[64];

	x->start_fds[FD_SPEC] = sbx_spec_make(x->box, spec, err);
	if (x->start_fds[FD_SPEC] < 0)
		return x->start_fds[FD_SPEC];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return sbx_err_sys(err, errno, "cannot start the program: no socket");
	x->control_fd = pair[0];
	x->start_fds[FD_CONTROL] = pair[1];
	for (i = 0; i < 2; i++) {
		if (pipe2(p, O_CLOEXEC) != 0)
			return sbx_err_sys(err, errno, "cannot start the program: no pipe");
		x->pipes[i].watch.fd = p[0];
		x->start_fds[FD_OUT + i] = p[1];
		fcntl(p[0], F_SETFL, O_NONBLOCK);
		fcntl(p[0], F_SETPIPE_SZ, size); /* fewer wake-ups; the default does as well */
	}
	if (scarce(x->start_fds[FD_ERR]))
		return sbx_err_sys(err, EMFILE, "cannot start the program: no pipe");
	if (spec->stdin_fd < 0)
		return 0;
	/* a description of its own: an own offset, and read-only */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", spec->stdin_fd);
	x->start_fds[FD_IN] = open(path, O_RDONLY | O_CLOEXEC);
	if (x->start_fds[FD_IN] < 0)
		x->start_fds[FD_IN] = fcntl(spec->stdin_fd, F_DUPFD_CLOEXEC, 3);
	if (x->start_fds[FD_IN] < 0)
		return sbx_err_sys(err, errno, "cannot start the program: its stdin");
	return 0;
}

/* the control socket cannot be watched: then nothing can be known of it */
static void on_blind(struct sbx_task *task)
{
	struct sbx_exec *x = sbx_container_of(task, struct sbx_exec, blind);

	snprintf(x->end.reason, sizeof(x->end.reason), "cannot watch the program: no memory");
	x->end.lost = true;
	finish(x);
	shutdown(x->control_fd, SHUT_RDWR);
	exec_gone(x);
}

static void on_pending_timer(struct sbx_timer *timer)
{
	struct sbx_pbox *box = sbx_container_of(timer, struct sbx_pbox, pending_timer);

	sbx_exec_flush(box);
	sbx_local_pbox_put(box); /* the timer's */
}

/* the init's socket is full: look again soon */
static void pending_later(struct sbx_pbox *box)
{
	bool set;

	sbx_lock(&box->lock);
	set = !box->pending_armed;
	box->pending_armed = true;
	if (set)
		box->refs++;
	sbx_unlock(&box->lock);
	if (!set)
		return;
	box->pending_timer.fn = on_pending_timer;
	sbx_timer_set(box->provider->loop, &box->pending_timer, PENDING_RETRY_MS);
}

/* the message goes now, or waits in box->pending; under box->lock */
static int submit_locked(struct sbx_pbox *box, struct sbx_exec *x, struct sbx_err *err)
{
	int r;

	if (box->have != HAVE_UP || !box->conn)
		return sbx_err_set(err, EAGAIN, "the sandbox is not running");
	if (box->disk_stopped && box->provider->disk_low)
		return sbx_err_set(err, ENOSPC, "%s", box->why.text);
	x->id = box->next_run++;
	x->oom_base = sbx_cgroup_oom_kills(&box->cgroup);
	r = sbx_list_empty(&box->pending) ? send_start(x, box->conn->fd) : -EAGAIN;
	if (r == -EAGAIN) {
		sbx_list_append(&box->pending, &x->pending);
		return 1;
	}
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return sbx_err_set(err, EAGAIN, "the sandbox is not running");
	return r < 0 ? sbx_err_sys(err, -r, "cannot start the program") : 0;
}

/* what reasons call it: of code that is run by its own #! line, the interpreter named there */
static void name_program(struct sbx_exec *x, const struct sbx_exec_spec *spec)
{
	const char *name = spec->argv[0];
	size_t len = strlen(name);

	if (spec->code_arg == 0 && spec->code_len > 2 && spec->code[0] == '#' && spec->code[1] == '!') {
		name = spec->code + 2;
		len = spec->code_len - 2;
		while (len > 0 && (*name == ' ' || *name == '\t')) {
			name++;
			len--;
		}
		if (memchr(name, '\n', len))
			len = (size_t)((const char *)memchr(name, '\n', len) - name);
	} else if (spec->code_arg == 0) {
		name = spec->code_name;
		len = strlen(name);
	}
	snprintf(x->program, sizeof(x->program), "%.*s", (int)(len < sizeof(x->program) ? len : sizeof(x->program) - 1),
		 name);
	snprintf(x->cwd, sizeof(x->cwd), "%s", spec->cwd);
}

int sbx_local_exec_start(struct sbx_pbox *box, const struct sbx_exec_spec *spec,
			 const struct sbx_exec_events *events, void *data, struct sbx_exec **ret,
			 struct sbx_err *err)
{
	struct sbx_exec *x = calloc(1, sizeof(*x));
	int r, i;

	if (!x)
		return sbx_err_set(err, ENOMEM, "no memory to start the program");
	sbx_lock_init(&x->lock);
	x->box = sbx_local_pbox_get(box);
	x->events = events;
	x->data = data;
	x->refs = 2;
	x->control_fd = -1;
	x->blind.fn = on_blind;
	x->kill_timer.fn = on_kill_patience;
	x->drain_timer.fn = on_drain;
	sbx_list_init(&x->pending);
	for (i = 0; i < FD_COUNT; i++)
		x->start_fds[i] = -1;
	for (i = 0; i < 2; i++) {
		x->pipes[i].watch.fd = -1;
		x->pipes[i].exec = x;
		x->pipes[i].which = i == 0 ? SBX_STDOUT : SBX_STDERR;
	}
	name_program(x, spec);
	r = make_fds(x, spec, err);
	x->control.fn = on_control;
	x->control.fd = x->control_fd;
	if (r == 0) {
		*ret = x; /* before any event can come */
		sbx_disk_active(box, +1);
		sbx_lock(&box->lock);
		r = submit_locked(box, x, err);
		sbx_unlock(&box->lock);
		if (r < 0)
			sbx_disk_active(box, -1);
	}
	if (r < 0) {
		*ret = NULL;
		x->refs = 1;
		exec_unref(x);
		return r;
	}
	if (r == 1)
		pending_later(box);
	/* From here on events come, and @x may be gone before the call returns. */
	if (sbx_watch_add(box->provider->loop, &x->control, EPOLLIN) < 0)
		sbx_loop_post(box->provider->loop, &x->blind);
	return 0;
}

void sbx_exec_flush(struct sbx_pbox *box)
{
	int r = 0;

	sbx_lock(&box->lock);
	box->pending_armed = false;
	while (!sbx_list_empty(&box->pending) && r != -EAGAIN) {
		struct sbx_exec *x = sbx_list_first(&box->pending, struct sbx_exec, pending);

		r = box->conn ? send_start(x, box->conn->fd) : -EPIPE;
		if (r == -EAGAIN)
			break;
		sbx_list_remove(&x->pending);
		if (r < 0) /* its control socket closes: on_control() says lost */
			close_start_fds(x);
	}
	sbx_unlock(&box->lock);
	if (r == -EAGAIN)
		pending_later(box);
}

/* ---- signals and the end of interest ---- */

static void on_kill_patience(struct sbx_timer *timer)
{
	struct sbx_exec *x = sbx_container_of(timer, struct sbx_exec, kill_timer);
	struct sbx_init_kill m = { SBX_INIT_KILL, x->id };

	if (x->gone)
		return;
	sbx_lock(&x->box->lock);
	if (x->box->conn)
		send(x->box->conn->fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT);
	sbx_unlock(&x->box->lock);
}

int sbx_local_exec_signal(struct sbx_exec *x, int sig, struct sbx_err *err)
{
	struct sbx_run_signal m = { sig };
	int r = 0;

	if (sig < 1 || sig > 64)
		return sbx_err_set(err, EINVAL, "there is no signal %d", sig);
	if (send(x->control_fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		r = -errno;
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return sbx_err_set(err, ESRCH, "nothing of the program is left");
	sbx_lock(&x->lock);
	if (sig == SIGKILL && !x->dead)
		sbx_timer_set(x->box->provider->loop, &x->kill_timer, KILL_PATIENCE_MS);
	sbx_unlock(&x->lock);
	return r < 0 ? sbx_err_sys(err, -r, "cannot send signal %d", sig) : 0;
}

static void on_teardown(struct sbx_task *task)
{
	struct sbx_exec *x = sbx_container_of(task, struct sbx_exec, teardown);

	if (!x->gone) {
		sbx_lock(&x->box->lock);
		if (x->pending.next != &x->pending) {
			sbx_list_remove(&x->pending);
			close_start_fds(x);
		}
		sbx_unlock(&x->box->lock);
		/* EOF at the supervisor: it kills them all; if it cannot, the init does */
		on_kill_patience(&x->kill_timer);
		shutdown(x->control_fd, SHUT_RDWR);
		exec_gone(x);
	}
	exec_unref(x);
}

void sbx_local_exec_put(struct sbx_exec *x)
{
	if (!x)
		return;
	sbx_lock(&x->lock);
	x->put = true;
	sbx_unlock(&x->lock);
	x->teardown.fn = on_teardown;
	sbx_loop_post(x->box->provider->loop, &x->teardown);
}
