/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the container of a box: what it is (have), what it shall be (want), and the one next step
 * from here to there.  At most one runtime program works on a box at a time.
 * Threads: want, kick any; all else the loop.
 */
#include "local/internal.h"

#include "base/spawn.h"
#include "init/protocol.h"
#include "local/bundle.h"
#include "local/fill.h"
#include "local/network.h"
#include "local/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_TIMEOUT_MS 20000

/* ---- telling ---- */

void sbx_container_tell(struct sbx_pbox *box, enum sbx_box_state state, const struct sbx_err *why)
{
	bool put;

	sbx_lock(&box->lock);
	put = box->put;
	sbx_unlock(&box->lock);
	if (box->told_any && (box->told == SBX_BOX_GONE || (box->told == state && !why)))
		return;
	box->told_any = true;
	box->told = state;
	if (!put && box->events && box->events->state)
		box->events->state(box->data, state, why);
}

void sbx_container_progress(struct sbx_pbox *box, const char *text)
{
	bool put;

	sbx_lock(&box->lock);
	put = box->put;
	sbx_unlock(&box->lock);
	if (!put && box->events && box->events->progress)
		box->events->progress(box->data, text);
}

void sbx_container_set_have(struct sbx_pbox *box, enum box_have have)
{
	sbx_lock(&box->lock);
	box->have = have;
	sbx_unlock(&box->lock);
}

static enum box_want get_want(struct sbx_pbox *box)
{
	enum box_want want;

	sbx_lock(&box->lock);
	want = box->want;
	sbx_unlock(&box->lock);
	return want;
}

/* the goal is not reachable, or somebody else ended it: do not try again by ourselves */
void sbx_container_give_up(struct sbx_pbox *box)
{
	sbx_lock(&box->lock);
	if (box->want != WANT_DELETED)
		box->want = WANT_DOWN;
	sbx_unlock(&box->lock);
}

void sbx_container_fail(struct sbx_pbox *box, const struct sbx_err *why)
{
	sbx_lock(&box->lock);
	box->why = *why;
	sbx_unlock(&box->lock);
	sbx_container_give_up(box);
	sbx_container_tell(box, SBX_BOX_FAILED, why);
}

/* ---- the runtime's commands ---- */

static void on_hello_timeout(struct sbx_timer *timer)
{
	struct sbx_pbox *box = sbx_container_of(timer, struct sbx_pbox, hello_timer);
	struct sbx_err err = SBX_ERR_INIT;

	if (box->have != HAVE_STARTING || box->oci_busy)
		return;
	sbx_err_set(&err, ETIMEDOUT, "the container was started, but its first process does not answer");
	sbx_container_start_failed(box, &err);
}

static void run_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (sbx_spawn_check(box->provider->runtime.path, result, &err) == 0) {
		if (!box->hello)
			sbx_timer_set(box->provider->loop, &box->hello_timer, HELLO_TIMEOUT_MS);
		return;
	}
	sbx_err_wrap(&err, -err.code, "cannot start the container");
	sbx_runtime_forget(box->provider->state); /* look again for one that works, at the next mount */
	sbx_container_start_failed(box, &err);
}

static int bundle(struct sbx_pbox *box, const char *net_tool, char dir[PATH_MAX + 16], struct sbx_err *err)
{
	struct sbx_provider *p = box->provider;
	char workspace[PATH_MAX + 128], cgroup[128];
	struct sbx_limits limits;
	int r;
	struct sbx_bundle b = {
		.dir = dir, .hostname = box->record.name, .workspace = workspace,
		.init_path = p->state->init_path, .rootfs = box->record.rootfs,
		.network = box->record.network, .net_tool = net_tool, .limits = &limits,
		.with_limits = p->runtime.limits, .root = p->state->root, .id_base = box->record.id_base,
	};

	sbx_lock(&box->lock);
	limits = box->record.limits;
	sbx_unlock(&box->lock);
	r = sbx_local_workspace_fd(box, err); /* mounted, if it is a volume */
	if (r < 0)
		return r;
	snprintf(workspace, sizeof(workspace), "%s/boxes/%s/%sworkspace", p->state->dir, box->record.name,
		 box->record.volume ? "disk/" : "");
	b.cgroups_path = sbx_runtime_cgroup(&p->runtime, box->container, cgroup, sizeof(cgroup));
	return sbx_bundle_make(&b, err);
}

static void bundle_dir(struct sbx_pbox *box, char dir[PATH_MAX + 16])
{
	snprintf(dir, PATH_MAX + 16, "%s/%s", box->provider->state->run_dir, box->record.id);
}

static int start(struct sbx_pbox *box, struct sbx_err *err)
{
	char dir[PATH_MAX + 16];
	const char *net_tool = NULL;
	const char *const words[] = { "run", "--detach", "--preserve-fds", "1", "--bundle", dir,
				      box->container, NULL };
	struct conn *conn = calloc(1, sizeof(*conn));
	int pair[2], r = 0;

	if (!conn)
		return sbx_err_set(err, ENOMEM, "no memory to start the container");
	bundle_dir(box, dir);
	if (box->record.network == SBX_NET_NAT)
		r = sbx_net_prepare(box, &net_tool, err);
	if (r == 0)
		r = bundle(box, net_tool, dir, err);
	if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		r = sbx_err_sys(err, errno, "cannot make a socket for the container");
	if (r < 0) {
		free(conn);
		return r;
	}
	conn->fd = pair[0];
	conn->refs = 1;
	sbx_lock(&box->lock);
	box->conn = conn;
	box->have = HAVE_STARTING;
	sbx_unlock(&box->lock);
	box->hello = box->failed = box->unasked = false;
	box->conn_watch.fn = sbx_conn_event;
	box->conn_watch.fd = conn->fd;
	box->hello_timer.fn = on_hello_timeout;
	r = sbx_watch_add(box->provider->loop, &box->conn_watch, EPOLLIN);
	if (r < 0)
		sbx_err_sys(err, -r, "cannot watch the container");
	else
		r = sbx_oci_command(box, words, pair[1], run_done, err);
	close(pair[1]);
	return r;
}

static void pause_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (box->have != HAVE_UP)
		return;
	if (sbx_spawn_check(box->provider->runtime.path, result, &err) == 0) {
		sbx_container_set_have(box, HAVE_PAUSED);
		sbx_container_tell(box, SBX_BOX_PAUSED, NULL);
		return;
	}
	sbx_err_wrap(&err, -err.code, "cannot pause");
	sbx_lock(&box->lock);
	if (box->want == WANT_PAUSED)
		box->want = WANT_UP;
	sbx_unlock(&box->lock);
	sbx_container_tell(box, SBX_BOX_RUNNING, &err);
}

static void resume_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (box->have != HAVE_PAUSED)
		return;
	if (sbx_spawn_check(box->provider->runtime.path, result, &err) == 0) {
		sbx_container_set_have(box, HAVE_UP);
		sbx_container_tell(box, SBX_BOX_RUNNING, NULL);
		return;
	}
	sbx_err_wrap(&err, -err.code, "cannot resume");
	sbx_lock(&box->lock);
	if (box->want == WANT_UP)
		box->want = WANT_PAUSED;
	sbx_unlock(&box->lock);
	sbx_container_tell(box, SBX_BOX_PAUSED, &err);
}

/* the kill is pending already; this only lets it through (cgroup v1 keeps frozen processes alive) */
static void thaw_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	(void)box;
	(void)result;
}

static void delete_done(struct sbx_pbox *box, const struct sbx_spawn_result *result)
{
	char dir[PATH_MAX + 16];
	struct sbx_err why;

	(void)result; /* "does not exist" is as good; what really stays is found at the next open */
	bundle_dir(box, dir);
	sbx_bundle_remove(dir);
	sbx_lock(&box->lock);
	box->have = HAVE_NONE;
	why = box->why;
	sbx_unlock(&box->lock);
	if (get_want(box) == WANT_DELETED)
		return;
	if (box->failed)
		sbx_container_tell(box, SBX_BOX_FAILED, &why);
	else
		sbx_container_tell(box, SBX_BOX_STOPPED, box->unasked ? &why : NULL);
}

/* ---- the one next step ---- */

static void step_none(struct sbx_pbox *box, enum box_want want)
{
	struct sbx_err err = SBX_ERR_INIT;
	enum runtime_state state;
	bool waits;

	if (sbx_fill_step(box, want == WANT_UP || want == WANT_PAUSED))
		return;
	if (want == WANT_DELETED) {
		box->oci_busy = true; /* nothing more is to be done with it */
		sbx_container_sweep(box);
		return;
	}
	if (want == WANT_DOWN) {
		if (box->told_any && box->told != SBX_BOX_FAILED)
			sbx_container_tell(box, SBX_BOX_STOPPED, NULL);
		sbx_lock(&box->lock);
		want = box->put ? WANT_DELETED : WANT_DOWN; /* nobody has it any more */
		sbx_unlock(&box->lock);
		if (want == WANT_DELETED)
			sbx_pbox_unlist(box);
		return;
	}
	state = sbx_runtime_state(box->provider, &err);
	if (state == RUNTIME_FAILED) {
		sbx_container_fail(box, &err);
		return;
	}
	sbx_container_tell(box, SBX_BOX_CREATING, NULL);
	if (state != RUNTIME_READY) {
		sbx_container_progress(box, "looking for an OCI runtime that works");
		return; /* sbx_runtime_state() kicks all boxes when it knows */
	}
	waits = box->oci_waits;
	if (!sbx_oci_slot(box)) {
		if (!waits)
			sbx_container_progress(box, "waiting for other containers to start");
		return;
	}
	sbx_container_progress(box, "starting the container");
	if (start(box, &err) < 0)
		sbx_container_start_failed(box, &err);
}

static void simple(struct sbx_pbox *box, const char *verb,
		   void (*done)(struct sbx_pbox *box, const struct sbx_spawn_result *result))
{
	const char *const words[] = { verb, box->container, NULL };
	struct sbx_spawn_result failed = { .status = 127 << 8 };
	struct sbx_err err = SBX_ERR_INIT;

	if (sbx_oci_command(box, words, -1, done, &err) == 0)
		return;
	snprintf(failed.text, sizeof(failed.text), "%s", err.text);
	done(box, &failed);
}

void sbx_container_step(struct sbx_pbox *box)
{
	static const char *const del[] = { "delete", "--force", NULL, NULL };
	const char *words[4];
	struct sbx_spawn_result failed = { .status = 127 << 8 };
	enum box_want want = get_want(box);

	if (box->oci_busy || sbx_limits_step(box))
		return;
	switch (box->have) {
	case HAVE_NONE:
		step_none(box, want);
		break;
	case HAVE_STARTING:
		if (want == WANT_DOWN || want == WANT_DELETED) {
			sbx_conn_drop(box);
			sbx_container_dying(box); /* its init may be known: while the network was set up */
			sbx_container_step(box);
		}
		break;
	case HAVE_UP:
		if (want == WANT_PAUSED) {
			if (sbx_oci_slot(box))
				simple(box, "pause", pause_done);
		} else if (want != WANT_UP) {
			sbx_conn_drop(box);
			sbx_container_dying(box);
			sbx_container_step(box);
		}
		break;
	case HAVE_PAUSED:
		if (want == WANT_PAUSED || !sbx_oci_slot(box))
			break;
		if (want == WANT_UP) {
			simple(box, "resume", resume_done);
		} else {
			sbx_conn_drop(box);
			sbx_container_dying(box);
			simple(box, "resume", thaw_done);
		}
		break;
	case HAVE_DYING:
		break;
	case HAVE_DEAD:
		/* of its network nothing may be left either, see network.c */
		if (sbx_net_busy(box) || !sbx_oci_slot(box))
			break;
		memcpy(words, del, sizeof(words));
		words[2] = box->container;
		if (sbx_oci_command(box, words, -1, delete_done, NULL) < 0)
			delete_done(box, &failed);
		break;
	}
}

static void on_kick(struct sbx_task *task)
{
	struct sbx_pbox *box = sbx_container_of(task, struct sbx_pbox, task);

	sbx_lock(&box->lock);
	box->task_posted = false;
	sbx_unlock(&box->lock);
	if (get_want(box) == WANT_DELETED)
		sbx_container_tell(box, SBX_BOX_DELETING, NULL);
	sbx_container_step(box);
	sbx_local_pbox_put(box);
}

void sbx_container_kick(struct sbx_pbox *box)
{
	bool post;

	sbx_lock(&box->lock);
	post = !box->task_posted;
	if (post) {
		box->task_posted = true;
		box->refs++;
	}
	sbx_unlock(&box->lock);
	if (!post)
		return;
	box->task.fn = on_kick; /* it is not queued now: nobody reads it */
	sbx_loop_post(box->provider->loop, &box->task);
}

void sbx_container_want(struct sbx_pbox *box, enum box_want want)
{
	sbx_lock(&box->lock);
	if (box->want != WANT_DELETED)
		box->want = want;
	sbx_unlock(&box->lock);
	sbx_container_kick(box);
}
