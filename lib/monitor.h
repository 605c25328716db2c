/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the history of what a box used: a sample every 5 s, for an hour, only while someone looks or something runs.
 * Any thread unless said.
 */
#ifndef SBX_MONITOR_H
#define SBX_MONITOR_H

#include "base/lock.h"
#include "loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct sbx_box;
struct sbx_buf;
struct sbx_err;

#define SBX_MONITOR_STEP_MS 5000
#define SBX_MONITOR_SPAN_MS 3600000 /* what is kept */
#define SBX_MONITOR_SAMPLES (SBX_MONITOR_SPAN_MS / SBX_MONITOR_STEP_MS)
#define SBX_MONITOR_LOOK_MS 60000 /* somebody who looked still looks */

struct sbx_sample {
	struct timespec when;  /* wall clock */
	uint64_t at_ms;	       /* monotonic */
	uint64_t cpu_us;       /* since the box came up; UINT64_MAX = unknown */
	double cpu_percent;    /* since the sample before, 100 = one core; < 0 unknown */
	uint64_t memory_bytes; /* UINT64_MAX = unknown */
	uint64_t pids;	       /* UINT64_MAX = unknown */
};

struct sbx_monitor {
	struct sbx_box *box; /* it is part of */
	struct sbx_timer timer;
	struct sbx_lock lock;
	bool ticking;			 /* guarded by lock: the timer is set, and holds the box */
	uint64_t looked_ms;		 /* guarded by lock: 0 = never */
	struct sbx_sample *ring;	 /* guarded by lock: SBX_MONITOR_SAMPLES, made at the first sample */
	size_t next, n;			 /* guarded by lock */
	struct sbx_sample base, newest;	 /* guarded by lock: what the next reading is compared with; the last one */
	bool have_base;			 /* guarded by lock */
	bool stopped;			 /* guarded by lock: for good */
};

void sbx_monitor_init(struct sbx_monitor *monitor, struct sbx_box *box);
void sbx_monitor_done(struct sbx_monitor *monitor);
/* sbx_monitor_active - something runs: take samples while it does */
void sbx_monitor_active(struct sbx_monitor *monitor);
/* sbx_monitor_restarted - counters of the container began anew */
void sbx_monitor_restarted(struct sbx_monitor *monitor);

/* sbx_monitor_stop - for good: the box is deleted, or the mount ends.  It does not hold the box any more, soon. */
void sbx_monitor_stop(struct sbx_monitor *monitor);

/* sbx_monitor_usage - the text of `usage`: "name value" lines of now; what is unknown is left out.  0 or -ENOMEM */
int sbx_monitor_usage(struct sbx_monitor *monitor, struct sbx_buf *out, struct sbx_err *err);
/*
 * sbx_monitor_history - TSV of the last @span_ms: a header, then time, cpu_percent, memory_bytes, memory_percent; "-" =
 * unknown.  0 or -ENOMEM
 */
int sbx_monitor_history(struct sbx_monitor *monitor, uint64_t span_ms, struct sbx_buf *out);

#endif
