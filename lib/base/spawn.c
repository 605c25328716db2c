/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: programs of the host that were started and have not ended.  Knows: posix_spawn, pidfds.
 * Threads: start any; the rest on the loop thread (sbx_spawn_wait: the caller's).
 */
#include "base/spawn.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* a started program */
struct child {
	pid_t pid;
	int pidfd;
	int text_fd; /* read end of its stderr */
};

struct sbx_spawn {
	struct sbx_loop *loop;
	struct child child;
	struct sbx_watch exit_watch, text_watch;
	struct sbx_timer timer;
	struct sbx_task arm;
	uint64_t timeout_ms;
	void (*done)(void *data, const struct sbx_spawn_result *result);
	void *data;
	size_t text_len;
	struct sbx_spawn_result result;
};

static void child_done(struct child *c)
{
	if (c->pidfd >= 0)
		close(c->pidfd);
	if (c->text_fd >= 0)
		close(c->text_fd);
}

/* Sources are moved out of the way first, so that no target number is a source of a later one. */
static int map_fds(posix_spawn_file_actions_t *fa, const struct sbx_spawn_spec *spec, int text_fd,
		   int moved[SBX_SPAWN_FDS_MAX + 1])
{
	int last = 2, r;
	size_t i;

	if (spec->fds_n > SBX_SPAWN_FDS_MAX)
		return E2BIG;
	r = posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0);
	if (r == 0 && !spec->capture_stdout)
		r = posix_spawn_file_actions_addopen(fa, 1, "/dev/null", O_WRONLY, 0);
	for (i = 0; r == 0 && i <= spec->fds_n; i++) {
		int from = i < spec->fds_n ? spec->fds[i].from : text_fd;
		int to = i < spec->fds_n ? spec->fds[i].to : 2;

		moved[i] = fcntl(from, F_DUPFD_CLOEXEC, 3 + SBX_SPAWN_FDS_MAX);
		if (moved[i] < 0)
			return errno;
		r = posix_spawn_file_actions_adddup2(fa, moved[i], to);
		if (r == 0 && to == 2 && spec->capture_stdout)
			r = posix_spawn_file_actions_adddup2(fa, moved[i], 1);
		if (to > last)
			last = to;
	}
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(fa, last + 1);
#endif
	return r;
}

static int set_attr(posix_spawnattr_t *attr)
{
	sigset_t set;
	int r;

	sigemptyset(&set);
	r = posix_spawnattr_setsigmask(attr, &set);
	sigfillset(&set);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(attr, &set);
	if (r == 0) /* an own group: Ctrl-C at a daemon in the foreground is not for it */
		r = posix_spawnattr_setpgroup(attr, 0);
	if (r == 0)
		r = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
							   POSIX_SPAWN_SETPGROUP);
	return r;
}

static int child_start(const struct sbx_spawn_spec *spec, struct child *ret, struct sbx_err *err)
{
	int text[2], moved[SBX_SPAWN_FDS_MAX + 1], r;
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	size_t i;
	pid_t pid = 0;

	for (i = 0; i <= SBX_SPAWN_FDS_MAX; i++)
		moved[i] = -1;
	if (pipe2(text, O_CLOEXEC) != 0)
		return sbx_err_sys(err, errno, "cannot start %s", spec->argv[0]);
	fcntl(text[0], F_SETFL, O_NONBLOCK);
	posix_spawn_file_actions_init(&fa);
	posix_spawnattr_init(&attr);
	r = map_fds(&fa, spec, text[1], moved);
	if (r == 0)
		r = set_attr(&attr);
	if (r == 0)
		r = posix_spawnp(&pid, spec->argv[0], &fa, &attr,
				 (char *const *)(uintptr_t)spec->argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	for (i = 0; i <= SBX_SPAWN_FDS_MAX; i++)
		sbx_closep(&moved[i]);
	close(text[1]);
	if (r != 0) {
		close(text[0]);
		return sbx_err_sys(err, r, "cannot start %s", spec->argv[0]);
	}
	ret->pid = pid;
	ret->text_fd = text[0];
	ret->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (ret->pidfd < 0) { /* EMFILE: it must not go on unobserved */
		r = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		child_done(ret);
		return sbx_err_sys(err, r, "cannot watch %s", spec->argv[0]);
	}
	return 0;
}

/* Keeps the end of what is said, where the reason is.  false: nothing more will come. */
static bool take_text(struct child *c, struct sbx_spawn_result *res, size_t *len)
{
	size_t max = sizeof(res->text) - 1;
	char more[1024];
	ssize_t n;

	while ((n = read(c->text_fd, more, sizeof(more))) > 0) {
		size_t over = *len + (size_t)n > max ? *len + (size_t)n - max : 0;

		memmove(res->text, res->text + over, *len - over);
		*len -= over;
		memcpy(res->text + *len, more, (size_t)n);
		*len += (size_t)n;
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void finish_text(struct sbx_spawn_result *res, size_t len)
{
	while (len > 0 && (res->text[len - 1] == '\n' || res->text[len - 1] == ' '))
		len--;
	res->text[len] = '\0';
}

static void on_text(struct sbx_watch *watch, uint32_t events)
{
	struct sbx_spawn *s = sbx_container_of(watch, struct sbx_spawn, text_watch);

	(void)events;
	if (!take_text(&s->child, &s->result, &s->text_len))
		sbx_watch_del(s->loop, watch);
}

static void on_exit_ready(struct sbx_watch *watch, uint32_t events)
{
	struct sbx_spawn *s = sbx_container_of(watch, struct sbx_spawn, exit_watch);

	(void)events;
	if (waitpid(s->child.pid, &s->result.status, WNOHANG) == 0)
		return;
	take_text(&s->child, &s->result, &s->text_len);
	finish_text(&s->result, s->text_len);
	sbx_watch_del(s->loop, &s->exit_watch);
	sbx_watch_del(s->loop, &s->text_watch);
	sbx_timer_cancel(s->loop, &s->timer);
	child_done(&s->child);
	s->done(s->data, &s->result);
	free(s);
}

static void on_timeout(struct sbx_timer *timer)
{
	struct sbx_spawn *s = sbx_container_of(timer, struct sbx_spawn, timer);

	s->result.timed_out = true;
	kill(s->child.pid, SIGKILL); /* not reaped yet: the number is still its own */
}

/* on the loop thread, so that no callback can free what is still being armed */
static void arm(struct sbx_task *task)
{
	struct sbx_spawn *s = sbx_container_of(task, struct sbx_spawn, arm);

	s->text_watch.fn = on_text;
	s->text_watch.fd = s->child.text_fd;
	s->exit_watch.fn = on_exit_ready;
	s->exit_watch.fd = s->child.pidfd;
	s->timer.fn = on_timeout;
	if (s->timeout_ms)
		sbx_timer_set(s->loop, &s->timer, s->timeout_ms);
	sbx_watch_add(s->loop, &s->text_watch, EPOLLIN);
	if (sbx_watch_add(s->loop, &s->exit_watch, EPOLLIN) < 0) {
		/* no memory for a watch: end it here rather than lose it */
		kill(s->child.pid, SIGKILL);
		while (waitpid(s->child.pid, &s->result.status, 0) < 0 && errno == EINTR)
			;
		on_exit_ready(&s->exit_watch, 0);
	}
}

int sbx_spawn_start(struct sbx_loop *loop, const struct sbx_spawn_spec *spec,
		    void (*done)(void *data, const struct sbx_spawn_result *result), void *data,
		    struct sbx_err *err)
{
	struct sbx_spawn *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return sbx_err_set(err, ENOMEM, "no memory to start %s", spec->argv[0]);
	r = child_start(spec, &s->child, err);
	if (r < 0) {
		free(s);
		return r;
	}
	s->loop = loop;
	s->timeout_ms = spec->timeout_ms;
	s->done = done;
	s->data = data;
	s->arm.fn = arm;
	if (spec->handle)
		*spec->handle = s;
	sbx_loop_post(loop, &s->arm);
	return 0;
}

void sbx_spawn_kill(struct sbx_spawn *spawn, int sig)
{
	kill(spawn->child.pid, sig); /* not reaped yet: the number is still its own */
}

int sbx_spawn_pid(const struct sbx_spawn *spawn)
{
	return spawn->child.pid;
}

int sbx_spawn_wait(const struct sbx_spawn_spec *spec, struct sbx_spawn_result *ret,
		   struct sbx_err *err)
{
	uint64_t until = spec->timeout_ms ? sbx_clock_ms() + spec->timeout_ms : UINT64_MAX;
	struct child c;
	size_t len = 0;
	bool text = true;
	int r;

	memset(ret, 0, sizeof(*ret));
	r = child_start(spec, &c, err);
	if (r < 0)
		return r;
	while (waitpid(c.pid, &ret->status, WNOHANG) == 0) {
		struct pollfd p[2] = { { c.pidfd, POLLIN, 0 }, { text ? c.text_fd : -1, POLLIN, 0 } };
		uint64_t now = sbx_clock_ms();

		if (now >= until && !ret->timed_out) {
			ret->timed_out = true;
			kill(c.pid, SIGKILL);
		}
		poll(p, 2, until == UINT64_MAX || ret->timed_out ? 1000 : (int)(until - now));
		if (text)
			text = take_text(&c, ret, &len);
	}
	take_text(&c, ret, &len);
	finish_text(ret, len);
	child_done(&c);
	return 0;
}

int sbx_spawn_check(const char *program, const struct sbx_spawn_result *result, struct sbx_err *err)
{
	if (result->timed_out)
		return sbx_err_set(err, ETIMEDOUT, "%s did not end in time%s%s", program,
				   result->text[0] ? ": " : "", result->text);
	if (WIFEXITED(result->status) && WEXITSTATUS(result->status) == 0)
		return 0;
	if (result->text[0])
		return sbx_err_set(err, EIO, "%s: %s", program, result->text);
	if (WIFSIGNALED(result->status))
		return sbx_err_set(err, EIO, "%s was killed by signal %d", program,
				   WTERMSIG(result->status));
	return sbx_err_set(err, EIO, "%s exited with %d", program, WEXITSTATUS(result->status));
}
