/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading one value of the configuration: numbers with a unit, texts, paths; lists of texts.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS_MAX 32 /* of a table */

int sbx_config_texts_add(struct sbx_yaml *y, char ***v, const char *text)
{
	size_t n = 0;
	char **grown;

	while (*v && (*v)[n])
		n++;
	grown = realloc(*v, (n + 2) * sizeof(char *));
	if (!grown)
		return sbx_yaml_memory(y);
	*v = grown;
	grown[n + 1] = NULL;
	grown[n] = strdup(text);
	return grown[n] ? 0 : sbx_yaml_memory(y);
}

void sbx_config_texts_free(char **v)
{
	size_t i;

	for (i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

/* ---- mappings and numbers, by table ---- */

/* a mapping on its way into an object */
struct map {
	const struct sbx_config_key *keys;
	void *object;
	uint32_t *given;
};

struct at {
	const struct sbx_config_key *key;
	void *object;
};

static int read_value(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct at *at = data;

	return at->key->read(y, v, at->key, (char *)at->object + at->key->off_bytes);
}

static int each_key(struct sbx_yaml *y, const char *name, size_t line, void *data)
{
	const char *known[KEYS_MAX + 1];
	struct map *map = data;
	size_t i;

	for (i = 0; map->keys[i].name; i++) {
		struct at at = { &map->keys[i], map->object };

		if (strcmp(map->keys[i].name, name) == 0) {
			if (map->given)
				*map->given |= UINT32_C(1) << i;
			return sbx_yaml_value(y, read_value, &at);
		}
		known[i] = map->keys[i].name;
	}
	known[i] = NULL;
	return sbx_yaml_unknown(y, line, name, known);
}

int sbx_config_map(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *keys,
		   void *object, uint32_t *given)
{
	struct map map = { keys, object, given };

	return sbx_yaml_map(y, v, each_key, &map);
}

int sbx_config_parse(struct sbx_yaml *y, const char *text, size_t len, const struct sbx_config_key *keys,
		     void *object)
{
	struct map map = { keys, object, NULL };

	return sbx_yaml_parse(y, text, len, each_key, &map);
}

int sbx_config_number(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		      void *field)
{
	const char *text = NULL;
	uint64_t n;
	int r = sbx_yaml_text(y, v, &text);

	if (r < 0)
		return r;
	r = key->parse(text, strlen(text), &n);
	if (r == -EINVAL)
		return sbx_yaml_fail(y, v->line, "'%.60s' is not %s%s", text, key->form,
				     key->max == UINT64_MAX ? ", or max" : "");
	if (r < 0)
		return sbx_yaml_fail(y, v->line, "'%.60s' is out of range", text);
	if (n < key->min)
		return sbx_yaml_fail(y, v->line, "'%.60s' is too small: at least %s", text,
				     key->min_text);
	if (n > key->max)
		return sbx_yaml_fail(y, v->line, "'%.60s' is too large: at most %s", text,
				     key->max_text);
	memcpy(field, &n, sizeof(n));
	return 0;
}

/* ---- texts ---- */

static int set_text(struct sbx_yaml *y, char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return sbx_yaml_memory(y);
	free(*field);
	*field = copy;
	return 0;
}

int sbx_config_text(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field)
{
	const char *text = NULL;
	int r = sbx_yaml_text(y, v, &text);

	if (r == 0 && !*text)
		r = sbx_yaml_fail(y, v->line, "has no value");
	(void)key;
	return r < 0 ? r : set_text(y, field, text);
}

const char *sbx_config_home(void)
{
	const char *home = getenv("HOME");
	struct passwd *pw;

	if (home && home[0] == '/')
		return home;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

/* an absolute path; "~/" is the home folder */
int sbx_config_path(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field)
{
	SBX_CLEANUP(sbx_freep) char *whole = NULL;
	const char *text = NULL;
	int r = sbx_yaml_text(y, v, &text);

	if (r < 0)
		return r;
	if (strncmp(text, "~/", 2) == 0 && sbx_config_home()) {
		if (asprintf(&whole, "%s%s", sbx_config_home(), text + 1) < 0) {
			whole = NULL;
			return sbx_yaml_memory(y);
		}
		text = whole;
	}
	if (text[0] != '/')
		return sbx_yaml_fail(y, v->line, "'%.100s' must be an absolute path", text);
	(void)key;
	return set_text(y, field, text);
}
