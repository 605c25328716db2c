/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `limits`, `cleanup` and `templates` of the configuration.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/list.h"
#include "base/text.h"
#include "limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEANUP(field) offsetof(struct sbx_cleanup, field)
#define FIELD(field) offsetof(struct sbx_template, field)

#define LIMIT_KEY(which, name, field, parse, print, form, min, min_text)                                               \
	{ name, offsetof(struct sbx_limits, field), sbx_config_number, parse, form, min, UINT64_MAX, min_text, NULL },

static const struct sbx_config_key limit_keys[] = { SBX_LIMIT_LIST(LIMIT_KEY) { NULL } };

int sbx_config_limits(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		      void *field)
{
	struct sbx_config_loader *l = y->user;

	(void)key;
	(void)field;
	return sbx_config_map(y, v, limit_keys, &l->base.limits, NULL);
}

/* what the template says itself */
static struct sbx_config_given *given_of(const struct sbx_yaml *y, const struct sbx_template *t)
{
	struct sbx_config_loader *l = y->user;

	return &l->given[t - l->config->templates];
}

static int read_limits(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		       void *field)
{
	struct sbx_template *t = sbx_container_of(field, struct sbx_template, limits);

	(void)key;
	return sbx_config_map(y, v, limit_keys, field, &given_of(y, t)->limits);
}

/* ---- cleanup ---- */

static int read_idle_action(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			    void *field)
{
	const char *text = NULL;
	bool *deletes = field;
	int r = sbx_yaml_text(y, v, &text);

	(void)key;
	if (r < 0)
		return r;
	*deletes = strcmp(text, "delete") == 0;
	return *deletes || strcmp(text, "stop") == 0
		       ? 0
		       : sbx_yaml_fail(y, v->line, "'%.60s' is none of stop, delete", text);
}

enum { CLEANUP_IDLE, CLEANUP_ACTION, CLEANUP_AGE };

static const struct sbx_config_key cleanup_keys[] = {
	{ "idle", CLEANUP(idle_ms), SBX_CONFIG_TIME, 1000, UINT64_MAX, "1s", NULL },
	{ "idle_action", CLEANUP(idle_deletes), read_idle_action },
	{ "max_age", CLEANUP(max_age_ms), SBX_CONFIG_TIME, 1000, UINT64_MAX, "1s", NULL },
	{ NULL },
};

int sbx_config_cleanup(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		       void *field)
{
	struct sbx_config_loader *l = y->user;

	(void)key;
	(void)field;
	return sbx_config_map(y, v, cleanup_keys, &l->base.cleanup, NULL);
}

static int read_cleanup(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			void *field)
{
	struct sbx_template *t = sbx_container_of(field, struct sbx_template, cleanup);

	(void)key;
	return sbx_config_map(y, v, cleanup_keys, field, &given_of(y, t)->cleanup);
}

static void inherit_cleanup(uint32_t given, struct sbx_cleanup *c, const struct sbx_cleanup *base)
{
	if (!(given & 1U << CLEANUP_IDLE))
		c->idle_ms = base->idle_ms;
	if (!(given & 1U << CLEANUP_ACTION))
		c->idle_deletes = base->idle_deletes;
	if (!(given & 1U << CLEANUP_AGE))
		c->max_age_ms = base->max_age_ms;
}

/* ---- templates ---- */

struct env_at {
	char ***env;
	const char *name;
};

static int read_env_value(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct env_at *at = data;
	SBX_CLEANUP(sbx_freep) char *item = NULL;
	const char *text = NULL;
	size_t i, n = strlen(at->name);
	int r;

	if (v->kind == SBX_YAML_SCALAR && v->none)
		text = ""; /* NAME: is an empty value */
	else if ((r = sbx_yaml_text(y, v, &text)) < 0)
		return r;
	if (asprintf(&item, "%s=%s", at->name, text) < 0) {
		item = NULL;
		return sbx_yaml_memory(y);
	}
	for (i = 0; *at->env && (*at->env)[i]; i++) { /* of an earlier file */
		if (strncmp((*at->env)[i], item, n + 1) == 0) {
			free((*at->env)[i]);
			(*at->env)[i] = sbx_take(item);
			return 0;
		}
	}
	return sbx_config_texts_add(y, at->env, item);
}

static int each_env(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct env_at at = { data, key };

	if (!sbx_text_env_name(key, strlen(key)))
		return sbx_yaml_fail(y, line,
				     "not a name for a variable: use letters, digits and _");
	return sbx_yaml_value(y, read_env_value, &at);
}

static int read_env(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field)
{
	(void)key;
	return sbx_yaml_map(y, v, each_env, field);
}

static int read_network(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			void *field)
{
	const char *text = NULL;
	enum sbx_network *ret = field;
	int r = sbx_yaml_text(y, v, &text), i;

	(void)key;
	if (r < 0)
		return r;
	for (i = SBX_NET_NONE; i <= SBX_NET_HOST; i++) {
		if (strcmp(text, sbx_network_name((enum sbx_network)i)) == 0) {
			*ret = (enum sbx_network)i;
			return 0;
		}
	}
	return sbx_yaml_fail(y, v->line, "'%.60s' is none of none, nat, host", text);
}

static const struct sbx_config_key template_keys[] = {
	{ "rootfs", FIELD(rootfs), sbx_config_path },
	{ "runtime", FIELD(runtime), sbx_config_text },
	{ "network", FIELD(network), read_network },
	{ "limits", FIELD(limits), read_limits },
	{ "env", FIELD(env), read_env },
	{ "files", FIELD(files), sbx_config_files },
	{ "languages", FIELD(languages), sbx_config_languages },
	{ "cleanup", FIELD(cleanup), read_cleanup },
	{ NULL },
};

static int read_template(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_config_map(y, v, template_keys, data, NULL);
}

struct sbx_template *sbx_config_template_get(struct sbx_config_loader *l, const char *name)
{
	struct sbx_config *c = l->config;
	struct sbx_template *templates;
	struct sbx_config_given *given;
	size_t i;

	for (i = 0; i < c->templates_n; i++) {
		if (strcmp(c->templates[i].name, name) == 0)
			return &c->templates[i];
	}
	templates = realloc(c->templates, (c->templates_n + 1) * sizeof(*templates));
	if (templates)
		c->templates = templates;
	given = realloc(l->given, (c->templates_n + 1) * sizeof(*given));
	if (given)
		l->given = given;
	if (!templates || !given)
		return NULL;
	templates[c->templates_n] = (struct sbx_template){ .name = strdup(name) };
	given[c->templates_n] = (struct sbx_config_given){ 0 };
	return templates[c->templates_n].name ? &templates[c->templates_n++] : NULL;
}

static int each_template(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct sbx_config_loader *l = y->user;
	struct sbx_template *t;

	if (!sbx_text_box_name(key))
		return sbx_yaml_fail(
			y, line, "not a name for a template: use letters, digits, '.', '-', '_'");
	t = sbx_config_template_get(l, key);
	return t ? sbx_yaml_value(y, read_template, t) : sbx_yaml_memory(y);
}

int sbx_config_templates(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			 void *field)
{
	(void)key;
	(void)field;
	return sbx_yaml_map(y, v, each_template, NULL);
}

/* numbers that are not among @given become those of @base */
static void inherit(const struct sbx_config_key *keys, uint32_t given, void *object, const void *base)
{
	size_t i;

	for (i = 0; keys[i].name; i++) {
		if (!(given & UINT32_C(1) << i))
			memcpy((char *)object + keys[i].off_bytes, (const char *)base + keys[i].off_bytes,
			       sizeof(uint64_t));
	}
}

int sbx_config_templates_complete(struct sbx_config_loader *l, struct sbx_err *err)
{
	int r = sbx_config_languages_check(&l->config->languages, err);
	size_t i;

	for (i = 0; r == 0 && i < l->config->templates_n; i++) {
		struct sbx_template *t = &l->config->templates[i];

		inherit(limit_keys, l->given[i].limits, &t->limits, &l->base.limits);
		inherit_cleanup(l->given[i].cleanup, &t->cleanup, &l->base.cleanup);
		r = sbx_config_languages_inherit(&t->languages, &l->config->languages);
		if (r < 0)
			return sbx_err_set(err, ENOMEM, "no memory for the languages of template '%s'", t->name);
		r = sbx_config_languages_check(&t->languages, err);
	}
	l->config->cleanup = l->base.cleanup;
	return r;
}

void sbx_config_template_done(struct sbx_template *t)
{
	free(t->name);
	free(t->rootfs);
	free(t->runtime);
	sbx_config_files_done(t);
	sbx_config_texts_free(t->env);
	sbx_config_languages_done(&t->languages);
}
