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
#include <string.h>
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

/* ---- what leaves a workspace with a volume of its own: it stays in the volume, beside the workspace, until it is deleted ---- */

#define DISCARDED "discarded-"

struct discarded {
	struct sbx_job job;
	struct sbx_pbox *box; /* counted */
	int root_fd;	      /* of the volume */
	char name[64];
};

static void sweep_discarded(struct sbx_job *job, const atomic_bool *stop)
{
	struct discarded *d = sbx_container_of(job, struct discarded, job);
	struct sbx_removal removal = { .stop = stop };
	int r = sbx_tree_remove(d->root_fd, d->name, &removal);

	if (r < 0) /* tried again when the volume is mounted the next time */
		sbx_debug(SBX_LOG_LOCAL, "%s: %s: %s", d->box->record.name, d->name, sbx_errno_name(-r));
	close(d->root_fd);
	sbx_local_pbox_put(d->box);
	free(d);
}

/* @root_fd is taken */
static void post_discarded(struct sbx_pbox *box, int root_fd, const char *name)
{
	struct discarded *d = calloc(1, sizeof(*d));

	if (d) {
		d->job.fn = sweep_discarded;
		d->box = sbx_local_pbox_get(box);
		d->root_fd = root_fd;
		snprintf(d->name, sizeof(d->name), "%s", name);
		if (sbx_worker_post(box->provider->sweeper, &d->job, NULL) == 0)
			return;
		sbx_local_pbox_put(box);
		free(d);
	}
	close(root_fd);
}

static int discard_in_volume(struct sbx_pbox *box, int dir_fd, const char *name)
{
	static atomic_uint next;
	int root_fd, e, fd = sbx_local_workspace_fd(box, NULL);
	char to[64];

	if (fd < 0)
		return fd;
	root_fd = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	do { /* one of a mount before us may not be deleted yet */
		snprintf(to, sizeof(to), DISCARDED "%u", atomic_fetch_add(&next, 1));
		e = renameat2(dir_fd, name, root_fd, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
	} while (e == EEXIST);
	if (e == 0) {
		post_discarded(box, root_fd, to);
		return 0;
	}
	close(root_fd);
	return -e;
}

void sbx_local_discard_rest(struct sbx_pbox *box, int workspace_fd)
{
	int root_fd = openat(workspace_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	char **names;
	size_t n, i;

	if (root_fd < 0)
		return;
	if (sbx_state_list_dir(root_fd, &names, &n, NULL) == 0) {
		for (i = 0; i < n; i++) {
			if (strncmp(names[i], DISCARDED, strlen(DISCARDED)) != 0)
				continue;
			fd = fcntl(root_fd, F_DUPFD_CLOEXEC, 3);
			if (fd >= 0)
				post_discarded(box, fd, names[i]);
		}
		sbx_state_names_free(names, n);
	}
	close(root_fd);
}

int sbx_local_discard(struct sbx_pbox *box, int dir_fd, const char *name)
{
	static atomic_uint next;
	struct sbx_provider *p = box->provider;
	char folder[64], to[80];
	int e;

	if (box->record.volume)
		return discard_in_volume(box, dir_fd, name);
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
	return -e;
}
