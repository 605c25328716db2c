/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the configuration as text.  Pure; any thread. */
#include "config_text.h"

#include "base/buf.h"
#include "base/text.h"
#include "limit.h"
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* a double-quoted YAML string: JSON's escapes are YAML's too; bytes that are no UTF-8 as \xNN */
static void quoted(struct sbx_buf *out, const char *text, size_t len)
{
	struct sbx_utf8 check = { 0 };
	size_t i;

	sbx_buf_text(out, "\"");
	sbx_utf8_feed(&check, text, len);
	if (sbx_utf8_ok(&check)) {
		sbx_json_escape(out, text, len);
	} else {
		for (i = 0; i < len; i++)
			sbx_buf_printf(out, "\\x%02x", (unsigned char)text[i]);
	}
	sbx_buf_text(out, "\"");
}

static void key_text(struct sbx_buf *out, const char *indent, const char *key, const char *value)
{
	if (!value)
		return;
	sbx_buf_printf(out, "%s%s: ", indent, key);
	quoted(out, value, strlen(value));
	sbx_buf_text(out, "\n");
}

static void key_list(struct sbx_buf *out, const char *indent, const char *key, char *const *list)
{
	const char *comma = "";

	if (!list)
		return;
	sbx_buf_printf(out, "%s%s: [", indent, key);
	for (; *list; list++) {
		sbx_buf_text(out, comma);
		quoted(out, *list, strlen(*list));
		comma = ", ";
	}
	sbx_buf_text(out, "]\n");
}

static void key_duration(struct sbx_buf *out, const char *indent, const char *key, uint64_t ms)
{
	char n[SBX_TEXT_NUMBER_MAX];

	sbx_buf_printf(out, "%s%s: %s%s\n", indent, key, sbx_text_print_duration(ms, n),
		       ms == UINT64_MAX ? "" : "s");
}

static void key_size(struct sbx_buf *out, const char *indent, const char *key, uint64_t bytes)
{
	char n[SBX_TEXT_NUMBER_MAX];

	sbx_buf_printf(out, "%s%s: %s\n", indent, key, sbx_text_print_size(bytes, n));
}

static void languages(struct sbx_buf *out, const char *indent, const struct sbx_languages *list)
{
	char deeper[32];
	size_t i;

	if (list->n == 0)
		return;
	sbx_buf_printf(out, "%slanguages:\n", indent);
	snprintf(deeper, sizeof(deeper), "%s    ", indent);
	for (i = 0; i < list->n; i++) {
		sbx_buf_printf(out, "%s  %s:\n", indent, list->items[i].name);
		key_list(out, deeper, "extensions", list->items[i].extensions);
		key_list(out, deeper, "command", list->items[i].command);
	}
}

static void files(struct sbx_buf *out, const char *indent, const struct sbx_template *t)
{
	size_t i;

	if (t->files_n > 0)
		sbx_buf_printf(out, "%sfiles:\n", indent);
	for (i = 0; i < t->files_n; i++) {
		sbx_buf_printf(out, "%s  ", indent);
		quoted(out, t->files[i].to, strlen(t->files[i].to));
		sbx_buf_text(out, ": {from: ");
		quoted(out, t->files[i].from, strlen(t->files[i].from));
		if (t->files[i].mode != UINT64_MAX)
			sbx_buf_printf(out, ", mode: \"%03o\"", (unsigned int)t->files[i].mode);
		sbx_buf_text(out, "}\n");
	}
}

static void cleanup(struct sbx_buf *out, const char *indent, const struct sbx_cleanup *c)
{
	char deeper[32];

	sbx_buf_printf(out, "%scleanup:\n", indent);
	snprintf(deeper, sizeof(deeper), "%s  ", indent);
	key_duration(out, deeper, "idle", c->idle_ms);
	sbx_buf_printf(out, "%sidle_action: %s\n", deeper, c->idle_deletes ? "delete" : "stop");
	key_duration(out, deeper, "max_age", c->max_age_ms);
}

int sbx_template_print(const struct sbx_template *template, const char *indent, struct sbx_buf *out)
{
	struct sbx_limits limits = template->limits;
	size_t i;
	char n[SBX_TEXT_NUMBER_MAX], deeper[32];
	char *const *env;

	key_text(out, indent, "rootfs", template->rootfs);
	key_text(out, indent, "runtime", template->runtime);
	sbx_buf_printf(out, "%snetwork: %s\n", indent, sbx_network_name(template->network));
	sbx_buf_printf(out, "%slimits:\n", indent);
	snprintf(deeper, sizeof(deeper), "%s  ", indent);
	for (i = 0; i < SBX_LIMITS; i++)
		sbx_buf_printf(out, "%s%s: %s\n", deeper, sbx_limit_kinds[i].name,
			       sbx_limit_kinds[i].print(*sbx_limit_at(&limits, (enum sbx_limit)i), n));
	if (template->env && template->env[0]) {
		sbx_buf_printf(out, "%senv:\n", indent);
		for (env = template->env; *env; env++) {
			size_t name = strcspn(*env, "=");

			sbx_buf_printf(out, "%s%.*s: ", deeper, (int)name, *env);
			quoted(out, *env + name + 1, strlen(*env + name + 1));
			sbx_buf_text(out, "\n");
		}
	}
	files(out, indent, template);
	languages(out, indent, &template->languages);
	cleanup(out, indent, &template->cleanup);
	return out->failed ? -ENOMEM : 0;
}

int sbx_config_print(const struct sbx_config *config, struct sbx_buf *out)
{
	size_t i;

	key_text(out, "", "state_dir", config->state_dir);
	key_text(out, "", "oci_runtime", config->oci_runtime);
	key_text(out, "", "network_tool", config->network_tool);
	key_text(out, "", "log", config->log);
	key_text(out, "", "template", config->default_template);
	key_duration(out, "", "max_wait", config->max_wait_ms);
	key_duration(out, "", "op_timeout", config->op_timeout_ms);
	key_size(out, "", "disk_reserve", config->disk_reserve_bytes);
	key_size(out, "", "spool", config->spool_bytes);
	key_size(out, "", "events_max", config->events_bytes);
	key_size(out, "", "code_max", config->code_bytes);
	if (config->policy_deny && config->policy_deny[0]) {
		sbx_buf_text(out, "policy:\n");
		key_list(out, "  ", "deny", config->policy_deny);
	}
	languages(out, "", &config->languages);
	cleanup(out, "", &config->cleanup);
	sbx_buf_text(out, "templates:\n");
	for (i = 0; i < config->templates_n; i++) {
		sbx_buf_printf(out, "  %s:\n", config->templates[i].name);
		sbx_template_print(&config->templates[i], "    ", out);
	}
	return out->failed ? -ENOMEM : 0;
}
