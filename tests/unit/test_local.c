/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: tests of the local provider with real containers: start, programs, output, signals, isolation,
 * recovery.  Needs an OCI runtime; as root and as an ordinary user.  Exit 77 when there is none.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "config.h"
#include "later.h"
#include "local/cgroup.h"
#include "local/local.h"
#include "loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_S 60

/* ---- a provider and what comes from it ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct sbx_loop *loop;
static struct sbx_provider *provider;
static const struct sbx_provider_ops *ops = &sbx_local_ops;
static char state_dir[128];
static struct sbx_template template;
static struct sbx_config config;

struct box {
	struct sbx_pbox *pbox;
	enum sbx_box_state state;
	char why[SBX_ERR_TEXT_MAX];
	int changes;
};

struct run {
	struct sbx_exec *exec;
	struct sbx_buf out[2];
	struct sbx_exec_end end;
	int64_t pid;
	bool started, ended, gone;
	uint64_t t_start_us, t_end_us;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void on_state(void *data, enum sbx_box_state state, const struct sbx_err *why)
{
	struct box *b = data;

	pthread_mutex_lock(&mutex);
	b->state = state;
	b->changes++;
	snprintf(b->why, sizeof(b->why), "%s", why ? why->text : "");
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void on_progress(void *data, const char *text)
{
	(void)data;
	(void)text;
}

static const struct sbx_box_events box_events = { on_state, on_progress };

static void on_started(void *data, int64_t pid)
{
	struct run *r = data;

	pthread_mutex_lock(&mutex);
	r->started = true;
	r->pid = pid;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void on_output(void *data, enum sbx_stream which, const char *bytes, size_t len)
{
	struct run *r = data;

	pthread_mutex_lock(&mutex);
	assert_false(r->ended);
	sbx_buf_append(&r->out[which], bytes, len);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void on_ended(void *data, const struct sbx_exec_end *end)
{
	struct run *r = data;

	pthread_mutex_lock(&mutex);
	r->end = *end;
	r->ended = true;
	r->t_end_us = now_us();
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static void on_gone(void *data)
{
	struct run *r = data;

	pthread_mutex_lock(&mutex);
	r->gone = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
}

static const struct sbx_exec_events exec_events = { on_started, on_output, on_ended, on_gone };

/* waits until *@flag, or fails */
#define await(cond)                                                                                \
	do {                                                                                       \
		struct timespec until_;                                                            \
		int r_ = 0;                                                                        \
                                                                                                   \
		clock_gettime(CLOCK_REALTIME, &until_);                                            \
		until_.tv_sec += PATIENCE_S;                                                       \
		pthread_mutex_lock(&mutex);                                                        \
		while (!(cond) && r_ == 0)                                                         \
			r_ = pthread_cond_timedwait(&changed, &mutex, &until_);                    \
		pthread_mutex_unlock(&mutex);                                                      \
		if (r_)                                                                            \
			fail_msg("waited in vain for " #cond);                                     \
	} while (0)

/* a daemon's configuration never changes; here it does under a loop that reads it, which TSan would rightly tell of */
__attribute__((no_sanitize("thread"), noinline)) static void set_reserve(uint64_t bytes)
{
	config.disk_reserve_bytes = bytes;
}

static void open_provider(void)
{
	struct sbx_err err = SBX_ERR_INIT;

	config.state_dir = state_dir;
	set_reserve(1ull << 30);
	if (!template.name) {
		template.name = strdup("default");
		template.limits = (struct sbx_limits){ 1000, 512ull << 20, UINT64_MAX, 256, 64ull << 20, 300000 };
	}
	config.templates = &template;
	config.templates_n = 1;
	assert_int_equal(sbx_loop_new(&loop, &err), 0);
	if (ops->open(&config, loop, &provider, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(sbx_loop_start(loop, &err), 0);
}

static void close_provider(void)
{
	ops->close(provider);
	sbx_loop_stop(loop);
	sbx_loop_free(loop);
}

static struct box *box_new(const char *name)
{
	struct box *b = calloc(1, sizeof(*b));
	struct sbx_err err = SBX_ERR_INIT;

	if (ops->box_create(provider, name, &template, &box_events, b, &b->pbox, &err) < 0)
		fail_msg("%s", err.text);
	return b;
}

static struct box *box_up(const char *name)
{
	struct box *b = box_new(name);

	await(b->state == SBX_BOX_RUNNING || b->state == SBX_BOX_FAILED);
	if (b->state == SBX_BOX_FAILED)
		fail_msg("%s", b->why);
	return b;
}

static void box_gone(struct box *b)
{
	ops->box_delete(b->pbox);
	await(b->state == SBX_BOX_GONE);
	ops->box_put(b->pbox);
	free(b);
}

static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace", NULL };

static int start(struct box *b, struct run *r, const struct sbx_exec_spec *spec, struct sbx_err *err)
{
	memset(r, 0, sizeof(*r));
	r->t_start_us = now_us();
	return ops->exec_start(b->pbox, spec, &exec_events, r, &r->exec, err);
}

static bool goes_on(struct run *r)
{
	bool on;

	pthread_mutex_lock(&mutex);
	on = r->started && !r->ended;
	pthread_mutex_unlock(&mutex);
	return on;
}

static void run_done(struct run *r)
{
	await(r->gone);
	ops->exec_put(r->exec);
	sbx_buf_done(&r->out[0]);
	sbx_buf_done(&r->out[1]);
}

/* runs `sh -c @script` to its end */
static void sh(struct box *b, struct run *r, const char *script)
{
	const char *const argv[] = { "sh", "-c", script, NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct sbx_err err = SBX_ERR_INIT;

	if (start(b, r, &spec, &err) < 0)
		fail_msg("%s", err.text);
	await(r->ended);
}

/* runs @code with @program */
static void code(struct box *b, struct run *r, const char *program, const char *name, const char *text)
{
	const char *const argv[] = { program, "CODE", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = 1,
				      .code_name = name, .code = text, .code_len = strlen(text) };
	struct sbx_err err = SBX_ERR_INIT;

	if (start(b, r, &spec, &err) < 0)
		fail_msg("%s", err.text);
	await(r->ended);
}

#define assert_exit(r, n)                                                                          \
	do {                                                                                       \
		if ((r).end.lost || !WIFEXITED((r).end.status) || WEXITSTATUS((r).end.status) != (n)) \
			fail_msg("status %x lost %d reason '%s'\nout: %s\nerr: %s", (r).end.status, \
				 (r).end.lost, (r).end.reason, sbx_buf_str(&(r).out[0]),           \
				 sbx_buf_str(&(r).out[1]));                                        \
	} while (0)

static bool own_mounts; /* mounts that we make are seen by nobody else */
static struct box *shared; /* the box of tests that leave no trace in it */

static int setup(void **state)
{
	(void)state;
	snprintf(state_dir, sizeof(state_dir), "/tmp/sbxfs-test-XXXXXX");
	assert_non_null(mkdtemp(state_dir));
	open_provider();
	shared = box_up("shared");
	return 0;
}

static int teardown(void **state)
{
	char command[160];

	(void)state;
	box_gone(shared);
	close_provider();
	/* nothing may be left but the state's own files */
	snprintf(command, sizeof(command), "rm -rf %s", state_dir);
	return system(command);
}

/* ---- programs ---- */

static void output_and_status_come_back(void **state)
{
	struct run r;

	(void)state;
	sh(shared, &r, "printf 'a\\0b'; echo oops >&2; exit 3");
	assert_exit(r, 3);
	assert_int_equal(r.out[0].len, 3);
	assert_memory_equal(r.out[0].data, "a\0b", 3);
	assert_string_equal(sbx_buf_str(&r.out[1]), "oops\n");
	assert_true(r.started);
	run_done(&r);
}

static void two_hundred_megabytes_come_whole(void **state)
{
	struct run r;

	(void)state;
	sh(shared, &r, "head -c 200000000 /dev/zero");
	assert_exit(r, 0);
	assert_int_equal(r.out[0].len, 200000000);
	run_done(&r);
}

static void a_signal_ends_the_program(void **state)
{
	struct run r;

	(void)state;
	sh(shared, &r, "kill -TERM $$");
	assert_true(WIFSIGNALED(r.end.status));
	assert_int_equal(WTERMSIG(r.end.status), SIGTERM);
	run_done(&r);
}

static void a_missing_program_is_127_and_others_126(void **state)
{
	static const struct {
		const char *name;
		int status;
	} cases[] = { { "no-such-program", 127 }, { "/nowhere/x", 127 }, { "/etc/passwd", 126 }, { "/usr", 126 } };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const argv[] = { cases[i].name, NULL };
		struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
		struct run r;

		assert_int_equal(start(shared, &r, &spec, NULL), 0);
		await(r.ended);
		assert_exit(r, cases[i].status);
		assert_true(r.end.reason[0] != '\0');
		run_done(&r);
	}
}

static void a_bad_cwd_is_126_with_a_reason(void **state)
{
	const char *const argv[] = { "true", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .cwd = "not/there", .stdin_fd = -1, .code_arg = -1 };
	struct run r;

	(void)state;
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.ended);
	assert_exit(r, 126);
	assert_non_null(strstr(r.end.reason, "cannot be entered"));
	run_done(&r);
}

static void stdin_and_cwd_are_given(void **state)
{
	const char *const argv[] = { "sh", "-c", "pwd; cat", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .cwd = "sub/dir", .code_arg = -1 };
	FILE *in = tmpfile();
	struct run r;

	(void)state;
	sh(shared, &r, "mkdir -p sub/dir");
	run_done(&r);
	fputs("from stdin", in);
	fflush(in); /* the offset is at the end; the program starts at 0 */
	spec.stdin_fd = fileno(in);
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.ended);
	assert_string_equal(sbx_buf_str(&r.out[0]), "/workspace/sub/dir\nfrom stdin");
	run_done(&r);
	fclose(in);
}

static void code_is_a_file_that_cannot_be_changed(void **state)
{
	struct run r;

	(void)state;
	code(shared, &r, "python3", "code.py", "import sys\nprint(6*7, sys.argv[0].endswith('/code.py'))\n");
	assert_exit(r, 0);
	assert_string_equal(sbx_buf_str(&r.out[0]), "42 True\n");
	run_done(&r);
	if (geteuid() != 0)
		return; /* programs of an ordinary user have the ids of all there is */
	code(shared, &r, "sh", "x", "echo y > $0; rm -f $0; echo z > ${0%/*}/new; cat $0 | head -c 4; ls ${0%/*}");
	assert_string_equal(sbx_buf_str(&r.out[0]), "echox\n");
	run_done(&r);
}

static void a_script_is_started_by_its_shebang(void **state)
{
	const char *const argv[] = { "CODE", "arg", NULL };
	const char *text = "#!/usr/bin/python3 -S\nimport sys\nprint(sys.argv[1])\n";
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = 0,
				      .code_name = "code", .code = text, .code_len = strlen(text) };
	struct run r;

	(void)state;
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.ended);
	assert_exit(r, 0);
	assert_string_equal(sbx_buf_str(&r.out[0]), "arg\n");
	run_done(&r);
}

static void a_background_child_keeps_running_after_the_end(void **state)
{
	struct run r;

	(void)state;
	sh(shared, &r, "(i=0; while [ $i -lt 50 ]; do i=$((i+1)); head -c 100000 /dev/zero || exit 1; done; "
		       "echo fine > survived) & echo started");
	assert_exit(r, 0);
	assert_int_equal(r.gone, false);
	run_done(&r);
	sh(shared, &r, "cat survived");
	assert_string_equal(sbx_buf_str(&r.out[0]), "fine\n");
	run_done(&r);
}

static void kill_reaches_grandchildren_in_other_sessions(void **state)
{
	const char *const argv[] = { "sh", "-c", "setsid setsid sleep 1000 & (setsid sleep 1000 &) ; echo up; sleep 1000",
				     NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct sbx_err err = SBX_ERR_INIT;
	struct run r;

	(void)state;
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.out[0].len == 3);
	assert_int_equal(ops->exec_signal(r.exec, SIGKILL, &err), 0);
	await(r.gone);
	assert_true(WIFSIGNALED(r.end.status));
	assert_int_equal(ops->exec_signal(r.exec, SIGKILL, &err), -ESRCH);
	run_done(&r);
	sh(shared, &r, "grep -l '^sleep' /proc/[0-9]*/comm 2>/dev/null | wc -l");
	assert_string_equal(sbx_buf_str(&r.out[0]), "0\n");
	run_done(&r);
}

static void put_of_a_running_program_kills_it(void **state)
{
	const char *const argv[] = { "sleep", "4321", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct run r;
	int i;

	(void)state;
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.started);
	ops->exec_put(r.exec);
	for (i = 0; i < 500; i++) {
		struct run look;
		bool none;

		sh(shared, &look, "grep -l '^sleep' /proc/[0-9]*/comm 2>/dev/null | wc -l");
		none = strcmp(sbx_buf_str(&look.out[0]), "0\n") == 0;
		run_done(&look);
		if (none)
			return;
	}
	fail_msg("it is still there");
}

/* ---- isolation ---- */

static void programs_have_no_rights(void **state)
{
	struct run r;

	(void)state;
	code(shared, &r, "python3", "t.py",
	     "import os, socket, ctypes, errno\n"
	     "libc = ctypes.CDLL(None, use_errno=True)\n"
	     "def call(n, *a):\n"
	     "    ctypes.set_errno(0); x = libc.syscall(n, *a)\n"
	     "    return errno.errorcode.get(ctypes.get_errno(), str(x))\n"
	     "st = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)\n"
	     "print(st['CapEff'], st['CapPrm'], st['CapInh'], st['CapAmb'], st['NoNewPrivs'], st['Seccomp'])\n"
	     "print(open('/proc/self/oom_score_adj').read().strip())\n"
	     "for f in (socket.AF_PACKET, 38, 40):\n"
	     "    try: socket.socket(f, socket.SOCK_RAW if f == 17 else socket.SOCK_STREAM)\n"
	     "    except OSError as e: print(errno.errorcode[e.errno])\n"
	     "for f in (1, 2, 10): socket.socket(f, socket.SOCK_STREAM).close()\n"
	     "print(call(250, 0), call(321, 0), call(298, 0), call(323, 0), call(425, 0), call(165, 0), call(308, 0))\n"
	     "print(call(272, 0x10000000), call(56, 0x10000011, 0), call(435, 0))\n"
	     "for p in ('/etc/shadow', '/proc/1/fd', '/proc/1/environ', '/proc/1/mem', '/sys/kernel'):\n"
	     "    try: print(p, os.listdir(p) if os.path.isdir(p) else open(p).read())\n"
	     "    except OSError as e: pass\n"
	     "print(call(101, 16, 1, 0, 0))\n"
	     "for p in ('/usr/x', '/x', '/etc/x', '/proc/sys/kernel/hostname', '/dev/x'):\n"
	     "    try: open(p, 'w'); print('wrote', p)\n"
	     "    except OSError: pass\n");
	assert_exit(r, 0);
	assert_string_equal(sbx_buf_str(&r.out[0]),
			    "0000000000000000 0000000000000000 0000000000000000 0000000000000000 1 2\n"
			    "500\n"
			    "EAFNOSUPPORT\nEAFNOSUPPORT\nEAFNOSUPPORT\n"
			    "EPERM EPERM EPERM EPERM EPERM EPERM EPERM\n"
			    "EPERM EPERM ENOSYS\n"
			    "EPERM\n");
	run_done(&r);
}

static void languages_work(void **state)
{
	static const struct {
		const char *program, *name, *text, *out;
	} cases[] = {
		{ "python3", "c.py",
		  "import multiprocessing as m\ndef f(x): return x*x\nif __name__ == '__main__':\n    print(m.Pool(4).map(f, range(5)))\n"
		  "    import sqlite3, ssl, threading, tempfile, getpass; print(getpass.getuser())\n",
		  "[0, 1, 4, 9, 16]\nsandbox\n" },
		{ "node", "c.js",
		  "const w=require('worker_threads');require('crypto').randomBytes(4);"
		  "require('fs').promises.readFile('/etc/passwd').then(b=>console.log(b.length>0))\n",
		  "true\n" },
		{ "perl", "c.pl", "use POSIX; print 6*7, \"\\n\";", "42\n" },
		{ "ruby", "c.rb", "require 'json'\nThread.new { puts 6*7 }.join\n", "42\n" },
		{ "php", "c.php", "<?php echo json_encode([6*7]), \"\\n\";", "[42]\n" },
		{ "lua", "c.lua", "print(6*7)", "42\n" },
		{ "java", "C.java",
		  "class C { public static void main(String[] a) { System.out.println(6*7); } }", "42\n" },
		{ "bash", "c.sh",
		  "command -v go >/dev/null || { echo 42; exit; }; mkdir -p g && cd g && echo 'module m' > go.mod &&\n"
		  "printf 'package main\\nimport \"fmt\"\\nfunc main() { fmt.Println(6*7) }\\n' > m.go && go run .\n", "42\n" },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const names[] = { cases[i].program, NULL };
		struct run r;

		if (!ops->interpreter(shared->pbox, names)) {
			print_message("no %s here\n", cases[i].program);
			continue;
		}
		code(shared, &r, cases[i].program, cases[i].name, cases[i].text);
		assert_exit(r, 0);
		assert_string_equal(sbx_buf_str(&r.out[0]), cases[i].out);
		run_done(&r);
	}
}

static void scratch_folders_are_writable(void **state)
{
	struct run r;

	(void)state;
	sh(shared, &r, "for d in /tmp /var/tmp /dev/shm /workspace; do echo x > $d/f && rm $d/f && stat -L -c %a $d; done");
	assert_exit(r, 0);
	assert_string_equal(sbx_buf_str(&r.out[0]), "1777\n1777\n1777\n755\n");
	run_done(&r);
}

static void a_fork_bomb_leaves_room_for_the_next_run(void **state)
{
	struct box *b = box_up("bomb");
	struct run bomb, r;

	(void)state;
	sh(b, &bomb, "bomb() { bomb | bomb & }; bomb; sleep 1");
	sh(b, &r, "echo still here");
	assert_exit(r, 0);
	assert_string_equal(sbx_buf_str(&r.out[0]), "still here\n");
	run_done(&r);
	ops->exec_signal(bomb.exec, SIGKILL, NULL);
	run_done(&bomb);
	box_gone(b);
}

static void a_memory_bomb_is_told_as_oom(void **state)
{
	struct box *b = box_up("memory");
	struct run r;

	(void)state;
	if (sbx_local_no_limits(b->pbox)) {
		print_message("no limits: %s\n", sbx_local_no_limits(b->pbox));
		box_gone(b);
		return;
	}
	code(b, &r, "python3", "t.py", "x = []\nwhile True: x.append(bytearray(10_000_000))\n");
	assert_true(WIFSIGNALED(r.end.status));
	assert_true(r.end.oom);
	run_done(&r);
	sh(b, &r, "exit 7");
	assert_exit(r, 7);
	assert_false(r.end.oom);
	run_done(&r);
	box_gone(b);
}

/* for an ordinary user, programs have the uid of their supervisor, and could stop it */
static void a_program_cannot_keep_itself_from_being_killed(void **state)
{
	const char *const argv[] = { "sh", "-c", "kill -STOP $PPID; echo up; sleep 1000", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct run r;

	(void)state;
	assert_int_equal(start(shared, &r, &spec, NULL), 0);
	await(r.started);
	if (geteuid() == 0)
		await(r.out[0].len == 3);
	else
		usleep(200000); /* its output may wait for the supervisor's word */
	assert_int_equal(ops->exec_signal(r.exec, SIGKILL, NULL), 0);
	await(r.gone);
	run_done(&r);
}

static void too_many_open_files_fail_one_run(void **state)
{
	const char *const argv[] = { "true", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct sbx_err err = SBX_ERR_INIT;
	struct rlimit old, few;
	struct run r;
	int fd;

	(void)state;
	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	fd = dup(0);
	close(fd);
	few.rlim_cur = (rlim_t)fd + 3;
	setrlimit(RLIMIT_NOFILE, &few);
	assert_int_equal(start(shared, &r, &spec, &err), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_non_null(strstr(err.text, "cannot start the program"));
	sh(shared, &r, "echo on");
	assert_string_equal(sbx_buf_str(&r.out[0]), "on\n");
	run_done(&r);
}

static void many_programs_at_once(void **state)
{
	enum { N = 40 };
	const char *const argv[] = { "sh", "-c", "read x; echo $x", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .code_arg = -1 };
	static struct run r[N];
	FILE *in = tmpfile();
	int i;

	(void)state;
	fputs("hello\n", in);
	fflush(in);
	spec.stdin_fd = fileno(in);
	for (i = 0; i < N; i++)
		assert_int_equal(start(shared, &r[i], &spec, NULL), 0);
	for (i = 0; i < N; i++) {
		await(r[i].ended);
		assert_exit(r[i], 0);
		assert_string_equal(sbx_buf_str(&r[i].out[0]), "hello\n");
		run_done(&r[i]);
	}
	fclose(in);
}

static void networks(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct box *b;
	struct run r;
	const char *look = "cat /proc/net/dev | grep -c :; getent hosts localhost | head -c 3";

	(void)state;
	sh(shared, &r, look);
	assert_string_equal(sbx_buf_str(&r.out[0]), "1\n::1");
	run_done(&r);
	code(shared, &r, "python3", "t.py",
	     "import socket\ns = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(s.getsockname())\n"
	     "try: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as e: print(e.errno)\n");
	assert_string_equal(sbx_buf_str(&r.out[0]), "101\n");
	run_done(&r);
	template.network = SBX_NET_NAT;
	config.network_tool = (char *)(uintptr_t)"/nonexistent/pasta";
	assert_int_equal(ops->box_create(provider, "nat", &template, &box_events, NULL, NULL, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "/nonexistent/pasta"));
	config.network_tool = NULL;
	template.network = SBX_NET_HOST;
	b = box_up("host");
	template.network = SBX_NET_NONE;
	sh(b, &r, "readlink /proc/self/ns/net");
	{
		char host[64];
		ssize_t n = readlink("/proc/self/ns/net", host, sizeof(host) - 1);

		host[n > 0 ? n : 0] = '\0';
		assert_memory_equal(sbx_buf_str(&r.out[0]), host, strlen(host));
	}
	run_done(&r);
	box_gone(b);
}

static void cgroups_are_found_in_every_layout(void **state)
{
	static const struct {
		const char *proc, *mounts, *name, *dir;
		bool v2;
	} cases[] = {
		/* v2 */
		{ "0::/user.slice/x.scope\n",
		  "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", "memory",
		  "/sys/fs/cgroup/user.slice/x.scope", true },
		/* hybrid: memory is v1, the unified one has nothing */
		{ "9:name=systemd:/\n8:pids:/sbx\n4:memory:/sbx\n2:cpu,cpuacct:/sbx\n0::/\n",
		  "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		  "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		  "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
		  "memory", "/sys/fs/cgroup/memory/sbx", false },
		{ "2:cpu,cpuacct:/sbx\n0::/\n",
		  "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n", "cpuacct",
		  "/sys/fs/cgroup/cpu,cpuacct/sbx", false },
		/* inside a container: the mount shows a part of the tree; and a blank in a path */
		{ "4:memory:/docker/abc/sbx\n", "31 24 0:27 /docker/abc /cg\\040roup ro master:1 - cgroup cgroup rw,memory\n",
		  "memory", "/cg roup/sbx", false },
		{ "4:cpu:/\n", "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "memory", NULL, false },
	};
	uint64_t n = 0;
	char dir[256];
	size_t i;
	bool v2;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int r = sbx_cgroup_dir(cases[i].proc, cases[i].mounts, cases[i].name, dir, sizeof(dir), &v2);

		if (!cases[i].dir) {
			assert_int_equal(r, -ENOENT);
			continue;
		}
		assert_int_equal(r, 0);
		assert_string_equal(dir, cases[i].dir);
		assert_int_equal(v2, cases[i].v2);
	}
	assert_true(sbx_cgroup_key("low 0\noom 3\noom_kill 2\n", "oom_kill", &n));
	assert_int_equal(n, 2);
	assert_true(sbx_cgroup_key("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill", &n));
	assert_int_equal(n, 5);
	assert_false(sbx_cgroup_key("oom_kill_disable 1\n", "oom_kill", &n));
}

/* ---- life of a box ---- */

static void a_runtime_that_does_not_work_fails_the_box(void **state)
{
	struct sbx_loop *old_loop = loop;
	struct sbx_provider *old = provider;
	char old_dir[128];
	struct box *b;

	(void)state;
	memcpy(old_dir, state_dir, sizeof(old_dir));
	snprintf(state_dir, sizeof(state_dir), "%.40s/3", old_dir);
	config.oci_runtime = (char *)(uintptr_t)"/bin/false";
	open_provider();
	b = box_new("x");
	await(b->state == SBX_BOX_FAILED);
	assert_non_null(strstr(b->why, "no OCI runtime can start a container here: /bin/false exited with 1"));
	box_gone(b);
	close_provider();
	config.oci_runtime = NULL;
	loop = old_loop;
	provider = old;
	memcpy(state_dir, old_dir, sizeof(state_dir));
}

static void stop_start_pause_resume(void **state)
{
	struct box *b = box_up("life");
	struct sbx_err err = SBX_ERR_INIT;
	struct run r;

	(void)state;
	sh(b, &r, "echo kept > file");
	run_done(&r);
	if (!sbx_local_no_limits(b->pbox)) {
		ops->box_pause(b->pbox, &err);
		await(b->state == SBX_BOX_PAUSED);
		ops->box_resume(b->pbox, &err);
		await(b->state == SBX_BOX_RUNNING);
		ops->box_pause(b->pbox, &err);
		await(b->state == SBX_BOX_PAUSED);
	} else {
		assert_int_equal(ops->box_pause(b->pbox, &err), -EOPNOTSUPP);
	}
	ops->box_stop(b->pbox, &err);
	await(b->state == SBX_BOX_STOPPED);
	ops->box_start(b->pbox, &err);
	await(b->state == SBX_BOX_RUNNING);
	sh(b, &r, "cat file");
	assert_string_equal(sbx_buf_str(&r.out[0]), "kept\n");
	run_done(&r);
	box_gone(b);
}

/* folders of a container in all hierarchies of cgroups */
static unsigned int cgroups_of(const char *id)
{
	SBX_CLEANUP(sbx_closedirp) DIR *d = opendir("/sys/fs/cgroup");
	char path[512];
	struct dirent *e;
	unsigned int n = 0;

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s", e->d_name, id);
		n += access(path, F_OK) == 0;
	}
	return n;
}

static void twenty_boxes_at_once(void **state)
{
	enum { N = 20 };
	struct sbx_pbox_info info;
	char id[N][64], name[16];
	struct box *b[N];
	struct run r;
	int i;

	(void)state;
	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "many%d", i);
		b[i] = box_new(name);
		ops->box_info(b[i]->pbox, &info);
		snprintf(id[i], sizeof(id[i]), "%s", info.id);
	}
	for (i = 0; i < N; i++) {
		await(b[i]->state == SBX_BOX_RUNNING);
		sh(b[i], &r, "hostname");
		snprintf(name, sizeof(name), "many%d\n", i);
		assert_string_equal(sbx_buf_str(&r.out[0]), name);
		run_done(&r);
		if (geteuid() == 0 && !sbx_local_no_limits(b[i]->pbox))
			assert_true(cgroups_of(id[i]) > 0);
	}
	for (i = 0; i < N; i++)
		ops->box_delete(b[i]->pbox);
	for (i = 0; i < N; i++) {
		await(b[i]->state == SBX_BOX_GONE);
		assert_int_equal(cgroups_of(id[i]), 0);
		ops->box_put(b[i]->pbox);
		free(b[i]);
	}
}

static void a_run_in_a_box_that_dies_is_lost(void **state)
{
	const char *const argv[] = { "sleep", "1000", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct box *b = box_up("dying");
	struct run r;

	(void)state;
	assert_int_equal(start(b, &r, &spec, NULL), 0);
	await(r.started);
	ops->box_stop(b->pbox, NULL);
	await(r.ended);
	assert_true(r.end.lost);
	assert_string_equal(r.end.reason, "the sandbox was stopped while it ran");
	run_done(&r);
	await(b->state == SBX_BOX_STOPPED);
	box_gone(b);
}

static void delete_leaves_nothing(void **state)
{
	struct box *b = box_up("deleted"), *again;
	struct sbx_later *later;
	struct run r;

	(void)state;
	sh(b, &r, "mkdir -p a/b/c; touch a/b/c/f; chmod 000 a/b/c a/b; ln -s /etc/passwd l; mkfifo p");
	run_done(&r);
	ops->box_delete(b->pbox);
	again = box_new("deleted"); /* the name is free at once */
	await(b->state == SBX_BOX_GONE);
	later = sbx_later_new(); /* a write that comes too late is answered, not left waiting */
	assert_int_equal(ops->limit_set(b->pbox, SBX_LIMIT_PIDS, 99, later, NULL), -ECANCELED);
	sbx_later_put(later);
	ops->box_put(b->pbox);
	free(b);
	await(again->state == SBX_BOX_RUNNING);
	box_gone(again);
}

/* this program again, as a daemon that will be killed: two boxes with a `sleep MARKER`, one of them frozen */
static int doomed_daemon(const char *dir, const char *marker, int up_fd)
{
	const char *const argv[] = { "sleep", marker, NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct box *x, *y;
	struct run r, s;

	snprintf(state_dir, sizeof(state_dir), "%s", dir);
	open_provider();
	x = box_up("x");
	y = box_up("y");
	start(x, &r, &spec, NULL);
	start(y, &s, &spec, NULL);
	await(r.started && s.started);
	if (ops->box_pause(y->pbox, NULL) == 0)
		await(y->state == SBX_BOX_PAUSED);
	if (write(up_fd, "u", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static unsigned int sleepers(const char *marker)
{
	char path[300], text[64];
	unsigned int found = 0;
	DIR *d = opendir("/proc");
	struct dirent *e;

	while ((e = readdir(d))) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[n > 0 ? n : 0] = '\0';
		if (n > 6 && strcmp(text, "sleep") == 0 && strcmp(text + 6, marker) == 0)
			found++;
	}
	closedir(d);
	return found;
}

static void a_killed_daemon_is_cleaned_up_after(void **state)
{
	char marker[64], dir[100], fd_text[16], old_dir[128], c;
	struct sbx_loop *old_loop = loop;
	struct sbx_provider *old = provider;
	int up[2], status;
	struct box *b;
	pid_t pid;

	(void)state;
	memcpy(old_dir, state_dir, sizeof(old_dir));
	snprintf(dir, sizeof(dir), "%.90s/2", state_dir);
	snprintf(marker, sizeof(marker), "31%05d", (int)getpid());
	assert_int_equal(pipe(up), 0);
	snprintf(fd_text, sizeof(fd_text), "%d", up[1]);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "test_local", "--doomed", dir, marker, fd_text, NULL);
		_exit(1);
	}
	close(up[1]);
	assert_int_equal(read(up[0], &c, 1), 1);
	close(up[0]);
	assert_int_equal(sleepers(marker), 2);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);

	snprintf(state_dir, sizeof(state_dir), "%s", dir);
	open_provider();
	assert_int_equal(sleepers(marker), 0);
	b = calloc(1, sizeof(*b));
	assert_int_equal(ops->box_open(provider, "x", &box_events, b, &b->pbox, NULL), 0);
	ops->box_start(b->pbox, NULL);
	await(b->state == SBX_BOX_RUNNING || b->state == SBX_BOX_FAILED);
	assert_int_equal(b->state, SBX_BOX_RUNNING);
	ops->box_put(b->pbox);
	close_provider();
	free(b);
	loop = old_loop;
	provider = old;
	memcpy(state_dir, old_dir, sizeof(state_dir));
}

static void a_second_daemon_is_refused(void **state)
{
	struct sbx_provider *second;
	struct sbx_err err = SBX_ERR_INIT;

	(void)state;
	assert_int_equal(ops->open(&config, loop, &second, &err), -EBUSY);
	assert_non_null(strstr(err.text, "in use by another sbxfs"));
}

static void check_each(void *data, const char *what, bool ok, bool needed, const char *text)
{
	int *n = data;

	if (!ok && needed)
		fail_msg("%s: %s", what, text);
	assert_null(strchr(text, '\n'));
	++*n;
}

static void a_check_does_not_disturb_a_live_daemon(void **state)
{
	struct box *b;
	int n = 0;

	(void)state;
	ops->check(&config, check_each, &n);
	assert_true(n > 6);
	b = box_up("after-check");
	box_gone(b);
}

static void a_disk_bomb_is_stopped_before_the_reserve(void **state)
{
	struct box *good = box_up("good"), *bad = box_up("bad");
	struct run g, r;
	struct statvfs v;
	uint64_t avail;
	const char *const argv[] = { "sh", "-c", "while :; do echo x >> log; sleep 0.1; done", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };

	(void)state;
	statvfs(state_dir, &v);
	avail = (uint64_t)v.f_bavail * v.f_frsize;
	/* a reserve that is 1.5G away, so that the test need not fill the disk */
	set_reserve(avail - (1500ull << 20));
	assert_int_equal(start(good, &g, &spec, NULL), 0);
	await(g.started);
	sh(bad, &r, "cat /dev/zero > big");
	assert_true(r.end.lost);
	assert_non_null(strstr(r.end.reason, "filling the disk"));
	statvfs(state_dir, &v);
	assert_true((uint64_t)v.f_bavail * v.f_frsize >= config.disk_reserve_bytes);
	await(bad->state == SBX_BOX_STOPPED);
	assert_non_null(strstr(bad->why, "filling the disk"));
	assert_true(sbx_local_disk_full(good->pbox));
	run_done(&r);
	assert_true(goes_on(&g));
	box_gone(bad);
	set_reserve(1ull << 30);
	ops->exec_signal(g.exec, SIGKILL, NULL);
	run_done(&g);
	box_gone(good);
}

/* on a small file system of its own, where nobody else makes or deletes files; only root can mount one */
static void an_inode_bomb_is_stopped(void **state)
{
	const char *const argv[] = { "sh", "-c", "while :; do echo x >> log; sleep 0.1; done", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	struct sbx_loop *old_loop = loop;
	struct sbx_provider *old = provider;
	struct box *good, *bad;
	char old_dir[128];
	struct statvfs v;
	struct run g, r;

	(void)state;
	if (!own_mounts) {
		print_message("not root: no file system of its own\n");
		return;
	}
	memcpy(old_dir, state_dir, sizeof(old_dir));
	snprintf(state_dir, sizeof(state_dir), "%.90s/4", old_dir);
	assert_int_equal(mkdir(state_dir, 0700), 0);
	assert_int_equal(mount("tmpfs", state_dir, "tmpfs", 0, "size=1400M,nr_inodes=40000,mode=700"), 0);
	open_provider();
	good = box_up("good");
	bad = box_up("bad");
	assert_int_equal(start(good, &g, &spec, NULL), 0);
	await(g.started);
	code(bad, &r, "python3", "t.py",
	     "import os, itertools\nfor i in itertools.count():\n    if i % 1000 == 0: os.mkdir(f'd{i}')\n"
	     "    os.close(os.open(f'd{i - i % 1000}/{i}', os.O_CREAT))\n");
	assert_true(r.end.lost);
	assert_non_null(strstr(r.end.reason, "using up the inodes"));
	run_done(&r);
	statvfs(state_dir, &v);
	assert_true(v.f_favail > 800);
	usleep(300000); /* the watcher looks again and again meanwhile */
	assert_true(goes_on(&g));
	box_gone(bad);
	ops->exec_signal(g.exec, SIGKILL, NULL);
	run_done(&g);
	box_gone(good);
	close_provider();
	umount(state_dir);
	loop = old_loop;
	provider = old;
	memcpy(state_dir, old_dir, sizeof(state_dir));
}

/* ---- speed ---- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void speed(void **state)
{
	const char *const argv[] = { "true", NULL };
	struct sbx_exec_spec spec = { .argv = argv, .env = env, .stdin_fd = -1, .code_arg = -1 };
	uint64_t t[500], up[10], start_us;
	size_t i;

	(void)state;
	for (i = 0; i < 500; i++) {
		struct run r;

		assert_int_equal(start(shared, &r, &spec, NULL), 0);
		await(r.ended);
		t[i] = r.t_end_us - r.t_start_us;
		run_done(&r);
	}
	qsort(t, 500, sizeof(t[0]), by_value);
	for (i = 0; i < 10; i++) {
		char name[32];
		struct box *b;

		snprintf(name, sizeof(name), "speed%zu", i);
		start_us = now_us();
		b = box_up(name);
		up[i] = now_us() - start_us;
		box_gone(b);
	}
	qsort(up, 10, sizeof(up[0]), by_value);
	print_message("true: median %llu us, p90 %llu us; box ready: median %llu us\n", (unsigned long long)t[250],
		      (unsigned long long)t[450], (unsigned long long)up[5]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_and_status_come_back),
		cmocka_unit_test(two_hundred_megabytes_come_whole),
		cmocka_unit_test(a_signal_ends_the_program),
		cmocka_unit_test(a_missing_program_is_127_and_others_126),
		cmocka_unit_test(a_bad_cwd_is_126_with_a_reason),
		cmocka_unit_test(stdin_and_cwd_are_given),
		cmocka_unit_test(code_is_a_file_that_cannot_be_changed),
		cmocka_unit_test(a_script_is_started_by_its_shebang),
		cmocka_unit_test(a_background_child_keeps_running_after_the_end),
		cmocka_unit_test(kill_reaches_grandchildren_in_other_sessions),
		cmocka_unit_test(put_of_a_running_program_kills_it),
		cmocka_unit_test(programs_have_no_rights),
		cmocka_unit_test(languages_work),
		cmocka_unit_test(scratch_folders_are_writable),
		cmocka_unit_test(a_fork_bomb_leaves_room_for_the_next_run),
		cmocka_unit_test(a_memory_bomb_is_told_as_oom),
		cmocka_unit_test(a_program_cannot_keep_itself_from_being_killed),
		cmocka_unit_test(too_many_open_files_fail_one_run),
		cmocka_unit_test(many_programs_at_once),
		cmocka_unit_test(networks),
		cmocka_unit_test(cgroups_are_found_in_every_layout),
		cmocka_unit_test(a_runtime_that_does_not_work_fails_the_box),
		cmocka_unit_test(stop_start_pause_resume),
		cmocka_unit_test(twenty_boxes_at_once),
		cmocka_unit_test(a_run_in_a_box_that_dies_is_lost),
		cmocka_unit_test(delete_leaves_nothing),
		cmocka_unit_test(a_killed_daemon_is_cleaned_up_after),
		cmocka_unit_test(a_second_daemon_is_refused),
		cmocka_unit_test(a_check_does_not_disturb_a_live_daemon),
		cmocka_unit_test(a_disk_bomb_is_stopped_before_the_reserve),
		cmocka_unit_test(an_inode_bomb_is_stopped),
		cmocka_unit_test(speed),
	};

	if (argc == 5 && strcmp(argv[1], "--doomed") == 0)
		return doomed_daemon(argv[2], argv[3], atoi(argv[4]));
	own_mounts = geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
		     mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	cmocka_set_test_filter(getenv("SBX_TEST"));
	return cmocka_run_group_tests(tests, setup, teardown);
}
