/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: everything of one mount that is not FUSE: the boxes by name, the provider, the loop, the
 * configuration, the log of events and the last errors.  Any thread unless said.
 */
#ifndef SBX_CATALOG_H
#define SBX_CATALOG_H

#include "base/list.h"
#include "base/lock.h"
#include "cleanup_policy.h"
#include "events.h"
#include "gate.h"
#include "provider.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_box;
struct sbx_buf;
struct sbx_config;
struct sbx_err;
struct sbx_loop;

#define SBX_ERRORS_KEPT 100		   /* lines of .sbxfs/errors */

struct sbx_catalog {
	const struct sbx_config *config;
	struct sbx_loop *loop;
	const struct sbx_provider_ops *ops;
	struct sbx_provider *provider;
	const struct sbx_template *template; /* of plain mkdir */
	bool ephemeral;			     /* -o ephemeral: boxes of this mount go with it */
	int spool_dir;			     /* descriptor of the folder for spools */

	atomic_uint_fast64_t next_ino;	     /* blocks of 256 control inode numbers */
	atomic_uint_fast64_t programs; /* that go on: each has descriptors, and gives them back */
	atomic_uint_fast64_t runs_started, failures; /* since the mount, for stats */

	struct sbx_policy policy;	     /* its own lock */

	struct sbx_lock lock;
	struct sbx_box **boxes;		     /* guarded by lock: sorted by name */
	size_t n, room;			     /* guarded by lock */
	struct sbx_list deleting;	     /* guarded by lock: boxes whose files are being removed */
	char *errors[SBX_ERRORS_KEPT];	     /* guarded by lock: ring of lines */
	unsigned int errors_next;	     /* guarded by lock */
	struct sbx_events events;	     /* its own lock */
};

/*
 * sbx_catalog_new - opens the provider and lists its boxes; nothing is started.  Main thread, before the loop runs.
 * @config, @loop outlive the catalog.  Errors of the provider's open and list.
 */
int sbx_catalog_new(const struct sbx_config *config, struct sbx_loop *loop,
		    const struct sbx_provider_ops *ops, const struct sbx_template *template,
		    bool ephemeral, struct sbx_catalog **ret, struct sbx_err *err);
/* sbx_catalog_close - ends all runs (boxes stay, ephemeral ones go) and the provider; the loop runs.  Main thread. */
void sbx_catalog_close(struct sbx_catalog *catalog);
/* sbx_catalog_free - after the loop was stopped */
void sbx_catalog_free(struct sbx_catalog *catalog);

/* sbx_catalog_ino - @blocks of 256 inode numbers each, in a row, never used: bit 63 set, low 8 bits of the first 0 */
uint64_t sbx_catalog_ino(struct sbx_catalog *catalog, unsigned int blocks);

/* sbx_catalog_create - mkdir.  -EINVAL (name), -EEXIST, errors of the provider; a counted reference. */
int sbx_catalog_create(struct sbx_catalog *catalog, const char *name,
		       const struct sbx_template *template, struct sbx_box **ret, struct sbx_err *err);
/* sbx_catalog_delete - rmdir: answered at once, cleaned behind.  -ENOENT. */
int sbx_catalog_delete(struct sbx_catalog *catalog, const char *name, struct sbx_err *err);
/* sbx_catalog_remove - the same for @box itself, which is marked as deleted already, and not by rmdir.  @why: for the event. */
void sbx_catalog_remove(struct sbx_catalog *catalog, struct sbx_box *box, const struct sbx_err *why);
/*
 * sbx_catalog_deleting - keep @box until it is gone;  sbx_catalog_gone - now it is: drops that reference.
 * Called by box.c; what is not gone at the end of the mount is let go then, and finished at the next one.
 */
void sbx_catalog_deleting(struct sbx_catalog *catalog, struct sbx_box *box);
void sbx_catalog_gone(struct sbx_catalog *catalog, struct sbx_box *box);
/* sbx_catalog_find - a counted reference, NULL: no such box */
struct sbx_box *sbx_catalog_find(struct sbx_catalog *catalog, const char *name);
/* sbx_catalog_snapshot - all boxes in the order of names, each with a reference; malloc'ed.  -ENOMEM */
int sbx_catalog_snapshot(struct sbx_catalog *catalog, struct sbx_box ***ret, size_t *ret_n);

/* sbx_catalog_event - one line in .sbxfs/events: time, box ("-": none), text.  @box may be NULL */
void sbx_catalog_event(struct sbx_catalog *catalog, const char *box, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/*
 * sbx_catalog_fail - one line in .sbxfs/errors, and the log: time, box, operation, path, errno name, reason.
 * @box, @path: may be NULL.
 */
void sbx_catalog_fail(struct sbx_catalog *catalog, const char *box, const char *op, const char *path,
		      const struct sbx_err *err);
/* what .sbxfs/stats shows of the mount */
struct sbx_stats {
	uint64_t boxes, runs_started, runs_active, failures;
	uint64_t spool_bytes; /* output kept */
};
void sbx_catalog_stats(struct sbx_catalog *catalog, struct sbx_stats *ret);
/* sbx_catalog_errors - the text of .sbxfs/errors, oldest first */
int sbx_catalog_errors(struct sbx_catalog *catalog, struct sbx_buf *out);

#endif
