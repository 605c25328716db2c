/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: how we know that a box lives: the socket to its init, whose end is the end of all its processes, and the init's pidfd.
 * Threads: the loop; sbx_conn_put_locked any.
 */
#include "local/internal.h"

#include "base/spawn.h"
#include "init/protocol.h"
#include "local/network.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

void sbx_conn_put_locked(struct sbx_pbox *box, struct conn *conn)
{
	(void)box;
	if (--conn->refs == 0) {
		close(conn->fd);
		free(conn);
	}
}

void sbx_conn_drop(struct sbx_pbox *box)
{
	sbx_net_stop(box);
	sbx_watch_del(box->provider->loop, &box->conn_watch);
	sbx_timer_cancel(box->provider->loop, &box->hello_timer);
	sbx_lock(&box->lock);
	if (box->conn) {
		shutdown(box->conn->fd, SHUT_RDWR); /* also for those who hold it a moment longer */
		sbx_conn_put_locked(box, box->conn);
	}
	box->conn = NULL;
	sbx_cgroup_done(&box->cgroup);
	sbx_unlock(&box->lock);
	sbx_exec_flush(box); /* what was pending fails now */
}

static void on_dead(struct sbx_watch *watch, uint32_t events)
{
	struct sbx_pbox *box = sbx_container_of(watch, struct sbx_pbox, pid_watch);
	siginfo_t info;

	(void)events;
	sbx_watch_del(box->provider->loop, watch);
	memset(&info, 0, sizeof(info));
	waitid((idtype_t)3 /* P_PIDFD */, (id_t)box->pidfd, &info, WEXITED | WNOHANG); /* ours as subreaper */
	close(box->pidfd);
	box->pidfd = -1;
	box->init_pid = 0;
	sbx_container_set_have(box, HAVE_DEAD);
	sbx_container_step(box);
}

/* after a kill, or when the init has gone: wait until every process of the box is dead */
void sbx_container_dying(struct sbx_pbox *box)
{
	sbx_container_set_have(box, HAVE_DYING);
	if (box->pidfd >= 0) {
		syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
		box->pid_watch.fn = on_dead;
		box->pid_watch.fd = box->pidfd;
		if (box->pid_watch.on || sbx_watch_add(box->provider->loop, &box->pid_watch, EPOLLIN) == 0)
			return;
		close(box->pidfd);
		box->pidfd = -1;
	}
	sbx_container_set_have(box, HAVE_DEAD); /* the runtime's delete --force has to do it */
}

/* The socket is closed: the init, and so the whole pid namespace, is dead or dying. */
static void lost(struct sbx_pbox *box)
{
	uint64_t ooms;

	sbx_lock(&box->lock);
	ooms = sbx_cgroup_oom_kills(&box->cgroup);
	if (box->want == WANT_UP || box->want == WANT_PAUSED) {
		box->unasked = true;
		if (ooms > box->oom_base)
			sbx_err_set(&box->why, ENOMEM,
				    "the sandbox ended: its memory limit killed its first process");
		else
			sbx_err_set(&box->why, ECHILD, "the sandbox ended: its first process was killed");
		box->want = WANT_DOWN;
	}
	sbx_unlock(&box->lock);
	sbx_conn_drop(box);
	if (box->have == HAVE_UP || box->have == HAVE_PAUSED)
		sbx_container_dying(box);
}

static bool take_hello(struct sbx_pbox *box)
{
	struct sbx_init_hello hello;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { &hello, sizeof(hello) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	ssize_t n = recvmsg(box->conn->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;
	int fds[4];
	size_t i, k = 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), k * sizeof(int));
	}
	if (box->hello || n != sizeof(hello) || hello.type != SBX_INIT_HELLO ||
	    hello.version != SBX_INIT_VERSION || k != 1) {
		for (i = 0; i < k; i++)
			close(fds[i]);
		return box->hello; /* noise after the hello is ignored */
	}
	box->pidfd = fds[0];
	box->hello = true;
	return true;
}

static void came_up(struct sbx_pbox *box)
{
	struct sbx_err why = SBX_ERR_INIT;
	bool missing;

	sbx_timer_cancel(box->provider->loop, &box->hello_timer);
	sbx_lock(&box->lock);
	box->init_pid = sbx_pidfd_pid(box->pidfd);
	if (box->provider->runtime.limits)
		sbx_cgroup_open(&box->cgroup, box->init_pid);
	box->oom_base = sbx_cgroup_oom_kills(&box->cgroup);
	box->have = HAVE_UP;
	box->why.text[0] = '\0';
	box->disk_stopped = false;
	memset(&box->disk_base, 0, sizeof(box->disk_base));
	sbx_unlock(&box->lock);
	/* never silently: without limits the box works, and its `error` says what is missing */
	missing = sbx_limits_missing(box, &why) < 0;
	sbx_container_tell(box, SBX_BOX_RUNNING, missing ? &why : NULL);
}

void sbx_container_start_failed(struct sbx_pbox *box, const struct sbx_err *err)
{
	sbx_lock(&box->lock);
	box->why = *err;
	sbx_unlock(&box->lock);
	box->failed = true;
	sbx_container_give_up(box);
	sbx_conn_drop(box);
	sbx_container_dying(box);
	sbx_container_step(box);
}

void sbx_container_net(struct sbx_pbox *box, const struct sbx_err *why)
{
	bool put;

	if (box->have == HAVE_STARTING) {
		if (why)
			sbx_container_start_failed(box, why);
		else
			came_up(box);
		sbx_container_step(box);
		return;
	}
	sbx_lock(&box->lock);
	put = box->put;
	sbx_unlock(&box->lock);
	if (why && !put && box->events && box->events->trouble)
		box->events->trouble(box->data, "network", why);
	if (!why)
		sbx_container_progress(box, "the network is there again");
}

/* the init is there; without a network to wait for, the box is as well */
static void said_hello(struct sbx_pbox *box)
{
	struct sbx_err err = SBX_ERR_INIT;

	sbx_timer_cancel(box->provider->loop, &box->hello_timer);
	if (box->record.network != SBX_NET_NAT) {
		came_up(box);
		return;
	}
	sbx_container_progress(box, "setting up the network");
	if (sbx_net_start(box, sbx_pidfd_pid(box->pidfd), &err) < 0) {
		sbx_err_wrap(&err, -err.code, "network 'nat'");
		sbx_container_start_failed(box, &err);
	}
}

void sbx_conn_event(struct sbx_watch *watch, uint32_t events)
{
	struct sbx_pbox *box = sbx_container_of(watch, struct sbx_pbox, conn_watch);
	struct sbx_err err = SBX_ERR_INIT;
	bool was = box->hello, alive = true;

	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		alive = take_hello(box);
	if (!alive) {
		if (box->have != HAVE_STARTING) {
			lost(box);
		} else if (box->hello) { /* while its network was set up */
			sbx_err_set(&err, ECHILD, "the sandbox ended: its first process was killed");
			sbx_container_start_failed(box, &err);
		} else { /* the runtime will say why it failed, or the timer will */
			sbx_watch_del(box->provider->loop, watch);
		}
		sbx_container_step(box);
		return;
	}
	if (box->hello && !was) {
		said_hello(box);
		sbx_container_step(box);
	}
}

void sbx_container_stop_for(struct sbx_pbox *box, const struct sbx_err *why)
{
	sbx_lock(&box->lock);
	box->why = *why;
	box->unasked = true;
	if (box->want != WANT_DELETED)
		box->want = WANT_DOWN;
	sbx_unlock(&box->lock);
	sbx_container_step(box);
}

bool sbx_container_check(struct sbx_pbox *box)
{
	struct pollfd p = { .events = POLLIN };

	if (box->have != HAVE_UP && box->have != HAVE_PAUSED)
		return true;
	p.fd = box->conn ? box->conn->fd : -1;
	if (p.fd >= 0 && (poll(&p, 1, 0) <= 0 || !(p.revents & (POLLHUP | POLLERR))))
		return false;
	lost(box);
	sbx_container_kick(box);
	return true;
}
