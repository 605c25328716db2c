/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one run inside the box: reads its spec, writes the code's file, starts the program, reports its
 * end, passes signals to all its descendants (it is their subreaper), and lives as long as any of them.
 * Runs as the box's uid 0, not dumpable, with nothing open but the control socket when the program runs.
 */
#include "init.h"
#include "protocol.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_UID 1000
#define PROGRAM_GID 1000
#define ARGS_MAX (1u << 20)
#define PATH_TRY_MAX 4096

/* the spec after it was taken apart; strings point into the mapping */
struct plan {
	char **argv, **env;
	const char *code_name; /* NULL: no code */
	const char *code;
	size_t code_len;
	char cwd[PATH_TRY_MAX];
	char code_path[64 + 256];
	bool code_is_program; /* started by its shebang */
	bool drop;
	uint32_t nproc;
};

/* how the child got on; shared with it, since vfork shares memory */
struct child_state {
	volatile uint32_t step;
	volatile int error; /* 0: it is the program now */
};

int sbx_stdio_null(void)
{
	int in = open("/dev/null", O_RDONLY), out = open("/dev/null", O_WRONLY);

	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		return -1;
	if (in > 2)
		close(in);
	if (out > 2)
		close(out);
	return 0;
}

void sbx_code_dir(uint32_t id, char *buf)
{
	snprintf(buf, 64, "%s/%u", SBX_INIT_RUN_DIR, id);
}

void sbx_code_remove(uint32_t id)
{
	char path[64];
	struct dirent *e;
	DIR *d;
	int fd;

	sbx_code_dir(id, path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	d = fdopendir(fd);
	if (!d) {
		close(fd);
		return;
	}
	while ((e = readdir(d)))
		unlinkat(fd, e->d_name, 0);
	closedir(d);
	rmdir(path);
}

static void report(int control, const struct sbx_run_report *r)
{
	while (send(control, r, sizeof(*r), MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

static void report_failed(int control, uint32_t step, int error)
{
	struct sbx_run_report r = { .type = SBX_REPORT_FAILED, .step = step, .error = error };

	report(control, &r);
	_exit(0);
}

/* the next string of the mapping, NULL at its end */
static char *next_string(char **at, char *end)
{
	char *s = *at, *nul = s < end ? memchr(s, '\0', (size_t)(end - s)) : NULL;

	if (!nul)
		return NULL;
	*at = nul + 1;
	return s;
}

static char **strings(uint32_t n, char **at, char *end)
{
	char **list = calloc((size_t)n + 1, sizeof(*list));
	uint32_t i;

	for (i = 0; list && i < n; i++) {
		list[i] = next_string(at, end);
		if (!list[i])
			return NULL;
	}
	return list;
}

static bool good_name(const char *s)
{
	return *s && strlen(s) < 256 && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* 0 or an errno */
static int read_spec(int fd, uint32_t id, struct plan *plan)
{
	const struct sbx_spec *spec;
	struct stat st;
	char *map, *at, *end, *cwd;

	if (fstat(fd, &st) != 0)
		return errno;
	if (st.st_size < (off_t)sizeof(*spec))
		return EPROTO;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return errno;
	spec = (const struct sbx_spec *)(void *)map;
	if (spec->magic != SBX_SPEC_MAGIC || spec->argc == 0 || spec->argc > ARGS_MAX ||
	    spec->envc > ARGS_MAX || spec->strings_len > SBX_SPEC_STRINGS_MAX ||
	    spec->code_arg >= (int32_t)spec->argc ||
	    (uint64_t)st.st_size != sizeof(*spec) + spec->strings_len + spec->code_len)
		return EPROTO;
	at = map + sizeof(*spec);
	end = at + spec->strings_len;
	plan->argv = strings(spec->argc, &at, end);
	plan->env = plan->argv ? strings(spec->envc, &at, end) : NULL;
	cwd = plan->env ? next_string(&at, end) : NULL;
	if (!cwd)
		return EPROTO;
	if (snprintf(plan->cwd, sizeof(plan->cwd), "%s%s%s", SBX_INIT_WORKSPACE, *cwd ? "/" : "",
		     cwd) >= (int)sizeof(plan->cwd))
		return ENAMETOOLONG;
	plan->drop = spec->flags & SBX_SPEC_DROP;
	plan->nproc = spec->nproc;
	if (!spec->has_code)
		return 0;
	plan->code_name = next_string(&at, end);
	if (!plan->code_name || !good_name(plan->code_name))
		return EPROTO;
	plan->code = end;
	plan->code_len = spec->code_len;
	sbx_code_dir(id, plan->code_path);
	strcat(plan->code_path, "/");
	strcat(plan->code_path, plan->code_name);
	if (spec->code_arg >= 0)
		plan->argv[spec->code_arg] = plan->code_path;
	plan->code_is_program = spec->code_arg == 0;
	return 0;
}

/* 0 or an errno */
static int write_code(uint32_t id, const struct plan *plan)
{
	char dir[64];
	size_t off = 0;
	int fd, e = 0;

	sbx_code_dir(id, dir);
	if (mkdir(dir, 0755) != 0)
		return errno;
	fd = open(plan->code_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		  plan->code_is_program ? 0555 : 0444);
	if (fd < 0)
		return errno;
	while (off < plan->code_len && e == 0) {
		ssize_t n = write(fd, plan->code + off, plan->code_len - off);

		if (n >= 0)
			off += (size_t)n;
		else if (errno != EINTR)
			e = errno;
	}
	if (close(fd) != 0 && e == 0)
		e = errno;
	return e;
}

/* ---- the child between vfork and exec: no allocation, no return ---- */

static void child_fail(struct child_state *s, uint32_t step)
{
	s->step = step;
	s->error = errno ? errno : EIO;
	_exit(127);
}

/* as execvpe(), but a missing program wins over nothing and EACCES is kept as shells do */
static void child_exec(const struct plan *plan, char *room)
{
	const char *name = plan->argv[0], *path = "/usr/local/bin:/usr/bin:/bin", *end;
	int kept = ENOENT;
	size_t i, len, name_len = strlen(name);

	if (strchr(name, '/')) {
		execve(name, plan->argv, plan->env);
		return;
	}
	for (i = 0; plan->env[i]; i++) {
		if (strncmp(plan->env[i], "PATH=", 5) == 0)
			path = plan->env[i] + 5;
	}
	for (; name_len > 0; path = end + 1) {
		end = path + strcspn(path, ":");
		len = (size_t)(end - path);
		if (len + 1 + name_len < PATH_TRY_MAX) {
			memcpy(room, path, len);
			room[len] = '/';
			memcpy(room + (len ? len + 1 : 0), name, name_len + 1);
			execve(room, plan->argv, plan->env);
			if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) {
				kept = errno;
				break;
			}
			if (errno == EACCES)
				kept = EACCES;
		}
		if (*end == '\0')
			break;
	}
	errno = kept;
}

/* is the working directory below the workspace? */
static bool inside_workspace(void)
{
	static char path[PATH_MAX];
	size_t n = sizeof(SBX_INIT_WORKSPACE) - 1;

	return syscall(SYS_getcwd, path, sizeof(path)) > 0 && strncmp(path, SBX_INIT_WORKSPACE, n) == 0 &&
	       (path[n] == '\0' || path[n] == '/');
}

static void child(const struct plan *plan, const struct sbx_run_fds *fds, struct child_state *s,
		  char *room)
{
	struct rlimit nproc;
	sigset_t none;
	int fd;

	errno = 0;
	setsid();
	if ((fds->in >= 0 && dup2(fds->in, 0) < 0) || dup2(fds->out, 1) < 0 || dup2(fds->err, 2) < 0)
		child_fail(s, SBX_STEP_FORK);
	/* programs are what the kernel shall kill when the memory is used up, not us */
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "500", 3) < 0)
			child_fail(s, SBX_STEP_IDS);
		close(fd);
	}
	if (plan->drop &&
	    (syscall(SYS_setgroups, 0, NULL) != 0 ||
	     syscall(SYS_setresgid, PROGRAM_GID, PROGRAM_GID, PROGRAM_GID) != 0 ||
	     syscall(SYS_setresuid, PROGRAM_UID, PROGRAM_UID, PROGRAM_UID) != 0))
		child_fail(s, SBX_STEP_IDS);
	/*
	 * After the change of ids: a box full of processes then still lets a program start, though it
	 * cannot fork (the kernel looks at the limit when ids change and at fork).
	 */
	if (plan->nproc && syscall(SYS_prlimit64, 0, RLIMIT_NPROC, NULL, &nproc) == 0) {
		if (nproc.rlim_max > plan->nproc)
			nproc.rlim_max = plan->nproc;
		nproc.rlim_cur = nproc.rlim_max;
		if (syscall(SYS_prlimit64, 0, RLIMIT_NPROC, &nproc, NULL) != 0)
			child_fail(s, SBX_STEP_IDS);
	}
	if (chdir(plan->cwd) != 0)
		child_fail(s, SBX_STEP_CWD);
	if (!inside_workspace()) { /* through a link */
		errno = EXDEV;
		child_fail(s, SBX_STEP_CWD);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	child_exec(plan, room);
	child_fail(s, SBX_STEP_EXEC);
}

static pid_t launch(const struct plan *plan, const struct sbx_run_fds *fds, struct child_state *s)
{
	static char room[PATH_TRY_MAX + 16];
	pid_t pid = vfork();

	if (pid == 0)
		child(plan, fds, s, room); /* does not return */
	if (pid < 0) {
		s->step = SBX_STEP_FORK;
		s->error = errno;
	}
	return pid;
}

/* ---- after the start ---- */

/* false: the daemon has no use for this run any more */
static bool receive_signal(int control)
{
	struct sbx_run_signal m;
	ssize_t n = recv(control, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	if (n == sizeof(m) && m.sig > 0 && m.sig < 65)
		sbx_kill_tree(getpid(), m.sig, NULL);
	return true;
}

static uint64_t us(struct timeval t)
{
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec;
}

/* false: no child is left, and since we are the subreaper, no descendant either */
static bool reap(int control, pid_t program)
{
	struct sbx_run_report r = { .type = SBX_REPORT_EXITED };
	struct rusage u;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &u)) > 0) {
		if (pid != program)
			continue;
		r.pid = pid;
		r.status = status;
		r.user_us = us(u.ru_utime);
		r.sys_us = us(u.ru_stime);
		r.max_rss_kib = (uint32_t)u.ru_maxrss;
		report(control, &r);
	}
	return pid == 0 || errno != ECHILD;
}

static void watch_over(int control, int signal_fd, pid_t program)
{
	struct pollfd p[2] = { { control, POLLIN, 0 }, { signal_fd, POLLIN, 0 } };
	struct signalfd_siginfo si;
	nfds_t n = 2;

	while (reap(control, program)) {
		/* after the daemon has gone, look again until all are dead */
		if (p[0].fd < 0)
			sbx_kill_tree(getpid(), SIGKILL, NULL);
		if (poll(p, n, p[0].fd < 0 ? 20 : -1) < 0 && errno != EINTR)
			return;
		while (read(signal_fd, &si, sizeof(si)) > 0)
			;
		if (p[0].fd >= 0 && p[0].revents && !receive_signal(control))
			p[0].fd = -1; /* poll() skips it */
	}
}

void sbx_supervise(uint32_t id, const struct sbx_run_fds *fds)
{
	static struct plan plan;
	struct child_state state = { 0, 0 };
	struct sbx_run_report started = { .type = SBX_REPORT_STARTED };
	sigset_t mask;
	int signal_fd, e;
	pid_t pid;

	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		report_failed(fds->control, SBX_STEP_FORK, errno);
	e = read_spec(fds->spec, id, &plan);
	if (e)
		report_failed(fds->control, SBX_STEP_SPEC, e);
	e = plan.code_name ? write_code(id, &plan) : 0;
	if (e)
		report_failed(fds->control, SBX_STEP_CODE, e);
	pid = launch(&plan, fds, &state);
	if (pid < 0 || state.error)
		report_failed(fds->control, state.step, state.error);
	close(fds->spec);
	close(fds->out);
	close(fds->err);
	if (fds->in >= 0)
		close(fds->in);
	started.pid = pid;
	report(fds->control, &started);
	watch_over(fds->control, signal_fd, pid);
	_exit(0);
}
