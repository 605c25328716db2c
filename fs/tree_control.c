/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: .sbxfs: README, version, source, events, errors.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "catalog.h"
#include "fs.h"
#include "readme.h"

#include <errno.h>

enum { LINE_README = 16, LINE_VERSION, LINE_SOURCE, LINE_EVENTS, LINE_ERRORS };

static int readme_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)err;
	return sbx_buf_text(out, sbx_readme);
}

static int version_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)err;
	return sbx_buf_text(out, "sbxfs " SBX_VERSION "\n");
}

static int source_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)err;
	return sbx_buf_printf(out, "%s\n", sbx_fs.source);
}

static int errors_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)err;
	return sbx_catalog_errors(sbx_fs.catalog, out);
}

static ssize_t events_read_at(const struct sbx_ref *ref, uint64_t off, char *buf, size_t size)
{
	(void)ref;
	return sbx_spool_read(&sbx_fs.catalog->events, off, buf, size);
}

static uint64_t events_length(const struct sbx_ref *ref)
{
	(void)ref;
	return sbx_spool_len(&sbx_fs.catalog->events);
}

static const struct sbx_file control_files[] = {
	{ .name = "README", .index = LINE_README, .mode = 0444, .read = readme_read },
	{ .name = "errors", .index = LINE_ERRORS, .mode = 0444, .read = errors_read },
	{ .name = "events", .index = LINE_EVENTS, .mode = 0444, .flags = SBX_FILE_LOG, .read_at = events_read_at, .length = events_length },
	{ .name = "source", .index = LINE_SOURCE, .mode = 0444, .read = source_read },
	{ .name = "version", .index = LINE_VERSION, .mode = 0444, .read = version_read },
};

const struct sbx_folder sbx_control_folder = {
	.files = control_files,
	.n = sizeof(control_files) / sizeof(control_files[0]),
	.mode = 0755,
};
