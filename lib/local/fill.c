/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_fill, one copy of a template's files.  Threads: work() a worker, the rest the loop; see fill.h. */
#include "local/fill.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "local/copy.h"
#include "local/internal.h"
#include "local/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum phase { PHASE_WAITS, PHASE_COUNTS, PHASE_COPIES };

struct sbx_fill {
	struct sbx_job job;
	struct sbx_task task;
	struct sbx_progress progress;
	struct sbx_pbox *box; /* counted */
	const struct sbx_template *template;
	size_t worker; /* which one has it */
	struct sbx_copy total, copy;
	atomic_int phase; /* enum phase */
	atomic_bool cancel;
	const atomic_bool *stop; /* the worker's */
	int r;			 /* how it ended */
	struct sbx_err err;
};

/* ---- the worker ---- */

static bool stopped(void *data)
{
	struct sbx_fill *f = data;

	return atomic_load(&f->cancel) || atomic_load(f->stop);
}

static bool full(void *data)
{
	struct sbx_fill *f = data;

	return sbx_local_disk_full(f->box);
}

static int copy_all(struct sbx_fill *f)
{
	struct sbx_err *err = &f->err;
	size_t i;
	int r = 0;

	f->copy.root_fd = sbx_local_workspace_fd(f->box, err);
	if (f->copy.root_fd < 0)
		return f->copy.root_fd;
	atomic_store(&f->phase, PHASE_COUNTS);
	for (i = 0; r == 0 && i < f->template->files_n; i++)
		r = sbx_copy_count(&f->total, &f->template->files[i], err);
	atomic_store(&f->phase, PHASE_COPIES);
	for (i = 0; r == 0 && i < f->template->files_n; i++)
		r = sbx_copy_run(&f->copy, &f->template->files[i], err);
	return r;
}

/* its folder, unless it was deleted: under its name there may be another one by now */
static int open_folder(struct sbx_fill *f)
{
	struct sbx_pbox *box = f->box;
	int fd = -ECANCELED;

	sbx_lock(&box->save_lock);
	if (!box->trashed) {
		fd = openat(box->provider->state->boxes_fd, box->record.name,
			    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			fd = sbx_err_sys(&f->err, errno, "cannot open the sandbox's folder");
	}
	sbx_unlock(&box->save_lock);
	return fd;
}

static bool deleted(struct sbx_pbox *box)
{
	bool yes;

	sbx_lock(&box->save_lock);
	yes = box->trashed;
	sbx_unlock(&box->save_lock);
	return yes;
}

static void work(struct sbx_job *job, const atomic_bool *stop)
{
	struct sbx_fill *f = sbx_container_of(job, struct sbx_fill, job);
	SBX_CLEANUP(sbx_closep) int dir = open_folder(f);

	f->stop = stop;
	f->r = dir < 0 ? dir : copy_all(f);
	if (f->r == 0 && unlinkat(dir, SBX_STATE_UNFILLED, 0) != 0 && errno != ENOENT)
		f->r = sbx_err_sys(&f->err, errno, "cannot note that the files are copied");
	if (f->r < 0 && deleted(f->box)) /* whatever it was: no failure */
		f->r = -ECANCELED;
	sbx_loop_post(f->box->provider->loop, &f->task);
}

/* ---- the loop ---- */

static void say(struct sbx_progress *progress, char *buf, size_t size)
{
	struct sbx_fill *f = sbx_container_of(progress, struct sbx_fill, progress);
	uint64_t files = atomic_load(&f->copy.files), all_files = atomic_load(&f->total.files);
	uint64_t bytes = atomic_load(&f->copy.bytes), all = atomic_load(&f->total.bytes);
	char n[SBX_TEXT_NUMBER_MAX], m[SBX_TEXT_NUMBER_MAX];

	switch ((enum phase)atomic_load(&f->phase)) {
	case PHASE_WAITS:
		snprintf(buf, size, "files of the template: waiting for other copies");
		break;
	case PHASE_COUNTS:
		snprintf(buf, size, "files of the template: counting, %llu so far (%s)", (unsigned long long)all_files,
			 sbx_text_short_size(all, n));
		break;
	case PHASE_COPIES:
		/* by what there is more of: many small files, or much */
		snprintf(buf, size, "files of the template: %u %%, %llu of %llu (%s of %s)",
			 (unsigned int)(all > 0 ? (double)bytes / (double)all * 100
						: (double)files / (double)(all_files ? all_files : 1) * 100),
			 (unsigned long long)files, (unsigned long long)all_files, sbx_text_short_size(bytes, n),
			 sbx_text_short_size(all, m));
		break;
	}
}

static void end(struct sbx_fill *f, struct sbx_pbox *box)
{
	box->fill = NULL;
	if (f->r == 0)
		box->unfilled = false;
	else if (f->r != -ECANCELED) {
		sbx_err_wrap(&f->err, f->r, "files of template '%s'", box->record.template);
		sbx_container_fail(box, &f->err);
	}
	free(f);
}

static void done(struct sbx_task *task)
{
	struct sbx_fill *f = sbx_container_of(task, struct sbx_fill, task);
	struct sbx_pbox *box = f->box;

	sbx_progress_end(&f->progress);
	box->provider->filling[f->worker]--;
	end(f, box);
	sbx_container_step(box);
	sbx_local_pbox_put(box);
}

static size_t least_busy(struct sbx_provider *p)
{
	size_t i, best = 0;

	for (i = 1; i < FILL_WORKERS; i++) {
		if (p->filling[i] < p->filling[best])
			best = i;
	}
	return best;
}

static void start(struct sbx_pbox *box)
{
	struct sbx_provider *p = box->provider;
	struct sbx_fill *f = calloc(1, sizeof(*f));
	struct sbx_err err = SBX_ERR_INIT;
	int r;

	if (!f) {
		sbx_err_set(&err, ENOMEM, "no memory to copy the files of template '%s'", box->record.template);
		sbx_container_fail(box, &err);
		return;
	}
	box->fill = f;
	f->job.fn = work;
	f->task.fn = done;
	f->box = box;
	f->progress.line = say;
	f->template = sbx_config_template(p->config, box->record.template);
	f->worker = least_busy(p);
	f->copy = (struct sbx_copy){ .uid = sbx_local_pbox_uid(box), .gid = sbx_local_pbox_gid(box),
				     .stop = stopped, .full = full, .data = f };
	f->total = (struct sbx_copy){ .stop = stopped, .data = f };
	if (!f->template)
		r = sbx_err_set(&f->err, ENOENT, "they were not all copied, and it is not in the configuration any more");
	else
		r = sbx_worker_post(p->fillers[f->worker], &f->job, &f->err);
	if (r < 0) {
		f->r = r;
		end(f, box);
		return;
	}
	sbx_local_pbox_get(box);
	p->filling[f->worker]++;
	sbx_progress_begin(&f->progress, box);
}

bool sbx_fill_step(struct sbx_pbox *box, bool up)
{
	if (box->fill) {
		if (!up)
			atomic_store(&box->fill->cancel, true);
		return true;
	}
	if (!up || !box->unfilled)
		return false;
	sbx_container_tell(box, SBX_BOX_CREATING, NULL);
	start(box);
	return true;
}

/* ---- the workers ---- */

int sbx_fill_new(struct sbx_provider *p)
{
	size_t i;

	for (i = 0; i < FILL_WORKERS; i++) {
		p->fillers[i] = sbx_worker_new("sbxfs-fill");
		if (!p->fillers[i])
			return -ENOMEM;
	}
	return 0;
}

void sbx_fill_stop(struct sbx_provider *p)
{
	size_t i;

	for (i = 0; i < FILL_WORKERS; i++)
		sbx_worker_stop(p->fillers[i]);
}

void sbx_fill_free(struct sbx_provider *p)
{
	size_t i;

	for (i = 0; i < FILL_WORKERS; i++)
		sbx_worker_free(p->fillers[i]);
}
