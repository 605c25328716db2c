/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the vtable of the local provider, opening and closing it, and the references of boxes.
 * Threads: open, close, list main; the rest any.
 */
#include "local/local.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/text.h"
#include "init/protocol.h"
#include "limit.h"
#include "local/bundle.h"
#include "local/fill.h"
#include "local/internal.h"
#include "local/network.h"
#include "local/stored.h"
#include "local/usage.h"
#include "local/probe.h"
#include "local/recover.h"
#include "local/rootfs.h"
#include "local/runtime.h"
#include "local/volume.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CLOSE_PATIENCE_S 10

/* ---- boxes as objects ---- */

struct sbx_pbox *sbx_local_pbox_get(struct sbx_pbox *box)
{
	sbx_lock(&box->lock);
	box->refs++;
	sbx_unlock(&box->lock);
	return box;
}

void sbx_local_pbox_put(struct sbx_pbox *box)
{
	unsigned int left;

	if (!box)
		return;
	sbx_lock(&box->lock);
	left = --box->refs;
	sbx_unlock(&box->lock);
	if (left)
		return;
	if (box->workspace_fd >= 0)
		close(box->workspace_fd);
	sbx_record_done(&box->record);
	sbx_lock_done(&box->save_lock);
	sbx_net_free(box->net);
	sbx_lock_done(&box->lock);
	free(box);
}

int sbx_local_workspace_fd(struct sbx_pbox *box, struct sbx_err *err)
{
	int fd = atomic_load(&box->workspace_fd);
	bool fresh = false;

	if (fd >= 0)
		return fd;
	sbx_lock(&box->save_lock);
	fd = atomic_load(&box->workspace_fd);
	if (fd < 0 && box->trashed)
		fd = -ESTALE;
	if (fd == -1) {
		fd = sbx_state_volume(box->provider->state, &box->record, err);
		if (fd >= 0)
			atomic_store(&box->workspace_fd, fd);
		fresh = fd >= 0;
	}
	sbx_unlock(&box->save_lock);
	if (fresh)
		sbx_local_discard_rest(box, fd);
	return fd;
}

uint64_t sbx_local_ino(const struct sbx_pbox *box, uint64_t ino)
{
	if (!box->record.volume)
		return ino;
	/* numbers of ext4 have 32 bits, those of other boxes' files on the state's file system hardly more */
	return ino | (strtoull(box->record.id, NULL, 16) & 0x7fffffff) << 32;
}

uid_t sbx_local_pbox_uid(const struct sbx_pbox *box)
{
	return box->provider->state->root ? box->record.id_base + 1000 : geteuid();
}

gid_t sbx_local_pbox_gid(const struct sbx_pbox *box)
{
	return box->provider->state->root ? box->record.id_base + 1000 : getegid();
}

struct sbx_pbox *sbx_pbox_new(struct sbx_provider *p, const struct sbx_record *record, int workspace_fd,
			      const struct sbx_box_events *events, void *data)
{
	struct sbx_pbox *box = calloc(1, sizeof(*box));

	if (!box)
		return NULL;
	sbx_lock_init(&box->lock);
	sbx_lock_init(&box->save_lock);
	box->provider = p;
	box->record = *record;
	box->unfilled = record->unfilled;
	atomic_init(&box->workspace_fd, workspace_fd);
	box->events = events;
	box->data = data;
	box->pidfd = -1;
	box->refs = 2; /* the caller's and the list's */
	box->next_run = 1;
	sbx_cgroup_init(&box->cgroup);
	sbx_list_init(&box->pending);
	sbx_list_init(&box->changes);
	snprintf(box->container, sizeof(box->container), "sbxfs-%s-%s", p->state->id, record->id);
	sbx_lock(&p->lock);
	sbx_list_append(&p->boxes, &box->link);
	box->listed = true;
	sbx_unlock(&p->lock);
	return box;
}

void sbx_pbox_unlist(struct sbx_pbox *box)
{
	struct sbx_provider *p = box->provider;
	bool was;

	sbx_limits_drop(box);
	sbx_lock(&box->save_lock);
	if (box->record.volume && box->trashed) /* if the sweeper could not take it */
		sbx_volume_unmount(p->state->trash_fd, box->record.id);
	else if (box->record.volume)
		sbx_volume_unmount(p->state->boxes_fd, box->record.name);
	sbx_unlock(&box->save_lock);
	sbx_lock(&p->lock);
	was = box->listed;
	box->listed = false;
	if (was)
		sbx_list_remove(&box->link);
	pthread_cond_broadcast(&p->idle);
	sbx_unlock(&p->lock);
	if (was)
		sbx_local_pbox_put(box);
}

/* ---- the provider ---- */

static void provider_free(struct sbx_provider *p)
{
	sbx_worker_free(p->prober);
	sbx_worker_free(p->sweeper);
	sbx_fill_free(p);
	sbx_state_close(p->state);
	pthread_cond_destroy(&p->idle);
	sbx_lock_done(&p->lock);
	free(p->io_buf);
	free(p);
}

static int local_open(const struct sbx_config *config, struct sbx_loop *loop, struct sbx_provider **ret,
		      struct sbx_err *err)
{
	struct sbx_provider *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;
	int r;

	if (!p)
		return sbx_err_set(err, ENOMEM, "no memory for the local provider");
	p->ops = &sbx_local_ops;
	p->config = config;
	p->loop = loop;
	sbx_lock_init(&p->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->idle, &attr);
	pthread_condattr_destroy(&attr);
	sbx_list_init(&p->boxes);
	sbx_list_init(&p->oci_queue);
	p->io_buf = malloc(IO_BUF_BYTES);
	p->prober = sbx_worker_new("sbxfs-probe");
	p->sweeper = sbx_worker_new("sbxfs-sweep");
	if (sbx_fill_new(p) < 0 || !p->io_buf || !p->prober || !p->sweeper) {
		provider_free(p);
		return sbx_err_set(err, ENOMEM, "no memory for the local provider");
	}
	r = sbx_state_open(config->state_dir, &p->state, err);
	if (r < 0) {
		provider_free(p);
		return r;
	}
	/*
	 * Containers are started by a program that ends: as their subreaper we are the parent, so that none stays a
	 * zombie where pid 1 does not reap.  A parent that ignores SIGCHLD would take our children's ends from us.
	 */
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	signal(SIGCHLD, SIG_DFL);
	sbx_runtime_recall(p);
	sbx_recover(p);
	/* look for the runtime now, so that the first box does not wait for it */
	sbx_runtime_state(p, err);
	*ret = p;
	return 0;
}

/* a barrier: everything that was posted or was running on the loop has been done when it returns */
struct barrier {
	struct sbx_task task;
	struct sbx_provider *p;
	bool done; /* guarded by p->lock */
};

static void on_barrier(struct sbx_task *task)
{
	struct barrier *b = sbx_container_of(task, struct barrier, task);

	sbx_lock(&b->p->lock);
	b->done = true;
	pthread_cond_broadcast(&b->p->idle);
	sbx_unlock(&b->p->lock);
}

static void loop_drain(struct sbx_provider *p)
{
	struct barrier b = { .task = { .fn = on_barrier }, .p = p };

	sbx_loop_post(p->loop, &b.task);
	sbx_lock(&p->lock);
	while (!b.done)
		pthread_cond_wait(&p->idle, &p->lock.mutex);
	sbx_unlock(&p->lock);
}

/* are there boxes with something of a container? Under p->lock. */
static bool busy_locked(struct sbx_provider *p)
{
	struct sbx_list *pos;

	sbx_list_for_each(pos, &p->boxes) {
		if (!sbx_container_of(pos, struct sbx_pbox, link)->sweeping)
			return true;
	}
	return false;
}

static void local_close(struct sbx_provider *p)
{
	struct timespec until;
	struct sbx_list *pos;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_PATIENCE_S;
	sbx_lock(&p->lock);
	p->closing = true;
	sbx_list_for_each(pos, &p->boxes) {
		struct sbx_pbox *box = sbx_container_of(pos, struct sbx_pbox, link);

		sbx_lock(&box->lock);
		box->put = true; /* it was put, or will be: nobody listens */
		sbx_unlock(&box->lock);
		sbx_container_want(box, WANT_DOWN);
	}
	while (busy_locked(p) && r == 0)
		r = pthread_cond_timedwait(&p->idle, &p->lock.mutex, &until);
	r = busy_locked(p);
	sbx_unlock(&p->lock);
	/* the loop may still post to them: it is refused from now on, and they are freed at the very end */
	if (r == 0) /* else one may hang in a file of the host; what it copies is copied at the next mount */
		sbx_fill_stop(p);
	sbx_worker_stop(p->prober);
	sbx_worker_stop(p->sweeper); /* what is left in the trash is swept at the next open */
	loop_drain(p);
	sbx_disk_done(p);
	loop_drain(p); /* a look that was just running */
	if (r) /* a runtime that hangs: what it holds must not be freed; the next open cleans up */
		return;
	provider_free(p);
}

static int local_list(struct sbx_provider *p, int (*each)(void *data, const char *name, struct sbx_err *err),
		      void *data, struct sbx_err *err)
{
	char **names;
	size_t n, i;
	int r = sbx_state_list_dir(p->state->boxes_fd, &names, &n, err);

	for (i = 0; r == 0 && i < n; i++) {
		if (sbx_text_box_name(names[i]))
			r = each(data, names[i], err);
	}
	if (r == 0 || n)
		sbx_state_names_free(names, n);
	return r;
}

static int local_name_check(struct sbx_provider *p, const char *name, struct sbx_err *err)
{
	(void)p;
	if (sbx_text_box_name(name))
		return 0;
	return sbx_err_set(err, EINVAL,
			   "sandbox name '%s': up to 63 letters, digits, '.', '-' and '_', a letter or digit first",
			   name);
}

static int local_box_open(struct sbx_provider *p, const char *name, const struct sbx_box_events *events,
			  void *data, struct sbx_pbox **ret, struct sbx_err *err)
{
	struct sbx_record rec = { 0 };
	struct sbx_pbox *box;
	int fd, r;

	r = local_name_check(p, name, err);
	if (r == 0)
		r = sbx_state_load(p->state, name, &rec, &fd, err);
	if (r < 0)
		return r;
	box = sbx_pbox_new(p, &rec, fd, events, data);
	if (!box) {
		sbx_closep(&fd);
		sbx_record_done(&rec);
		return sbx_err_set(err, ENOMEM, "no memory for sandbox '%s'", name);
	}
	box->told_any = true;
	box->told = SBX_BOX_STOPPED;
	*ret = box;
	return 0;
}

static int check_template(const struct sbx_provider *p, const struct sbx_template *t, struct sbx_err *err)
{
	struct sbx_limits limits = t->limits;
	char tool[PATH_MAX];
	size_t i;
	int r;

	if (t->network == SBX_NET_NAT) {
		r = sbx_net_tool(p->config->network_tool, tool, err);
		if (r < 0)
			return r;
	}
	if (t->rootfs && access(t->rootfs, R_OK | X_OK) != 0)
		return sbx_err_sys(err, errno, "template '%s': rootfs '%s'", t->name, t->rootfs);
	for (i = 0; i < SBX_LIMITS; i++) {
		if (*sbx_limit_at(&limits, (enum sbx_limit)i) < sbx_limit_kinds[i].min)
			return sbx_err_set(err, EINVAL, "limit of %s: at least %s", sbx_limit_kinds[i].name,
					   sbx_limit_kinds[i].min_text);
	}
	return 0;
}

static int local_box_create(struct sbx_provider *p, const char *name, const struct sbx_template *t,
			    const struct sbx_box_events *events, void *data, struct sbx_pbox **ret,
			    struct sbx_err *err)
{
	struct sbx_record rec = { .network = t->network, .limits = t->limits };
	struct sbx_pbox *box;
	int fd = -1, r;

	r = local_name_check(p, name, err);
	if (r == 0)
		r = check_template(p, t, err);
	if (r < 0)
		return r;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	snprintf(rec.template, sizeof(rec.template), "%s", t->name);
	rec.limits.memory_bytes = sbx_limits_memory(rec.limits.memory_bytes);
	rec.rootfs = t->rootfs ? strdup(t->rootfs) : NULL;
	rec.runtime = t->runtime ? strdup(t->runtime) : NULL;
	rec.unfilled = t->files_n > 0;
	r = sbx_state_create(p->state, &rec, &fd, err);
	box = r == 0 ? sbx_pbox_new(p, &rec, fd, events, data) : NULL;
	if (!box) {
		if (r == 0) {
			close(fd);
			sbx_state_trash(p->state, &rec, NULL);
			r = sbx_err_set(err, ENOMEM, "no memory for sandbox '%s'", name);
		}
		sbx_record_done(&rec);
		return r;
	}
	box->told_any = true;
	box->told = SBX_BOX_CREATING;
	*ret = box;
	sbx_container_want(box, WANT_UP);
	return 0;
}

static int local_box_start(struct sbx_pbox *box, struct sbx_err *err)
{
	(void)err;
	sbx_container_want(box, WANT_UP);
	return 0;
}

static int local_box_stop(struct sbx_pbox *box, struct sbx_err *err)
{
	(void)err;
	sbx_container_want(box, WANT_DOWN);
	return 0;
}

static int local_box_pause(struct sbx_pbox *box, struct sbx_err *err)
{
	struct sbx_provider *p = box->provider;

	if (sbx_runtime_state(p, err) == RUNTIME_READY && !p->runtime.limits)
		return sbx_err_set(err, EOPNOTSUPP, "pause needs cgroups, which cannot be used here: %s",
				   p->runtime.no_limits);
	sbx_container_want(box, WANT_PAUSED);
	return 0;
}

static int local_box_resume(struct sbx_pbox *box, struct sbx_err *err)
{
	(void)err;
	sbx_container_want(box, WANT_UP);
	return 0;
}

static void local_box_delete(struct sbx_pbox *box)
{
	struct sbx_err err = SBX_ERR_INIT;

	/* the name is free at once */
	sbx_lock(&box->save_lock);
	box->trashed = true;
	if (sbx_state_trash(box->provider->state, &box->record, &err) < 0)
		sbx_debug(SBX_LOG_LOCAL, "%s: %s", box->record.name, err.text);
	sbx_unlock(&box->save_lock);
	sbx_container_want(box, WANT_DELETED);
}

static void local_box_info(struct sbx_pbox *box, struct sbx_pbox_info *ret)
{
	ret->id = box->container;
	ret->runtime = box->record.runtime  ? box->record.runtime
		       : box->record.rootfs ? box->record.rootfs
					    : "host root";
	ret->network = sbx_network_name(box->record.network);
	ret->workspace = SBX_INIT_WORKSPACE;
	ret->template = box->record.template;
	ret->created = box->record.created;
	ret->foreign = false;
	sbx_lock(&box->lock);
	ret->limits = box->record.limits;
	sbx_unlock(&box->lock);
	if (!box->record.volume)
		ret->limits.disk_bytes = UINT64_MAX;
	if (sbx_local_no_limits(box)) /* what is in force, not what was asked for; pids is an rlimit, too */
		ret->limits.cpu_milli = ret->limits.memory_bytes = UINT64_MAX;
}

static void local_box_put(struct sbx_pbox *box)
{
	sbx_lock(&box->lock);
	box->put = true;
	sbx_unlock(&box->lock);
	sbx_container_kick(box); /* a stopped box leaves the list */
	sbx_local_pbox_put(box);
}

static const char *local_interpreter(struct sbx_pbox *box, const char *const *names)
{
	return sbx_rootfs_find(box->record.rootfs, names);
}

const char *sbx_local_no_limits(struct sbx_pbox *box)
{
	struct sbx_provider *p = box->provider;
	struct sbx_err err;

	if (sbx_runtime_state(p, &err) != RUNTIME_READY || p->runtime.limits)
		return NULL;
	return p->runtime.no_limits;
}

struct sbx_provider_ops sbx_local_ops = {
	.name = "local",
	.open = local_open,
	.close = local_close,
	.list = local_list,
	.name_check = local_name_check,
	.box_open = local_box_open,
	.box_create = local_box_create,
	.box_start = local_box_start,
	.box_stop = local_box_stop,
	.box_pause = local_box_pause,
	.box_resume = local_box_resume,
	.box_delete = local_box_delete,
	.box_info = local_box_info,
	.limit_set = sbx_local_limit_set,
	.box_put = local_box_put,
	.exec_start = sbx_local_exec_start,
	.exec_signal = sbx_local_exec_signal,
	.exec_put = sbx_local_exec_put,
	.interpreter = local_interpreter,
	.usage = sbx_local_usage,
	.ports = sbx_local_ports,
	.check = sbx_local_check,
	.settings_save = sbx_local_settings_save,
	.settings_load = sbx_local_settings_load,
};

/* a struct cannot be a constant of another file in C; once, before main() */
__attribute__((constructor)) static void fill_files(void)
{
	sbx_local_ops.files = sbx_local_file_ops;
}
