/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the search for a runtime, and the file STATE/runtime that remembers its result until the next boot.
 * Threads: find and search block (prober, main at open, check); the rest any.
 */
#include "local/runtime.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/spawn.h"
#include "init/blob.h"
#include "init/protocol.h"
#include "local/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIAL_TIMEOUT_MS 20000
#define RETRY_MS 2000
#define TRIAL_MEMORY (64ull << 20)

void sbx_runtime_argv(const struct sbx_runtime *rt, const char *root, const char *const *more,
		      const char **argv)
{
	size_t n = 0;

	argv[n++] = rt->path;
	argv[n++] = "--root";
	argv[n++] = root;
	if (rt->systemd_cgroup)
		argv[n++] = "--systemd-cgroup";
	/* root that may not write cgroups (in a container): runc shall not insist */
	if (!rt->limits && geteuid() == 0 && strstr(rt->path, "/runc"))
		argv[n++] = "--rootless=true";
	while (*more && n < SBX_RUNTIME_ARGS_MAX - 1)
		argv[n++] = *more++;
	argv[n] = NULL;
}

const char *sbx_runtime_cgroup(const struct sbx_runtime *rt, const char *container, char *buf,
			       size_t size)
{
	if (rt->systemd_cgroup)
		snprintf(buf, size, "%s:sbxfs:%s", geteuid() == 0 ? "system.slice" : "user.slice", container);
	else if (geteuid() == 0 && rt->limits)
		snprintf(buf, size, "/%s", container); /* flat: no folder of ours stays behind */
	else
		return NULL;
	return buf;
}

/* ---- one trial ---- */

static int run_words(const struct sbx_runtime *rt, const char *dir, const char *const *words, int fd,
		     struct sbx_err *err)
{
	const char *argv[SBX_RUNTIME_ARGS_MAX];
	char root[PATH_MAX + 8];
	struct sbx_spawn_fd map = { fd, SBX_INIT_FD };
	struct sbx_spawn_spec spec = { .argv = argv, .fds = &map, .fds_n = fd >= 0 ? 1 : 0,
				       .timeout_ms = TRIAL_TIMEOUT_MS };
	struct sbx_spawn_result result;
	int r;

	snprintf(root, sizeof(root), "%s/oci", dir);
	sbx_runtime_argv(rt, root, words, argv);
	r = sbx_spawn_wait(&spec, &result, err);
	return r < 0 ? r : sbx_spawn_check(rt->path, &result, err);
}

/* the init's hello: 0 and its pidfd */
static int await_hello(int fd, int *ret_pidfd, struct sbx_err *err)
{
	struct sbx_init_hello hello;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { &hello, sizeof(hello) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	struct pollfd p = { fd, POLLIN, 0 };
	struct cmsghdr *c;

	if (poll(&p, 1, TRIAL_TIMEOUT_MS) <= 0)
		return sbx_err_set(err, ETIMEDOUT, "the container's first process does not answer");
	if (recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(hello) ||
	    hello.type != SBX_INIT_HELLO)
		return sbx_err_set(err, EIO, "the container's first process ended at once");
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_type != SCM_RIGHTS)
		return sbx_err_set(err, ENOSYS, "the kernel has no pidfd (5.3 or newer is needed)");
	memcpy(ret_pidfd, CMSG_DATA(c), sizeof(int));
	return 0;
}

static void end_trial(int pidfd)
{
	struct pollfd p = { pidfd, POLLIN, 0 };
	siginfo_t info;

	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	poll(&p, 1, 5000);
	waitid((idtype_t)3 /* P_PIDFD */, (id_t)pidfd, &info, WEXITED | WNOHANG);
}

/* do the limits that were asked for hold? */
static int check_limits(int pidfd, struct sbx_err *err)
{
	uint64_t memory = 0, pids = 0;
	pid_t pid = sbx_pidfd_pid(pidfd);

	if (sbx_cgroup_limit(pid, "memory", &memory) < 0 || memory != TRIAL_MEMORY)
		return sbx_err_set(err, EOPNOTSUPP, "the memory limit was not set in its cgroup");
	if (sbx_cgroup_limit(pid, "pids", &pids) < 0 || pids != 16 + SBX_BUNDLE_PIDS_EXTRA)
		return sbx_err_set(err, EOPNOTSUPP, "the limit of processes was not set in its cgroup");
	return 0;
}

static int start_trial(const struct sbx_trial *t, const struct sbx_runtime *rt, const char *name,
		       struct sbx_err *err)
{
	struct sbx_limits limits = { .cpu_milli = 1000, .memory_bytes = TRIAL_MEMORY, .pids = 16 };
	char dir[PATH_MAX], workspace[PATH_MAX], cgroup[128];
	const char *const run[] = { "run", "--detach", "--preserve-fds", "1", "--bundle", dir, name, NULL };
	const char *const del[] = { "delete", "--force", name, NULL };
	struct sbx_bundle b = { .dir = dir, .hostname = "trial", .workspace = workspace,
				.init_path = t->init_path, .network = SBX_NET_NONE, .limits = &limits,
				.with_limits = rt->limits, .root = t->root, .id_base = t->id_base };
	int pair[2], r, pidfd = -1;

	if (snprintf(dir, sizeof(dir), "%s/trial", t->dir) >= (int)sizeof(dir) - 16)
		return sbx_err_set(err, ENAMETOOLONG, "'%s'", t->dir);
	snprintf(workspace, sizeof(workspace), "%s/trial-workspace", t->dir);
	mkdir(workspace, 0700);
	if (t->root && chown(workspace, t->id_base + 1000, t->id_base + 1000) != 0)
		return sbx_err_sys(err, errno, "cannot give '%s' to user id %u", workspace, t->id_base + 1000);
	b.cgroups_path = sbx_runtime_cgroup(rt, name, cgroup, sizeof(cgroup));
	r = sbx_bundle_make(&b, err);
	if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		r = sbx_err_sys(err, errno, "cannot make a socket");
	if (r < 0)
		return r;
	r = run_words(rt, t->dir, run, pair[1], err);
	close(pair[1]);
	if (r == 0)
		r = await_hello(pair[0], &pidfd, err);
	if (r == 0 && rt->limits)
		r = check_limits(pidfd, err);
	if (pidfd >= 0) {
		end_trial(pidfd);
		close(pidfd);
	}
	close(pair[0]);
	run_words(rt, t->dir, del, -1, NULL);
	sbx_bundle_remove(dir);
	rmdir(workspace);
	return r;
}

/* ---- which to try ---- */

bool sbx_runtime_program(const char *name, char ret[PATH_MAX])
{
	const char *env = getenv("PATH");
	SBX_CLEANUP(sbx_freep) char *path = NULL;
	char *dir, *save = NULL;

	if (strchr(name, '/')) {
		snprintf(ret, PATH_MAX, "%s", name);
		return access(ret, X_OK) == 0;
	}
	/* runc is in sbin, which ordinary users do not have in PATH */
	if (asprintf(&path, "%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		     env ? env : "") < 0)
		return false;
	for (dir = strtok_r(path, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		if (dir[0] != '/')
			continue;
		snprintf(ret, PATH_MAX, "%s/%s", dir, name);
		if (access(ret, X_OK) == 0)
			return true;
	}
	return false;
}

/* a host with v2 only whose kernel, or whose container, lacks controllers: no runtime can limit there */
static bool lacks_controllers(struct sbx_err *why)
{
	int fd = open("/sys/fs/cgroup/cgroup.controllers", O_RDONLY | O_CLOEXEC);
	char text[1024], missing[64];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (n < 0 || !sbx_cgroup_lacks(text, missing, sizeof(missing)))
		return false;
	sbx_err_set(why, EOPNOTSUPP, "cgroup v2 here lacks the controllers %s", missing);
	return true;
}

/* One runtime: with limits as it can, then without.  0, or the reason of the plain start. */
static int try_one(const struct sbx_trial *t, struct sbx_runtime *rt, struct sbx_err *err)
{
	struct sbx_err why = SBX_ERR_INIT;
	bool possible = !lacks_controllers(&why);
	bool systemd = possible && access("/run/systemd/system", F_OK) == 0 &&
		       access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
	char name[64];
	int r = -1;

	snprintf(name, sizeof(name), "sbxfs-trial-%d", (int)getpid());
	rt->limits = true;
	rt->no_limits[0] = '\0';
	rt->systemd_cgroup = false;
	if (t->root && possible)
		r = start_trial(t, rt, name, &why);
	if (r < 0 && systemd) {
		rt->systemd_cgroup = true;
		r = start_trial(t, rt, name, &why);
	}
	if (r == 0)
		return 0;
	rt->systemd_cgroup = false;
	rt->limits = false;
	r = start_trial(t, rt, name, err);
	if (!why.text[0])
		sbx_err_set(&why, EOPNOTSUPP,
			    "an ordinary user can limit only with cgroup v2 and a systemd user session "
			    "(Delegate=yes)");
	snprintf(rt->no_limits, sizeof(rt->no_limits), "%s", why.text);
	return r;
}

int sbx_runtime_find(const struct sbx_trial *trial, struct sbx_runtime *ret, struct sbx_err *err)
{
	const char *const defaults[] = { "crun", "runc" };
	struct sbx_err all = SBX_ERR_INIT;
	struct sbx_runtime rt;
	size_t i, n = trial->wanted ? 1 : 2, tried = 0;
	bool found = false;
	char oci[PATH_MAX];

	snprintf(oci, sizeof(oci), "%s/oci", trial->dir);
	mkdir(oci, 0700);
	for (i = 0; i < n; i++) {
		struct sbx_err one = SBX_ERR_INIT;

		memset(&rt, 0, sizeof(rt));
		if (!sbx_runtime_program(trial->wanted ? trial->wanted : defaults[i], rt.path))
			continue;
		tried++;
		if (try_one(trial, &rt, &one) < 0) {
			char before[SBX_ERR_TEXT_MAX];

			snprintf(before, sizeof(before), "%s", all.text);
			sbx_err_set(&all, one.code, "%s%s%s", before, before[0] ? "; " : "", one.text);
			continue;
		}
		/* one that can limit is better than the first one that starts */
		if (!found || rt.limits)
			*ret = rt;
		found = true;
		if (rt.limits)
			break;
	}
	if (found)
		return 0;
	if (tried == 0)
		return sbx_err_set(err, ENOENT, "no OCI runtime: install runc or crun%s%s",
				   trial->wanted ? ", not found: " : "", trial->wanted ? trial->wanted : "");
	return sbx_err_set(err, all.code ? all.code : EIO, "no OCI runtime can start a container here: %s",
			   all.text);
}

/* ---- remembering ---- */

/* everything that the answer depends on, as one line */
static void cache_key(const struct sbx_provider *p, const char *path, char *ret, size_t size)
{
	char boot[64] = "";
	struct stat st;

	sbx_proc_read("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	boot[strcspn(boot, "\n")] = '\0';
	if (stat(path, &st) != 0)
		memset(&st, 0, sizeof(st));
	snprintf(ret, size, "%s %u %s %s %lld %s", boot, (unsigned int)geteuid(), sbx_init_blob_hash(), path,
		 (long long)st.st_mtime, p->config->oci_runtime ? p->config->oci_runtime : "-");
}

void sbx_runtime_recall(struct sbx_provider *p)
{
	int fd = openat(p->state->dir_fd, "runtime", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	SBX_CLEANUP(sbx_fclosep) FILE *f = fd >= 0 ? fdopen(fd, "re") : NULL;
	char path[PATH_MAX] = "", key[PATH_MAX + 256] = "", now[PATH_MAX + 256];
	char systemd[8] = "", limits[8] = "", why[SBX_ERR_TEXT_MAX] = "";
	char *const lines[] = { path, key, systemd, limits, why };
	const int sizes[] = { sizeof(path), sizeof(key), sizeof(systemd), sizeof(limits), sizeof(why) };
	size_t i;

	if (!f)
		return;
	for (i = 0; i < 5; i++) {
		if (!fgets(lines[i], sizes[i], f) && i < 4)
			return;
		lines[i][strcspn(lines[i], "\n")] = '\0';
	}
	cache_key(p, path, now, sizeof(now));
	if (strcmp(key, now) != 0 || access(path, X_OK) != 0)
		return;
	snprintf(p->runtime.path, sizeof(p->runtime.path), "%s", path);
	p->runtime.systemd_cgroup = systemd[0] == '1';
	p->runtime.limits = limits[0] == '1';
	snprintf(p->runtime.no_limits, sizeof(p->runtime.no_limits), "%s", why);
	p->runtime_state = RUNTIME_READY;
}

static void remember(struct sbx_provider *p)
{
	char key[PATH_MAX + 256], why[SBX_ERR_TEXT_MAX];
	int fd;

	cache_key(p, p->runtime.path, key, sizeof(key));
	snprintf(why, sizeof(why), "%s", p->runtime.no_limits);
	why[strcspn(why, "\n")] = '\0';
	unlinkat(p->state->dir_fd, "runtime.new", 0);
	fd = openat(p->state->dir_fd, "runtime.new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	dprintf(fd, "%s\n%s\n%d\n%d\n%s\n", p->runtime.path, key, p->runtime.systemd_cgroup,
		p->runtime.limits, why);
	close(fd);
	renameat(p->state->dir_fd, "runtime.new", p->state->dir_fd, "runtime");
}

void sbx_runtime_forget(struct sbx_local_state *s)
{
	unlinkat(s->dir_fd, "runtime", 0);
}

/* ---- for the provider ---- */

enum runtime_state sbx_runtime_search(struct sbx_provider *p, struct sbx_err *err)
{
	struct sbx_trial t = { .wanted = p->config->oci_runtime, .dir = p->state->run_dir,
			       .init_path = p->state->init_path, .root = p->state->root,
			       .id_base = p->state->ids_base };
	struct sbx_err why = SBX_ERR_INIT;
	struct sbx_runtime rt;
	int r = sbx_runtime_find(&t, &rt, &why);
	enum runtime_state state;

	sbx_lock(&p->lock);
	if (r == 0)
		p->runtime = rt;
	p->runtime_err = why;
	p->runtime_failed_ms = sbx_clock_ms();
	state = p->runtime_state = r == 0 ? RUNTIME_READY : RUNTIME_FAILED;
	sbx_unlock(&p->lock);
	if (r == 0)
		remember(p);
	else if (err)
		*err = why;
	return state;
}

struct search {
	struct sbx_job job;
	struct sbx_provider *p;
};

static void search(struct sbx_job *job, const atomic_bool *stop)
{
	struct search *s = sbx_container_of(job, struct search, job);
	struct sbx_provider *p = s->p;
	struct sbx_list *pos;
	bool known;

	free(s);
	if (*stop)
		return;
	sbx_lock(&p->lock);
	known = p->runtime_state == RUNTIME_READY; /* cleaning up after others needed it first */
	sbx_unlock(&p->lock);
	if (!known)
		sbx_runtime_search(p, NULL);
	sbx_lock(&p->lock);
	sbx_list_for_each(pos, &p->boxes)
		sbx_container_kick(sbx_container_of(pos, struct sbx_pbox, link));
	sbx_unlock(&p->lock);
}

enum runtime_state sbx_runtime_state(struct sbx_provider *p, struct sbx_err *err)
{
	enum runtime_state state;
	struct search *s;
	bool go;

	sbx_lock(&p->lock);
	/* one may have been installed since it failed: a later start looks again */
	go = p->runtime_state == RUNTIME_UNKNOWN ||
	     (p->runtime_state == RUNTIME_FAILED && sbx_clock_ms() - p->runtime_failed_ms > RETRY_MS);
	if (go)
		p->runtime_state = RUNTIME_PROBING;
	state = p->runtime_state;
	if (state == RUNTIME_FAILED)
		*err = p->runtime_err;
	sbx_unlock(&p->lock);
	if (!go)
		return state;
	s = calloc(1, sizeof(*s));
	if (s) {
		s->job.fn = search;
		s->p = p;
	}
	if (!s || sbx_worker_post(p->prober, &s->job, err) < 0) {
		free(s);
		sbx_lock(&p->lock);
		p->runtime_state = RUNTIME_UNKNOWN;
		sbx_unlock(&p->lock);
		return RUNTIME_FAILED;
	}
	return RUNTIME_PROBING;
}
