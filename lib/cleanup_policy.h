/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the policy `cleanup` of the configuration: boxes that nobody uses are stopped or deleted, boxes that are old are deleted.
 * When a box was used last is lib/use.c's.
 */
#ifndef SBX_CLEANUP_POLICY_H
#define SBX_CLEANUP_POLICY_H

#include "base/lock.h"
#include "loop.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_box;
struct sbx_catalog;
struct sbx_cleanup;

/* what decides about one box; times in ms of sbx_clock_ms() */
struct sbx_use {
	bool busy;	    /* it is used right now */
	bool up;	    /* there is something to stop */
	int64_t used_ms;    /* when it was used last; a use before this boot is below 0 */
	int64_t made_ms;    /* when it was made; so, too */
	int64_t mounted_ms; /* since when its user can reach it */
};

enum sbx_cleanup_action { SBX_CLEANUP_NOTHING, SBX_CLEANUP_STOP, SBX_CLEANUP_IDLE_DELETE, SBX_CLEANUP_AGE_DELETE };

/*
 * sbx_cleanup_decide - what is due at @now_ms.
 * @ret_next_ms: nothing will be due before this time, unless its use changes; INT64_MAX = never.  Pure.
 * After the mount, and for max_age after the last use, a minute is granted (or the time of the policy, if shorter): who mounts
 * to save something, or is at work, does not lose it.
 */
enum sbx_cleanup_action sbx_cleanup_decide(const struct sbx_cleanup *cleanup, const struct sbx_use *use,
					   int64_t now_ms, int64_t *ret_next_ms);

/* the timer of one mount */
struct sbx_policy {
	struct sbx_catalog *catalog;
	struct sbx_timer timer;
	int64_t mounted_ms;
	struct sbx_lock lock;
	pthread_cond_t idle; /* not working any more; with lock */
	bool working, stopped; /* guarded by lock */
	int64_t at_ms;	       /* guarded by lock: when the timer fires, INT64_MAX = it is not set */
};

void sbx_policy_init(struct sbx_policy *policy, struct sbx_catalog *catalog);
/* sbx_policy_watch - look at @box in time: it is new, or came up, or was found at the mount.  Any thread. */
void sbx_policy_watch(struct sbx_policy *policy, struct sbx_box *box);
/* sbx_policy_stop - nothing is stopped or deleted after it.  Main thread; the loop runs, or never ran. */
void sbx_policy_stop(struct sbx_policy *policy);
void sbx_policy_done(struct sbx_policy *policy);

#endif
