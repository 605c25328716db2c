/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `languages` of the configuration.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "language.h"

#include <errno.h>
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

/* a language and the list that it stands in */
struct language_at {
	struct sbx_languages *list;
	struct sbx_language *language;
};

static int add_extension(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	struct language_at *at = data;
	char **e;
	size_t i;

	if (text[0] == '.')
		return sbx_yaml_fail(y, line, "'%.60s': without the dot", text);
	if (!made_of(text, "_+-", 16))
		return sbx_yaml_fail(y, line,
				     "'%.60s' is not an extension: letters, digits, '_', '+', '-'",
				     text);
	for (i = 0; i < at->list->n; i++) {
		for (e = at->list->items[i].extensions; e && *e; e++) {
			if (strcmp(*e, text) == 0)
				return sbx_yaml_fail(y, line,
						     "'%s' belongs to language '%s' already", text,
						     at->list->items[i].name);
		}
	}
	return sbx_config_texts_add(y, &at->language->extensions, text);
}

static int read_extensions(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			   void *field)
{
	struct language_at *at = field;

	(void)key;
	sbx_config_texts_free(sbx_take(at->language->extensions)); /* of an earlier file */
	return sbx_yaml_list(y, v, add_extension, at);
}

static int add_argument(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	struct sbx_language *lang = data;

	if (strstr(text, "{code}") && strcmp(text, "{code}") != 0)
		return sbx_yaml_fail(y, line, "'%.60s': {code} must be an argument of its own",
				     text);
	return sbx_config_texts_add(y, &lang->command, text);
}

static int read_command(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			void *field)
{
	struct sbx_language *lang = ((struct language_at *)field)->language;
	size_t i, codes = 0;
	int r;

	(void)key;
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

static const struct sbx_config_key language_keys[] = {
	{ "extensions", 0, read_extensions },
	{ "command", 0, read_command },
	{ NULL },
};

static int read_language(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct language_at *at = data;
	int r = sbx_config_map(y, v, language_keys, at, NULL);

	if (r < 0 || at->language->command)
		return r;
	free(at->language->at);
	if (asprintf(&at->language->at, "%s:%zu: %s", y->file, v->line, y->path) < 0) {
		at->language->at = NULL;
		return sbx_yaml_memory(y);
	}
	return 0;
}

/* the language of that name, made if it is not there; NULL: no memory */
static struct sbx_language *get(struct sbx_languages *list, const char *name)
{
	struct sbx_language *grown;
	size_t i;

	for (i = 0; i < list->n; i++) {
		if (strcmp(list->items[i].name, name) == 0)
			return &list->items[i];
	}
	grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	list->items = grown;
	grown[list->n] = (struct sbx_language){ .name = strdup(name) };
	return grown[list->n].name ? &grown[list->n++] : NULL;
}

static int each_language(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct language_at at = { data, NULL };

	if (!made_of(key, "_+.-", 32) || strcmp(key, "auto") == 0 || strcmp(key, "shebang") == 0)
		return sbx_yaml_fail(
			y, line,
			"not a name for a language: letters, digits, '_', '+', '.', '-'; not auto");
	at.language = get(at.list, key);
	return at.language ? sbx_yaml_value(y, read_language, &at) : sbx_yaml_memory(y);
}

int sbx_config_languages(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			 void *field)
{
	(void)key;
	return sbx_yaml_map(y, v, each_language, field);
}

/* a copy of a list of texts, unless there is one already */
static int inherit_texts(char ***list, char *const *base)
{
	size_t n = 0, i;

	if (*list || !base)
		return 0;
	while (base[n])
		n++;
	*list = calloc(n + 1, sizeof(char *));
	for (i = 0; *list && i < n; i++) {
		(*list)[i] = strdup(base[i]);
		if (!(*list)[i])
			return -ENOMEM;
	}
	return *list ? 0 : -ENOMEM;
}

int sbx_config_languages_inherit(struct sbx_languages *list, const struct sbx_languages *base)
{
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < base->n; i++) {
		struct sbx_language *lang = get(list, base->items[i].name);

		r = lang ? inherit_texts(&lang->command, base->items[i].command) : -ENOMEM;
		if (r == 0)
			r = inherit_texts(&lang->extensions, base->items[i].extensions);
	}
	return r;
}

int sbx_config_languages_check(const struct sbx_languages *list, struct sbx_err *err)
{
	size_t i;

	for (i = 0; i < list->n; i++) {
		const struct sbx_language *lang = &list->items[i];

		if (!lang->command && !sbx_language_known(NULL, lang->name))
			return sbx_err_set(err, EINVAL,
					   "%s: is not built in, so it needs a command: [program, \"{code}\"]", lang->at);
	}
	return 0;
}

void sbx_config_languages_done(struct sbx_languages *list)
{
	size_t i;

	for (i = 0; i < list->n; i++) {
		free(list->items[i].name);
		free(list->items[i].at);
		sbx_config_texts_free(list->items[i].extensions);
		sbx_config_texts_free(list->items[i].command);
	}
	free(list->items);
}
