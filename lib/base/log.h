/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the daemon's log: stderr in the foreground, syslog behind.  lib/ logs only debug; fs/ logs
 * each failure once.  Never code, output or secrets.  Any thread.
 */
#ifndef SBX_BASE_LOG_H
#define SBX_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum sbx_log_level { SBX_LOG_ERROR, SBX_LOG_WARNING, SBX_LOG_INFO, SBX_LOG_DEBUG };

/* components whose debug lines can be switched on one by one */
enum sbx_log_part {
	SBX_LOG_FUSE,
	SBX_LOG_RUN,
	SBX_LOG_BOX,
	SBX_LOG_LOCAL,
	SBX_LOG_HTTP,
	SBX_LOG_PARTS,
};

/* sbx_log_open - before threads start.  @to_syslog: there is no terminal */
void sbx_log_open(bool to_syslog);
/* sbx_log_parts - "run,box" or "all" as bits; -EINVAL: an unknown part */
int sbx_log_parts(const char *parts, unsigned int *ret);
#define SBX_LOG_PARTS_TEXT "fuse, run, box, local, http" /* for messages */
/* sbx_log_enable - debug lines of these parts */
void sbx_log_enable(unsigned int parts);
bool sbx_log_on(enum sbx_log_part part);
void sbx_log_write(enum sbx_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define sbx_debug(part, ...)                                                                       \
	do {                                                                                       \
		if (sbx_log_on(part))                                                              \
			sbx_log_write(SBX_LOG_DEBUG, __VA_ARGS__);                                 \
	} while (0)

#endif
