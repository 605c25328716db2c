/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: PID 1 of a box.  Takes start messages from the daemon and forks one supervisor for each run
 * (supervisor.c); reaps; ends what a dead supervisor left behind; exits, and the whole pid namespace
 * with it, when the daemon is gone.  Single-threaded, static, never dumpable, needs no file of the box.
 */
#include "init.h"
#include "protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS_MAX 8192

/* one supervisor that was not reaped yet */
struct run {
	pid_t pid;
	uint32_t id;
};

static struct run *runs;
static size_t runs_n, runs_room;
static int signal_fd;

static int say_hello(void)
{
	struct sbx_init_hello hello = { SBX_INIT_HELLO, SBX_INIT_VERSION };
	struct iovec iov = { &hello, sizeof(hello) };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	ssize_t r;

	if (pidfd >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.room;
		msg.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &pidfd, sizeof(int));
	}
	r = sendmsg(SBX_INIT_FD, &msg, MSG_NOSIGNAL);
	if (pidfd >= 0)
		close(pidfd);
	return r == sizeof(hello) ? 0 : -1;
}

static bool is_run(pid_t pid)
{
	size_t i;

	for (i = 0; i < runs_n; i++) {
		if (runs[i].pid == pid)
			return true;
	}
	return false;
}

static bool runs_reserve(void)
{
	size_t room = runs_room ? runs_room * 2 : 64;
	struct run *more;

	if (runs_n < runs_room)
		return true;
	if (runs_n >= RUNS_MAX)
		return false;
	more = realloc(runs, room * sizeof(*runs));
	if (!more)
		return false;
	runs = more;
	runs_room = room;
	return true;
}

static void start(const struct sbx_init_start *m, struct sbx_run_fds *fds)
{
	struct sbx_run_report report = { .type = SBX_REPORT_FAILED, .step = SBX_STEP_FORK };
	pid_t pid = -1;

	errno = EAGAIN;
	if (runs_reserve())
		pid = fork();
	if (pid == 0) {
		close(SBX_INIT_FD);
		close(signal_fd);
		sbx_supervise(m->id, fds); /* does not return */
	}
	if (pid > 0) {
		runs[runs_n].pid = pid;
		runs[runs_n++].id = m->id;
		return;
	}
	report.error = errno;
	send(fds->control, &report, sizeof(report), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* a program of our own uid may have stopped or killed its supervisor: do its work from here */
static void kill_run(uint32_t id)
{
	size_t i;

	for (i = 0; i < runs_n; i++) {
		if (runs[i].id != id)
			continue;
		sbx_kill_tree(runs[i].pid, SIGKILL, NULL);
		kill(runs[i].pid, SIGKILL);
	}
}

/* one message; false: the daemon is gone */
static bool receive(void)
{
	union {
		struct sbx_init_start start;
		struct sbx_init_kill kill;
		char room[64];
	} m;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec iov = { &m, sizeof(m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct cmsghdr *c;
	int fds[8], n = 0, i;
	struct sbx_run_fds rf;
	ssize_t len = recvmsg(SBX_INIT_FD, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (len < 0)
		return errno == EAGAIN || errno == EINTR;
	if (len == 0)
		return false;
	for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		if (n > 8)
			n = 8;
		memcpy(fds, CMSG_DATA(c), (size_t)n * sizeof(int));
	}
	if (len == sizeof(m.start) && m.start.type == SBX_INIT_START && (n == 4 || n == 5)) {
		rf.spec = fds[0];
		rf.control = fds[1];
		rf.out = fds[2];
		rf.err = fds[3];
		rf.in = n == 5 ? fds[4] : -1;
		start(&m.start, &rf);
	} else if (len == sizeof(m.kill) && m.kill.type == SBX_INIT_KILL) {
		kill_run(m.kill.id);
	}
	for (i = 0; i < n; i++)
		close(fds[i]);
	return true;
}

static void reap(void)
{
	bool orphaned = false;
	int status;
	pid_t pid;
	size_t i;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (i = 0; i < runs_n && runs[i].pid != pid; i++)
			;
		/* A supervisor ends after its descendants; what it leaves when it was killed has no owner. */
		if (i == runs_n || status != 0)
			orphaned = true;
		if (i == runs_n)
			continue;
		sbx_code_remove(runs[i].id);
		runs[i] = runs[--runs_n];
	}
	if (orphaned)
		sbx_kill_tree(getpid(), SIGKILL, is_run);
}

int main(int argc, char **argv)
{
	struct pollfd p[2];
	sigset_t mask;

	if (argc > 1)
		return sbx_host_role(argc, argv);

	/* programs must not reach our memory and descriptors, also those of the same uid */
	if (prctl(PR_SET_DUMPABLE, 0) != 0)
		return 1;
	/* runc's stdio is the daemon's: nothing of it may be seen inside */
	if (sbx_stdio_null() != 0)
		return 1;
	syscall(SYS_close_range, SBX_INIT_FD + 1, ~0U, 0);
	fcntl(SBX_INIT_FD, F_SETFD, FD_CLOEXEC);
	umask(022);
	if (chdir("/") != 0 || (mkdir(SBX_INIT_RUN_DIR, 0755) != 0 && errno != EEXIST))
		return 1;
	sigfillset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0 || say_hello() != 0)
		return 1;

	p[0] = (struct pollfd){ SBX_INIT_FD, POLLIN, 0 };
	p[1] = (struct pollfd){ signal_fd, POLLIN, 0 };
	for (;;) {
		struct signalfd_siginfo si;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return 1;
		while (read(signal_fd, &si, sizeof(si)) > 0)
			;
		if (p[1].revents)
			reap();
		if (p[0].revents && !receive())
			return 0;
	}
}
