/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `files` of a template: what of the host a new box finds in its workspace.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"
#include "base/list.h"
#include "base/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(field) offsetof(struct sbx_template_file, field)

/* "a/b", "." is the workspace itself */
static bool place_ok(const char *to)
{
	size_t n;

	if (strcmp(to, ".") == 0)
		return true;
	if (strlen(to) >= PATH_MAX)
		return false;
	for (;; to += n + 1) {
		n = strcspn(to, "/");
		if (n == 0 || n > NAME_MAX || (n == 1 && to[0] == '.') || (n == 2 && to[0] == '.' && to[1] == '.'))
			return false;
		if (to[n] == '\0')
			return true;
	}
}

/* permission bits, as chmod takes them */
static int read_mode(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key, void *field)
{
	const char *text = NULL;
	uint64_t *mode = field;
	int r = sbx_yaml_text(y, v, &text);

	(void)key;
	if (r < 0)
		return r;
	if (!text[0] || strlen(text) > 4 || strspn(text, "01234567") != strlen(text) || strtoul(text, NULL, 8) > 0777)
		return sbx_yaml_fail(y, v->line, "'%.60s' is not a mode: octal, 0 to 777", text);
	*mode = strtoul(text, NULL, 8);
	return 0;
}

static const struct sbx_config_key file_keys[] = {
	{ "from", FIELD(from), sbx_config_path },
	{ "mode", FIELD(mode), read_mode },
	{ NULL },
};

/* "TO: /from", or "TO: {from: /from, mode: 755}" */
static int read_file(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_template_file *file = data;
	int r;

	if (v->kind == SBX_YAML_SCALAR && !v->none)
		return sbx_config_path(y, v, NULL, &file->from);
	r = sbx_config_map(y, v, file_keys, file, NULL);
	if (r == 0 && !file->from)
		r = sbx_yaml_fail(y, v->line, "needs a path: from: /path");
	return r;
}

static int each_file(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct sbx_template *t = data;
	struct sbx_template_file *grown;
	size_t i;

	if (!place_ok(key))
		return sbx_yaml_fail(y, line, "not a place in the workspace: names with '/' between them, or '.'");
	for (i = 0; i < t->files_n; i++) {
		if (strcmp(t->files[i].to, key) == 0)
			return sbx_yaml_value(y, read_file, &t->files[i]); /* of an earlier file */
	}
	grown = realloc(t->files, (t->files_n + 1) * sizeof(*grown));
	if (!grown)
		return sbx_yaml_memory(y);
	t->files = grown;
	grown[t->files_n] = (struct sbx_template_file){ .to = strdup(key), .mode = UINT64_MAX };
	if (!grown[t->files_n].to)
		return sbx_yaml_memory(y);
	return sbx_yaml_value(y, read_file, &grown[t->files_n++]);
}

int sbx_config_files(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key, void *field)
{
	(void)key;
	return sbx_yaml_map(y, v, each_file, sbx_container_of(field, struct sbx_template, files));
}

void sbx_config_files_done(struct sbx_template *t)
{
	size_t i;

	for (i = 0; i < t->files_n; i++) {
		free(t->files[i].to);
		free(t->files[i].from);
	}
	free(t->files);
}
