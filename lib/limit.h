/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the limits of a box are called, their text forms and their smallest values: one table for the configuration, limits/,
 * info.json and what is stored.  Pure functions; any thread.
 */
#ifndef SBX_LIMIT_H
#define SBX_LIMIT_H

#include "base/text.h"
#include "provider.h"

#include <stddef.h>
#include <stdint.h>

struct sbx_err;

#define SBX_LIMIT_SIZE_FORM "a size: bytes, or 64M, 1.5G"
/* which, name, field of struct sbx_limits, parser, printer, what is allowed, smallest, the same as text */
#define SBX_LIMIT_LIST(X)                                                                                              \
	X(CPU, "cpu", cpu_milli, sbx_text_cpu, sbx_text_print_cpu, "a number of cores: 0.5, 2, 500m", 10, "0.01")      \
	X(MEMORY, "memory", memory_bytes, sbx_text_size, sbx_text_print_size, SBX_LIMIT_SIZE_FORM, 16 << 20, "16M")    \
	X(DISK, "disk", disk_bytes, sbx_text_size, sbx_text_print_size, SBX_LIMIT_SIZE_FORM, 1 << 20, "1M")            \
	X(PIDS, "pids", pids, sbx_text_count, sbx_text_print_size, "a whole number", 4, "4")                           \
	X(OUTPUT, "output", output_bytes, sbx_text_size, sbx_text_print_size, SBX_LIMIT_SIZE_FORM, 1, "1")             \
	X(TIMEOUT, "timeout", timeout_ms, sbx_text_duration, sbx_text_print_duration,                                  \
	  "a time: seconds, or 500ms, 30s, 5m, 2h", 1, "1ms")

struct sbx_limit_kind {
	const char *name;   /* of the file in limits/ and of the key in the configuration */
	const char *stored; /* of the key in box.json, with the unit of the number */
	size_t off_bytes;   /* in struct sbx_limits */
	int (*parse)(const char *text, size_t len, uint64_t *ret);
	const char *(*print)(uint64_t value, char buf[SBX_TEXT_NUMBER_MAX]);
	const char *form; /* "a size: ..." for messages */
	uint64_t min;
	const char *min_text;
};

extern const struct sbx_limit_kind sbx_limit_kinds[SBX_LIMITS];

/* sbx_limit_at - the field of one limit; UINT64_MAX there = none */
static inline uint64_t *sbx_limit_at(struct sbx_limits *limits, enum sbx_limit which)
{
	return (uint64_t *)(void *)((char *)limits + sbx_limit_kinds[which].off_bytes);
}

/* sbx_limit_parse - "512M" for memory.  0, or -EINVAL with what is allowed as the reason. */
int sbx_limit_parse(enum sbx_limit which, const char *text, size_t len, uint64_t *ret, struct sbx_err *err);

#endif
