/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what results.c (nodes, and opening them, which waits) and results_read.c (open ones) share.  Nobody else includes it.
 */
#ifndef SBX_FS_RESULTS_OWN_H
#define SBX_FS_RESULTS_OWN_H

#include "gate.h"
#include "open.h"
#include "results.h"

#include "base/lock.h"

#include <stdatomic.h>

struct result_node {
	struct sbx_node node;
	struct sbx_ref ref; /* box and slot; run is below */
	enum sbx_result which;
	struct sbx_lock lock;
	struct sbx_run *run; /* guarded by lock: counted */
	bool told;	     /* guarded by lock: the kernel has the final size */
};

/* one open file: pinned to its run */
struct result_handle {
	struct sbx_open open;
	struct sbx_run *run; /* counted */
	struct sbx_lock lock;
	struct fuse_pollhandle *poll; /* guarded by lock: stream */
	struct sbx_waiter waiter;     /* stream: wakes the poller */
	bool polling;		      /* guarded by lock: waiter is queued */
	bool closed;		      /* guarded by lock */
	atomic_uint_fast64_t pos;     /* stream: where the last read ended */
};

static inline struct result_node *result_of(struct sbx_node *node)
{
	return (struct result_node *)node;
}

/* sbx_result_over - is it final?  A background process that has no command yet is not over either */
bool sbx_result_over(struct sbx_run *run);

/* sbx_result_fail - tells why a reader that waited got @r, if nobody else does */
void sbx_result_fail(struct result_node *node, const char *op, int r);

/* results_read.c: the end of an open file, for its node's vtable and for who could not open it */
void sbx_result_handle_free(struct result_handle *handle);
void sbx_result_handle_drop(struct sbx_open *open);
void sbx_result_read(fuse_req_t req, struct sbx_node *node, size_t size, off_t off, struct fuse_file_info *fi);
void sbx_result_poll(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi, struct fuse_pollhandle *ph);
void sbx_result_release(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);

#endif
