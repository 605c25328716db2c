/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_events.  Any thread; the lock is held for copies in memory only. */
#include "events.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 4096

void sbx_events_init(struct sbx_events *ev, size_t max)
{
	memset(ev, 0, sizeof(*ev));
	sbx_lock_init(&ev->lock);
	ev->max = max;
}

void sbx_events_done(struct sbx_events *ev)
{
	free(ev->ring);
	sbx_lock_done(&ev->lock);
}

/* [off, off + len) of the ring, which wraps, to or from @bytes */
static void get(const char *ring, size_t room, uint64_t off, char *bytes, size_t len)
{
	size_t at = (size_t)(off % room), first = len < room - at ? len : room - at;

	memcpy(bytes, ring + at, first);
	memcpy(bytes + first, ring, len - first);
}

static void put(char *ring, size_t room, uint64_t off, const char *bytes, size_t len)
{
	size_t at = (size_t)(off % room), first = len < room - at ? len : room - at;

	memcpy(ring + at, bytes, first);
	memcpy(ring, bytes + first, len - first);
}

/* room for @need bytes in all, as far as max and memory allow */
static void grow_locked(struct sbx_events *ev, size_t need) SBX_REQUIRES(ev->lock)
{
	size_t room = ev->room ? ev->room : ROOM_FIRST, kept = (size_t)(ev->end - ev->start);
	char *ring, *all;

	while (room < need)
		room *= 2;
	if (room > ev->max)
		room = ev->max;
	if (room <= ev->room)
		return;
	ring = malloc(room);
	all = malloc(kept ? kept : 1);
	if (ring && all) {
		if (kept > 0) {
			get(ev->ring, ev->room, ev->start, all, kept);
			put(ring, room, ev->start, all, kept);
		}
		free(ev->ring);
		ev->ring = ring;
		ev->room = room;
		ring = NULL;
	}
	free(ring);
	free(all);
}

static void drop_line_locked(struct sbx_events *ev) SBX_REQUIRES(ev->lock)
{
	while (ev->start < ev->end && ev->ring[ev->start % ev->room] != '\n')
		ev->start++;
	if (ev->start < ev->end)
		ev->start++;
}

void sbx_events_add(struct sbx_events *ev, const char *line, size_t len)
{
	sbx_lock(&ev->lock);
	if (ev->end - ev->start + len > ev->room)
		grow_locked(ev, (size_t)(ev->end - ev->start) + len);
	if (len <= ev->room) {
		while (ev->end - ev->start + len > ev->room)
			drop_line_locked(ev);
		put(ev->ring, ev->room, ev->end, line, len);
		ev->end += len;
	}
	sbx_unlock(&ev->lock);
}

size_t sbx_events_read(struct sbx_events *ev, uint64_t *off_bytes, char *buf, size_t size)
{
	sbx_lock(&ev->lock);
	if (*off_bytes < ev->start)
		*off_bytes = ev->start;
	if (*off_bytes >= ev->end)
		size = 0;
	else if (size > ev->end - *off_bytes)
		size = (size_t)(ev->end - *off_bytes);
	if (size > 0)
		get(ev->ring, ev->room, *off_bytes, buf, size);
	sbx_unlock(&ev->lock);
	return size;
}

uint64_t sbx_events_len(struct sbx_events *ev)
{
	uint64_t len;

	sbx_lock(&ev->lock);
	len = ev->end;
	sbx_unlock(&ev->lock);
	return len;
}
