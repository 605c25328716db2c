/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the three files of workspace/ share: tree_workspace.c (nodes, names, attributes, links),
 * workspace_file.c (open files), workspace_folder.c (listings).
 */
#ifndef SBX_FS_WORKSPACE_H
#define SBX_FS_WORKSPACE_H

#include "node.h"

#include "base/cleanup.h"
#include "provider.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

struct sbx_box;

/* what a file looked like when the kernel began to keep its pages; guarded by the lock in workspace_file.c */
struct ws_stamp {
	struct timespec mtime, ctime;
	uint64_t size;
	bool settled; /* mtime was old enough then: any later write shows in it */
};

struct ws_node {
	struct sbx_node node;
	struct sbx_box *box;		  /* counted */
	const struct sbx_file_ops *files; /* of its provider */
	struct sbx_fnode *fnode;	  /* one reference */
	uint64_t ino, parent_ino;
	struct ws_stamp stamp;
};

static inline struct ws_node *ws_of(struct sbx_node *node)
{
	return sbx_container_of(node, struct ws_node, node);
}

/*
 * One request on its way through the provider, which may answer at once or later on another thread.
 * ws_job_new ... ws_job_run(job, files->slot(..., &job->freq)): finish() is called once with the
 * result, then the job belongs to finish, which answers and calls ws_job_free.
 */
struct ws_job {
	struct sbx_freq freq;
	fuse_req_t req;
	struct ws_node *node; /* held */
	struct ws_node *dir;  /* where the answer's node lies; NULL or held */
	void (*finish)(struct ws_job *job, int r);
	const char *op; /* for messages */
	/* of an entry or attributes on the way to their answer */
	struct sbx_fnode *fnode;
	struct sbx_fattr attr;
	void (*shown)(struct ws_job *job, int r);
	/* of open, create, readdir */
	struct fuse_file_info fi;
	union {
		struct statvfs statvfs;
		struct ws_listing *listing;
	};
};

/* ws_job_new - NULL: @req was answered (no memory; the box is deleted) */
struct ws_job *ws_job_new(fuse_req_t req, struct sbx_node *node, const char *op,
			  void (*finish)(struct ws_job *job, int r));
void ws_job_free(struct ws_job *job);
/* ws_job_run - @r: what the provider's slot returned */
void ws_job_run(struct ws_job *job, int r);
/* ws_job_end - answers with 0 or -errno, and the reason if the provider gave one; frees @job */
void ws_job_end(struct ws_job *job, int r);

/*
 * ws_attr_show - turns freq.attr (and freq.node) into what is shown, in attr (and fnode): a link's size is that
 * of its shown text, so it may have to be read first.  Then calls @shown.
 */
void ws_attr_show(struct ws_job *job, void (*shown)(struct ws_job *job, int r));
/* its parts: freq.attr, freq.node -> attr, fnode; and readlink's answer @r -> attr.size (r < 0: fnode is given back) */
void ws_attr_take(struct ws_job *job);
void ws_link_size(struct ws_job *job, int r);
/* ws_stat - attributes for the kernel */
void ws_stat(const struct sbx_fattr *attr, struct stat *ret);
/* ws_node_take - the node of job->fnode, whose reference is taken; one lookup counted.  NULL: no memory */
struct sbx_node *ws_node_take(struct ws_job *job);

/* ws_dead - the box was deleted: @req was answered */
bool ws_dead(fuse_req_t req, struct ws_node *node, const char *op);
/* ws_hidden - a name that does not exist in a workspace, whatever code in the box does */
bool ws_hidden(const char *name);
/* ws_refused - may @name be made? true: @req was answered */
bool ws_refused(fuse_req_t req, struct sbx_node *dir, const char *op, const char *name);

extern const struct sbx_node_ops ws_ops;

/* workspace_file.c */
void ws_open(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void ws_create(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void ws_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
	     struct fuse_file_info *fi);
void ws_write_buf(fuse_req_t req, struct sbx_node *node, struct fuse_bufvec *in, off_t off,
		  struct fuse_file_info *fi);
void ws_flush(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void ws_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void ws_fsync(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi);
void ws_fallocate(fuse_req_t req, struct sbx_node *node, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi);
void ws_lseek(fuse_req_t req, struct sbx_node *node, off_t off, int whence,
	      struct fuse_file_info *fi);
void ws_copy_file_range(fuse_req_t req, struct sbx_node *in, off_t off_in,
			struct fuse_file_info *fi_in, struct sbx_node *out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags);
/* ws_fhandle - the provider's handle behind fi->fh; NULL: @fi is NULL */
struct sbx_fhandle *ws_fhandle(const struct fuse_file_info *fi);

/* workspace_folder.c */
void ws_opendir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void ws_readdir(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
		struct fuse_file_info *fi, bool plus);
void ws_releasedir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void ws_fsyncdir(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi);

#endif
