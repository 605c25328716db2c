/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what is deleted behind: the files of a deleted box, then it is told to be gone; and other trash.
 * Threads: sweep() and sweep_trash() the sweeper, sbx_trash_sweep and sbx_local_discard any, the rest the loop.
 */
#include "base/log.h"
#include "local/internal.h"
#include "local/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- trash that is no box's ---- */

struct trash {
	struct sbx_job job;
	struct sbx_provider *p;
	char name[64];
};

static void sweep_trash(struct sbx_job *job, const atomic_bool *stop)
{
	struct trash *t = sbx_container_of(job, struct trash, job);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_removal removal = { .stop = stop };

	if (sbx_state_sweep(t->p->state, t->name, 0, &removal, &err) < 0)
		sbx_debug(SBX_LOG_LOCAL, "trash: %s", err.text);
	free(t);
}

void sbx_trash_sweep(struct sbx_provider *p, const char *name)
{
	struct trash *t = calloc(1, sizeof(*t));

	if (!t) /* at the next open then */
		return;
	t->job.fn = sweep_trash;
	t->p = p;
	snprintf(t->name, sizeof(t->name), "%.63s", name);
	if (sbx_worker_post(p->sweeper, &t->job, NULL) < 0)
		free(t);
}

int sbx_local_discard(struct sbx_pbox *box, int dir_fd, const char *name)
{
	static atomic_uint next;
	struct sbx_provider *p = box->provider;
	char folder[64], to[80];
	int e;

	/* a folder of ours around it: what a sandbox has made must not look like a box in the trash */
	do { /* one of a daemon before us may not be deleted yet */
		snprintf(folder, sizeof(folder), "discarded-%.40s-%u", box->record.id, atomic_fetch_add(&next, 1));
		e = mkdirat(p->state->trash_fd, folder, 0700) == 0 ? 0 : errno;
	} while (e == EEXIST);
	if (e != 0)
		return -e;
	snprintf(to, sizeof(to), "%s/tree", folder);
	if (renameat(dir_fd, name, p->state->trash_fd, to) == 0) {
		sbx_trash_sweep(p, folder);
		return 0;
	}
	e = errno;
	unlinkat(p->state->trash_fd, folder, AT_REMOVEDIR);
	return e == EXDEV ? sbx_tree_remove(dir_fd, name, NULL) : -e;
}
