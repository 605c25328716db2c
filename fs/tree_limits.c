/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: BOX/limits/: what is in force, and changing it.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "base/err.h"
#include "box.h"
#include "limit.h"

#define LINE_FIRST 32 /* of the box's block of inode numbers */

static int limit_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	char text[SBX_TEXT_NUMBER_MAX];
	struct sbx_limits limits;

	(void)err;
	sbx_box_limits(ref->box, &limits);
	return sbx_buf_printf(out, "%s\n",
			      sbx_limit_kinds[ref->arg].print(*sbx_limit_at(&limits, (enum sbx_limit)ref->arg), text));
}

static int limit_write(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_later *later,
		       struct sbx_err *err)
{
	return sbx_box_limit_write(ref->box, (enum sbx_limit)ref->arg, text, len, later, err);
}

static void limit_reset(const struct sbx_ref *ref)
{
	sbx_box_limit_reset(ref->box, (enum sbx_limit)ref->arg);
}

#define LIMIT(which) .index = LINE_FIRST + (which), .arg = (which), .read = limit_read, .reset = limit_reset

static const struct sbx_file limit_files[] = {
	{ .name = "cpu", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_CPU) },
	{ .name = "memory", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_MEMORY) },
	{ .name = "disk", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_DISK) },
	{ .name = "pids", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_PIDS) },
	{ .name = "output", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_OUTPUT) },
	{ .name = "timeout", .mode = 0644, .write_later = limit_write, LIMIT(SBX_LIMIT_TIMEOUT) },
};

const struct sbx_folder sbx_limits_folder = {
	.files = limit_files,
	.n = sizeof(limit_files) / sizeof(limit_files[0]),
	.mode = 0755,
};
