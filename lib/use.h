/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: when a box was used last, for the policy `cleanup`.  Use is: a run or process that goes on, or was going on until then; a
 * file of the workspace that is open through the mount; and what fs/ops.c calls so (docs/config.md has the list).
 * Any thread unless said.
 */
#ifndef SBX_USE_H
#define SBX_USE_H

#include "cleanup_policy.h"

#include <stdbool.h>
#include <stdint.h>

struct sbx_box;
struct sbx_buf;
struct sbx_config;
struct sbx_err;

/* of one box; guarded by its lock */
struct sbx_used {
	int64_t at_ms;	   /* sbx_clock_ms() of the last use */
	int64_t stored_ms; /* the at_ms that was stored last */
	unsigned int open; /* files of the workspace */
	bool idle_stopped; /* `error` says that the policy stopped it: until it runs again */
};

/* sbx_box_used - it is used now.  Takes box->lock for a moment; stores the time if the stored one is old (not on the loop). */
void sbx_box_used(struct sbx_box *box);
/* sbx_box_opened - a file of its workspace is open until sbx_box_closed.  -ESTALE: the box is deleted */
int sbx_box_opened(struct sbx_box *box);
void sbx_box_closed(struct sbx_box *box);

/* sbx_use_policy - the policy for @box, NULL: nothing is ever to be done */
const struct sbx_cleanup *sbx_use_policy(const struct sbx_box *box);
/* sbx_use_any - has any template, or the top of the configuration, a policy? */
bool sbx_use_any(const struct sbx_config *config);
/* sbx_use_decide - see sbx_cleanup_decide; a deleted box, and one that sbxfs has not made: nothing, never */
enum sbx_cleanup_action sbx_use_decide(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
				       int64_t *ret_next_ms);
/*
 * sbx_use_stop, sbx_use_delete - unless it is in use by now.  @why: for `error` and the event.  What begins to use the box
 * before is seen here, what comes after it finds a box that is stopped (and wakes it) or deleted.
 */
void sbx_use_stop(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
		  const struct sbx_err *why);
void sbx_use_delete(struct sbx_box *box, const struct sbx_cleanup *cleanup, int64_t mounted_ms,
		    const struct sbx_err *why);

/* sbx_use_print - the time of the last use, ms since 1970, as it is stored; nothing where there is no policy */
void sbx_use_print(struct sbx_box *box, struct sbx_buf *out);
/* sbx_use_load - what sbx_use_print gave, at mount.  false: not understood */
bool sbx_use_load(struct sbx_box *box, const char *text, size_t len);
/* sbx_use_closing - the mount ends, and programs of the box with it: is a newer time than the stored one to be stored? */
bool sbx_use_closing(struct sbx_box *box);

#endif
