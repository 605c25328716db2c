/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: BOX/run and BOX/run/SLOT: settings, results, code and scratch files, slots.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "box.h"
#include "code.h"
#include "fs.h"
#include "language.h"
#include "reply.h"
#include "results.h"
#include "run.h"
#include "slot.h"
#include "tree_scratch.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

/* numbers of the lines; results have those of enum sbx_result, in the run's block */
enum {
	LINE_ARGS = 16,
	LINE_CWD,
	LINE_ENV,
	LINE_STDIN,
	LINE_TIMEOUT,
	LINE_LANGUAGE,
	LINE_STATUS,
	LINE_ERROR,
	LINE_PROCESS,
	LINE_FOLDER,
};

#define SETTING(lower, upper)                                                                      \
	static int lower##_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err) \
	{                                                                                          \
		(void)err;                                                                         \
		return sbx_slot_read(ref->slot, SBX_SET_##upper, out);                             \
	}                                                                                          \
	static int lower##_write(const struct sbx_ref *ref, const char *text, size_t len,          \
				 struct sbx_err *err)                                              \
	{                                                                                          \
		return sbx_slot_write(ref->slot, SBX_SET_##upper, text, len, err);                 \
	}                                                                                          \
	static void lower##_reset(const struct sbx_ref *ref)                                       \
	{                                                                                          \
		sbx_slot_reset(ref->slot, SBX_SET_##upper);                                        \
	}

SETTING(args, ARGS)
SETTING(cwd, CWD)
SETTING(env, ENV)
SETTING(stdin, STDIN)
SETTING(timeout, TIMEOUT)
SETTING(language, LANGUAGE)

static int status_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	struct sbx_run *run;
	int r;

	(void)err;
	if (sbx_code_saving(ref->slot) == SBX_SAVING_CLOSING) /* closed: its run starts in a moment */
		return sbx_buf_text(out, "pending\n");
	run = sbx_slot_newest(ref->slot);
	r = sbx_run_status_text(run, out);
	sbx_run_put(run);
	return r;
}

static int error_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	struct sbx_run *run = sbx_slot_newest(ref->slot);
	int r = sbx_run_error_text(run, out);

	(void)err;
	sbx_run_put(run);
	return r;
}

/* the ID of the run that the folder shows; 0: there was none yet, or it was taken out of processes/ */
static uint64_t shown_id(const struct sbx_ref *ref)
{
	struct sbx_run *run = sbx_slot_newest(ref->slot), *listed;
	uint64_t id = sbx_run_id(run);

	sbx_run_put(run);
	listed = id ? sbx_box_find_run(ref->box, id) : NULL;
	sbx_run_put(listed);
	return listed ? id : 0;
}

static int process_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	uint64_t id = shown_id(ref);

	(void)err;
	if (id == 0)
		return -ENOENT;
	return sbx_buf_printf(out, "%s../processes/%llu", ref->slot->name[0] ? "../" : "",
			      (unsigned long long)id);
}

static const struct sbx_file run_files[] = {
	{ .name = "args", .index = LINE_ARGS, .mode = 0644, .flags = SBX_FILE_LINES, .read = args_read, .write = args_write, .reset = args_reset },
	{ .name = "cwd", .index = LINE_CWD, .mode = 0644, .read = cwd_read, .write = cwd_write, .reset = cwd_reset },
	{ .name = "env", .index = LINE_ENV, .mode = 0644, .flags = SBX_FILE_LINES, .read = env_read, .write = env_write, .reset = env_reset },
	{ .name = "error", .index = LINE_ERROR, .mode = 0444, .read = error_read },
	{ .name = "exit", .index = SBX_RESULT_EXIT, .mode = 0440, .node = sbx_result_node },
	{ .name = "language", .index = LINE_LANGUAGE, .mode = 0644, .read = language_read, .write = language_write, .reset = language_reset },
	{ .name = "logs", .index = SBX_RESULT_LOGS, .mode = 0444, .node = sbx_result_node },
	{ .name = "process", .index = LINE_PROCESS, .mode = 0777, .flags = SBX_FILE_LINK | SBX_FILE_HIDDEN, .read = process_read },
	{ .name = "result.json", .index = SBX_RESULT_JSON, .mode = 0440, .node = sbx_result_node },
	{ .name = "status", .index = LINE_STATUS, .mode = 0444, .read = status_read },
	{ .name = "stderr", .index = SBX_RESULT_STDERR, .mode = 0440, .node = sbx_result_node },
	{ .name = "stdin", .index = LINE_STDIN, .mode = 0644, .flags = SBX_FILE_LINES, .read = stdin_read, .write = stdin_write, .reset = stdin_reset },
	{ .name = "stdout", .index = SBX_RESULT_STDOUT, .mode = 0440, .node = sbx_result_node },
	{ .name = "stream", .index = SBX_RESULT_STREAM, .mode = 0444, .node = sbx_result_node },
	{ .name = "timeout", .index = LINE_TIMEOUT, .mode = 0644, .read = timeout_read, .write = timeout_write, .reset = timeout_reset },
};

static int slot_alive(const struct sbx_ref *ref)
{
	return sbx_slot_removed(ref->slot) ? -ESTALE : 0;
}

/* ---- names that are not in the table: files, then slots ---- */

static int list_files(const struct sbx_ref *ref, struct sbx_names *names)
{
	int r = 0;

	if (shown_id(ref) != 0)
		r = sbx_names_add(names, "process", sbx_ref_ino(ref, LINE_PROCESS), S_IFLNK);
	return r < 0 ? r : sbx_code_list(ref, NULL, names);
}

static int slot_node(struct sbx_box *box, struct sbx_slot *slot, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref ref = { .box = box, .slot = slot };

	return sbx_synth_node(&ref, &sbx_slot_folder, NULL, &sbx_slot_folder, slot->ino_base | LINE_FOLDER, ret,
			      attr);
}

static int files_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	int r = sbx_code_lookup(ref, name, ret, attr);

	return r == -ENOENT ? sbx_scratch_lookup(ref, name, ret, attr) : r;
}

static int run_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_slot *slot;
	int r = files_lookup(ref, name, ret, attr);

	if (r != -ENOENT)
		return r;
	slot = sbx_box_slot_find(ref->box, name);
	if (!slot)
		return -ENOENT;
	r = slot_node(ref->box, slot, ret, attr);
	sbx_slot_put(slot);
	return r;
}

struct slot_list {
	struct sbx_names *names;
	int r;
};

static void add_slot(void *data, struct sbx_slot *slot)
{
	struct slot_list *list = data;

	if (list->r == 0)
		list->r = sbx_names_add(list->names, slot->name, slot->ino_base | LINE_FOLDER, S_IFDIR);
}

static int run_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct slot_list list = { names, 0 };
	int r = list_files(ref, names);

	if (r < 0)
		return r;
	sbx_box_slots(ref->box, add_slot, &list);
	return list.r;
}

static int run_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		     struct sbx_err *err)
{
	struct sbx_slot *slot;
	int r;

	if (sbx_code_exists(ref->slot, name))
		return -EEXIST;
	if (name[0] == '.') /* no slot's */
		return sbx_scratch_mkdir(ref, name, ret, attr, err);
	if (sbx_language_of_name(sbx_box_languages(ref->box), name))
		return sbx_err_set(err, EINVAL, "'%s' is the name of code, not of a slot", name);
	r = sbx_box_slot_new(ref->box, name, &slot, err);
	if (r < 0)
		return r;
	r = slot_node(ref->box, slot, ret, attr);
	sbx_slot_put(slot);
	return r;
}

/* slots do not nest */
static int slot_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		      struct sbx_err *err)
{
	if (sbx_code_exists(ref->slot, name))
		return -EEXIST;
	return name[0] == '.' ? sbx_scratch_mkdir(ref, name, ret, attr, err) : -EPERM;
}

static int run_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err)
{
	int r = sbx_scratch_rmdir(ref, name, err);

	return r == -ENOENT ? sbx_box_slot_remove(ref->box, name) : r;
}

/* ---- the folder's own requests ---- */

static int alive(struct sbx_synth *dir)
{
	if (sbx_box_deleted(dir->ref.box))
		return -ESTALE;
	return slot_alive(&dir->ref);
}

static bool is_slot(struct sbx_synth *dir, const char *name)
{
	struct sbx_slot *slot = dir->folder == &sbx_run_folder ? sbx_box_slot_find(dir->ref.box, name) : NULL;

	sbx_slot_put(slot);
	return slot != NULL;
}

/* may a file be made under @name?  @ret: what code.h calls it */
static int free_name(struct sbx_synth *dir, const char *name, char ret[NAME_MAX + 1])
{
	int r = alive(dir);

	if (r == 0 && (sbx_folder_find(dir->folder, name) || is_slot(dir, name)))
		r = -EEXIST;
	return r < 0 ? r : sbx_scratch_name(dir, name, ret);
}

static void op_create(fuse_req_t req, struct sbx_node *node, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	char full[NAME_MAX + 1];
	int r = free_name(dir, name, full);

	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_code_create(req, &dir->ref, full, mode, fi);
}

static void op_mknod(fuse_req_t req, struct sbx_node *node, const char *name, mode_t mode, dev_t rdev)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	char full[NAME_MAX + 1];
	int r = free_name(dir, name, full);

	(void)rdev;
	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_code_mknod(req, &dir->ref, full, mode);
}

static void op_symlink(fuse_req_t req, const char *target, struct sbx_node *node, const char *name)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	char full[NAME_MAX + 1];
	int r = free_name(dir, name, full);

	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_code_symlink(req, &dir->ref, target, full);
}

static void op_unlink(fuse_req_t req, struct sbx_node *node, const char *name)
{
	struct sbx_synth *dir = sbx_synth_of(node);
	char full[NAME_MAX + 1];
	int r = alive(dir);

	if (r == 0 && sbx_folder_find(dir->folder, name)) {
		sbx_folder_op_unlink(req, node, name);
		return;
	}
	if (r == 0)
		r = is_slot(dir, name) ? -EISDIR : sbx_scratch_name(dir, name, full);
	sbx_reply_err(req, r < 0 ? r : sbx_code_unlink(&dir->ref, full));
}

static void op_rename(fuse_req_t req, struct sbx_node *node, const char *name, struct sbx_node *new_node,
		      const char *new_name, unsigned int flags)
{
	struct sbx_synth *dir = sbx_synth_of(node), *new_dir = dir;
	char full[NAME_MAX + 1], new_full[NAME_MAX + 1];
	const struct sbx_file *fixed;
	int r = alive(dir);

	if (r == 0 && (sbx_folder_find(dir->folder, name) || is_slot(dir, name)))
		r = -EPERM;
	else if (r == 0 && new_node->ops != node->ops)
		r = -EXDEV;
	else if (r == 0)
		new_dir = sbx_synth_of(new_node);
	if (r == 0 && new_dir->ref.slot != dir->ref.slot)
		r = -EXDEV;
	fixed = r == 0 ? sbx_folder_find(new_dir->folder, new_name) : NULL;
	if (fixed && (!fixed->write || (flags & RENAME_EXCHANGE)))
		r = -EPERM;
	else if (fixed && (flags & RENAME_NOREPLACE))
		r = -EEXIST;
	else if (r == 0 && is_slot(new_dir, new_name))
		r = -EISDIR;
	if (r == 0)
		r = sbx_scratch_name(dir, name, full);
	if (r == 0)
		r = sbx_scratch_name(new_dir, new_name, new_full);
	if (r < 0)
		sbx_reply_err(req, r);
	else
		sbx_code_rename(req, &dir->ref, full, new_full, flags, fixed);
}

static void op_link(fuse_req_t req, struct sbx_node *node, struct sbx_node *new_dir, const char *new_name)
{
	(void)node;
	(void)new_dir;
	(void)new_name;
	sbx_reply_err(req, -EPERM);
}

const struct sbx_node_ops sbx_run_ops = {
	.box = sbx_synth_box,
	.done = sbx_synth_done,
	.lookup = sbx_folder_op_lookup,
	.getattr = sbx_folder_op_getattr,
	.setattr = sbx_folder_op_setattr,
	.create = op_create,
	.mknod = op_mknod,
	.mkdir = sbx_folder_op_mkdir,
	.unlink = op_unlink,
	.rmdir = sbx_folder_op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.opendir = sbx_folder_op_opendir,
	.readdir = sbx_folder_op_readdir,
	.releasedir = sbx_folder_op_releasedir,
};

const struct sbx_folder sbx_run_folder = {
	.files = run_files,
	.n = sizeof(run_files) / sizeof(run_files[0]),
	.mode = 0755,
	.lookup = run_lookup,
	.list = run_list,
	.mkdir = run_mkdir,
	.rmdir = run_rmdir,
	.ops = &sbx_run_ops,
	.alive = slot_alive,
	.steady = true,
};

const struct sbx_folder sbx_slot_folder = {
	.files = run_files,
	.n = sizeof(run_files) / sizeof(run_files[0]),
	.mode = 0755,
	.lookup = files_lookup,
	.list = list_files,
	.mkdir = slot_mkdir,
	.rmdir = sbx_scratch_rmdir,
	.ops = &sbx_run_ops,
	.alive = slot_alive,
};
