/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: nodes of result files, and opening them.  Knows: run.h, slot.h, code.h (who is saving), park.h.
 * A node belongs to one run for ever.  One handed out before its run started is bound once: to that run when it starts, or to the newest
 * when waiting for it is given up.
 * Threads: FUSE workers, and the loop for those that waited.
 */
#include "results_own.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/lock.h"
#include "box.h"
#include "code.h"
#include "fs.h"
#include "gate.h"
#include "park.h"
#include "reply.h"
#include "run.h"
#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define FINAL_S 1.0  /* attributes of a result that will not change */
#define HOLD_MS 1000 /* a save that was closed: its RELEASE is on the way */
#define GRACE_MS 50  /* a save that is being written */
#define LOOK_MS 10   /* is the writer gone? */
#define SELF_MS 5    /* before the reader's own descriptors are looked through: under load a RELEASE takes some */

static const struct sbx_node_ops result_ops;

static struct sbx_run *run_of(struct result_node *node)
{
	struct sbx_run *run;

	sbx_lock(&node->lock);
	run = sbx_run_get(node->run);
	sbx_unlock(&node->lock);
	return run;
}

/* does open() wait until the run is over? A background process may never end: its output is shown as it comes */
static bool waits(enum sbx_result which, const struct sbx_run *run)
{
	if (run->background)
		return which == SBX_RESULT_EXIT || which == SBX_RESULT_JSON;
	return which <= SBX_RESULT_JSON;
}

static uint64_t exit_len(struct sbx_run *run)
{
	struct sbx_buf text = SBX_BUF_INIT;
	uint64_t len = 0;

	if (sbx_run_exit_text(run, &text, NULL) == 0)
		len = text.len;
	sbx_buf_done(&text);
	return len;
}

/* what stat shows; 0 while a result is not final: the live size would make readers stop there */
static uint64_t length(struct sbx_run *run, enum sbx_result which, bool over)
{
	switch (which) {
	case SBX_RESULT_STDOUT:
		return over || run->background ? sbx_run_len(run, SBX_STDOUT) : 0;
	case SBX_RESULT_STDERR:
		return over || run->background ? sbx_run_len(run, SBX_STDERR) : 0;
	case SBX_RESULT_EXIT:
		return over ? exit_len(run) : 0;
	case SBX_RESULT_JSON:
		return over ? sbx_run_json_len(run) : 0;
	case SBX_RESULT_LOGS:
		return sbx_run_logs_len(run);
	case SBX_RESULT_STREAM:
		return 0;
	}
	return 0;
}

bool sbx_result_over(struct sbx_run *run)
{
	enum sbx_run_state state = sbx_run_state(run);

	return sbx_run_over(run) && !(run->background && state == SBX_RUN_NONE);
}

/* returns whether they are final */
static bool attributes(struct result_node *node, struct stat *attr)
{
	struct sbx_run *run = run_of(node);
	bool over = sbx_run_over(run);
	struct timespec when = sbx_run_time(run);

	sbx_attr_init(attr, node->node.id, S_IFREG | (waits(node->which, run) ? 0440 : 0444),
		      length(run, node->which, over));
	if (when.tv_sec)
		attr->st_mtim = attr->st_ctim = attr->st_atim = when;
	if (over) {
		sbx_lock(&node->lock);
		node->told = node->told || node->run == run;
		sbx_unlock(&node->lock);
	}
	over = sbx_result_over(run);
	sbx_run_put(run);
	return over;
}

static void op_done(struct sbx_node *node)
{
	struct result_node *result = result_of(node);

	sbx_run_put(result->run);
	sbx_ref_put(&result->ref);
	sbx_lock_done(&result->lock);
}

int sbx_result_node(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
		    struct stat *attr)
{
	enum sbx_result which = (enum sbx_result)file->index;
	struct result_node *fresh;
	struct sbx_node *node;
	struct sbx_run *run;
	uint64_t ino;

	if (ref->run) {
		run = sbx_run_get(ref->run);
	} else {
		enum sbx_saving saving = sbx_code_saving(ref->slot);

		/* what never waits does not guess either: only a save that is closed counts */
		if (saving == SBX_SAVING_CLOSING || (saving == SBX_SAVING_WRITING && which <= SBX_RESULT_JSON))
			run = sbx_slot_coming(ref->slot);
		else
			run = sbx_slot_newest(ref->slot);
	}
	ino = sbx_run_ino(run, which);
	node = sbx_node_find(NULL, ino);
	if (!node) {
		fresh = calloc(1, sizeof(*fresh));
		if (!fresh) {
			sbx_run_put(run);
			return -ENOMEM;
		}
		fresh->node.ops = &result_ops;
		fresh->ref = sbx_ref_get(&(struct sbx_ref){ .box = ref->box, .slot = ref->slot });
		fresh->which = which;
		sbx_lock_init(&fresh->lock);
		fresh->run = sbx_run_get(run);
		node = sbx_node_add(&fresh->node, NULL, ino);
		if (node != &fresh->node) {
			op_done(&fresh->node);
			free(fresh);
		}
	}
	sbx_run_put(run);
	attributes(result_of(node), attr);
	*ret = node;
	return 0;
}

static int alive(struct result_node *node)
{
	return sbx_box_deleted(node->ref.box) ? -ESTALE : 0;
}

static void op_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct stat attr;
	bool over;
	int r = alive(result_of(node));

	(void)fi;
	if (r < 0) {
		sbx_reply_err(req, r);
		return;
	}
	over = attributes(result_of(node), &attr);
	/* what is final need not be asked for again: else every small read of a big result asks first */
	fuse_reply_attr(req, &attr, over ? FINAL_S : 0);
}

static void op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	if (to_set & FUSE_SET_ATTR_SIZE) {
		sbx_reply_err(req, -EACCES);
		return;
	}
	if (((to_set & FUSE_SET_ATTR_UID) && attr->st_uid != sbx_fs.uid) ||
	    ((to_set & FUSE_SET_ATTR_GID) && attr->st_gid != sbx_fs.gid)) {
		sbx_reply_err(req, -EPERM);
		return;
	}
	op_getattr(req, node, fi);
}

/* ---- open ---- */

struct opening {
	struct sbx_parked parked;
	struct result_node *node; /* counted */
	struct fuse_file_info fi;
	struct sbx_run *run; /* counted: what it is pinned to, NULL = not known yet */
	bool looked_at_self;
	bool not_yet; /* the answer is EAGAIN, to the reader */
};

/* waiting for the coming run ends: the node shows the newest one from now on, under the inode number it has */
static void give_up(struct result_node *node, struct sbx_run *coming)
{
	struct sbx_run *run = sbx_slot_coming_release(node->ref.slot, coming), *old = NULL;

	if (run != coming)
		sbx_node_unhash(&node->node);
	sbx_lock(&node->lock);
	if (node->run == coming) {
		old = node->run;
		node->run = sbx_run_get(run);
		node->told = false;
	}
	sbx_unlock(&node->lock);
	sbx_run_put(old);
	sbx_run_put(run);
}

/* the run that the node belongs to; -EAGAIN: it is not known yet, and the gate to wait at is set */
static int bind_run(struct opening *o, struct sbx_run **ret)
{
	struct result_node *node = o->node;
	struct sbx_slot *slot = node->ref.slot;
	uint64_t spent, limit, seen;
	enum sbx_saving saving;
	struct sbx_run *run;

	for (;;) {
		seen = slot ? sbx_gate_seen(&slot->gate) : 0;
		run = run_of(node);
		if (!slot || sbx_run_state(run) != SBX_RUN_COMING) {
			*ret = run;
			return 0;
		}
		saving = sbx_code_saving(slot);
		spent = sbx_clock_ms() - o->parked.since_ms;
		limit = saving == SBX_SAVING_CLOSING ? HOLD_MS : GRACE_MS;
		/* before giving up, too: under load the first look may come late */
		if (saving != SBX_SAVING_NOT && spent >= SELF_MS && !o->looked_at_self) {
			o->looked_at_self = true;
			if (sbx_code_held_by(slot, o->parked.pid)) {
				sbx_run_put(run);
				return -EDEADLK;
			}
		}
		if (saving == SBX_SAVING_NOT || spent >= limit || sbx_slot_removed(slot)) {
			give_up(node, run);
			sbx_run_put(run);
			continue;
		}
		sbx_run_put(run);
		o->parked.gate = &slot->gate;
		o->parked.seen = seen;
		o->parked.again_ms = !o->looked_at_self ? SELF_MS : limit - spent < LOOK_MS ? limit - spent : LOOK_MS;
		return -EAGAIN;
	}
}

static int open_attempt(struct sbx_parked *parked)
{
	struct opening *o = (struct opening *)parked;
	struct result_node *node = o->node;
	enum sbx_run_state state;
	int r;

	if (sbx_box_deleted(node->ref.box))
		return -ECANCELED;
	if (!o->run) {
		r = bind_run(o, &o->run);
		if (r < 0)
			return r;
	}
	if (!waits(node->which, o->run))
		return 0;
	parked->gate = &o->run->gate;
	parked->seen = sbx_gate_seen(parked->gate);
	state = sbx_run_state(o->run);
	if (!sbx_result_over(o->run)) {
		o->not_yet = o->run->background && (o->fi.flags & O_NONBLOCK); /* grep -r: a server may never end */
		return o->not_yet ? 0 : -EAGAIN;
	}
	/* bytes are exact or it is an error; logs and result.json say what is known */
	if (node->which != SBX_RESULT_JSON && (state == SBX_RUN_LOST || state == SBX_RUN_REFUSED))
		return -EIO;
	return 0;
}

/*
 * The kernel still believes the size of before the end (0), and readers that go by it (sendfile, busybox cat) would take
 * nothing: storing the last byte sets the true size.
 */
static void tell_size(struct result_node *node, struct sbx_run *run)
{
	uint64_t len = length(run, node->which, true);
	struct fuse_bufvec vec = FUSE_BUFVEC_INIT(1);
	char last = '\n';
	bool told;

	sbx_lock(&node->lock);
	told = node->told;
	node->told = true;
	sbx_unlock(&node->lock);
	if (told || len == 0)
		return;
	if (node->which == SBX_RESULT_STDOUT &&
	    sbx_run_read(run, SBX_STDOUT, len - 1, &last, 1) != 1)
		return;
	if (node->which == SBX_RESULT_STDERR &&
	    sbx_run_read(run, SBX_STDERR, len - 1, &last, 1) != 1)
		return;
	vec.buf[0].mem = &last;
	fuse_lowlevel_notify_store(sbx_fs.se, sbx_node_id(&node->node), (off_t)len - 1, &vec, 0);
}

void sbx_result_fail(struct result_node *node, const char *op, int r)
{
	static const char *const names[] = {
		[SBX_RESULT_STDOUT] = "run/stdout",	 [SBX_RESULT_STDERR] = "run/stderr",
		[SBX_RESULT_EXIT] = "run/exit",		 [SBX_RESULT_JSON] = "run/result.json",
		[SBX_RESULT_LOGS] = "run/logs",		 [SBX_RESULT_STREAM] = "run/stream",
	};
	struct sbx_err err = SBX_ERR_INIT;

	if (r == -EDEADLK)
		sbx_err_set(&err, EDEADLK, "the reader itself holds the code open for writing: close it first");
	else if (r == -ECANCELED)
		sbx_err_set(&err, ECANCELED, "the sandbox was deleted while a reader waited");
	else if (r == -ETIMEDOUT)
		sbx_err_set(&err, ETIMEDOUT, "a reader waited for the run longer than max_wait of the configuration");
	else /* of a run: it is told in its `error` */
		return;
	sbx_box_fail(node->ref.box, op, names[node->which], &err);
}

static void open_finish(struct sbx_parked *parked, int r)
{
	struct opening *o = (struct opening *)parked;
	struct result_node *node = o->node;
	struct result_handle *handle = NULL;

	if (r == 0 && o->not_yet)
		r = -EAGAIN;
	if (r == 0) {
		handle = calloc(1, sizeof(*handle));
		if (!handle)
			r = -ENOMEM;
	}
	if (r < 0) {
		sbx_result_fail(node, "open", r);
		sbx_reply_err(parked->req, r);
	} else {
		handle->run = sbx_run_get(o->run);
		sbx_lock_init(&handle->lock);
		sbx_open_add(&handle->open, sbx_result_handle_drop);
		o->fi.fh = (uint64_t)(uintptr_t)handle;
		if (waits(node->which, o->run)) {
			tell_size(node, o->run);
			o->fi.keep_cache = 1; /* final: it will never change */
		} else {
			o->fi.direct_io = 1;
		}
		o->fi.noflush = 1;
		if (fuse_reply_open(parked->req, &o->fi) == -ENOENT)
			sbx_result_handle_free(handle);
	}
	sbx_run_put(o->run);
	sbx_node_unref(&node->node);
}

static void op_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct opening *o;
	int r = alive(result_of(node));

	if (r == 0 && (fi->flags & O_ACCMODE) != O_RDONLY)
		r = -EACCES; /* root passes the mode bits */
	o = r == 0 ? calloc(1, sizeof(*o)) : NULL;
	if (!o) {
		sbx_reply_err(req, r < 0 ? r : -ENOMEM);
		return;
	}
	o->parked.req = req;
	o->parked.attempt = open_attempt;
	o->parked.finish = open_finish;
	o->node = result_of(sbx_node_ref(node));
	o->fi = *fi;
	sbx_park_run(&o->parked);
}

static struct sbx_box *op_box(const struct sbx_node *node)
{
	return sbx_container_of(node, const struct result_node, node)->ref.box;
}

static const struct sbx_node_ops result_ops = {
	.box = op_box,
	.open_is_use = true,
	.done = op_done,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.open = op_open,
	.read = sbx_result_read,
	.poll = sbx_result_poll,
	.release = sbx_result_release,
};
