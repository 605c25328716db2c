/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: BOX: status, ready, error, info.json, runtime, and the ways to run/, processes/ and workspace/.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "box.h"
#include "catalog.h"
#include "fs.h"
#include "limit.h"
#include "park.h"
#include "reply.h"
#include "slot.h"
#include "tree_monitor.h"
#include "tree_workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_STATUS = 2, LINE_READY, LINE_ERROR, LINE_INFO, LINE_RUNTIME, LINE_RUN, LINE_PROCESSES, LINE_WORKSPACE, LINE_ENV, LINE_USAGE, LINE_PORTS, LINE_MONITOR, LINE_LIMITS };

static int status_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_buf_printf(out, "%s\n", sbx_box_state_name(sbx_box_state(ref->box, NULL)));
}

static int status_write(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_err *err)
{
	return sbx_box_verb(ref->box, text, len, err);
}

static int error_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	sbx_box_error(ref->box, out);
	return out->failed ? -ENOMEM : 0;
}

static void error_reset(const struct sbx_ref *ref)
{
	sbx_box_error_clear(ref->box);
}

static int env_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_box_env_read(ref->box, out);
}

static int env_write(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_err *err)
{
	return sbx_box_env_write(ref->box, text, len, err);
}

static void env_reset(const struct sbx_ref *ref)
{
	sbx_box_env_write(ref->box, "", 0, NULL);
}

static int runtime_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	struct sbx_pbox_info info;

	(void)err;
	sbx_box_ops(ref->box)->box_info(sbx_box_pbox(ref->box), &info);
	return sbx_buf_printf(out, "%s\n", info.runtime);
}

static void json_text(struct sbx_buf *out, const char *key, const char *value)
{
	struct sbx_utf8 check = { 0 };

	sbx_buf_printf(out, "  \"%s\": \"", key);
	sbx_utf8_feed(&check, value, strlen(value));
	if (sbx_utf8_ok(&check))
		sbx_json_escape(out, value, strlen(value));
	sbx_buf_text(out, "\",\n");
}

static int info_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	char when[SBX_CLOCK_TEXT_MAX], n[SBX_TEXT_NUMBER_MAX];
	struct sbx_pbox_info info;
	size_t i;

	(void)err;
	sbx_box_ops(ref->box)->box_info(sbx_box_pbox(ref->box), &info);
	sbx_buf_text(out, "{\n");
	json_text(out, "name", ref->box->name);
	json_text(out, "provider", sbx_box_ops(ref->box)->name);
	json_text(out, "id", info.id);
	json_text(out, "status", sbx_box_state_name(sbx_box_state(ref->box, NULL)));
	json_text(out, "template", info.template);
	json_text(out, "runtime", info.runtime);
	json_text(out, "network", info.network);
	json_text(out, "workspace", info.workspace);
	json_text(out, "created", sbx_clock_format(info.created, when));
	sbx_buf_text(out, "  \"limits\": {\n");
	for (i = 0; i < SBX_LIMITS; i++) {
		uint64_t value = *sbx_limit_at(&info.limits, (enum sbx_limit)i);

		/* as the files of limits/ print it, null = no limit */
		sbx_buf_printf(out, "    \"%s\": %s%s\n", sbx_limit_kinds[i].name,
			       value == UINT64_MAX ? "null" : sbx_limit_kinds[i].print(value, n),
			       i + 1 < SBX_LIMITS ? "," : "");
	}
	sbx_buf_text(out, "  }\n}\n");
	return out->failed ? -ENOMEM : 0;
}

static int processes_node(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
			  struct stat *attr)
{
	return sbx_synth_node(ref, &sbx_processes_folder, file, &sbx_processes_folder,
			      sbx_ref_ino(ref, file->index), ret, attr);
}

static int run_node(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
		    struct stat *attr)
{
	struct sbx_ref own = { .box = ref->box, .slot = ref->box->run };

	return sbx_synth_node(&own, &sbx_run_folder, file, &sbx_run_folder, sbx_ref_ino(ref, file->index), ret,
			      attr);
}

static int workspace_node(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
			  struct stat *attr)
{
	(void)file;
	return sbx_workspace_node(ref->box, ret, attr);
}

/* ---- ready: open waits until the box runs ---- */

#define READY_TEXT "running\n"

struct opening {
	struct sbx_parked parked;
	struct sbx_node *node; /* counted */
	struct sbx_box *box;
	struct fuse_file_info fi;
	bool nonblock;
	bool not_yet;
};

static int ready_size(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_box_state(ref->box, NULL) == SBX_BOX_RUNNING ? sbx_buf_text(out, READY_TEXT) : 0;
}

static int ready_attempt(struct sbx_parked *parked)
{
	struct opening *o = (struct opening *)parked;

	parked->gate = &o->box->gate;
	parked->seen = sbx_gate_seen(parked->gate);
	switch (sbx_box_state(o->box, NULL)) {
	case SBX_BOX_RUNNING:
		return 0;
	case SBX_BOX_CREATING:
		o->not_yet = o->nonblock;
		return o->nonblock ? 0 : -EAGAIN;
	case SBX_BOX_PAUSED:
	case SBX_BOX_STOPPED:
	case SBX_BOX_FAILED:
		return -EIO;
	case SBX_BOX_DELETING:
	case SBX_BOX_GONE:
		return -ECANCELED;
	}
	return -EIO;
}

static void ready_finish(struct sbx_parked *parked, int r)
{
	struct opening *o = (struct opening *)parked;
	struct sbx_err why = SBX_ERR_INIT, reason = SBX_ERR_INIT;

	if (r == 0 && o->not_yet)
		r = -EAGAIN;
	if (r == -EIO) {
		enum sbx_box_state state = sbx_box_state(o->box, &why);

		sbx_err_set(&reason, EIO, "the sandbox is %s%s%s; write start to status", sbx_box_state_name(state),
			    why.code ? ": " : "", why.code ? why.text : "");
		if (state == SBX_BOX_FAILED) /* there the first reason stays */
			sbx_catalog_fail(sbx_fs.catalog, o->box->name, "open", "ready", &reason);
		else
			sbx_box_fail(o->box, "open", "ready", &reason);
	}
	if (r == -ECANCELED) {
		sbx_err_set(&reason, ECANCELED, "the sandbox was deleted while a reader waited");
		sbx_box_fail(o->box, "open", "ready", &reason);
	}
	if (r < 0) {
		sbx_reply_err(parked->req, r);
	} else {
		o->fi.direct_io = 1;
		o->fi.noflush = 1;
		fuse_reply_open(parked->req, &o->fi);
	}
	sbx_node_unref(o->node);
}

static void ready_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct opening *o;

	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		sbx_reply_err(req, -EACCES);
		return;
	}
	o = calloc(1, sizeof(*o));
	if (!o) {
		sbx_reply_err(req, -ENOMEM);
		return;
	}
	o->parked.req = req;
	o->parked.attempt = ready_attempt;
	o->parked.finish = ready_finish;
	o->node = sbx_node_ref(node);
	o->box = sbx_synth_of(node)->ref.box;
	o->fi = *fi;
	o->nonblock = (fi->flags & O_NONBLOCK) != 0;
	sbx_park_run(&o->parked);
}

static void ready_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi)
{
	size_t len = sizeof(READY_TEXT) - 1, skip = (uint64_t)off < len ? (size_t)off : len;

	(void)node;
	(void)fi;
	fuse_reply_buf(req, &READY_TEXT[skip], len - skip < size ? len - skip : size);
}

static const struct sbx_node_ops ready_ops = {
	.done = sbx_synth_done,
	.getattr = sbx_folder_op_getattr,
	.setattr = sbx_text_op_setattr,
	.open = ready_open,
	.read = ready_read,
};

static const struct sbx_file box_files[] = {
	{ .name = "status", .index = LINE_STATUS, .mode = 0644, .read = status_read, .write = status_write },
	{ .name = "ready", .index = LINE_READY, .mode = 0444, .read = ready_size, .ops = &ready_ops },
	{ .name = "error", .index = LINE_ERROR, .mode = 0444, .read = error_read, .reset = error_reset },
	{ .name = "env", .index = LINE_ENV, .mode = 0644, .flags = SBX_FILE_LINES, .read = env_read, .write = env_write, .reset = env_reset },
	{ .name = "info.json", .index = LINE_INFO, .mode = 0444, .read = info_read },
	{ .name = "runtime", .index = LINE_RUNTIME, .mode = 0444, .read = runtime_read },
	{ .name = "limits", .index = LINE_LIMITS, .folder = &sbx_limits_folder },
	{ .name = "usage", .index = LINE_USAGE, .mode = 0444, .read = sbx_usage_read },
	{ .name = "ports", .index = LINE_PORTS, .mode = 0444, .read = sbx_ports_read },
	{ .name = "monitor", .index = LINE_MONITOR, .folder = &sbx_monitor_folder },
	{ .name = "run", .index = LINE_RUN, .mode = 0755, .folder = &sbx_run_folder, .node = run_node },
	{ .name = "processes", .index = LINE_PROCESSES, .mode = 0755, .folder = &sbx_processes_folder, .node = processes_node },
	{ .name = "workspace", .index = LINE_WORKSPACE, .mode = 0755, .folder = &sbx_box_folder, .node = workspace_node },
};

const struct sbx_folder sbx_box_folder = {
	.files = box_files,
	.n = sizeof(box_files) / sizeof(box_files[0]),
	.mode = 0755,
	.links = 7,
};
