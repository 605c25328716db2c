/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a thread for work that blocks (deleting trees, trying runtimes), so that the loop never does. */
#ifndef SBX_LOCAL_WORKER_H
#define SBX_LOCAL_WORKER_H

#include "base/list.h"

#include <stdatomic.h>
#include <stdbool.h>

struct sbx_err;
struct sbx_worker;

/* one piece of work; embedded in or first member of the caller's object */
struct sbx_job {
	/* on the worker's thread.  @stop turns true when the worker shall end: leave the rest.  May free @job. */
	void (*fn)(struct sbx_job *job, const atomic_bool *stop);
	struct sbx_list link; /* the worker's */
};

/* sbx_worker_new - a worker; its thread starts with the first job.  @name: of the thread, up to 15 bytes, static */
struct sbx_worker *sbx_worker_new(const char *name);
/* sbx_worker_post - jobs run one after another.  0 or -errno of the thread's start.  Any thread. */
int sbx_worker_post(struct sbx_worker *w, struct sbx_job *job, struct sbx_err *err);
/* sbx_worker_stop - finishes what is queued (with *stop set) and joins; posts after it are refused with -ESHUTDOWN */
void sbx_worker_stop(struct sbx_worker *w);
/* sbx_worker_free - lets queued jobs run with *stop true, joins, frees.  NULL is fine. */
void sbx_worker_free(struct sbx_worker *w);

#endif
