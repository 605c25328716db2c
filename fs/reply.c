/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: answers to the kernel, and where failures are told.  Any thread. */
#include "reply.h"

#include "base/buf.h"
#include "base/err.h"
#include "box.h"
#include "catalog.h"
#include "fs.h"
#include "node.h"

#include <errno.h>

void sbx_reply_err(fuse_req_t req, int r)
{
	fuse_reply_err(req, r < 0 ? -r : r);
}

void sbx_reply_entry(fuse_req_t req, struct sbx_node *node, const struct stat *attr,
		     double attr_timeout_s, double entry_timeout_s)
{
	struct fuse_entry_param e = { .ino = sbx_node_id(node),
				      .generation = 0,
				      .attr = *attr,
				      .attr_timeout = attr_timeout_s,
				      .entry_timeout = entry_timeout_s };

	if (fuse_reply_entry(req, &e) == -ENOENT) /* the request was interrupted: the kernel has not counted it */
		sbx_node_forget(node, 1);
}

int sbx_reply_create(fuse_req_t req, struct sbx_node *node, const struct stat *attr,
		     double attr_timeout_s, double entry_timeout_s, const struct fuse_file_info *fi)
{
	struct fuse_entry_param e = { .ino = sbx_node_id(node),
				      .generation = 0,
				      .attr = *attr,
				      .attr_timeout = attr_timeout_s,
				      .entry_timeout = entry_timeout_s };
	int r = fuse_reply_create(req, &e, fi);

	if (r == -ENOENT)
		sbx_node_forget(node, 1);
	return r;
}

void sbx_fail(fuse_req_t req, struct sbx_box *box, const char *op, const char *path,
	      const struct sbx_err *err, int r)
{
	struct sbx_err told = *err;

	if (told.code == 0 || told.text[0] == '\0')
		sbx_err_sys(&told, -r, "%s", path ? path : op);
	if (box)
		sbx_box_fail(box, op, path, &told);
	else
		sbx_catalog_fail(sbx_fs.catalog, NULL, op, path, &told);
	sbx_reply_err(req, r);
}

int sbx_buf_flatten(struct sbx_buf *out, struct fuse_bufvec *in, size_t max)
{
	size_t size = fuse_buf_size(in);
	struct fuse_bufvec flat = FUSE_BUFVEC_INIT(size);
	ssize_t n;
	int r;

	if (size > max)
		return -EFBIG;
	r = sbx_buf_resize(out, size);
	if (r < 0)
		return r;
	flat.buf[0].mem = out->data;
	n = fuse_buf_copy(&flat, in, 0);
	if (n < 0)
		return (int)n;
	return sbx_buf_resize(out, (size_t)n);
}

uid_t sbx_owner_uid(void)
{
	return sbx_fs.uid;
}

gid_t sbx_owner_gid(void)
{
	return sbx_fs.gid;
}
