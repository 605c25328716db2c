/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: limits of a box that change.  cpu, memory and pids go through the runtime (`update`) when the box runs, one command for all that
 * wait (one for each if it fails), and count when it has said yes; disk goes to the volume; the others are only stored.
 * Threads: step the loop; the rest any.
 */
#include "local/internal.h"

#include "base/cleanup.h"
#include "base/spawn.h"
#include "init/protocol.h"
#include "later.h"
#include "limit.h"
#include "local/bundle.h"
#include "local/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct change {
	struct sbx_list link; /* box->changes */
	enum sbx_limit which;
	uint64_t value;
	struct sbx_later *later; /* counted, or NULL */
	bool at_work;		 /* the runtime was told */
};

uint64_t sbx_limits_memory(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return bytes == UINT64_MAX ? bytes : bytes / page * page;
}

static int no_cgroup(const char *why, struct sbx_err *err)
{
	return sbx_err_set(err, EOPNOTSUPP, "no limits of cpu and memory here: %s", why);
}

/* the record with new limits, stored; under save_lock */
static int store(struct sbx_pbox *box, const struct sbx_limits *limits, struct sbx_err *err)
{
	struct sbx_record rec = box->record; /* limits are changed only here */
	int r;

	if (box->trashed)
		return sbx_err_set(err, ECANCELED, "the sandbox was deleted");
	rec.limits = *limits;
	r = sbx_state_save(box->provider->state, &rec, err);
	if (r < 0)
		return r;
	sbx_lock(&box->lock);
	box->record.limits = *limits;
	sbx_unlock(&box->lock);
	return 0;
}

static int store_one(struct sbx_pbox *box, enum sbx_limit which, uint64_t value, struct sbx_err *err)
{
	struct sbx_limits limits;
	bool volume = false;
	int r = 0;

	sbx_lock(&box->save_lock);
	limits = box->record.limits;
	*sbx_limit_at(&limits, which) = value;
	if (which == SBX_LIMIT_DISK && !box->trashed) {
		r = sbx_state_volume_limit(box->provider->state, &box->record, value, err);
		volume = r == 0;
	}
	if (r == 0)
		r = store(box, &limits, err);
	if (r < 0 && volume) /* what is read is what is in force */
		sbx_state_volume_limit(box->provider->state, &box->record, box->record.limits.disk_bytes, NULL);
	sbx_unlock(&box->save_lock);
	return r;
}

/* ---- what waits ---- */

static void answer(struct change *c, int r, const struct sbx_err *err)
{
	sbx_later_done(c->later, r, err);
	sbx_later_put(c->later);
	free(c);
}

/* the changes that wait now, or those that the runtime was told of, taken out of the list */
static void take_changes(struct sbx_pbox *box, bool at_work, struct sbx_list *ret)
{
	struct sbx_list *p, *tmp;

	sbx_list_init(ret);
	sbx_lock(&box->lock);
	sbx_list_for_each_safe(p, tmp, &box->changes) {
		if (sbx_container_of(p, struct change, link)->at_work != at_work)
			continue;
		sbx_list_remove(p);
		sbx_list_append(ret, p);
	}
	sbx_unlock(&box->lock);
}

static void answer_all(struct sbx_list *changes, int r, const struct sbx_err *err)
{
	while (!sbx_list_empty(changes)) {
		struct change *c = sbx_list_first(changes, struct change, link);

		sbx_list_remove(&c->link);
		answer(c, r, err);
	}
}

static void apply(struct sbx_list *changes, struct sbx_limits *limits)
{
	struct sbx_list *p;

	sbx_list_for_each(p, changes) {
		struct change *c = sbx_container_of(p, struct change, link);

		*sbx_limit_at(limits, c->which) = c->value;
	}
}

/* stored and answered */
static void settle(struct sbx_pbox *box, struct sbx_list *changes)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_limits limits;
	int r;

	sbx_lock(&box->save_lock);
	limits = box->record.limits;
	apply(changes, &limits);
	r = store(box, &limits, &err);
	sbx_unlock(&box->save_lock);
	answer_all(changes, r, &err);
}

void sbx_limits_drop(struct sbx_pbox *box)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_list changes;
	int i;

	sbx_err_set(&err, ECANCELED, "the sandbox has ended");
	for (i = 0; i < 2; i++) {
		take_changes(box, i == 1, &changes);
		answer_all(&changes, -ECANCELED, &err);
	}
}

/* ---- the runtime ---- */

static void ask_again(struct sbx_pbox *box)
{
	struct sbx_list *p;

	sbx_lock(&box->lock);
	sbx_list_for_each(p, &box->changes)
		sbx_container_of(p, struct change, link)->at_work = false;
	sbx_unlock(&box->lock);
}

static unsigned int count_at_work(struct sbx_pbox *box)
{
	struct sbx_list *p;
	unsigned int n = 0;

	sbx_lock(&box->lock);
	sbx_list_for_each(p, &box->changes)
		n += sbx_container_of(p, struct change, link)->at_work;
	sbx_unlock(&box->lock);
	return n;
}

/* what waits goes to work, into @limits, too */
static void take_to_work(struct sbx_pbox *box, struct sbx_limits *limits)
{
	struct sbx_list *p;

	sbx_lock(&box->lock);
	sbx_list_for_each(p, &box->changes) {
		struct change *c = sbx_container_of(p, struct change, link);

		c->at_work = true;
		*sbx_limit_at(limits, c->which) = c->value;
		if (box->limits_singly)
			break;
	}
	sbx_unlock(&box->lock);
}

static void update_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_limits limits;
	struct sbx_cgroup_usage use;
	struct sbx_list changes;
	char have[SBX_TEXT_NUMBER_MAX];
	uint64_t before;
	int r = sbx_spawn_check(box->provider->runtime.path, result, &err);

	if (r < 0 && box->have != HAVE_UP && box->have != HAVE_PAUSED) {
		ask_again(box); /* it ended meanwhile */
		return;
	}
	if (r < 0 && count_at_work(box) > 1) { /* which one was it? the others shall hold */
		box->limits_singly = true;
		ask_again(box);
		return;
	}
	take_changes(box, true, &changes);
	if (r == 0) {
		settle(box, &changes);
		return;
	}
	sbx_lock(&box->lock);
	limits = box->record.limits;
	sbx_cgroup_usage(&box->cgroup, &use);
	sbx_unlock(&box->lock);
	before = limits.memory_bytes;
	apply(&changes, &limits);
	if (limits.memory_bytes != before && use.memory_bytes != UINT64_MAX &&
	    use.memory_bytes + (1u << 20) >= limits.memory_bytes)
		r = sbx_err_set(&err, EBUSY, "%s of memory are in use: end something first, or allow more",
				sbx_text_short_size(use.memory_bytes, have));
	else
		r = sbx_err_wrap(&err, -EIO, "the limit could not be changed");
	answer_all(&changes, r, &err);
}

static int start_update(struct sbx_pbox *box, const struct sbx_limits *limits, struct sbx_err *err)
{
	char path[32];
	const char *const words[] = { "update", "--resources", path, box->container, NULL };
	SBX_CLEANUP(sbx_closep) int fd = memfd_create("sbxfs-limits", MFD_CLOEXEC);
	SBX_CLEANUP(sbx_freep) char *text = sbx_bundle_resources(limits);
	size_t len = text ? strlen(text) : 0;

	if (!text)
		return sbx_err_set(err, ENOMEM, "no memory to change limits");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", SBX_INIT_FD);
	if (fd < 0 || write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)
		return sbx_err_sys(err, errno, "cannot change limits");
	return sbx_oci_command(box, words, fd, update_done, err);
}

bool sbx_limits_step(struct sbx_pbox *box)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_list changes;
	struct sbx_limits limits;
	enum box_want want;
	bool any;
	int r;

	sbx_lock(&box->lock);
	any = !sbx_list_empty(&box->changes);
	want = box->want;
	limits = box->record.limits;
	sbx_unlock(&box->lock);
	if (!any) {
		box->limits_singly = false;
		return false;
	}
	if (want == WANT_DELETED) {
		sbx_limits_drop(box);
		return false;
	}
	if (box->have == HAVE_NONE) {
		take_changes(box, false, &changes);
		settle(box, &changes);
		return false;
	}
	if ((box->have != HAVE_UP && box->have != HAVE_PAUSED) || want == WANT_DOWN)
		return false; /* on its way to something else: then */
	if (!box->provider->runtime.limits) {
		take_changes(box, false, &changes);
		r = no_cgroup(box->provider->runtime.no_limits, &err);
		answer_all(&changes, r, &err);
		return false;
	}
	if (!sbx_oci_slot(box))
		return true;
	take_to_work(box, &limits);
	r = start_update(box, &limits, &err);
	if (r == 0)
		return true;
	take_changes(box, true, &changes);
	answer_all(&changes, r, &err);
	return false;
}

/* ---- the slot of the vtable ---- */

int sbx_limits_missing(struct sbx_pbox *box, struct sbx_err *err)
{
	const char *no_limits = sbx_local_no_limits(box);
	struct sbx_err why = SBX_ERR_INIT;
	struct sbx_limits limits;

	sbx_lock(&box->lock);
	limits = box->record.limits;
	sbx_unlock(&box->lock);
	if (no_limits)
		return no_cgroup(no_limits, err);
	if (limits.disk_bytes == UINT64_MAX || box->record.volume)
		return 0;
	if (sbx_volume_possible(&why) == 0)
		sbx_err_set(&why, EOPNOTSUPP, "the sandbox was made where it could not be had");
	return sbx_err_set(err, EOPNOTSUPP, "no limit of disk space here: %s", why.text);
}

static int disk_set(struct sbx_pbox *box, uint64_t value, struct sbx_err *err)
{
	int r;

	if (box->record.volume)
		return store_one(box, SBX_LIMIT_DISK, value, err);
	r = sbx_volume_possible(err);
	if (r < 0)
		return r;
	return sbx_err_set(err, EOPNOTSUPP,
			   "this sandbox was made without a limit of disk space: make one from a template that has limits.disk");
}

int sbx_local_limit_set(struct sbx_pbox *box, enum sbx_limit which, uint64_t value, struct sbx_later *later,
			struct sbx_err *err)
{
	const char *no_limits = sbx_local_no_limits(box);
	struct change *c;
	bool deleted;

	switch (which) {
	case SBX_LIMIT_DISK:
		return disk_set(box, value, err);
	case SBX_LIMIT_OUTPUT:
	case SBX_LIMIT_TIMEOUT:
		return store_one(box, which, value, err);
	case SBX_LIMIT_CPU:
	case SBX_LIMIT_MEMORY:
		if (no_limits)
			return no_cgroup(no_limits, err);
		break;
	case SBX_LIMIT_PIDS:
		if (no_limits) /* then it is an rlimit of what starts from now on */
			return store_one(box, which, value, err);
		break;
	case SBX_LIMITS:
		return -EINVAL;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return sbx_err_set(err, ENOMEM, "no memory to change a limit");
	c->which = which;
	c->value = which == SBX_LIMIT_MEMORY ? sbx_limits_memory(value) : value;
	c->later = sbx_later_get(later);
	sbx_lock(&box->lock);
	deleted = box->want == WANT_DELETED; /* nobody may look at what waits any more */
	if (!deleted)
		sbx_list_append(&box->changes, &c->link);
	sbx_unlock(&box->lock);
	if (deleted) {
		sbx_later_put(c->later);
		free(c);
		return sbx_err_set(err, ECANCELED, "the sandbox was deleted");
	}
	sbx_container_kick(box);
	return -EINPROGRESS;
}
