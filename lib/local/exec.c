/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: programs in boxes: starting them through the init, signals, the end of interest.  What comes of them: exec_events.c.
 * Threads: start, signal, put any; all events and all of `on_` the loop.
 *
 * An exec has two references: the caller's, until put, and the loop's, until nothing of it is left (gone).
 */
#include "local/exec_own.h"

#include "base/log.h"
#include "init/protocol.h"
#include "local/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIPE_BYTES_ROOT (1 << 20)
#define PIPE_BYTES_USER (256 << 10) /* all pipes of an ordinary user share 64M */
#define KILL_PATIENCE_MS 1000	    /* then the init does the supervisor's work */
#define PENDING_RETRY_MS 10
#define RESERVE_MAX 64 /* descriptors that no new program takes */

void sbx_exec_unref(struct sbx_exec *x)
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
	sbx_exec_finish(x);
	shutdown(x->control_fd, SHUT_RDWR);
	sbx_exec_gone(x);
}

static void on_pending_timer(struct sbx_timer *timer)
{
	struct sbx_pbox *box = sbx_container_of(timer, struct sbx_pbox, pending_timer);

	sbx_lock(&box->lock);
	box->pending_armed = false;
	sbx_unlock(&box->lock);
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
	x->control.fn = sbx_exec_on_control;
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
		sbx_exec_unref(x);
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
	while (!sbx_list_empty(&box->pending) && r != -EAGAIN) {
		struct sbx_exec *x = sbx_list_first(&box->pending, struct sbx_exec, pending);

		r = box->conn ? send_start(x, box->conn->fd) : -EPIPE;
		if (r == -EAGAIN)
			break;
		sbx_list_remove(&x->pending);
		if (r < 0) /* its control socket closes: sbx_exec_on_control() says lost */
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
		sbx_exec_gone(x);
	}
	sbx_exec_unref(x);
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
