/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the root: one folder per sandbox, and .sbxfs.  All from memory.  Any thread. */
#include "synth.h"

#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "fs.h"

#include <errno.h>
#include <stdlib.h>

#define LINE_BOX 1     /* of a box's own folder, in its block */
#define LINE_CONTROL 2 /* of .sbxfs */

static int box_node(struct sbx_box *box, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref ref = { .box = box };

	return sbx_synth_node(&ref, &sbx_root_folder, NULL, &sbx_box_folder, sbx_ref_ino(&ref, LINE_BOX), ret,
			      attr);
}

static int root_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_box *box = sbx_catalog_find(sbx_fs.catalog, name);
	int r;

	(void)ref;
	if (!box)
		return -ENOENT;
	r = box_node(box, ret, attr);
	sbx_box_put(box);
	return r;
}

static int root_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct sbx_box **boxes;
	size_t n, i;
	int r;

	(void)ref;
	r = sbx_catalog_snapshot(sbx_fs.catalog, &boxes, &n);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		if (r == 0)
			r = sbx_names_add(names, boxes[i]->name, boxes[i]->ino_base | LINE_BOX, S_IFDIR);
		sbx_box_put(boxes[i]);
	}
	free(boxes);
	return r;
}

static int root_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		      struct sbx_err *err)
{
	struct sbx_box *box;
	int r;

	(void)ref;
	r = sbx_catalog_create(sbx_fs.catalog, name, sbx_fs.catalog->template, &box, err);
	if (r < 0)
		return r;
	r = box_node(box, ret, attr);
	sbx_box_put(box);
	return r;
}

static int root_rmdir(const struct sbx_ref *ref, const char *name, struct sbx_err *err)
{
	(void)ref;
	return sbx_catalog_delete(sbx_fs.catalog, name, err);
}

static const struct sbx_file root_files[] = {
	{ .name = ".sbxfs", .index = LINE_CONTROL, .mode = 0755, .folder = &sbx_control_folder },
};

const struct sbx_folder sbx_root_folder = {
	.files = root_files,
	.n = sizeof(root_files) / sizeof(root_files[0]),
	.mode = 0755,
	.lookup = root_lookup,
	.list = root_list,
	.mkdir = root_mkdir,
	.rmdir = root_rmdir,
	.steady = true,
};
