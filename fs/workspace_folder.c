/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: listings of workspace folders.  "." and ".." are added here, at offsets 0 and 1; the provider's own
 * offsets follow, moved by 2.  FUSE workers, and whatever thread a provider completes on.
 */
#include "workspace.h"

#include "base/err.h"
#include "open.h"
#include "reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOTS 2 /* entries in front of the provider's */

/* file systems have cookies up to the largest number, which means the end: it must stay what it is */
static off_t off_shown(off_t inner)
{
	return inner > INT64_MAX - DOTS ? INT64_MAX : inner + DOTS;
}

static off_t off_inner(off_t shown)
{
	return shown == INT64_MAX ? shown : shown - DOTS;
}

struct folder {
	struct sbx_open open;
	struct ws_node *node; /* counted */
	struct sbx_fdir *dir;
};

static struct folder *folder_of(const struct fuse_file_info *fi)
{
	return (struct folder *)(uintptr_t)fi->fh;
}

static void folder_drop(struct sbx_open *open)
{
	struct folder *f = sbx_container_of(open, struct folder, open);

	f->node->files->closedir(f->dir);
	sbx_node_unref(&f->node->node);
	free(f);
}

static void folder_close(struct folder *f)
{
	sbx_open_remove(&f->open);
	folder_drop(&f->open);
}

static void finish_opendir(struct ws_job *job, int r)
{
	struct folder *f;

	if (r < 0) {
		ws_job_end(job, r);
		return;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		job->node->files->closedir(job->freq.dir);
		ws_job_end(job, -ENOMEM);
		return;
	}
	f->node = ws_of(sbx_node_ref(&job->node->node));
	f->dir = job->freq.dir;
	sbx_open_add(&f->open, folder_drop);
	job->fi.fh = (uintptr_t)f;
	if (fuse_reply_open(job->req, &job->fi) < 0)
		folder_close(f);
	ws_job_free(job);
}

void ws_opendir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	struct ws_job *job = ws_job_new(req, node, "opendir", finish_opendir);

	if (!job)
		return;
	job->fi = *fi;
	ws_job_run(job, job->node->files->opendir(job->node->fnode, &job->freq));
}

void ws_releasedir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi)
{
	folder_close(folder_of(fi));
	sbx_reply_err(req, 0);
}

static void finish_fsyncdir(struct ws_job *job, int r)
{
	ws_job_end(job, r);
}

void ws_fsyncdir(fuse_req_t req, struct sbx_node *node, int datasync, struct fuse_file_info *fi)
{
	struct ws_job *job = ws_job_new(req, node, "fsync", finish_fsyncdir);

	if (job)
		ws_job_run(job, job->node->files->fsync(job->node->fnode, NULL, datasync != 0,
							&job->freq));
}

/* ---- reading: entry by entry until the reply is full ---- */

enum listing_state { NEXT, GOT, LOOKED, LINK_READ };

struct ws_listing {
	enum listing_state state;
	struct sbx_fdir *dir;
	struct sbx_fdirent entry;
	bool plus;
	off_t off; /* of the next entry, as shown */
	size_t size, used;
	char buf[];
};

static void listing_end(struct ws_job *job, int r)
{
	struct ws_listing *l = sbx_take(job->listing);

	/* an error behind entries comes again with the next call */
	if (r < 0 && l->used == 0) {
		ws_job_end(job, r);
	} else {
		fuse_reply_buf(job->req, l->buf, l->used);
		ws_job_free(job);
	}
	free(l);
}

/* puts one entry; false: no room.  @node: its lookup is counted, NULL: none */
static bool put(struct ws_job *job, const char *name, struct sbx_node *node, const struct stat *st,
		off_t next)
{
	struct ws_listing *l = job->listing;
	char *at = l->buf + l->used;
	size_t left = l->size - l->used, n;

	if (l->plus) {
		struct fuse_entry_param e = { .ino = node ? sbx_node_id(node) : 0, .attr = *st };

		n = fuse_add_direntry_plus(job->req, at, left, name, &e, next);
	} else {
		n = fuse_add_direntry(job->req, at, left, name, st, next);
	}
	if (n > left)
		return false;
	l->used += n;
	l->off = next;
	return true;
}

static bool put_dots(struct ws_job *job)
{
	struct ws_listing *l = job->listing;

	while (l->off < DOTS) {
		struct stat st = { .st_mode = S_IFDIR };

		st.st_ino = l->off == 0 ? job->node->ino : job->node->parent_ino;
		if (!put(job, l->off == 0 ? "." : "..", NULL, &st, l->off + 1))
			return false;
	}
	return true;
}

/* the entry as it is known without looking at the file; if that failed the kernel will look itself */
static bool put_name(struct ws_job *job)
{
	const struct sbx_fdirent *entry = &job->listing->entry;
	const struct sbx_fattr attr = { .ino = entry->ino, .mode = entry->type };
	struct stat st;

	ws_stat(&attr, &st);
	return put(job, entry->name, NULL, &st, off_shown(entry->next));
}

static bool put_looked(struct ws_job *job)
{
	struct ws_listing *l = job->listing;
	struct sbx_node *node = ws_node_take(job);
	struct stat st;

	ws_stat(&job->attr, &st);
	if (put(job, l->entry.name, node, &st, off_shown(l->entry.next)))
		return true;
	if (node)
		sbx_node_forget(node, 1);
	return false;
}

/* the request fields that one call leaves behind for the next */
static struct sbx_freq *freq_again(struct ws_job *job)
{
	job->freq.node = NULL;
	job->freq.err.code = 0;
	return &job->freq;
}

static bool fits(struct ws_job *job)
{
	struct ws_listing *l = job->listing;

	return fuse_add_direntry_plus(job->req, NULL, 0, l->entry.name, NULL, 0) <=
	       l->size - l->used;
}

static void listing_step(struct ws_job *job, int r)
{
	struct ws_listing *l = job->listing;
	const struct sbx_file_ops *files = job->node->files;

	for (;;) {
		switch (l->state) {
		case NEXT:
			l->state = GOT;
			r = files->readdir(l->dir, off_inner(l->off), &l->entry, freq_again(job));
			break;
		case GOT:
			if (r < 0 || !l->entry.name) {
				listing_end(job, r);
				return;
			}
			if (ws_hidden(l->entry.name)) {
				l->off = off_shown(l->entry.next);
				l->state = NEXT;
				continue;
			}
			if (l->plus && fits(job)) {
				l->state = LOOKED;
				r = files->lookup(job->node->fnode, l->entry.name,
						  freq_again(job));
				break;
			}
			if (l->plus || !put_name(job)) {
				listing_end(job, 0);
				return;
			}
			l->state = NEXT;
			continue;
		case LOOKED:
			if (r == 0 && S_ISLNK(job->freq.attr.mode)) {
				ws_attr_take(job);
				l->state = LINK_READ;
				r = files->readlink(job->fnode, freq_again(job));
				break;
			}
			if (r == 0)
				ws_attr_take(job);
			if (!(r < 0 ? put_name(job) : put_looked(job))) {
				listing_end(job, 0);
				return;
			}
			l->state = NEXT;
			continue;
		case LINK_READ:
			ws_link_size(job, r);
			if (!(r < 0 ? put_name(job) : put_looked(job))) {
				listing_end(job, 0);
				return;
			}
			l->state = NEXT;
			continue;
		default:
			return;
		}
		if (r == -EINPROGRESS)
			return;
	}
}

void ws_readdir(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
		struct fuse_file_info *fi, bool plus)
{
	struct ws_job *job = ws_job_new(req, node, "readdir", listing_step);
	struct ws_listing *l;

	if (!job)
		return;
	l = malloc(sizeof(*l) + size);
	if (!l) {
		ws_job_end(job, -ENOMEM);
		return;
	}
	*l = (struct ws_listing){
		.dir = folder_of(fi)->dir, .plus = plus, .off = off, .size = size
	};
	job->listing = l;
	if (off < 0 || !put_dots(job))
		listing_end(job, off < 0 ? -EINVAL : 0);
	else
		listing_step(job, 0);
}
