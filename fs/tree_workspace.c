/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the nodes of BOX/workspace, their names, attributes and links; the way of a request through the provider.
 * Knows the provider by sbx_file_ops only, so local and devbox are the same here.  FUSE workers, and whatever
 * thread a provider completes on.
 */
#include "tree_workspace.h"

#include "base/err.h"
#include "box.h"
#include "links.h"
#include "reply.h"
#include "workspace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* DESIGN section 5: nothing of a workspace is remembered by the kernel without asking */
#define TIMEOUT_S 0.0

static enum sbx_links links_shown;

void sbx_workspace_setup(enum sbx_links links)
{
	links_shown = links;
}

/* ---- the way of a request ---- */

static void job_done(struct sbx_freq *freq, int r)
{
	struct ws_job *job = sbx_container_of(freq, struct ws_job, freq);

	job->finish(job, r);
}

bool ws_dead(fuse_req_t req, struct ws_node *node, const char *op)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (!sbx_box_deleted(node->box))
		return false;
	sbx_err_set(&err, ESTALE, "the sandbox '%s' was deleted", sbx_box_name(node->box));
	sbx_fail(req, NULL, op, NULL, &err, -ESTALE);
	return true;
}

struct ws_job *ws_job_new(fuse_req_t req, struct sbx_node *node, const char *op,
			  void (*finish)(struct ws_job *job, int r))
{
	struct ws_job *job;

	if (ws_dead(req, ws_of(node), op))
		return NULL;
	job = calloc(1, sizeof(*job));
	if (!job) {
		sbx_reply_err(req, -ENOMEM);
		return NULL;
	}
	job->freq.done = job_done;
	job->req = req;
	job->node = ws_of(sbx_node_ref(node));
	job->finish = finish;
	job->op = op;
	return job;
}

void ws_job_free(struct ws_job *job)
{
	if (job->dir)
		sbx_node_unref(&job->dir->node);
	sbx_node_unref(&job->node->node);
	free(job->freq.text);
	free(job);
}

void ws_job_run(struct ws_job *job, int r)
{
	if (r != -EINPROGRESS)
		job->finish(job, r);
}

void ws_job_end(struct ws_job *job, int r)
{
	if (job->freq.err.code)
		sbx_fail(job->req, job->node->box, job->op, NULL, &job->freq.err, r);
	else
		sbx_reply_err(job->req, r);
	ws_job_free(job);
}

/* for slots without results */
static void finish_plain(struct ws_job *job, int r)
{
	ws_job_end(job, r);
}

/* ---- links ---- */

/* the text shown; false: it leads outside */
static bool link_text(const struct ws_node *any, struct sbx_fnode *link, const char *raw,
		      char ret[SBX_LINK_MAX])
{
	struct sbx_pbox_info info = { 0 };

	sbx_box_ops(any->box)->box_info(sbx_box_pbox(any->box), &info);
	return sbx_link_show(raw, any->files->depth(link), info.workspace ? info.workspace : "/",
			     ret);
}

void ws_link_size(struct ws_job *job, int r)
{
	char text[SBX_LINK_MAX];

	if (r < 0) {
		if (job->fnode)
			job->node->files->forget(job->fnode, 1);
		job->fnode = NULL;
		return;
	}
	link_text(job->node, job->fnode ? job->fnode : job->node->fnode, job->freq.text, text);
	job->attr.size = strlen(text);
	free(sbx_take(job->freq.text));
}

static void finish_link_size(struct ws_job *job, int r)
{
	ws_link_size(job, r);
	job->shown(job, r);
}

void ws_attr_take(struct ws_job *job)
{
	job->attr = job->freq.attr;
	job->fnode = sbx_take(job->freq.node);
}

void ws_attr_show(struct ws_job *job, void (*shown)(struct ws_job *job, int r))
{
	ws_attr_take(job);
	if (!S_ISLNK(job->attr.mode)) {
		shown(job, 0);
		return;
	}
	job->shown = shown;
	job->finish = finish_link_size;
	ws_job_run(job, job->node->files->readlink(job->fnode ? job->fnode : job->node->fnode,
						   &job->freq));
}

static void finish_readlink(struct ws_job *job, int r)
{
	char text[SBX_LINK_MAX];

	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	if (!link_text(job->node, job->node->fnode, job->freq.text, text) &&
	    links_shown == SBX_LINKS_EPERM) {
		sbx_err_set(&job->freq.err, EPERM, "the link leads out of workspace/ (-o links=eperm)");
		ws_job_end(job, -EPERM);
		return;
	}
	fuse_reply_readlink(job->req, text);
	ws_job_free(job);
}

static void ws_readlink(fuse_req_t req, struct sbx_node *node)
{
	struct ws_job *job = ws_job_new(req, node, "readlink", finish_readlink);

	if (job)
		ws_job_run(job, job->node->files->readlink(job->node->fnode, &job->freq));
}

bool ws_hidden(const char *name)
{
	return name[0] == '.' && strcmp(name, SBX_LINK_OUTSIDE) == 0;
}

bool ws_refused(fuse_req_t req, struct sbx_node *dir, const char *op, const char *name)
{
	struct sbx_err err = SBX_ERR_INIT;

	if (!ws_hidden(name))
		return false;
	sbx_err_set(&err, EPERM, "the name " SBX_LINK_OUTSIDE " stands for what lies outside of a "
		    "workspace and cannot exist in one");
	sbx_fail(req, ws_of(dir)->box, op, name, &err, -EPERM);
	return true;
}

/* ---- nodes ---- */

static void ws_done(struct sbx_node *node)
{
	struct ws_node *ws = ws_of(node);

	ws->files->forget(ws->fnode, 1);
	sbx_box_put(ws->box);
}

/*
 * The node of @fnode, whose reference is taken; one lookup counted.  As long as the node lives, so does the fnode: a
 * new fnode never finds an old node under its address.
 */
static struct sbx_node *node_take(struct sbx_box *box, struct sbx_fnode *fnode, uint64_t ino,
				  uint64_t parent_ino)
{
	const struct sbx_file_ops *files = &sbx_box_ops(box)->files;
	struct sbx_node *node = sbx_node_find(fnode, 0);
	struct ws_node *fresh;

	if (node) {
		files->forget(fnode, 1);
		return node;
	}
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh) {
		files->forget(fnode, 1);
		return NULL;
	}
	fresh->node.ops = &ws_ops;
	fresh->files = files;
	fresh->box = sbx_box_get(box);
	fresh->fnode = fnode;
	fresh->ino = ino;
	fresh->parent_ino = parent_ino;
	node = sbx_node_add(&fresh->node, fnode, 0);
	if (node != &fresh->node) {
		ws_done(&fresh->node);
		free(fresh);
	}
	return node;
}

struct sbx_node *ws_node_take(struct ws_job *job)
{
	return node_take(job->node->box, sbx_take(job->fnode), job->attr.ino,
			 (job->dir ? job->dir : job->node)->ino);
}

void ws_stat(const struct sbx_fattr *attr, struct stat *ret)
{
	mode_t mode = attr->mode;

	/*
	 * A FIFO is shown as a socket: the host's kernel would let `cat` wait in open() for a writer on the host,
	 * for ever; opening a socket is ENXIO at once.
	 */
	if (S_ISFIFO(mode))
		mode = (mode & ~(mode_t)S_IFMT) | S_IFSOCK;
	*ret = (struct stat){
		.st_ino = attr->ino,
		.st_mode = mode,
		.st_nlink = attr->nlink,
		.st_uid = sbx_owner_uid(),
		.st_gid = sbx_owner_gid(),
		.st_rdev = attr->rdev,
		.st_size = (off_t)attr->size,
		.st_blksize = (blksize_t)attr->blksize,
		.st_blocks = (blkcnt_t)attr->blocks,
		.st_atim = attr->atime,
		.st_mtim = attr->mtime,
		.st_ctim = attr->ctime,
	};
}

int sbx_workspace_node(struct sbx_box *box, struct sbx_node **ret, struct stat *attr)
{
	const struct sbx_file_ops *files = &sbx_box_ops(box)->files;
	struct sbx_freq freq = { 0 };
	int r;

	if (sbx_box_deleted(box))
		return -ESTALE;
	r = files->root(sbx_box_pbox(box), &freq);
	if (r < 0)
		return r == -EINPROGRESS ? -EIO : r; /* provider.h: at once */
	ws_stat(&freq.attr, attr);
	*ret = node_take(box, freq.node, freq.attr.ino, UINT32_MAX);
	return *ret ? 0 : -ENOMEM;
}

/* ---- answers with an entry ---- */

static void entry_shown(struct ws_job *job, int r)
{
	struct sbx_node *node;
	struct stat st;

	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	node = ws_node_take(job);
	if (!node) {
		ws_job_end(job, -ENOMEM);
		return;
	}
	ws_stat(&job->attr, &st);
	sbx_reply_entry(job->req, node, &st, TIMEOUT_S, TIMEOUT_S);
	ws_job_free(job);
}

static void finish_entry(struct ws_job *job, int r)
{
	if (r < 0)
		ws_job_end(job, r);
	else
		ws_attr_show(job, entry_shown);
}

static void fifo_shown(struct ws_job *job, int r)
{
	struct sbx_node *node = r < 0 ? NULL : ws_node_take(job);
	struct stat st;

	if (!node) {
		ws_job_end(job, r < 0 ? r : -ENOMEM);
		return;
	}
	ws_stat(&job->attr, &st);
	/* the kernel insists on getting what it asked for; from its next lookup on it is a socket */
	st.st_mode = job->attr.mode;
	sbx_node_unhash(node);
	sbx_reply_entry(job->req, node, &st, TIMEOUT_S, TIMEOUT_S);
	ws_job_free(job);
}

static void finish_fifo(struct ws_job *job, int r)
{
	if (r < 0)
		ws_job_end(job, r);
	else
		ws_attr_show(job, fifo_shown);
}

static void ws_lookup(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct ws_job *job;

	if (ws_hidden(name)) {
		sbx_reply_err(req, -ENOENT);
		return;
	}
	job = ws_job_new(req, dir, "lookup", finish_entry);
	if (job)
		ws_job_run(job, job->node->files->lookup(job->node->fnode, name, &job->freq));
}

static struct ws_job *make_job(fuse_req_t req, struct sbx_node *dir, const char *op,
			       const char *name)
{
	return ws_refused(req, dir, op, name) ? NULL : ws_job_new(req, dir, op, finish_entry);
}

static void ws_mkdir(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode)
{
	struct ws_job *job = make_job(req, dir, "mkdir", name);

	if (job)
		ws_job_run(job, job->node->files->mkdir(job->node->fnode, name, mode, &job->freq));
}

static void ws_mknod(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode,
		     dev_t rdev)
{
	struct ws_job *job = make_job(req, dir, "mknod", name);

	if (!job)
		return;
	if (S_ISFIFO(mode))
		job->finish = finish_fifo;
	ws_job_run(job, job->node->files->mknod(job->node->fnode, name, mode, &job->freq));
}

static void ws_symlink(fuse_req_t req, const char *target, struct sbx_node *dir, const char *name)
{
	struct ws_job *job = make_job(req, dir, "symlink", name);

	if (job)
		ws_job_run(job,
			   job->node->files->symlink(job->node->fnode, name, target, &job->freq));
}

static void ws_link(fuse_req_t req, struct sbx_node *node, struct sbx_node *new_dir,
		    const char *new_name)
{
	struct ws_job *job;

	if (node->ops != &ws_ops || new_dir->ops != &ws_ops ||
	    ws_of(node)->box != ws_of(new_dir)->box) {
		sbx_reply_err(req, -EXDEV);
		return;
	}
	job = make_job(req, new_dir, "link", new_name);
	if (job)
		ws_job_run(job, job->node->files->link(ws_of(node)->fnode, job->node->fnode,
						       new_name, &job->freq));
}

/* ---- names that go ---- */

static void ws_unlink(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct ws_job *job = ws_job_new(req, dir, "unlink", finish_plain);

	if (job)
		ws_job_run(job, ws_hidden(name) ? -ENOENT
						: job->node->files->unlink(job->node->fnode, name,
									   &job->freq));
}

static void ws_rmdir(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct ws_job *job = ws_job_new(req, dir, "rmdir", finish_plain);

	if (job)
		ws_job_run(job, ws_hidden(name) ? -ENOENT
						: job->node->files->rmdir(job->node->fnode, name,
									  &job->freq));
}

static void ws_rename(fuse_req_t req, struct sbx_node *dir, const char *name,
		      struct sbx_node *new_dir, const char *new_name, unsigned int flags)
{
	struct ws_job *job;

	if (dir->ops != &ws_ops || new_dir->ops != &ws_ops ||
	    ws_of(dir)->box != ws_of(new_dir)->box) {
		sbx_reply_err(req, -EXDEV);
		return;
	}
	if (ws_refused(req, new_dir, "rename", new_name))
		return;
	job = ws_job_new(req, dir, "rename", finish_plain);
	if (!job)
		return;
	job->dir = ws_of(sbx_node_ref(new_dir));
	ws_job_run(job, ws_hidden(name)
				? -ENOENT
				: job->node->files->rename(job->node->fnode, name, job->dir->fnode,
							   new_name, flags, &job->freq));
}

/* ---- attributes ---- */

static void attr_shown(struct ws_job *job, int r)
{
	struct stat st;

	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	ws_stat(&job->attr, &st);
	fuse_reply_attr(job->req, &st, TIMEOUT_S);
	ws_job_free(job);
}

static void finish_attr(struct ws_job *job, int r)
{
	if (r < 0)
		ws_job_end(job, r);
	else
		ws_attr_show(job, attr_shown);
}

static void ws_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct ws_job *job = ws_job_new(req, node, "stat", finish_attr);

	if (job)
		ws_job_run(job, job->node->files->getattr(job->node->fnode, ws_fhandle(fi),
							  &job->freq));
}

static unsigned int fset_mask(int to_set)
{
	static const struct {
		int fuse;
		unsigned int ours;
	} bits[] = {
		{ FUSE_SET_ATTR_MODE, SBX_FSET_MODE },
		{ FUSE_SET_ATTR_SIZE, SBX_FSET_SIZE },
		{ FUSE_SET_ATTR_ATIME, SBX_FSET_ATIME },
		{ FUSE_SET_ATTR_MTIME, SBX_FSET_MTIME },
		{ FUSE_SET_ATTR_ATIME_NOW, SBX_FSET_ATIME_NOW },
		{ FUSE_SET_ATTR_MTIME_NOW, SBX_FSET_MTIME_NOW },
	};
	unsigned int mask = 0;
	size_t i;

	for (i = 0; i < sizeof(bits) / sizeof(bits[0]); i++)
		if (to_set & bits[i].fuse)
			mask |= bits[i].ours;
	return mask;
}

/* cp -p, tar and rsync -a set the owner that they saw: that is fine, there is only one */
static bool chown_refused(fuse_req_t req, struct ws_node *ws, const struct stat *attr, int to_set)
{
	struct sbx_err err = SBX_ERR_INIT;

	if ((!(to_set & FUSE_SET_ATTR_UID) || attr->st_uid == sbx_owner_uid()) &&
	    (!(to_set & FUSE_SET_ATTR_GID) || attr->st_gid == sbx_owner_gid()))
		return false;
	sbx_err_set(&err, EPERM, "everything in a workspace belongs to the sandbox's user and is shown as "
		    "owned by %u:%u: it cannot be given to %u:%u", (unsigned int)sbx_owner_uid(),
		    (unsigned int)sbx_owner_gid(), (unsigned int)attr->st_uid,
		    (unsigned int)attr->st_gid);
	sbx_fail(req, ws->box, "chown", NULL, &err, -EPERM);
	return true;
}

static void ws_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
		       struct fuse_file_info *fi)
{
	struct sbx_fset set = {
		.mask = fset_mask(to_set),
		.mode = attr->st_mode & 07777,
		.size = (uint64_t)attr->st_size,
		.atime = attr->st_atim,
		.mtime = attr->st_mtim,
	};
	struct ws_job *job;

	if (chown_refused(req, ws_of(node), attr, to_set))
		return;
	job = ws_job_new(req, node, "setattr", finish_attr);
	if (job)
		ws_job_run(job, job->node->files->setattr(job->node->fnode, ws_fhandle(fi), &set,
							  &job->freq));
}

static void finish_statfs(struct ws_job *job, int r)
{
	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	fuse_reply_statfs(job->req, &job->statvfs);
	ws_job_free(job);
}

static void ws_statfs(fuse_req_t req, struct sbx_node *node)
{
	struct ws_job *job = ws_job_new(req, node, "statfs", finish_statfs);

	if (!job)
		return;
	job->freq.statvfs = &job->statvfs;
	ws_job_run(job, job->node->files->statfs(job->node->fnode, &job->freq));
}

static struct sbx_box *ws_box(const struct sbx_node *node)
{
	return sbx_container_of(node, const struct ws_node, node)->box;
}

const struct sbx_node_ops ws_ops = {
	.box = ws_box,
	.open_is_use = true,
	.done = ws_done,
	.lookup = ws_lookup,
	.getattr = ws_getattr,
	.setattr = ws_setattr,
	.readlink = ws_readlink,
	.mknod = ws_mknod,
	.mkdir = ws_mkdir,
	.unlink = ws_unlink,
	.rmdir = ws_rmdir,
	.symlink = ws_symlink,
	.rename = ws_rename,
	.link = ws_link,
	.open = ws_open,
	.create = ws_create,
	.read = ws_read,
	.write_buf = ws_write_buf,
	.flush = ws_flush,
	.release = ws_release,
	.fsync = ws_fsync,
	.opendir = ws_opendir,
	.readdir = ws_readdir,
	.releasedir = ws_releasedir,
	.fsyncdir = ws_fsyncdir,
	.statfs = ws_statfs,
	.fallocate = ws_fallocate,
	.lseek = ws_lseek,
	.copy_file_range = ws_copy_file_range,
};
