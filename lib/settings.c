/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the stored form of settings.  Knows: slot.h, the provider's settings slots.  Threads: see settings.h. */
#include "settings.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "box.h"
#include "slot.h"
#include "use.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void save_slot(void *data, struct sbx_slot *slot)
{
	const char *name = slot->name[0] ? slot->name : "-";
	struct sbx_buf *out = data;
	unsigned int i;

	sbx_buf_printf(out, "%s - 0\n\n", name);
	sbx_lock(&slot->lock);
	for (i = 0; i < SBX_SETTINGS; i++) {
		if (!slot->text[i])
			continue;
		sbx_buf_printf(out, "%s %s %zu\n", name, sbx_setting_name(i), slot->text_len[i]);
		sbx_buf_append(out, slot->text[i], slot->text_len[i]);
		sbx_buf_text(out, "\n");
	}
	sbx_unlock(&slot->lock);
}

void sbx_settings_save(struct sbx_box *box)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(box);
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_buf text = SBX_BUF_INIT;
	int r;

	if (!ops->settings_save)
		return;
	sbx_lock(&box->save_lock); /* an older text must not come last */
	if (sbx_box_deleted(box)) {
		sbx_unlock(&box->save_lock);
		return;
	}
	sbx_lock(&box->lock);
	if (box->env)
		sbx_buf_printf(&text, "= env %zu\n%s\n", strlen(box->env), box->env);
	sbx_unlock(&box->lock);
	sbx_use_print(box, &text);
	save_slot(&text, box->run);
	sbx_box_slots(box, save_slot, &text);
	if (text.failed)
		r = sbx_err_set(&err, ENOMEM, "no memory");
	else
		r = ops->settings_save(box->pbox, text.data, text.len, &err);
	sbx_unlock(&box->save_lock);
	sbx_buf_done(&text);
	if (r < 0 && !sbx_box_deleted(box)) {
		sbx_err_wrap(&err, r, "settings could not be stored");
		sbx_box_fail(box, "settings", NULL, &err);
	}
}

/* one record; false: not understood */
static bool load_record(struct sbx_box *box, const char *name, const char *setting, const char *bytes, size_t len)
{
	struct sbx_slot *slot = NULL;
	unsigned int i;
	bool ok = false;

	if (strcmp(name, "=") == 0 && strcmp(setting, "used") == 0)
		return sbx_use_load(box, bytes, len);
	if (strcmp(name, "=") == 0)
		return strcmp(setting, "env") == 0 && sbx_box_env_write(box, bytes, len, NULL) == 0;
	if (strcmp(name, "-") == 0)
		slot = sbx_slot_get(box->run);
	else
		slot = sbx_box_slot_find(box, name);
	if (!slot && sbx_box_slot_new(box, name, &slot, NULL) < 0)
		return false;
	if (strcmp(setting, "-") == 0)
		ok = true;
	for (i = 0; i < SBX_SETTINGS && !ok; i++) {
		if (strcmp(setting, sbx_setting_name(i)) == 0)
			ok = sbx_slot_write(slot, i, bytes, len, NULL) == 0;
	}
	sbx_slot_put(slot);
	return ok;
}

void sbx_settings_load(struct sbx_box *box)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(box);
	struct sbx_err err = SBX_ERR_INIT;
	SBX_CLEANUP(sbx_freep) char *text = NULL;
	size_t len = 0, off = 0;
	int r;

	if (!ops->settings_load)
		return;
	r = ops->settings_load(box->pbox, &text, &len, &err);
	if (r == -ENOENT)
		return;
	box->loading = true;
	while (r == 0 && off < len) {
		char name[SBX_NAME_MAX], setting[16], line[128];
		const char *nl = memchr(text + off, '\n', len - off);
		size_t n = nl ? (size_t)(nl - (text + off)) : 0, bytes;

		if (!nl || n >= sizeof(line)) {
			r = sbx_err_set(&err, EINVAL, "stored settings are damaged");
			break;
		}
		memcpy(line, text + off, n);
		line[n] = '\0';
		off += n + 1;
		if (sscanf(line, "%63s %15s %zu", name, setting, &bytes) != 3 || bytes >= len - off) {
			r = sbx_err_set(&err, EINVAL, "stored settings are damaged");
			break;
		}
		if (!load_record(box, name, setting, text + off, bytes))
			sbx_err_set(&err, EINVAL, "stored setting '%s' of '%s' was left out", setting, name);
		off += bytes + 1;
	}
	box->loading = false;
	if (err.code)
		sbx_box_fail(box, "settings", NULL, &err);
}
