/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: where log lines go.  Any thread; sbx_log_open and sbx_log_enable before threads start. */
#include "base/log.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

static const char *const part_names[SBX_LOG_PARTS] = { "fuse", "run", "box", "local", "http" };
static const char *const level_names[] = { "error", "warning", "info", "debug" };
static const int level_syslog[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
static unsigned int parts_on;
static bool use_syslog;

void sbx_log_open(bool to_syslog)
{
	use_syslog = to_syslog;
	if (to_syslog)
		openlog("sbxfs", LOG_PID, LOG_DAEMON);
}

int sbx_log_parts(const char *parts, unsigned int *ret)
{
	const char *p = parts;

	*ret = 0;
	while (*p) {
		size_t n = strcspn(p, ","), i;

		for (i = 0; i < SBX_LOG_PARTS; i++) {
			if (strlen(part_names[i]) == n && strncmp(part_names[i], p, n) == 0)
				break;
		}
		if (i < SBX_LOG_PARTS)
			*ret |= 1u << i;
		else if (n == 3 && strncmp(p, "all", 3) == 0)
			*ret = ~0u;
		else
			return -EINVAL;
		p += n;
		if (*p == ',')
			p++;
	}
	return 0;
}

void sbx_log_enable(unsigned int parts)
{
	parts_on |= parts;
}

bool sbx_log_on(enum sbx_log_part part)
{
	return (parts_on >> part) & 1;
}

void sbx_log_write(enum sbx_log_level level, const char *fmt, ...)
{
	char line[1024], when[SBX_CLOCK_TEXT_MAX];
	va_list ap;
	char *p;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (p = line; *p; p++) { /* a name from a sandbox must not forge a second line */
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	}
	if (use_syslog)
		syslog(level_syslog[level], "%s", line);
	else
		fprintf(stderr, "%s sbxfs[%d]: %s: %s\n",
			sbx_clock_format(sbx_clock_wall(), when), (int)getpid(), level_names[level],
			line);
}
