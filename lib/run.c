/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_run: its life once it was started, its end, timeouts, signals.  Knows: the provider's exec slots, language.h.
 * Threads: sbx_run_start and the on_ functions run on the loop or on whoever submits; the rest any.
 */
#include "run_own.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "box.h"
#include "catalog.h"
#include "language.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

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

/* ---- the end ---- */

/* the one place where a run becomes over */
void sbx_run_finish(struct sbx_run *run, enum sbx_run_state state, int code, const struct sbx_err *why)
{
	bool told, submitted;

	sbx_lock(&run->lock);
	if (sbx_run_state_over(run->state)) {
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
	sbx_run_finish(run, state, 0, why);
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
			sbx_run_say(run, end->reason);
		}
	}
	if (end->oom && !why.code) {
		struct sbx_pbox_info info;
		char size[SBX_TEXT_NUMBER_MAX];

		sbx_box_ops(run->box)->box_info(sbx_box_pbox(run->box), &info);
		sbx_err_set(&why, ENOMEM, "memory limit of %s reached",
			    sbx_text_short_size(info.limits.memory_bytes, size));
	}
	sbx_run_finish(run, state, code, &why);
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
	atomic_fetch_sub(&box->catalog->programs, 1);
	sbx_run_put(run);
	sbx_box_put(box);
}

const struct sbx_exec_events sbx_run_events = {
	.started = on_started, .output = sbx_run_output, .ended = on_ended, .gone = on_gone
};

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
	early = !run->exec && !sbx_run_state_over(run->state);
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

void sbx_run_post_end(struct sbx_run *run)
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
		sbx_run_post_end(run);
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
	return sbx_run_state_over(sbx_run_state(run));
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
	t = sbx_run_state_over(run->state) ? run->ended : run->started;
	sbx_unlock(&run->lock);
	return t;
}
