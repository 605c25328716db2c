/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `languages` of the configuration.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"
#include "language.h"

#include <stdlib.h>
#include <string.h>

static bool made_of(const char *text, const char *more, size_t max)
{
	size_t i;

	for (i = 0; text[i]; i++) {
		char c = text[i];

		if (i >= max || !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
				  (c >= '0' && c <= '9') || strchr(more, c)))
			return false;
	}
	return i > 0;
}

static int add_extension(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	const struct sbx_config *c = ((struct sbx_config_loader *)y->user)->config;
	struct sbx_language *lang = data;
	char **e;
	size_t i;

	if (text[0] == '.')
		return sbx_yaml_fail(y, line, "'%.60s': without the dot", text);
	if (!made_of(text, "_+-", 16))
		return sbx_yaml_fail(y, line,
				     "'%.60s' is not an extension: letters, digits, '_', '+', '-'",
				     text);
	for (i = 0; i < c->languages_n; i++) {
		for (e = c->languages[i].extensions; e && *e; e++) {
			if (strcmp(*e, text) == 0)
				return sbx_yaml_fail(y, line,
						     "'%s' belongs to language '%s' already", text,
						     c->languages[i].name);
		}
	}
	return sbx_config_texts_add(y, &lang->extensions, text);
}

static int read_extensions(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;

	sbx_config_texts_free(sbx_take(lang->extensions)); /* of an earlier file */
	return sbx_yaml_list(y, v, add_extension, lang);
}

static int add_argument(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	struct sbx_language *lang = data;

	if (strstr(text, "{code}") && strcmp(text, "{code}") != 0)
		return sbx_yaml_fail(y, line, "'%.60s': {code} must be an argument of its own",
				     text);
	return sbx_config_texts_add(y, &lang->command, text);
}

static int read_command(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;
	size_t i, codes = 0;
	int r;

	sbx_config_texts_free(sbx_take(lang->command));
	r = sbx_yaml_list(y, v, add_argument, lang);
	if (r < 0)
		return r;
	if (!lang->command || !lang->command[0][0])
		return sbx_yaml_fail(y, v->line, "must name a program");
	for (i = 0; lang->command[i]; i++)
		codes += strcmp(lang->command[i], "{code}") == 0;
	return codes > 1 ? sbx_yaml_fail(y, v->line, "{code} is there twice") : 0;
}

static int each_of_language(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "extensions", "command", NULL };

	if (strcmp(key, "extensions") == 0)
		return sbx_yaml_value(y, read_extensions, data);
	if (strcmp(key, "command") == 0)
		return sbx_yaml_value(y, read_command, data);
	return sbx_yaml_unknown(y, line, key, known);
}

static int read_language(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;
	int r = sbx_yaml_map(y, v, each_of_language, data);

	if (r == 0 && !lang->command && !sbx_language_known(NULL, lang->name))
		r = sbx_yaml_fail(y, v->line,
				  "is not built in, so it needs a command: [program, \"{code}\"]");
	return r;
}

static int each_language(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct sbx_config *c = ((struct sbx_config_loader *)y->user)->config;
	struct sbx_language *grown;
	size_t i;

	if (!made_of(key, "_+.-", 32) || strcmp(key, "auto") == 0 || strcmp(key, "shebang") == 0)
		return sbx_yaml_fail(
			y, line,
			"not a name for a language: letters, digits, '_', '+', '.', '-'; not auto");
	for (i = 0; i < c->languages_n; i++) {
		if (strcmp(c->languages[i].name, key) == 0)
			return sbx_yaml_value(y, read_language, &c->languages[i]);
	}
	grown = realloc(c->languages, (c->languages_n + 1) * sizeof(*grown));
	if (!grown)
		return sbx_yaml_memory(y);
	c->languages = grown;
	grown[c->languages_n] = (struct sbx_language){ .name = strdup(key) };
	if (!grown[c->languages_n].name)
		return sbx_yaml_memory(y);
	return sbx_yaml_value(y, read_language, &grown[c->languages_n++]);
}

int sbx_config_languages_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_language, data);
}

void sbx_config_language_done(struct sbx_language *lang)
{
	free(lang->name);
	sbx_config_texts_free(lang->extensions);
	sbx_config_texts_free(lang->command);
}
