/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: .sbxfs: README, version, source, config, events, errors, stats, and the way to templates/.  Any thread. */
#include "synth.h"

#include "base/buf.h"
#include "catalog.h"
#include "config_text.h"
#include "fs.h"
#include "node.h"
#include "open.h"
#include "park.h"
#include "readme.h"

#include <errno.h>
#include <inttypes.h>

enum { LINE_README = 16, LINE_VERSION, LINE_SOURCE, LINE_EVENTS, LINE_ERRORS, LINE_CONFIG, LINE_STATS, LINE_TEMPLATES };

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

static int config_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)ref;
	(void)err;
	return sbx_config_print(sbx_fs.config, out);
}

static int stats_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	struct sbx_stats stats;

	(void)ref;
	(void)err;
	sbx_catalog_stats(sbx_fs.catalog, &stats);
	return sbx_buf_printf(out,
			      "boxes %" PRIu64 "\nruns_started %" PRIu64 "\nruns_active %" PRIu64 "\nfailures %" PRIu64
			      "\nspool_bytes %" PRIu64 "\nwaiting_requests %u\nopen_files %" PRIu64 "\nnodes %" PRIu64 "\n",
			      stats.boxes, stats.runs_started, stats.runs_active, stats.failures, stats.spool_bytes,
			      sbx_park_count(), sbx_open_count(), sbx_node_count());
}

static size_t events_read_at(const struct sbx_ref *ref, uint64_t *off, char *buf, size_t size)
{
	(void)ref;
	return sbx_events_read(&sbx_fs.catalog->events, off, buf, size);
}

static uint64_t events_length(const struct sbx_ref *ref)
{
	(void)ref;
	return sbx_events_len(&sbx_fs.catalog->events);
}

static const struct sbx_file control_files[] = {
	{ .name = "README", .index = LINE_README, .mode = 0444, .read = readme_read },
	{ .name = "config", .index = LINE_CONFIG, .mode = 0444, .read = config_read },
	{ .name = "errors", .index = LINE_ERRORS, .mode = 0444, .read = errors_read },
	{ .name = "events", .index = LINE_EVENTS, .mode = 0444, .flags = SBX_FILE_LOG, .read_at = events_read_at, .length = events_length },
	{ .name = "source", .index = LINE_SOURCE, .mode = 0444, .read = source_read },
	{ .name = "stats", .index = LINE_STATS, .mode = 0444, .read = stats_read },
	{ .name = "templates", .index = LINE_TEMPLATES, .folder = &sbx_templates_folder },
	{ .name = "version", .index = LINE_VERSION, .mode = 0444, .read = version_read },
};

const struct sbx_folder sbx_control_folder = {
	.files = control_files,
	.n = sizeof(control_files) / sizeof(control_files[0]),
	.mode = 0755,
};
