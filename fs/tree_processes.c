/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: BOX/processes: what runs and ran, one folder each under its ID.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "box.h"
#include "results.h"
#include "run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* behind those of enum sbx_result, in the run's block */
enum { LINE_COMMAND = 16, LINE_STATUS, LINE_PID, LINE_STARTED, LINE_DURATION, LINE_ERROR, LINE_FOLDER };

static const struct sbx_folder process_folder;

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
	return sbx_buf_printf(out, "run/%s\n", ref->run->name ? ref->run->name : "");
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

static const struct sbx_file process_files[] = {
	{ .name = "command", .index = LINE_COMMAND, .mode = 0444, .read = command_read },
	{ .name = "duration_ms", .index = LINE_DURATION, .mode = 0444, .read = duration_read },
	{ .name = "error", .index = LINE_ERROR, .mode = 0444, .read = error_read },
	{ .name = "exit", .index = SBX_RESULT_EXIT, .mode = 0440, .node = sbx_result_node },
	{ .name = "logs", .index = SBX_RESULT_LOGS, .mode = 0444, .node = sbx_result_node },
	{ .name = "pid", .index = LINE_PID, .mode = 0444, .read = pid_read },
	{ .name = "result.json", .index = SBX_RESULT_JSON, .mode = 0440, .node = sbx_result_node },
	{ .name = "started", .index = LINE_STARTED, .mode = 0444, .read = started_read },
	{ .name = "status", .index = LINE_STATUS, .mode = 0444, .read = status_read },
	{ .name = "stderr", .index = SBX_RESULT_STDERR, .mode = 0440, .node = sbx_result_node },
	{ .name = "stdout", .index = SBX_RESULT_STDOUT, .mode = 0440, .node = sbx_result_node },
	{ .name = "stream", .index = SBX_RESULT_STREAM, .mode = 0444, .node = sbx_result_node },
};

static const struct sbx_folder process_folder = {
	.files = process_files,
	.n = sizeof(process_files) / sizeof(process_files[0]),
	.mode = 0555,
};

static int processes_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	char again[24];
	struct sbx_ref own = { ref->box, NULL, NULL };
	unsigned long long id = strtoull(name, NULL, 10);
	int r;

	snprintf(again, sizeof(again), "%llu", id);
	if (id == 0 || strcmp(again, name) != 0) /* one spelling per ID */
		return -ENOENT;
	own.run = sbx_box_find_run(ref->box, id);
	if (!own.run)
		return -ENOENT;
	r = sbx_synth_node(&own, &sbx_processes_folder, NULL, &process_folder, sbx_run_ino(own.run, LINE_FOLDER), ret,
			   attr);
	sbx_run_put(own.run);
	return r;
}

static int processes_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct sbx_list *p;
	char name[24];
	int r = 0;

	sbx_lock(&ref->box->lock);
	sbx_list_for_each (p, &ref->box->runs) {
		struct sbx_run *run = sbx_container_of(p, struct sbx_run, link);

		snprintf(name, sizeof(name), "%llu", (unsigned long long)sbx_run_id(run));
		if (r == 0)
			r = sbx_names_add(names, name, sbx_run_ino(run, LINE_FOLDER), S_IFDIR);
	}
	sbx_unlock(&ref->box->lock);
	return r;
}

static int processes_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err)
{
	struct sbx_run *run = sbx_box_find_run(ref->box, strtoull(name, NULL, 10));

	(void)err;
	if (!run)
		return -ENOENT;
	sbx_box_forget_run(ref->box, run);
	sbx_run_put(run);
	return 0;
}

const struct sbx_folder sbx_processes_folder = {
	.files = NULL,
	.n = 0,
	.mode = 0555,
	.lookup = processes_lookup,
	.list = processes_list,
	.rmdir = processes_rmdir,
};
