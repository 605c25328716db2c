/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: start and end: command line, configuration, mount, signals, exit code.
 * Threads: main runs the FUSE session; signals and the mount table are watched on the loop.
 */
#include "fs.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "catalog.h"
#include "check.h"
#include "config.h"
#include "loop.h"
#include "mounts.h"
#include "node.h"
#include "open.h"
#include "options.h"
#include "park.h"
#include "synth.h"
#include "tree_workspace.h"
#include "use.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_THREADS 64
#define NUDGE_MS 20

struct sbx_fs sbx_fs;

static int ready_fd = -1;    /* to the parent that waits for the mount, -1 in the foreground */
static pthread_t main_thread;
static atomic_bool session_over;
static struct sbx_loop *loop;
static struct sbx_watch signal_watch, mounts_watch;
static struct sbx_timer nudge_timer;
static int64_t mount_id = -1;

static int fail(const struct sbx_err *err)
{
	fprintf(stderr, "sbxfs: %s\n", err->text);
	return 1;
}

void sbx_set_ready(void)
{
	int null;

	if (ready_fd < 0)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		close(null);
	}
	if (write(ready_fd, "r", 1) != 1)
		sbx_log_write(SBX_LOG_WARNING, "the starting process is gone");
	sbx_closep(&ready_fd);
}

/* ---- the end: everything that waits is answered, then the session is left ---- */

static void nobody(int sig)
{
	(void)sig;
}

/* the main thread sleeps in the session: a signal makes it look; again and again, for the first may come too early */
static void nudge(struct sbx_timer *timer)
{
	if (atomic_load(&session_over))
		return;
	pthread_kill(main_thread, SIGUSR1);
	sbx_timer_set(loop, timer, NUDGE_MS);
}

static void on_signal(struct sbx_watch *watch, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(watch->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	sbx_park_shutdown();
	fuse_session_exit(sbx_fs.se);
	nudge(&nudge_timer);
}

/* fusermount3 -uz, umount -l: nobody can come any more, and who waits must not wait for ever */
static void on_mounts(struct sbx_watch *watch, uint32_t events)
{
	(void)events;
	if (sbx_mounts_has(mount_id))
		return;
	sbx_watch_del(loop, watch);
	sbx_park_shutdown();
}

static void raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* ---- set-up ---- */

static int compile_policy(const struct sbx_config *config, struct sbx_err *err)
{
	size_t n = 0, i;

	while (config->policy_deny && config->policy_deny[n])
		n++;
	if (n == 0)
		return 0;
	sbx_fs.deny = calloc(n, sizeof(*sbx_fs.deny));
	if (!sbx_fs.deny)
		return sbx_err_set(err, ENOMEM, "no memory");
	for (i = 0; i < n; i++) {
		if (regcomp(&sbx_fs.deny[i], config->policy_deny[i], REG_EXTENDED | REG_ICASE | REG_NEWLINE) != 0)
			return sbx_err_set(err, EINVAL, "policy.deny: '%s' is not a regular expression",
					   config->policy_deny[i]);
		sbx_fs.deny_n = i + 1;
	}
	return 0;
}

/* libfuse's own words of a failed mount come on stderr: ours say what to do */
static int mount_session(struct sbx_options *o, struct sbx_err *err)
{
	char text[512];

	/* in front: fsname= of the user counts; at the end: nothing of a workspace is ever set-uid or run by the host */
	snprintf(text, sizeof(text), "-ofsname=%s,subtype=sbxfs", o->source);
	if (fuse_opt_insert_arg(&o->args, 1, text) < 0 ||
	    fuse_opt_add_arg(&o->args, o->allow_other ? "-onosuid,nodev,noexec,allow_other,default_permissions"
						      : "-onosuid,nodev,noexec") < 0 ||
	    (o->debug && fuse_opt_add_arg(&o->args, "-d") < 0))
		return sbx_err_set(err, ENOMEM, "no memory");
	sbx_fs.se = fuse_session_new(&o->args, &sbx_ops, sizeof(sbx_ops), NULL);
	if (!sbx_fs.se)
		return sbx_err_set(err, EINVAL, "bad mount option; see sbxfs --help");
	if (fuse_session_mount(sbx_fs.se, o->mountpoint) != 0)
		return sbx_err_set(err, EIO, "'%s' could not be mounted; sbxfs check says what is missing",
				   o->mountpoint);
	mount_id = sbx_mounts_find(o->mountpoint);
	return 0;
}

static int watch_end(struct sbx_err *err)
{
	struct sigaction action = { .sa_handler = nobody };
	sigset_t set;
	int r;

	sigaction(SIGUSR1, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL); /* before any thread: all of them inherit it */
	signal_watch.fn = on_signal;
	signal_watch.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	mounts_watch.fn = on_mounts;
	mounts_watch.fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	nudge_timer.fn = nudge;
	if (signal_watch.fd < 0 || mounts_watch.fd < 0)
		return sbx_err_sys(err, errno, "cannot watch for the end");
	r = sbx_watch_add(loop, &signal_watch, EPOLLIN);
	if (r < 0)
		return sbx_err_sys(err, -r, "cannot watch for signals");
	return 0;
}

static void run_session(void)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	fuse_loop_cfg_set_clone_fd(config, 0);
	fuse_loop_cfg_set_max_threads(config, MAX_THREADS);
	/* the kernel takes idle threads in turns: each one more is a buffer that is cold when its turn comes */
	fuse_loop_cfg_set_idle_threads(config, 4);
	fuse_session_loop_mt(sbx_fs.se, config);
	fuse_loop_cfg_destroy(config);
}

static int serve(struct sbx_options *o, const struct sbx_config *config, const struct sbx_template *template)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_synth root = { .node = { .ops = &sbx_folder_ops, .id = SBX_INO_CONTROL | 1 },
				  .folder = &sbx_root_folder };
	int r;

	raise_files();
	mallopt(M_MMAP_THRESHOLD, 4 << 20); /* a buffer of 1 MiB per read must not be a mmap each */
	main_thread = pthread_self();
	r = sbx_loop_new(&loop, &err);
	if (r == 0)
		r = watch_end(&err);
	if (r == 0)
		r = sbx_catalog_new(config, loop, sbx_provider_find(o->source), template, o->ephemeral,
				    &sbx_fs.catalog, &err);
	if (r == 0) {
		sbx_fs.boxes_go = sbx_use_any(config);
		sbx_node_root_set(&root.node);
		sbx_park_setup(loop, config->max_wait_ms);
		sbx_workspace_setup(o->links && strcmp(o->links, "eperm") == 0 ? SBX_LINKS_EPERM : SBX_LINKS_OUTSIDE);
		r = mount_session(o, &err);
	}
	if (r == 0) {
		r = sbx_loop_start(loop, &err);
		if (r == 0 && mount_id >= 0)
			sbx_watch_add(loop, &mounts_watch, EPOLLPRI | EPOLLERR);
		if (r == 0)
			run_session();
		atomic_store(&session_over, true);
		sbx_park_shutdown();
		sbx_park_drain(); /* first: answers go to the descriptor that unmounting closes */
		fuse_session_unmount(sbx_fs.se);
	} else if (sbx_fs.catalog) {
		sbx_loop_start(loop, NULL); /* the provider ends what it has begun with it */
	}
	/* files and nodes hold boxes, and boxes lean on the provider */
	sbx_open_drop_all();
	sbx_node_drop_all();
	if (sbx_fs.catalog)
		sbx_catalog_close(sbx_fs.catalog);
	if (loop)
		sbx_loop_stop(loop);
	if (sbx_fs.se)
		fuse_session_destroy(sbx_fs.se);
	sbx_catalog_free(sbx_fs.catalog);
	sbx_loop_free(loop);
	sbx_closep(&signal_watch.fd);
	sbx_closep(&mounts_watch.fd);
	return r < 0 ? fail(&err) : 0;
}

/* the parent's end: 0 when the mount answers, else what the child had as status */
static int wait_ready(int fd)
{
	char c;
	ssize_t n;

	do {
		n = read(fd, &c, 1);
	} while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : 1; /* the child has said why on stderr */
}

static int to_background(bool *ret_parent, int *ret_status)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		int e = errno;

		close(fds[0]);
		close(fds[1]);
		return -e;
	}
	if (pid > 0) {
		close(fds[1]);
		*ret_parent = true;
		*ret_status = wait_ready(fds[0]);
		close(fds[0]);
		return 0;
	}
	close(fds[0]);
	ready_fd = fds[1];
	setsid();
	if (chdir("/") < 0)
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	struct sbx_options o;
	struct sbx_config *config = NULL;
	const struct sbx_template *template;
	struct sbx_err err = SBX_ERR_INIT;
	unsigned int log_parts = 0;
	bool parent = false;
	int r, status = 0;
	size_t i;

	umask(022);
	r = sbx_options_parse(argc, argv, &o, &err);
	if (r == 0 && (o.help || o.version)) {
		if (o.help)
			fputs(sbx_options_usage, stdout);
		else
			printf("sbxfs %s\nlibfuse %s\n", SBX_VERSION, fuse_pkgversion());
		sbx_options_done(&o);
		return 0;
	}
	if (r == 0)
		r = sbx_config_load(o.config, &config, &err);
	if (r == 0 && o.check) {
		status = sbx_check(o.source, config, stdout);
		sbx_config_free(config);
		sbx_options_done(&o);
		return status;
	}
	template = NULL;
	if (r == 0) {
		template = sbx_config_template(config, o.template ? o.template : config->default_template);
		if (!template)
			r = sbx_err_set(&err, EINVAL, "template '%s' is not in the configuration",
					o.template ? o.template : config->default_template);
	}
	if (r == 0 && sbx_log_parts(o.log ? o.log : config->log ? config->log : "", &log_parts) < 0)
		r = sbx_err_set(&err, EINVAL, "log=%s: not parts of %s, or all", o.log, SBX_LOG_PARTS_TEXT);
	if (r == 0)
		sbx_log_enable(log_parts);
	if (r == 0)
		r = compile_policy(config, &err);
	if (r == 0 && !o.foreground && !o.debug) {
		r = to_background(&parent, &status);
		if (r < 0)
			sbx_err_sys(&err, -r, "cannot go to the background");
	}
	if (r < 0) {
		status = fail(&err);
	} else if (!parent) {
		sbx_log_open(ready_fd >= 0);
		sbx_fs.config = config;
		sbx_fs.source = o.source;
		sbx_fs.mountpoint = o.mountpoint;
		sbx_fs.allow_other = o.allow_other;
		sbx_fs.uid = geteuid();
		sbx_fs.gid = getegid();
		sbx_fs.since = sbx_clock_wall();
		status = serve(&o, config, template);
	}
	for (i = 0; i < sbx_fs.deny_n; i++)
		regfree(&sbx_fs.deny[i]);
	free(sbx_fs.deny);
	sbx_closep(&ready_fd);
	sbx_config_free(config);
	sbx_options_done(&o);
	return status;
}
