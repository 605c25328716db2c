/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the reserve of the state file system.  While programs run, looks how much is free, the more often the
 * nearer the reserve is; the box that is at fault is stopped before the reserve is touched, others go on.
 * At fault is the one whose processes wrote most (bytes) or worked most (inodes) since shortly before.
 * Threads: active, disk_full any; the rest the loop.
 */
#include "base/clock.h"
#include "base/proc.h"
#include "base/text.h"
#include "local/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOOK_MS_MAX 250
#define LOOK_MS_MIN 4
#define FASTEST_BYTES_PER_MS (4u << 20)	/* twice what a box was seen to write */
#define FASTEST_INODES_PER_MS 400u	/* twice, too */
#define MARGIN_BYTES (128ull << 20)	/* above the reserve: written while a kill is under way */
#define NEAR_BYTES (8ull << 30)		/* above the reserve: from here on we look who writes */
#define INODES_RESERVE_MAX 20000u
#define INODES_MARGIN 5000u	/* made while a kill is under way */
#define INODES_NEAR 200000u
#define BASE_MS 2000			/* a baseline is this old at most before trouble begins */
#define FAULT_BYTES (4ull << 20)	/* less than this is nobody's fault, unless the reserve is gone */
#define FAULT_BYTES_HARD (256ull << 10)
#define FAULT_INODES 1000u		/* gone since the baseline */
#define FAULT_TICKS 5u			/* of 10 ms */
#define FULL_LOOK_MS 100

struct proc {
	pid_t pid, parent;
	struct sbx_disk_use use;
	struct sbx_pbox *box;
};

struct room {
	uint64_t bytes, inodes;			/* free */
	uint64_t bytes_reserve, inodes_reserve; /* to be kept */
};

static bool look(const struct sbx_provider *p, struct room *r)
{
	struct statvfs v;

	if (fstatvfs(p->state->boxes_fd, &v) != 0)
		return false;
	r->bytes = (uint64_t)v.f_bavail * v.f_frsize;
	r->bytes_reserve = p->config->disk_reserve_bytes;
	r->inodes = v.f_files ? v.f_favail : UINT64_MAX; /* btrfs and others have no number of inodes */
	r->inodes_reserve = v.f_files / 50 < INODES_RESERVE_MAX ? v.f_files / 50 : INODES_RESERVE_MAX;
	return true;
}

static uint64_t above(uint64_t have, uint64_t floor)
{
	return have > floor ? have - floor : 0;
}

static bool low(const struct room *r)
{
	return r->bytes < r->bytes_reserve + MARGIN_BYTES || r->inodes < r->inodes_reserve + INODES_MARGIN;
}

bool sbx_local_disk_full(struct sbx_pbox *box)
{
	struct sbx_provider *p = box->provider;
	uint64_t now = sbx_clock_ms();
	struct room r;
	bool full;

	sbx_lock(&p->lock);
	if (now - p->disk_seen_ms >= FULL_LOOK_MS || p->disk_seen_ms == 0) {
		p->disk_seen_ms = now;
		if (look(p, &r))
			p->disk_low = low(&r);
	}
	full = p->disk_low;
	sbx_unlock(&p->lock);
	return full;
}

/* ---- who is at fault ---- */

static bool read_proc(const char *name, struct proc *ret)
{
	unsigned long long user, sys, child_user, child_sys;
	char path[64], text[1024], *at;
	int parent;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", name);
	if (sbx_proc_read(path, text, sizeof(text)) <= 0)
		return false;
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &parent,
			  &user, &sys, &child_user, &child_sys) != 5)
		return false;
	memset(ret, 0, sizeof(*ret));
	ret->pid = atoi(name);
	ret->parent = parent;
	ret->use.cpu_ticks = user + sys + child_user + child_sys;
	return true;
}

/* bytes made dirty by it and its reaped children */
static uint64_t read_written(pid_t pid)
{
	char path[64], text[512], *at;

	snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	sbx_proc_read(path, text, sizeof(text));
	at = strstr(text, "\nwrite_bytes:");
	return at ? strtoull(at + 13, NULL, 10) : 0;
}

static size_t read_procs(struct proc **ret)
{
	DIR *d = opendir("/proc");
	struct proc *list = NULL, *more;
	size_t n = 0, room = 0;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		if (n == room) {
			room = room ? room * 2 : 512;
			more = realloc(list, room * sizeof(*list));
			if (!more)
				break;
			list = more;
		}
		if (read_proc(e->d_name, &list[n]))
			n++;
	}
	if (d)
		closedir(d);
	*ret = list;
	return n;
}

static int by_pid(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* the box of a process: that of the init above it */
static struct sbx_pbox *owner(struct proc *list, size_t n, struct proc *p, unsigned int depth)
{
	struct proc key, *up;

	if (p->box || p->parent <= 1 || depth > 512)
		return p->box;
	key.pid = p->parent;
	up = bsearch(&key, list, n, sizeof(*list), by_pid);
	if (up)
		p->box = owner(list, n, up, depth + 1);
	return p->box;
}

/* fills disk_now of all boxes; under p->lock */
static void measure_locked(struct sbx_provider *p)
{
	struct proc *list, key, *init;
	size_t n = read_procs(&list), i;
	struct sbx_list *pos;

	qsort(list, n, sizeof(*list), by_pid);
	sbx_list_for_each(pos, &p->boxes) {
		struct sbx_pbox *box = sbx_container_of(pos, struct sbx_pbox, link);

		memset(&box->disk_now, 0, sizeof(box->disk_now));
		key.pid = box->init_pid;
		init = box->init_pid && n ? bsearch(&key, list, n, sizeof(*list), by_pid) : NULL;
		if (init)
			init->box = box;
	}
	for (i = 0; i < n; i++) {
		struct sbx_pbox *box = owner(list, n, &list[i], 0);

		if (!box)
			continue;
		box->disk_now.written_bytes += read_written(list[i].pid);
		box->disk_now.cpu_ticks += list[i].use.cpu_ticks;
	}
	free(list);
}

/* the box that did most since the baseline, with a reference; NULL: nobody did enough */
static struct sbx_pbox *at_fault(struct sbx_provider *p, const struct room *r)
{
	bool bytes = r->bytes < r->bytes_reserve + MARGIN_BYTES;
	uint64_t most = bytes ? (r->bytes < r->bytes_reserve ? FAULT_BYTES_HARD : FAULT_BYTES) : 0;
	struct sbx_pbox *worst = NULL, *busiest = NULL;
	uint64_t busy = 0;
	struct sbx_list *pos;

	sbx_lock(&p->lock);
	measure_locked(p);
	sbx_list_for_each(pos, &p->boxes) {
		struct sbx_pbox *box = sbx_container_of(pos, struct sbx_pbox, link);
		uint64_t wrote = above(box->disk_now.written_bytes, box->disk_base.written_bytes);
		uint64_t worked = above(box->disk_now.cpu_ticks, box->disk_base.cpu_ticks);

		if (box->have != HAVE_UP)
			continue;
		if (wrote >= most && bytes) {
			most = wrote;
			worst = box;
		}
		if (worked > busy) {
			busy = worked;
			busiest = box;
		}
	}
	/* no account shows who makes files: the one that works while their number grows a lot */
	if (!bytes && above(p->disk_inodes, r->inodes) > FAULT_INODES && busy >= FAULT_TICKS)
		worst = busiest;
	if (worst)
		sbx_local_pbox_get(worst);
	sbx_unlock(&p->lock);
	return worst;
}

static void take_baseline(struct sbx_provider *p, const struct room *r)
{
	struct sbx_list *pos;

	sbx_lock(&p->lock);
	measure_locked(p);
	sbx_list_for_each(pos, &p->boxes) {
		struct sbx_pbox *box = sbx_container_of(pos, struct sbx_pbox, link);

		box->disk_base = box->disk_now;
	}
	sbx_unlock(&p->lock);
	p->disk_base_ms = sbx_clock_ms();
	p->disk_inodes = r->inodes;
}

static void stop_box(struct sbx_pbox *box, const struct room *r)
{
	char have[SBX_TEXT_NUMBER_MAX], keep[SBX_TEXT_NUMBER_MAX];
	struct sbx_err why = SBX_ERR_INIT;

	if (r->bytes < r->bytes_reserve + MARGIN_BYTES)
		sbx_err_set(&why, ENOSPC,
			    "stopped: it was filling the disk of '%s' (%s free, %s are kept); delete files in its "
			    "workspace, or the sandbox",
			    box->provider->state->dir, sbx_text_short_size(r->bytes, have),
			    sbx_text_short_size(r->bytes_reserve, keep));
	else
		sbx_err_set(&why, ENOSPC,
			    "stopped: it was using up the inodes of '%s' (%llu free, %llu are kept); delete files in "
			    "its workspace, or the sandbox",
			    box->provider->state->dir, (unsigned long long)r->inodes,
			    (unsigned long long)r->inodes_reserve);
	sbx_lock(&box->lock);
	box->disk_stopped = true;
	sbx_unlock(&box->lock);
	sbx_container_stop_for(box, &why);
}

/* ---- the look ---- */

static uint64_t next_look_ms(const struct room *r)
{
	uint64_t bytes = above(r->bytes, r->bytes_reserve + MARGIN_BYTES) / FASTEST_BYTES_PER_MS;
	uint64_t inodes = r->inodes == UINT64_MAX
				  ? LOOK_MS_MAX
				  : above(r->inodes, r->inodes_reserve + INODES_MARGIN) / FASTEST_INODES_PER_MS;
	uint64_t ms = bytes < inodes ? bytes : inodes;

	if (ms > LOOK_MS_MAX)
		return LOOK_MS_MAX;
	return ms < LOOK_MS_MIN ? LOOK_MS_MIN : ms;
}

static void on_look(struct sbx_timer *timer)
{
	struct sbx_provider *p = sbx_container_of(timer, struct sbx_provider, disk_timer);
	uint64_t now = sbx_clock_ms(), next = LOOK_MS_MAX;
	struct sbx_pbox *box;
	struct room r;
	bool go, is_low;

	if (look(p, &r)) {
		is_low = low(&r);
		next = next_look_ms(&r);
		sbx_lock(&p->lock);
		p->disk_low = is_low;
		p->disk_seen_ms = now;
		sbx_unlock(&p->lock);
		if (is_low) {
			box = at_fault(p, &r);
			if (box) {
				stop_box(box, &r);
				sbx_local_pbox_put(box);
				take_baseline(p, &r); /* what it did is not to be laid on others */
			} else {
				next = LOOK_MS_MAX / 10; /* the host's own doing: no need to hurry */
			}
			/* files of the host: their number is no box's fault */
			if (!box && r.inodes < r.inodes_reserve + INODES_MARGIN && now - p->disk_base_ms > BASE_MS)
				take_baseline(p, &r);
		} else if (above(r.bytes, r.bytes_reserve) < NEAR_BYTES ||
			   above(r.inodes, r.inodes_reserve) < INODES_NEAR) {
			if (p->disk_base_ms == 0 || now - p->disk_base_ms > BASE_MS)
				take_baseline(p, &r);
		} else {
			p->disk_base_ms = 0;
		}
	}
	sbx_lock(&p->lock);
	go = p->active > 0 && !p->closing;
	p->disk_timer_on = go;
	sbx_unlock(&p->lock);
	if (go)
		sbx_timer_set(p->loop, timer, next);
}

void sbx_disk_active(struct sbx_pbox *box, int n)
{
	struct sbx_provider *p = box->provider;
	bool start;

	sbx_lock(&p->lock);
	p->active += (unsigned int)n;
	start = p->active > 0 && !p->disk_timer_on && !p->closing;
	if (start)
		p->disk_timer_on = true;
	sbx_unlock(&p->lock);
	if (!start)
		return;
	p->disk_timer.fn = on_look; /* it is not set now: nobody reads it */
	sbx_timer_set(p->loop, &p->disk_timer, LOOK_MS_MIN);
}

void sbx_disk_done(struct sbx_provider *p)
{
	sbx_timer_cancel(p->loop, &p->disk_timer);
}
