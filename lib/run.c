/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_run: start, output, end, timeouts.  Knows: the provider's exec slots, language.h.
 * Threads: sbx_run_start and the on_ functions run on the loop or on whoever submits; the rest any.
 */
#include "run.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "language.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_MAX (128u * 1024) /* what the kernel takes as one argument */
#define KILL_AFTER_MS 2000 /* from TERM to KILL */

void sbx_strv_free(char **v)
{
	char **p;

	for (p = v; p && *p; p++)
		free(*p);
	free(v);
}

size_t sbx_strv_len(char *const *v)
{
	size_t n = 0;

	while (v && v[n])
		n++;
	return n;
}

char **sbx_strv_dup(char *const *v)
{
	size_t n = sbx_strv_len(v), i;
	char **copy = calloc(n + 1, sizeof(*copy));

	for (i = 0; copy && i < n; i++) {
		copy[i] = strdup(v[i]);
		if (!copy[i]) {
			sbx_strv_free(copy);
			return NULL;
		}
	}
	return copy;
}

static void on_timer(struct sbx_timer *timer);

struct sbx_run *sbx_run_new(struct sbx_box *box, enum sbx_run_state state)
{
	struct sbx_run *run = calloc(1, sizeof(*run));

	if (!run)
		return NULL;
	atomic_init(&run->refs, 1);
	run->box = box;
	run->state = state;
	run->ino_base = sbx_catalog_ino(box->catalog, 1);
	run->timer.fn = on_timer;
	sbx_gate_init(&run->gate);
	sbx_list_init(&run->link);
	sbx_list_init(&run->wait_link);
	sbx_lock_init(&run->lock);
	sbx_spool_init(&run->spool[SBX_STDOUT]);
	sbx_spool_init(&run->spool[SBX_STDERR]);
	sbx_spool_init(&run->chunks);
	return run;
}

static void drop_inputs(struct sbx_run *run)
{
	if (!run->background)
		free(sbx_take(run->code));
	free(sbx_take(run->stdin_text));
	sbx_strv_free(sbx_take(run->args));
	sbx_strv_free(sbx_take(run->env));
	sbx_strv_free(sbx_take(run->box_env));
}

struct sbx_run *sbx_run_get(struct sbx_run *run)
{
	atomic_fetch_add(&run->refs, 1);
	return run;
}

void sbx_run_put(struct sbx_run *run)
{
	if (!run || atomic_fetch_sub(&run->refs, 1) != 1)
		return;
	atomic_fetch_sub(&run->box->spooled, sbx_spool_len(&run->spool[0]) + sbx_spool_len(&run->spool[1]) +
						     sbx_spool_len(&run->chunks));
	drop_inputs(run);
	free(run->code);
	free(run->label);
	free(run->name);
	free(run->setting);
	free(run->cwd);
	free(run->language);
	sbx_spool_done(&run->spool[SBX_STDOUT]);
	sbx_spool_done(&run->spool[SBX_STDERR]);
	sbx_spool_done(&run->chunks);
	if (run->json) {
		sbx_spool_done(run->json);
		free(run->json);
	}
	sbx_lock_done(&run->lock);
	free(run);
}

void sbx_run_adopt(struct sbx_run *run, struct sbx_run *from)
{
	run->name = sbx_take(from->name);
	run->code = sbx_take(from->code);
	run->code_len = from->code_len;
	run->setting = sbx_take(from->setting);
	run->args = sbx_take(from->args);
	run->env = sbx_take(from->env);
	run->box_env = sbx_take(from->box_env);
	run->cwd = sbx_take(from->cwd);
	run->stdin_text = sbx_take(from->stdin_text);
	run->stdin_len = from->stdin_len;
	run->timeout_ms = from->timeout_ms;
	run->output_bytes = from->output_bytes;
}

/* ---- output ---- */

/* @len bytes more in logs; a chunk of the same stream as the last only grows */
static void note_chunk_locked(struct sbx_run *run, enum sbx_stream which, size_t len)
	SBX_REQUIRES(run->lock)
{
	if (run->logs_cut)
		return;
	if (run->log_len > 0 && run->last_stream != which) {
		struct sbx_chunk chunk = { .end = run->log_len,
					   .own_end = run->stream_len[run->last_stream],
					   .which = run->last_stream };

		/* they count too: bytes in turn on stdout and stderr make 24 times as much of them */
		if (atomic_load(&run->box->spooled) + sizeof(chunk) > run->box->catalog->config->spool_bytes ||
		    sbx_spool_append(&run->chunks, run->box->catalog->spool_dir, (char *)&chunk,
				     sizeof(chunk)) < 0) {
			run->logs_cut = true;
			run->truncated = true;
			return;
		}
		atomic_fetch_add(&run->box->spooled, sizeof(chunk));
	}
	run->last_stream = which;
	run->log_len += len;
	run->stream_len[which] += len;
}

static void on_output(void *data, enum sbx_stream which, const char *bytes, size_t len)
{
	struct sbx_run *run = data;
	struct sbx_box *box = run->box;
	uint64_t have = sbx_spool_len(&run->spool[which]), take = len, limit = run->output_bytes;
	uint64_t box_limit = box->catalog->config->spool_bytes;
	uint64_t box_have = atomic_load(&box->spooled);
	int r = 0;

	if (have + take > limit)
		take = limit > have ? limit - have : 0;
	if (box_have + take > box_limit)
		take = box_limit > box_have ? box_limit - box_have : 0;
	if (take > 0)
		r = sbx_spool_append(&run->spool[which], box->catalog->spool_dir, bytes, take);
	sbx_lock(&run->lock);
	if (r < 0) { /* disk full: the program goes on, the loss is told */
		take = 0;
		if (run->why.code == 0)
			sbx_err_sys(&run->why, -r, "output could not be kept");
	}
	if (take > 0) {
		sbx_utf8_feed(&run->utf8[which], bytes, take);
		note_chunk_locked(run, which, take);
	}
	if (take < len) {
		run->truncated = true;
		run->dropped[which] += len - take;
	}
	sbx_unlock(&run->lock);
	atomic_fetch_add(&box->spooled, take);
	if (take > 0)
		sbx_gate_notify(&run->gate);
}

/* a message of ours at the end of stderr: what a shell would say for 126 and 127 */
static void say(struct sbx_run *run, const char *text)
{
	char line[SBX_ERR_TEXT_MAX + 16];
	int n = snprintf(line, sizeof(line), "sbxfs: %s\n", text);

	if (n > 0)
		on_output(run, SBX_STDERR, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

/* ---- the end ---- */

static bool state_over(enum sbx_run_state state)
{
	return state != SBX_RUN_COMING && state != SBX_RUN_PENDING && state != SBX_RUN_RUNNING;
}

/* the one place where a run becomes over */
static void finish(struct sbx_run *run, enum sbx_run_state state, int code, const struct sbx_err *why)
{
	bool told, submitted;

	sbx_lock(&run->lock);
	if (state_over(run->state)) {
		sbx_unlock(&run->lock);
		return;
	}
	run->state = state;
	run->code_or_signal = code;
	run->ended = sbx_clock_wall();
	run->ended_ms = sbx_clock_ms();
	if (why && why->code)
		run->why = *why;
	told = run->why.code != 0;
	submitted = run->active;
	run->active = false;
	if (!run->language)
		run->language = strdup("unknown");
	sbx_unlock(&run->lock);
	drop_inputs(run);
	if (told)
		sbx_box_fail(run->box, "run", run->name ? run->name : run->label, &run->why);
	if (submitted) {
		sbx_box_used(run->box); /* before: nobody may find it idle */
		atomic_fetch_sub(&run->box->active, 1);
	}
	sbx_box_run_over(run->box);
	sbx_gate_notify(&run->gate);
}

void sbx_run_refuse(struct sbx_run *run, enum sbx_run_state state, const struct sbx_err *why)
{
	finish(run, state, 0, why);
}

static void on_started(void *data, int64_t pid)
{
	struct sbx_run *run = data;

	sbx_lock(&run->lock);
	run->pid = pid;
	run->started = sbx_clock_wall();
	run->started_ms = sbx_clock_ms();
	sbx_unlock(&run->lock);
	if (run->timeout_ms != UINT64_MAX && !run->over && run->kill_step == 0)
		sbx_timer_set(run->box->catalog->loop, &run->timer, run->timeout_ms);
	sbx_gate_notify(&run->gate);
}

/* timeout: TERM to the group and all descendants, KILL 2 s later to what is left */
static void on_timer(struct sbx_timer *timer)
{
	struct sbx_run *run = sbx_container_of(timer, struct sbx_run, timer);
	struct sbx_exec *exec;

	sbx_lock(&run->lock);
	exec = run->exec;
	if (run->kill_step == 0)
		run->timed_out = true;
	sbx_unlock(&run->lock);
	if (!exec) /* `gone` came */
		return;
	run->kill_step++;
	sbx_box_ops(run->box)->exec_signal(exec, run->kill_step == 1 ? SIGTERM : SIGKILL, NULL);
	if (run->kill_step == 1)
		sbx_timer_set(run->box->catalog->loop, &run->timer, KILL_AFTER_MS);
}

static void on_ended(void *data, const struct sbx_exec_end *end)
{
	struct sbx_run *run = data;
	struct sbx_err why = SBX_ERR_INIT;
	enum sbx_run_state state = SBX_RUN_EXITED;
	int code = 0;
	bool timed_out;

	run->over = true;
	if (run->kill_step == 0) /* else it goes on to KILL what is left of the descendants */
		sbx_timer_cancel(run->box->catalog->loop, &run->timer);
	sbx_lock(&run->lock);
	run->oom = end->oom;
	timed_out = run->timed_out;
	sbx_unlock(&run->lock);
	if (timed_out) {
		char number[SBX_TEXT_NUMBER_MAX];

		state = SBX_RUN_TIMEOUT;
		code = 124;
		sbx_err_set(&why, ETIMEDOUT, "timeout of %s s reached; write a longer one to run/timeout",
			    sbx_text_print_duration(run->timeout_ms, number));
	} else if (end->lost) {
		state = SBX_RUN_LOST;
		sbx_err_set(&why, EIO, "%s", end->reason[0] ? end->reason : "how the run ended is not known");
	} else if (WIFSIGNALED(end->status)) {
		state = SBX_RUN_SIGNALED;
		code = WTERMSIG(end->status);
	} else {
		const char *reason = sbx_language_exit_reason(run->language, WEXITSTATUS(end->status));

		code = WEXITSTATUS(end->status);
		if (reason)
			sbx_err_set(&why, ENOENT, "%s", reason);
		if (end->reason[0]) {
			sbx_err_set(&why, code == 127 ? ENOENT : EACCES, "%s", end->reason);
			say(run, end->reason);
		}
	}
	if (end->oom && !why.code) {
		struct sbx_pbox_info info;
		char size[SBX_TEXT_NUMBER_MAX];

		sbx_box_ops(run->box)->box_info(sbx_box_pbox(run->box), &info);
		sbx_err_set(&why, ENOMEM, "memory limit of %s reached",
			    sbx_text_short_size(info.limits.memory_bytes, size));
	}
	finish(run, state, code, &why);
}

static void on_gone(void *data)
{
	struct sbx_run *run = data;
	struct sbx_box *box = run->box;
	struct sbx_exec *exec;

	sbx_timer_cancel(box->catalog->loop, &run->timer);
	sbx_lock(&run->lock);
	exec = sbx_take(run->exec);
	sbx_unlock(&run->lock);
	sbx_box_ops(box)->exec_put(exec);
	sbx_run_put(run);
	sbx_box_put(box);
}

static const struct sbx_exec_events exec_events = {
	.started = on_started, .output = on_output, .ended = on_ended, .gone = on_gone
};

/* ---- the start ---- */

static const char *env_value(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++) {
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	}
	return NULL;
}

/* NAME=value into @v, over an earlier one of the same name; @v has room */
static int env_put(char **v, const char *item)
{
	size_t n = strcspn(item, "=") + 1, i;
	char *copy = strdup(item);

	if (!copy)
		return -ENOMEM;
	for (i = 0; v[i]; i++) {
		if (strncmp(v[i], item, n) == 0)
			break;
	}
	free(v[i]);
	v[i] = copy;
	return 0;
}

/* defaults, then template, then the slot's, then what the language needs */
static char **build_env(struct sbx_run *run, const struct sbx_launch *launch, const char *workspace)
{
	struct sbx_buf item = SBX_BUF_INIT;
	char *const *lists[3];
	char **v, *const *p;
	const struct sbx_template *template = run->box->template;
	size_t i, n = 8;
	int r = 0;

	lists[0] = template ? template->env : NULL;
	lists[1] = run->box_env;
	lists[2] = run->env;
	for (i = 0; i < 3; i++)
		n += sbx_strv_len(lists[i]);
	n += sbx_strv_len(launch->env);
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return NULL;
	sbx_buf_printf(&item, "HOME=%s", workspace);
	r |= item.failed ? -ENOMEM : env_put(v, item.data);
	sbx_buf_done(&item);
	r |= env_put(v, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	r |= env_put(v, "LANG=C.UTF-8");
	r |= env_put(v, "PYTHONUNBUFFERED=1");
	for (i = 0; i < 3; i++) {
		for (p = lists[i]; p && *p; p++)
			r |= env_put(v, *p);
	}
	for (p = launch->env; p && *p; p++) {
		const char *own = NULL;

		for (i = 0; i < 3; i++) {
			const char *set = env_value((char **)lists[i], "PYTHONPATH");

			own = set ? set : own;
		}
		if (own && own[0] && strncmp(*p, "PYTHONPATH=", 11) == 0) {
			sbx_buf_printf(&item, "%s:%s", *p, own);
			r |= item.failed ? -ENOMEM : env_put(v, item.data);
			sbx_buf_done(&item);
		} else {
			r |= env_put(v, *p);
		}
	}
	if (r < 0) {
		sbx_strv_free(v);
		return NULL;
	}
	return v;
}

static int stdin_of(struct sbx_run *run, int *ret, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	size_t off = 0;

	if (!run->stdin_text)
		return 0;
	fd = memfd_create("stdin", MFD_CLOEXEC);
	if (fd < 0)
		return sbx_err_sys(err, errno, "no descriptor for stdin");
	while (off < run->stdin_len) {
		ssize_t n = write(fd, run->stdin_text + off, run->stdin_len - off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sbx_err_sys(err, n < 0 ? errno : EIO, "stdin could not be stored");
		off += (size_t)n;
	}
	lseek(fd, 0, SEEK_SET);
	*ret = sbx_take_fd(fd);
	return 0;
}

/* sh -c COMMAND */
static int launch_command(struct sbx_run *run, struct sbx_launch *ret, struct sbx_err *err)
{
	const char *const words[] = { "sh", "-c", run->code };
	size_t i;

	ret->code_arg = -1;
	ret->language = strdup("sh");
	ret->argv = calloc(4, sizeof(*ret->argv));
	for (i = 0; ret->argv && i < 3; i++)
		ret->argv[i] = strdup(words[i]);
	if (!ret->language || !ret->argv || !ret->argv[0] || !ret->argv[1] || !ret->argv[2]) {
		sbx_launch_done(ret);
		return sbx_err_set(err, ENOMEM, "no memory to start the command");
	}
	return 0;
}

static void post_end(struct sbx_run *run);

/* starts the program; a failure that a shell would give a number for is that number in *ret_code */
static int launch_run(struct sbx_run *run, int *ret_code, struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(run->box);
	struct sbx_pbox *pbox = sbx_box_pbox(run->box);
	struct sbx_launch launch = { .code_arg = -1 };
	SBX_CLEANUP(sbx_closep) int stdin_fd = -1;
	struct sbx_buf cwd = SBX_BUF_INIT;
	struct sbx_exec_spec spec = { 0 };
	struct sbx_pbox_info info;
	struct sbx_exec *exec = NULL;
	char **env = NULL;
	bool missed;
	int r;

	ops->box_info(pbox, &info);
	sbx_buf_printf(&cwd, run->cwd[0] ? "%s/%s" : "%s%s", info.workspace, run->cwd);
	if (cwd.failed)
		return sbx_err_set(err, ENOMEM, "no memory to start the run");
	r = run->background ? launch_command(run, &launch, err)
			    : sbx_language_launch(sbx_box_languages(run->box), run->name, run->setting, run->code,
						  run->code_len, run->args, cwd.data, ops->interpreter, pbox,
						  &launch, err);
	sbx_buf_done(&cwd);
	if (r < 0) {
		*ret_code = r == -ENOENT ? 127 : r == -ENOEXEC ? 126 : -1;
		return r;
	}
	sbx_lock(&run->lock);
	free(run->language);
	run->language = sbx_take(launch.language);
	sbx_unlock(&run->lock);
	r = stdin_of(run, &stdin_fd, err);
	if (r == 0) {
		env = build_env(run, &launch, info.workspace);
		if (!env)
			r = sbx_err_set(err, ENOMEM, "no memory for the environment");
	}
	if (r == 0) {
		spec.argv = (const char *const *)launch.argv;
		spec.env = (const char *const *)env;
		spec.cwd = run->cwd;
		spec.stdin_fd = stdin_fd;
		spec.code_name = launch.code_name;
		spec.code = launch.code_name ? run->code : NULL;
		spec.code_len = launch.code_name ? run->code_len : 0;
		spec.code_arg = launch.code_arg;
		/* the events hold the run and its box until `gone`; they may come before this returns */
		sbx_run_get(run);
		sbx_box_get(run->box);
		sbx_lock(&run->lock); /* events of the loop wait here until exec is stored */
		r = ops->exec_start(pbox, &spec, &exec_events, run, &exec, err);
		if (r == 0)
			run->exec = exec;
		missed = r == 0 && run->end_missed;
		sbx_unlock(&run->lock);
		if (missed)
			post_end(run);
		if (r < 0) {
			sbx_run_put(run);
			sbx_box_put(run->box);
		}
	}
	sbx_strv_free(env);
	sbx_launch_done(&launch);
	return r;
}

int sbx_run_start(struct sbx_run *run)
{
	struct sbx_err err = SBX_ERR_INIT;
	bool again = false;
	int code = -1, r;

	sbx_lock(&run->lock);
	if (run->state != SBX_RUN_PENDING) {
		sbx_unlock(&run->lock);
		return 0;
	}
	run->state = SBX_RUN_RUNNING;
	sbx_unlock(&run->lock);
	r = launch_run(run, &code, &err);
	if (r == 0)
		return 0;
	if (r == -EAGAIN && code < 0) {
		sbx_lock(&run->lock);
		again = !run->again && !run->end_missed && run->state == SBX_RUN_RUNNING;
		run->again = true;
		if (again)
			run->state = SBX_RUN_PENDING;
		sbx_unlock(&run->lock);
	}
	if (again)
		return r;
	if (code >= 0) {
		say(run, err.text);
		finish(run, SBX_RUN_EXITED, code, &err);
	} else {
		sbx_err_wrap(&err, r, "the run could not be started");
		finish(run, SBX_RUN_LOST, 0, &err);
	}
	return 0;
}

int sbx_run_command(struct sbx_run *run, const char *text, size_t len, struct sbx_err *err)
{
	char *command;
	int r = 0;

	text = sbx_text_trim(text, &len);
	if (len == 0)
		return sbx_err_set(err, EINVAL, "write a command line");
	if (memchr(text, '\0', len))
		return sbx_err_set(err, EINVAL, "a command line cannot hold a NUL byte");
	if (len >= COMMAND_MAX)
		return sbx_err_set(err, EINVAL, "a command line has at most %u bytes; put the rest into a file of workspace/",
				   COMMAND_MAX);
	command = strndup(text, len);
	if (!command)
		return sbx_err_set(err, ENOMEM, "no memory for the command");
	sbx_lock(&run->lock);
	if (run->state != SBX_RUN_NONE || run->code)
		r = -EBUSY;
	else {
		run->state = SBX_RUN_PENDING;
		run->code = command;
		run->code_len = len;
	}
	sbx_unlock(&run->lock);
	if (r < 0) {
		free(command);
		return sbx_err_set(err, EBUSY, "this process was started already: rmdir it, or make another");
	}
	r = sbx_box_submit(run->box, run, err);
	if (r < 0)
		sbx_run_refuse(run, SBX_RUN_REFUSED, err);
	return r;
}

int sbx_run_write_signal(struct sbx_run *run, const char *text, size_t len, struct sbx_err *err)
{
	char name[16];
	int sig = 0, i;

	text = sbx_text_trim(text, &len);
	if (len > 0 && len < sizeof(name)) {
		memcpy(name, text, len);
		name[len] = '\0';
		if (strspn(name, "0123456789") == len && len <= 3)
			sig = atoi(name);
		for (i = 1; i < NSIG && sig == 0; i++) {
			const char *known = sigabbrev_np(i);

			if (known && (strcmp(name, known) == 0 ||
				      (strncmp(name, "SIG", 3) == 0 && strcmp(name + 3, known) == 0)))
				sig = i;
		}
	}
	if (sig <= 0 || sig >= NSIG)
		return sbx_err_set(err, EINVAL, "'%.*s' is not a signal: write a name such as TERM, or a number",
				   (int)(len > 40 ? 40 : len), text);
	return sbx_run_signal(run, sig, err);
}

/* a process without a command gets none any more; true: it was one.  Who waits for its end is answered */
static bool close_unstarted(struct sbx_run *run)
{
	bool was;

	sbx_lock(&run->lock);
	was = run->background && run->state == SBX_RUN_NONE;
	if (was) {
		run->state = SBX_RUN_LOST;
		run->ended = sbx_clock_wall();
		sbx_err_set(&run->why, ECANCELED, "ended before it started");
	}
	sbx_unlock(&run->lock);
	if (was)
		sbx_gate_notify(&run->gate);
	return was;
}

void sbx_run_kill(struct sbx_run *run)
{
	if (!close_unstarted(run))
		sbx_run_signal(run, SIGKILL, NULL);
}

static void end_task(struct sbx_task *task)
{
	struct sbx_run *run = sbx_container_of(task, struct sbx_run, end_task);
	struct sbx_box *box = run->box;
	bool early;

	sbx_lock(&run->lock);
	early = !run->exec && !state_over(run->state);
	run->end_missed = early; /* launch_run comes back to it */
	sbx_unlock(&run->lock);
	if (!early && run->kill_step == 0) {
		run->kill_step = 1;
		if (sbx_run_signal(run, SIGTERM, NULL) == 0)
			sbx_timer_set(box->catalog->loop, &run->timer, KILL_AFTER_MS);
	}
	sbx_run_put(run);
	sbx_box_put(box);
}

static void post_end(struct sbx_run *run)
{
	sbx_run_get(run);
	sbx_box_get(run->box);
	run->end_task.fn = end_task;
	sbx_loop_post(run->box->catalog->loop, &run->end_task);
}

void sbx_run_end(struct sbx_run *run)
{
	struct sbx_err why = SBX_ERR_INIT;
	bool waiting;

	if (close_unstarted(run))
		return;
	sbx_lock(&run->lock);
	waiting = run->state == SBX_RUN_PENDING;
	if (waiting)
		run->state = SBX_RUN_RUNNING; /* it is ours: sbx_run_start passes over it */
	sbx_unlock(&run->lock);
	if (waiting) {
		sbx_err_set(&why, ECANCELED, "ended before it started");
		sbx_run_refuse(run, SBX_RUN_LOST, &why);
	}
	if (!atomic_exchange(&run->ending, true))
		post_end(run);
}

int sbx_run_signal(struct sbx_run *run, int sig, struct sbx_err *err)
{
	int r = -ESRCH;

	sbx_lock(&run->lock); /* keeps exec alive: on_gone takes it under the lock */
	if (run->exec)
		r = sbx_box_ops(run->box)->exec_signal(run->exec, sig, err);
	else
		sbx_err_set(err, ESRCH, "the program is not running");
	sbx_unlock(&run->lock);
	return r;
}

/* ---- looking at it ---- */

enum sbx_run_state sbx_run_state(struct sbx_run *run)
{
	enum sbx_run_state state;

	sbx_lock(&run->lock);
	state = run->state;
	sbx_unlock(&run->lock);
	return state;
}

bool sbx_run_over(struct sbx_run *run)
{
	return state_over(sbx_run_state(run));
}

uint64_t sbx_run_id(struct sbx_run *run)
{
	uint64_t id;

	sbx_lock(&run->lock);
	id = run->id;
	sbx_unlock(&run->lock);
	return id;
}

uint64_t sbx_run_ino(struct sbx_run *run, unsigned int index)
{
	uint64_t ino;

	sbx_lock(&run->lock);
	ino = run->ino_base | index;
	sbx_unlock(&run->lock);
	return ino;
}

struct timespec sbx_run_time(struct sbx_run *run)
{
	struct timespec t;

	sbx_lock(&run->lock);
	t = state_over(run->state) ? run->ended : run->started;
	sbx_unlock(&run->lock);
	return t;
}

int sbx_run_status_text(struct sbx_run *run, struct sbx_buf *out)
{
	sbx_lock(&run->lock);
	switch (run->state) {
	case SBX_RUN_NONE:
	case SBX_RUN_COMING:
		sbx_buf_text(out, "none");
		break;
	case SBX_RUN_PENDING:
		sbx_buf_text(out, "pending");
		break;
	case SBX_RUN_RUNNING: /* until the program is there it still waits */
		sbx_buf_text(out, run->pid ? "running" : "pending");
		break;
	case SBX_RUN_EXITED:
		sbx_buf_printf(out, "exited %d", run->code_or_signal);
		break;
	case SBX_RUN_SIGNALED:
		sbx_buf_printf(out, "signaled %d", run->code_or_signal);
		break;
	case SBX_RUN_TIMEOUT:
		sbx_buf_text(out, "timeout");
		break;
	case SBX_RUN_LOST:
		sbx_buf_text(out, "lost");
		break;
	case SBX_RUN_REFUSED:
		sbx_buf_text(out, "refused");
		break;
	}
	if (run->truncated)
		sbx_buf_text(out, " truncated");
	if (run->oom)
		sbx_buf_text(out, " oom");
	sbx_unlock(&run->lock);
	sbx_buf_text(out, "\n");
	return out->failed ? -ENOMEM : 0;
}

int sbx_run_exit_text(struct sbx_run *run, struct sbx_buf *out, struct sbx_err *err)
{
	int r = 0;

	sbx_lock(&run->lock);
	switch (run->state) {
	case SBX_RUN_EXITED:
	case SBX_RUN_TIMEOUT:
		sbx_buf_printf(out, "%d\n", run->code_or_signal);
		break;
	case SBX_RUN_SIGNALED:
		sbx_buf_printf(out, "%d\n", 128 + run->code_or_signal);
		break;
	case SBX_RUN_LOST:
	case SBX_RUN_REFUSED:
		r = sbx_err_set(err, EIO, "%s", run->why.text);
		break;
	case SBX_RUN_NONE:
	case SBX_RUN_COMING:
	case SBX_RUN_PENDING:
	case SBX_RUN_RUNNING:
		break;
	}
	sbx_unlock(&run->lock);
	return r ? r : out->failed ? -ENOMEM : 0;
}

int sbx_run_error_text(struct sbx_run *run, struct sbx_buf *out)
{
	sbx_lock(&run->lock);
	if (run->why.code)
		sbx_buf_printf(out, "%s\n", run->why.text);
	sbx_unlock(&run->lock);
	return out->failed ? -ENOMEM : 0;
}

ssize_t sbx_run_read(struct sbx_run *run, enum sbx_stream which, uint64_t off_bytes, char *buf,
		     size_t size)
{
	return sbx_spool_read(&run->spool[which], off_bytes, buf, size);
}

uint64_t sbx_run_len(struct sbx_run *run, enum sbx_stream which)
{
	return sbx_spool_len(&run->spool[which]);
}

uint64_t sbx_run_logs_len(struct sbx_run *run)
{
	uint64_t len;

	sbx_lock(&run->lock);
	len = run->log_len;
	sbx_unlock(&run->lock);
	return len;
}

ssize_t sbx_run_logs_read(struct sbx_run *run, uint64_t off_bytes, char *buf, size_t size)
{
	struct sbx_chunk chunk, newest;
	uint64_t n, lo, hi;
	size_t done = 0;

	sbx_lock(&run->lock);
	n = sbx_spool_len(&run->chunks) / sizeof(chunk);
	newest = (struct sbx_chunk){ .end = run->log_len,
				     .own_end = run->stream_len[run->last_stream],
				     .which = run->last_stream };
	sbx_unlock(&run->lock);
	for (lo = 0, hi = n; lo < hi;) { /* the first chunk whose end lies behind @off_bytes */
		uint64_t i = (lo + hi) / 2;

		if (sbx_spool_read(&run->chunks, i * sizeof(chunk), (char *)&chunk, sizeof(chunk)) !=
		    sizeof(chunk))
			return -EIO;
		if (chunk.end <= off_bytes)
			lo = i + 1;
		else
			hi = i;
	}
	for (; done < size && off_bytes < newest.end; lo++) {
		uint64_t left;
		ssize_t got;

		if (lo >= n)
			chunk = newest;
		else if (sbx_spool_read(&run->chunks, lo * sizeof(chunk), (char *)&chunk,
					sizeof(chunk)) != sizeof(chunk))
			return -EIO;
		left = chunk.end - off_bytes;
		got = sbx_spool_read(&run->spool[chunk.which], chunk.own_end - left, buf + done,
				     left < size - done ? left : size - done);
		if (got <= 0)
			return done > 0 ? (ssize_t)done : got;
		done += (size_t)got;
		off_bytes += (uint64_t)got;
	}
	return (ssize_t)done;
}
