/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: .sbxfs/templates/NAME: spec, and mkdir NAME/BOX, which makes BOX at the root from that template; there it stands as a link
 * ../../../BOX from then on.  Any thread.
 */
#include "synth.h"

#include "base/buf.h"
#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "config_text.h"
#include "fs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_SPEC = 1, LINE_FOLDER };

/* of a box's block: its link in its template's folder; and, once, the folder that answers mkdir */
enum { LINE_LINK = 80, LINE_MADE };

static int spec_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_template_print(ref->template, "", out);
}

static int link_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_buf_printf(out, "../../../%s", ref->box->name);
}

static const struct sbx_folder template_folder;
static const struct sbx_file link_file = { .name = "", .index = LINE_LINK, .mode = 0777, .flags = SBX_FILE_LINK, .read = link_read };
static const struct sbx_folder made_folder = { .mode = 0555 };

/* the box of that name if it is of this template, counted; NULL */
static struct sbx_box *find_box(const struct sbx_template *template, const char *name)
{
	struct sbx_box *box = sbx_catalog_find(sbx_fs.catalog, name);

	if (box && box->template != template) {
		sbx_box_put(box);
		box = NULL;
	}
	return box;
}

static int template_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_box *box = find_box(ref->template, name);
	struct sbx_ref own = { .box = box };
	int r;

	if (!box)
		return -ENOENT;
	r = sbx_synth_node(&own, NULL, &link_file, NULL, sbx_ref_ino(&own, LINE_LINK), ret, attr);
	sbx_box_put(box);
	return r;
}

static int template_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	struct sbx_box **boxes;
	size_t n, i;
	int r = sbx_catalog_snapshot(sbx_fs.catalog, &boxes, &n);

	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		/* a box may have the name of a line of the table, which is found by it here */
		if (r == 0 && boxes[i]->template == ref->template && !sbx_folder_find(&template_folder, boxes[i]->name))
			r = sbx_names_add(names, boxes[i]->name, boxes[i]->ino_base | LINE_LINK, S_IFLNK);
		sbx_box_put(boxes[i]);
	}
	free(boxes);
	return r;
}

/* the kernel wants a folder as the answer of mkdir: an empty one, that no lookup finds again */
static int template_mkdir(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
			  struct sbx_err *err)
{
	struct sbx_box *box;
	struct sbx_ref own = { 0 };
	int r = sbx_catalog_create(sbx_fs.catalog, name, ref->template, &box, err);

	if (r < 0)
		return r;
	own.box = box;
	r = sbx_synth_node(&own, NULL, NULL, &made_folder, sbx_ref_ino(&own, LINE_MADE), ret, attr);
	sbx_box_put(box);
	return r;
}

static const struct sbx_file template_files[] = {
	{ .name = "spec", .index = LINE_SPEC, .mode = 0444, .read = spec_read },
};

static const struct sbx_folder template_folder = {
	.files = template_files,
	.n = sizeof(template_files) / sizeof(template_files[0]),
	.mode = 0755,
	.lookup = template_lookup,
	.list = template_list,
	.mkdir = template_mkdir,
};

static int templates_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref own = { .template = sbx_config_template(sbx_fs.config, name) };

	(void)ref;
	if (!own.template)
		return -ENOENT;
	return sbx_synth_node(&own, &sbx_templates_folder, NULL, &template_folder, sbx_ref_ino(&own, LINE_FOLDER), ret,
			      attr);
}

static int templates_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	size_t i;
	int r = 0;

	(void)ref;
	for (i = 0; r == 0 && i < sbx_fs.config->templates_n; i++) {
		struct sbx_ref own = { .template = &sbx_fs.config->templates[i] };

		r = sbx_names_add(names, own.template->name, sbx_ref_ino(&own, LINE_FOLDER), S_IFDIR);
	}
	return r;
}

const struct sbx_folder sbx_templates_folder = {
	.mode = 0555,
	.lookup = templates_lookup,
	.list = templates_list,
};
