/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the end of a deleted box: its files are deleted by a worker, then it is told to be gone.
 * Threads: sweep() the sweeper, the rest the loop.
 */
#include "base/log.h"
#include "local/internal.h"
#include "local/progress.h"

#include <stdio.h>
#include <stdlib.h>

struct sweep {
	struct sbx_job job;
	struct sbx_task task;
	struct sbx_pbox *box; /* counted */
	struct sbx_progress progress;
	struct sbx_removal removal;
	atomic_bool begun;
};

static void swept(struct sbx_task *task)
{
	struct sweep *s = sbx_container_of(task, struct sweep, task);
	struct sbx_pbox *box = s->box;

	sbx_progress_end(&s->progress);
	free(s);
	sbx_container_tell(box, SBX_BOX_GONE, NULL);
	sbx_pbox_unlist(box);
	sbx_local_pbox_put(box);
}

static void sweep(struct sbx_job *job, const atomic_bool *stop)
{
	struct sweep *s = sbx_container_of(job, struct sweep, job);
	struct sbx_err err = SBX_ERR_INIT;

	s->removal.stop = stop;
	atomic_store(&s->begun, true);
	/* what cannot be deleted now stays in the trash and is tried again at the next open */
	if (sbx_state_sweep(s->box->provider->state, s->box->record.id, s->box->record.id_base, &s->removal,
			    &err) < 0)
		sbx_debug(SBX_LOG_LOCAL, "%s: %s", s->box->record.name, err.text);
	sbx_loop_post(s->box->provider->loop, &s->task);
}

static void say(struct sbx_progress *progress, char *buf, size_t size)
{
	struct sweep *s = sbx_container_of(progress, struct sweep, progress);
	uint64_t n = atomic_load(&s->removal.removed);

	if (atomic_load(&s->begun))
		snprintf(buf, size, "deleting: %llu files so far", (unsigned long long)n);
	else
		snprintf(buf, size, "deleting: waiting for other deletions");
}

void sbx_container_sweep(struct sbx_pbox *box)
{
	struct sweep *s = calloc(1, sizeof(*s));

	sbx_lock(&box->provider->lock);
	box->sweeping = true;
	pthread_cond_broadcast(&box->provider->idle);
	sbx_unlock(&box->provider->lock);
	if (s) {
		s->job.fn = sweep;
		s->task.fn = swept;
		s->box = sbx_local_pbox_get(box);
		s->progress.line = say;
		sbx_progress_begin(&s->progress, box); /* before the worker has it: swept() frees it */
		if (sbx_worker_post(box->provider->sweeper, &s->job, NULL) == 0)
			return;
		sbx_progress_end(&s->progress);
		sbx_local_pbox_put(box);
		free(s);
	}
	sbx_container_tell(box, SBX_BOX_GONE, NULL); /* swept at the next open */
	sbx_pbox_unlist(box);
}
