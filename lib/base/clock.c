/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: time.  Any thread. */
#include "base/clock.h"

#include <stdio.h>

uint64_t sbx_clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct timespec sbx_clock_wall(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

const char *sbx_clock_format(struct timespec t, char buf[SBX_CLOCK_TEXT_MAX])
{
	struct tm tm;
	size_t n;

	gmtime_r(&t.tv_sec, &tm);
	n = strftime(buf, SBX_CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, SBX_CLOCK_TEXT_MAX - n, ".%03dZ", (int)(t.tv_nsec / 1000000) % 1000);
	return buf;
}
