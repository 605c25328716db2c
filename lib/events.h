/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the lines of .sbxfs/events.  Offsets only grow, and lines come for ever; the newest are kept, in memory, so that there are
 * events also when the disk is full.  Any thread.
 */
#ifndef SBX_EVENTS_H
#define SBX_EVENTS_H

#include "base/lock.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_events {
	struct sbx_lock lock;
	size_t max;	     /* bytes kept at most; fixed */
	char *ring;	     /* guarded by lock: byte at offset N lies at N % room */
	size_t room;	     /* guarded by lock: grows up to max */
	uint64_t start, end; /* guarded by lock: offsets of what is kept; start is the begin of a line */
};

void sbx_events_init(struct sbx_events *events, size_t max);
void sbx_events_done(struct sbx_events *events);
/* sbx_events_add - a line, with its newline; one that is longer than max is lost */
void sbx_events_add(struct sbx_events *events, const char *line, size_t len);
/*
 * sbx_events_read - returns bytes copied, 0 at the end.
 * @off_bytes: what is not kept any more is left out: then it is set to the first offset that is, and that is read
 */
size_t sbx_events_read(struct sbx_events *events, uint64_t *off_bytes, char *buf, size_t size);
/* sbx_events_len - all bytes that ever came */
uint64_t sbx_events_len(struct sbx_events *events);

#endif
