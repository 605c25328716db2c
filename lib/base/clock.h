/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: time.  Any thread. */
#ifndef SBX_BASE_CLOCK_H
#define SBX_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* sbx_clock_ms - monotonic time in milliseconds; for timers and durations */
uint64_t sbx_clock_ms(void);

/* sbx_clock_wall - the time of day */
struct timespec sbx_clock_wall(void);

#define SBX_CLOCK_TEXT_MAX 32 /* bytes that sbx_clock_format writes at most, with the NUL */

/* sbx_clock_format - "2026-11-30T14:49:13.123Z" (UTC, RFC 3339, ms) into @buf; returns @buf */
const char *sbx_clock_format(struct timespec t, char buf[SBX_CLOCK_TEXT_MAX]);

#endif
