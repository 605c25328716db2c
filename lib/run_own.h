/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what run.c, run_start.c, run_output.c and result.c share of a run.  See run.h for what others may know. */
#ifndef SBX_RUN_OWN_H
#define SBX_RUN_OWN_H

#include "run.h"

/* nothing of its results will change any more */
static inline bool sbx_run_state_over(enum sbx_run_state state)
{
	return state != SBX_RUN_COMING && state != SBX_RUN_PENDING && state != SBX_RUN_RUNNING;
}

/* run.c: what the provider tells of its program; @data is the run */
extern const struct sbx_exec_events sbx_run_events;
/* run.c: sbx_run_finish - the one place where a run becomes over; does nothing if it is.  @why: may be NULL */
void sbx_run_finish(struct sbx_run *run, enum sbx_run_state state, int code, const struct sbx_err *why);
/* run.c: sbx_run_post_end - let the loop begin to end it, see sbx_run_end */
void sbx_run_post_end(struct sbx_run *run);

/* run_output.c: sbx_run_output - keep what came, as far as limits allow; @data is the run */
void sbx_run_output(void *data, enum sbx_stream which, const char *bytes, size_t len);
/* run_output.c: sbx_run_say - a message of ours at the end of stderr: what a shell would say for 126 and 127 */
void sbx_run_say(struct sbx_run *run, const char *text);

#endif
