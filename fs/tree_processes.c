/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: BOX/processes: what runs and ran, one folder each under its ID; background processes also under a name of their own;
 * `new`, which starts one.  Any thread.
 */
#include "synth.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "box.h"
#include "fs.h"
#include "open.h"
#include "reply.h"
#include "results.h"
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND_BYTES (1024u * 1024) /* of one write to `new`; sbx_run_command says what is too long */

/* behind those of enum sbx_result, in the run's block */
enum { LINE_COMMAND = 16, LINE_STATUS, LINE_PID, LINE_STARTED, LINE_DURATION, LINE_ERROR, LINE_SIGNAL, LINE_FOLDER };

/* in the box's block, behind those of tree_box.c */
enum { LINE_NEW = 64, LINE_LAST };

static int status_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_run_status_text(ref->run, out);
}

static int error_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_run_error_text(ref->run, out);
}

static int command_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	if (!ref->run->background)
		return sbx_buf_printf(out, "run/%s\n", ref->run->name ? ref->run->name : "");
	sbx_lock(&ref->run->lock);
	if (ref->run->code)
		sbx_buf_printf(out, "%s\n", ref->run->code);
	sbx_unlock(&ref->run->lock);
	return out->failed ? -ENOMEM : 0;
}

static int command_write(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_err *err)
{
	if (!ref->run->background)
		return sbx_err_set(err, EACCES, "this is a run: write code into run/ to start another");
	return sbx_run_command(ref->run, text, len, err);
}

/* nothing to read, but cp -r over the tree must not stumble over it */
static int signal_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)out;
	(void)err;
	return 0;
}

static int signal_write(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_err *err)
{
	return sbx_run_write_signal(ref->run, text, len, err);
}

static int pid_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	int64_t pid;

	(void)err;
	sbx_lock(&ref->run->lock);
	pid = ref->run->pid;
	sbx_unlock(&ref->run->lock);
	return pid ? sbx_buf_printf(out, "%lld\n", (long long)pid) : 0;
}

static int started_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	char when[SBX_CLOCK_TEXT_MAX];
	struct timespec started;

	(void)err;
	sbx_lock(&ref->run->lock);
	started = ref->run->started;
	sbx_unlock(&ref->run->lock);
	return started.tv_sec ? sbx_buf_printf(out, "%s\n", sbx_clock_format(started, when)) : 0;
}

static int duration_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	uint64_t from, to;

	(void)err;
	sbx_lock(&ref->run->lock);
	from = ref->run->started_ms;
	to = ref->run->ended_ms;
	sbx_unlock(&ref->run->lock);
	if (from == 0)
		return 0;
	return sbx_buf_printf(out, "%llu\n", (unsigned long long)((to ? to : sbx_clock_ms()) - from));
}

/* in every state */
#define PROCESS_FILES                                                                              \
	{ .name = "duration_ms", .index = LINE_DURATION, .mode = 0444, .read = duration_read },    \
	{ .name = "error", .index = LINE_ERROR, .mode = 0444, .read = error_read },                \
	{ .name = "logs", .index = SBX_RESULT_LOGS, .mode = 0444, .node = sbx_result_node },       \
	{ .name = "pid", .index = LINE_PID, .mode = 0444, .read = pid_read },                      \
	{ .name = "signal", .index = LINE_SIGNAL, .mode = 0644, .read = signal_read,              \
	  .write = signal_write },                                                                \
	{ .name = "started", .index = LINE_STARTED, .mode = 0444, .read = started_read },          \
	{ .name = "status", .index = LINE_STATUS, .mode = 0444, .read = status_read }

static const struct sbx_file run_files[] = {
	PROCESS_FILES,
	{ .name = "command", .index = LINE_COMMAND, .mode = 0444, .read = command_read },
	{ .name = "exit", .index = SBX_RESULT_EXIT, .mode = 0440, .node = sbx_result_node },
	{ .name = "result.json", .index = SBX_RESULT_JSON, .mode = 0440, .node = sbx_result_node },
	{ .name = "stderr", .index = SBX_RESULT_STDERR, .mode = 0440, .node = sbx_result_node },
	{ .name = "stdout", .index = SBX_RESULT_STDOUT, .mode = 0440, .node = sbx_result_node },
	{ .name = "stream", .index = SBX_RESULT_STREAM, .mode = 0444, .node = sbx_result_node },
};

/*
 * Of a background process those that wait are found by name, but listed only when it is over: cp -r or rg over the tree must
 * not hang on a server.
 */
static const struct sbx_file background_files[] = {
	PROCESS_FILES,
	{ .name = "command", .index = LINE_COMMAND, .mode = 0644, .read = command_read, .write = command_write },
	{ .name = "exit", .index = SBX_RESULT_EXIT, .mode = 0440, .flags = SBX_FILE_HIDDEN, .node = sbx_result_node },
	{ .name = "result.json", .index = SBX_RESULT_JSON, .mode = 0440, .flags = SBX_FILE_HIDDEN, .node = sbx_result_node },
	{ .name = "stderr", .index = SBX_RESULT_STDERR, .mode = 0444, .node = sbx_result_node },
	{ .name = "stdout", .index = SBX_RESULT_STDOUT, .mode = 0444, .node = sbx_result_node },
	{ .name = "stream", .index = SBX_RESULT_STREAM, .mode = 0444, .flags = SBX_FILE_HIDDEN, .node = sbx_result_node },
};

static int background_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	enum sbx_run_state state = sbx_run_state(ref->run);
	size_t i;
	int r = 0;

	if (state == SBX_RUN_NONE || !sbx_run_over(ref->run))
		return 0;
	for (i = 0; r == 0 && i < sizeof(background_files) / sizeof(background_files[0]); i++) {
		const struct sbx_file *file = &background_files[i];

		if (file->flags & SBX_FILE_HIDDEN)
			r = sbx_names_add(names, file->name, sbx_ref_ino(ref, file->index), S_IFREG);
	}
	return r;
}

static const struct sbx_folder run_folder = {
	.files = run_files,
	.n = sizeof(run_files) / sizeof(run_files[0]),
	.mode = 0555,
};

static const struct sbx_folder background_folder = {
	.files = background_files,
	.n = sizeof(background_files) / sizeof(background_files[0]),
	.mode = 0555,
	.list = background_list,
};

/* ---- new: a command line is written, its process starts; reading the same handle gives the ID ---- */

struct new_handle {
	struct sbx_open open;
	struct sbx_lock lock;
	uint64_t id; /* guarded by lock: 0 = nothing was written yet */
};

static void new_drop(struct sbx_open *open)
{
	struct new_handle *handle = sbx_container_of(open, struct new_handle, open);

	sbx_open_remove(&handle->open);
	sbx_lock_done(&handle->lock);
	free(handle);
}

static void new_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct new_handle *handle = calloc(1, sizeof(*handle));

	(void)node;
	if (!handle) {
		sbx_reply_err(req, -ENOMEM);
		return;
	}
	sbx_lock_init(&handle->lock);
	sbx_open_add(&handle->open, new_drop);
	fi->fh = (uint64_t)(uintptr_t)handle;
	fi->direct_io = 1;
	fi->noflush = 1;
	if (fuse_reply_open(req, fi) == -ENOENT)
		new_drop(&handle->open);
}

static struct new_handle *new_of(struct fuse_file_info *fi)
{
	return (struct new_handle *)(uintptr_t)fi->fh;
}

/* the offset does not count: after a write the handle stands behind it, and `exec 3<>new; echo ... >&3; read id <&3` must work */
static void new_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct new_handle *handle = new_of(fi);
	char text[24] = "";
	uint64_t id;
	int n = 0;

	(void)node;
	(void)off;
	sbx_lock(&handle->lock);
	id = handle->id;
	handle->id = 0; /* told once: then the end */
	sbx_unlock(&handle->lock);
	if (id)
		n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)id);
	fuse_reply_buf(req, text, (size_t)n < size ? (size_t)n : size);
}

static void new_write(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		      struct fuse_file_info *fi)
{
	struct sbx_box *box = sbx_synth_of(node)->ref.box;
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf text = SBX_BUF_INIT;
	struct sbx_run *run = NULL;
	size_t len;
	int r = sbx_buf_flatten(&text, in, COMMAND_BYTES);

	(void)off;
	len = text.len;
	if (r == 0 && sbx_box_deleted(box))
		r = -ESTALE;
	if (r == 0)
		r = sbx_box_process_new(box, NULL, &run, &err);
	if (r == 0) {
		r = sbx_run_command(run, sbx_buf_str(&text), len, &err);
		if (r < 0)
			sbx_box_forget_run(box, run);
	}
	if (r == 0) {
		sbx_lock(&new_of(fi)->lock);
		new_of(fi)->id = sbx_run_id(run);
		sbx_unlock(&new_of(fi)->lock);
		fuse_reply_write(req, len);
	} else if (err.code) {
		sbx_fail(req, box, "write", "processes/new", &err, r);
	} else {
		sbx_reply_err(req, r);
	}
	sbx_run_put(run);
	sbx_buf_done(&text);
}

static void new_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	(void)node;
	new_drop(&new_of(fi)->open);
	sbx_reply_err(req, 0);
}

static const struct sbx_node_ops new_ops = {
	.box = sbx_synth_box,
	.done = sbx_synth_done,
	.getattr = sbx_folder_op_getattr,
	.setattr = sbx_folder_op_setattr, /* a shell's > truncates: nothing is there to cut */
	.open = new_open,
	.read = new_read,
	.write_buf = new_write,
	.release = new_release,
};

/* ---- the folder ---- */

static int last_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	struct sbx_run *run = sbx_box_last_process(ref->box);
	int r;

	(void)err;
	if (!run)
		return -ENOENT;
	r = sbx_buf_printf(out, "%llu", (unsigned long long)sbx_run_id(run));
	sbx_run_put(run);
	return r;
}

static const struct sbx_file processes_files[] = {
	{ .name = "new", .index = LINE_NEW, .mode = 0644, .ops = &new_ops },
	{ .name = "last", .index = LINE_LAST, .mode = 0777, .flags = SBX_FILE_LINK | SBX_FILE_HIDDEN, .read = last_read },
};

/* by ID or by its own name; NULL: no such */
static struct sbx_run *find(struct sbx_box *box, const char *name)
{
	unsigned long long id;
	char again[24];

	if (strspn(name, "0123456789") != strlen(name))
		return sbx_box_find_label(box, name);
	id = strtoull(name, NULL, 10);
	snprintf(again, sizeof(again), "%llu", id);
	return strcmp(again, name) == 0 ? sbx_box_find_run(box, id) : NULL; /* one spelling per ID */
}

static int process_node(struct sbx_box *box, struct sbx_run *run, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref ref = { .box = box, .run = run };

	return sbx_synth_node(&ref, &sbx_processes_folder, NULL, run->background ? &background_folder : &run_folder,
			      sbx_run_ino(run, LINE_FOLDER), ret, attr);
}

static int processes_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_run *run = find(ref->box, name);
	int r;

	if (!run)
		return -ENOENT;
	r = process_node(ref->box, run, ret, attr);
	sbx_run_put(run);
	return r;
}

static int processes_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct sbx_list *p;
	char name[24];
	int r = 0;

	struct sbx_run *last = sbx_box_last_process(ref->box);

	if (last)
		r = sbx_names_add(names, "last", sbx_ref_ino(ref, LINE_LAST), S_IFLNK);
	sbx_run_put(last);
	sbx_lock(&ref->box->lock);
	sbx_list_for_each (p, &ref->box->runs) {
		struct sbx_run *run = sbx_container_of(p, struct sbx_run, link);

		snprintf(name, sizeof(name), "%llu", (unsigned long long)sbx_run_id(run));
		if (r == 0)
			r = sbx_names_add(names, run->label ? run->label : name, sbx_run_ino(run, LINE_FOLDER), S_IFDIR);
	}
	sbx_unlock(&ref->box->lock);
	return r;
}

static int processes_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err)
{
	struct sbx_run *run = find(ref->box, name);

	(void)err;
	if (!run)
		return -ENOENT;
	sbx_box_forget_run(ref->box, run);
	sbx_run_put(run);
	return 0;
}

static int processes_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
			   struct sbx_err *err)
{
	struct sbx_run *run;
	int r = sbx_box_process_new(ref->box, name, &run, err);

	if (r < 0)
		return r;
	r = process_node(ref->box, run, ret, attr);
	sbx_run_put(run);
	return r;
}

const struct sbx_folder sbx_processes_folder = {
	.files = processes_files,
	.n = sizeof(processes_files) / sizeof(processes_files[0]),
	.mode = 0755,
	.mkdir = processes_mkdir,
	.lookup = processes_lookup,
	.list = processes_list,
	.rmdir = processes_rmdir,
};
