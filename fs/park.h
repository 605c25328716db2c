/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: requests that wait.  A wait holds no thread; it ends by what it waits for, by a deadline, by a signal that ends
 * the waiter, by the mount's max_wait, or at unmount.  Any thread.
 */
#ifndef SBX_FS_PARK_H
#define SBX_FS_PARK_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "base/list.h"
#include "gate.h"
#include "loop.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_parked;

/*
 * First member of the request's own struct, malloc'ed by the caller with sbx_park_run's fields set.
 * attempt - look once; never blocks; on a FUSE worker or on the loop.  Returns -EAGAIN to wait: then it has set @gate and @seen
 *           (sbx_gate_seen, taken before it looked), and perhaps @again_ms: look again after that long in any case (0 = no).
 *           Anything else ends the wait and is handed to finish.
 * finish  - answer @req with @r exactly once, and free what the struct owns, but not the struct.
 */
struct sbx_parked {
	fuse_req_t req;
	int (*attempt)(struct sbx_parked *parked);
	void (*finish)(struct sbx_parked *parked, int r);
	struct sbx_gate *gate;
	uint64_t seen;
	uint64_t again_ms;
	uint64_t since_ms; /* when the wait began; set by sbx_park_run */
	pid_t pid;	   /* the waiter's thread, 0 = unknown (another pid namespace) */
	bool not_limited;  /* max_wait does not count (live streams) */

	/* park.c's */
	struct sbx_waiter waiter;
	struct sbx_list link;	/* all that wait */
	struct sbx_list signal; /* loop: whose thread had a signal */
	struct sbx_timer timer;
	struct sbx_task task;
	atomic_bool interrupted;
	bool waited, watched;
};

/* sbx_park_setup - before the session starts.  @max_wait_ms: UINT64_MAX = for ever */
void sbx_park_setup(struct sbx_loop *loop, uint64_t max_wait_ms);

/* sbx_park_run - attempt now, and wait if need be.  @parked is not the caller's any more. */
void sbx_park_run(struct sbx_parked *parked);

/*
 * sbx_park_shutdown - everything that waits is answered -ESHUTDOWN, and so is all that comes.  Any thread.
 * sbx_park_drain - after it, with the session over: returns when all are answered.  Not on the loop.
 * sbx_park_count - how many wait now.
 */
void sbx_park_shutdown(void);
void sbx_park_drain(void);
unsigned int sbx_park_count(void);

#endif
