/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: scratch folders.  Knows: code.h, which has their files.  A folder is told by its inode's number, in ref.arg.  Any thread. */
#include "tree_scratch.h"

#include "code.h"
#include "slot.h"

#include <errno.h>
#include <string.h>

static const struct sbx_folder scratch_folder;

static int full_name(const struct sbx_ref *ref, const char *name, char ret[NAME_MAX + 1])
{
	int r = sbx_code_folder_name(ref->slot, ref->arg, ret);
	size_t n = r < 0 ? 0 : strlen(ret);

	if (r < 0)
		return r;
	if (n + 1 + strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	ret[n] = '/';
	strcpy(ret + n + 1, name);
	return 0;
}

int sbx_scratch_name(const struct sbx_synth *dir, const char *name, char ret[NAME_MAX + 1])
{
	if (dir->folder == &scratch_folder)
		return full_name(&dir->ref, name, ret);
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	strcpy(ret, name);
	return 0;
}

static int node_of(const struct sbx_ref *ref, uint64_t ino, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref own = { .box = ref->box, .slot = ref->slot, .arg = ino };

	return sbx_synth_node(&own, NULL, NULL, &scratch_folder, ino, ret, attr);
}

int sbx_scratch_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	uint64_t ino;
	int r = sbx_code_folder_find(ref->slot, name, &ino);

	return r < 0 ? r : node_of(ref, ino, ret, attr);
}

int sbx_scratch_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		      struct sbx_err *err)
{
	uint64_t ino;
	int r;

	(void)err;
	if (strlen(name) > NAME_MAX / 2)
		return -ENAMETOOLONG;
	r = sbx_code_folder_new(ref, name, &ino);
	return r < 0 ? r : node_of(ref, ino, ret, attr);
}

int sbx_scratch_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err)
{
	(void)err;
	return sbx_code_folder_remove(ref, name);
}

/* ---- what is in one ---- */

static int scratch_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	char full[NAME_MAX + 1];
	int r = full_name(ref, name, full);

	return r < 0 ? r : sbx_code_lookup(ref, full, ret, attr);
}

static int scratch_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	char folder[NAME_MAX + 1];
	int r = sbx_code_folder_name(ref->slot, ref->arg, folder);

	return r < 0 ? r : sbx_code_list(ref, folder, names);
}

static int scratch_alive(const struct sbx_ref *ref)
{
	char folder[NAME_MAX + 1];

	return sbx_slot_removed(ref->slot) ? -ESTALE : sbx_code_folder_name(ref->slot, ref->arg, folder);
}

static const struct sbx_folder scratch_folder = {
	.mode = 0755,
	.lookup = scratch_lookup,
	.list = scratch_list,
	.ops = &sbx_run_ops,
	.alive = scratch_alive,
};
