/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: BOX/usage, BOX/ports and BOX/monitor/: what a box uses now and used lately, and where it listens.  Any thread. */
#include "tree_monitor.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "box.h"
#include "monitor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SPAN_MAX_S (SBX_MONITOR_SPAN_MS / 1000)

int sbx_usage_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	return sbx_monitor_usage(&ref->box->monitor, out, err);
}

static void add_port(void *data, unsigned int port, const char *url)
{
	struct sbx_buf *out = data;

	if (url)
		sbx_buf_printf(out, "%u %s\n", port, url);
	else
		sbx_buf_printf(out, "%u\n", port);
}

int sbx_ports_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(ref->box);
	int r = ops->ports ? ops->ports(sbx_box_pbox(ref->box), add_port, out, err) : 0;

	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}

/* ---- monitor/: any span can be opened by name; the number of its inode is the span in seconds ---- */

static int span_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err)
{
	(void)err;
	return sbx_monitor_history(&ref->box->monitor, ref->arg * 1000, out);
}

static const struct sbx_file span_file = { .name = "", .mode = 0444, .read = span_read };

static int span_lookup(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr)
{
	struct sbx_ref own = { .box = ref->box };
	size_t len = strlen(name);
	uint64_t ms;

	/* a unit is asked for: "90" is more likely a mistake than 90 s */
	if (len < 2 || strchr("smh", name[len - 1]) == NULL || sbx_text_duration(name, len, &ms) < 0 || ms < 1000 ||
	    ms > SBX_MONITOR_SPAN_MS || ms % 1000 != 0)
		return -ENOENT;
	own.arg = ms / 1000;
	return sbx_synth_node(&own, &sbx_monitor_folder, &span_file, NULL, ref->box->monitor_ino + own.arg, ret, attr);
}

static int span_list(const struct sbx_ref *ref, struct sbx_names *names)
{
	static const struct {
		const char *name;
		unsigned int s;
	} usual[] = { { "1m", 60 }, { "10m", 600 }, { "1h", 3600 } };
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < sizeof(usual) / sizeof(usual[0]); i++)
		r = sbx_names_add(names, usual[i].name, ref->box->monitor_ino + usual[i].s, S_IFREG);
	return r;
}

_Static_assert(SPAN_MAX_S < SBX_MONITOR_INOS, "a number for every span");

const struct sbx_folder sbx_monitor_folder = {
	.mode = 0555,
	.lookup = span_lookup,
	.list = span_list,
};
