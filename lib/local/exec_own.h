/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_exec, which exec.c (starting, signals) and exec_events.c (output, end) share. */
#ifndef SBX_LOCAL_EXEC_OWN_H
#define SBX_LOCAL_EXEC_OWN_H

#include "local/internal.h"

enum start_fd { FD_SPEC, FD_CONTROL, FD_OUT, FD_ERR, FD_IN, FD_COUNT };

struct pipe_end {
	struct sbx_watch watch;
	struct sbx_exec *exec;
	enum sbx_stream which;
};

struct sbx_exec {
	struct sbx_pbox *box; /* counted */
	const struct sbx_exec_events *events;
	void *data;
	uint32_t id;
	int control_fd;
	struct sbx_watch control;
	struct pipe_end pipes[2];
	struct sbx_timer drain_timer, kill_timer;
	struct sbx_task blind, teardown;

	/* loop thread */
	bool started, ended, gone;
	bool has_exit; /* end.status is known */
	struct sbx_exec_end end;
	char program[80], cwd[80]; /* for reasons; cut */
	uint64_t oom_base;

	struct sbx_lock lock;
	unsigned int refs; /* guarded by lock */
	bool put;	   /* guarded by lock */
	bool dead;	   /* guarded by lock: gone, no timer may be set any more */

	/* until the message is with the init; guarded by box->lock */
	int start_fds[FD_COUNT];
	struct sbx_list pending;
};

/* exec.c: one reference less */
void sbx_exec_unref(struct sbx_exec *x);

/* exec_events.c, all on the loop */
/* sbx_exec_on_control - the watch's function of the supervisor's socket */
void sbx_exec_on_control(struct sbx_watch *watch, uint32_t events);
/* sbx_exec_finish - tell how it ended, once */
void sbx_exec_finish(struct sbx_exec *x);
/* sbx_exec_gone - nothing of it is left: tell so, and drop the loop's reference */
void sbx_exec_gone(struct sbx_exec *x);

#endif
