/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `limits` and `templates` of the configuration.  Main thread. */
#include "config_read.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT(field) offsetof(struct sbx_limits, field)

static const struct sbx_config_number limit_keys[] = {
	{ "cpu", LIMIT(cpu_milli), sbx_text_cpu, "a number of cores: 0.5, 2, 500m", 10, UINT64_MAX,
	  "0.01", NULL },
	{ "memory", LIMIT(memory_bytes), sbx_text_size, SBX_CONFIG_SIZE, 16 << 20, UINT64_MAX, "16M",
	  NULL },
	{ "disk", LIMIT(disk_bytes), sbx_text_size, SBX_CONFIG_SIZE, 1 << 20, UINT64_MAX, "1M", NULL },
	{ "pids", LIMIT(pids), sbx_text_count, "a whole number", 4, UINT64_MAX, "4", NULL },
	{ "output", LIMIT(output_bytes), sbx_text_size, SBX_CONFIG_SIZE, 1, UINT64_MAX, "1", NULL },
	{ "timeout", LIMIT(timeout_ms), sbx_text_duration, SBX_CONFIG_TIME, 1, UINT64_MAX, "1ms", NULL },
};

struct limits_at {
	struct sbx_limits *limits;
	unsigned int *own; /* which were given: bits of limit_keys */
};

static int each_limit(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "cpu",    "memory",  "disk", "pids",
					     "output", "timeout", NULL };
	struct limits_at *at = data;
	size_t i;

	for (i = 0; i < SBX_CONFIG_COUNT(limit_keys); i++) {
		struct sbx_config_number_at number = { &limit_keys[i], at->limits };

		if (strcmp(limit_keys[i].name, key) != 0)
			continue;
		*at->own |= 1U << i;
		return sbx_yaml_value(y, sbx_config_number_read, &number);
	}
	return sbx_yaml_unknown(y, line, key, known);
}

static int read_limits(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_limit, data);
}

int sbx_config_limits_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	unsigned int ignored = 0;
	struct limits_at at = { &((struct sbx_config_loader *)y->user)->base, &ignored };

	(void)data;
	return read_limits(y, v, &at);
}

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

static int read_env(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_env, data);
}

static int read_network(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	const char *text = NULL;
	enum sbx_network *ret = data;
	int r = sbx_yaml_text(y, v, &text), i;

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

static int each_of_template(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "rootfs", "network", "limits", "env", NULL };
	struct sbx_config_loader *l = y->user;
	struct sbx_template *t = data;
	struct limits_at at = { &t->limits, &l->own[t - l->config->templates] };

	if (strcmp(key, "rootfs") == 0)
		return sbx_yaml_value(y, sbx_config_path_read, &t->rootfs);
	if (strcmp(key, "network") == 0)
		return sbx_yaml_value(y, read_network, &t->network);
	if (strcmp(key, "limits") == 0)
		return sbx_yaml_value(y, read_limits, &at);
	if (strcmp(key, "env") == 0)
		return sbx_yaml_value(y, read_env, &t->env);
	return sbx_yaml_unknown(y, line, key, known);
}

static int read_template(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_of_template, data);
}

struct sbx_template *sbx_config_template_get(struct sbx_config_loader *l, const char *name)
{
	struct sbx_config *c = l->config;
	struct sbx_template *templates;
	unsigned int *own;
	size_t i;

	for (i = 0; i < c->templates_n; i++) {
		if (strcmp(c->templates[i].name, name) == 0)
			return &c->templates[i];
	}
	templates = realloc(c->templates, (c->templates_n + 1) * sizeof(*templates));
	if (templates)
		c->templates = templates;
	own = realloc(l->own, (c->templates_n + 1) * sizeof(*own));
	if (own)
		l->own = own;
	if (!templates || !own)
		return NULL;
	templates[c->templates_n] = (struct sbx_template){ .name = strdup(name) };
	own[c->templates_n] = 0;
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

int sbx_config_templates_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_template, data);
}

void sbx_config_templates_complete(struct sbx_config_loader *l)
{
	struct sbx_config *c = l->config;
	size_t i, k;

	for (i = 0; i < c->templates_n; i++) {
		for (k = 0; k < SBX_CONFIG_COUNT(limit_keys); k++) {
			size_t off = limit_keys[k].off_bytes;

			if (!(l->own[i] & 1U << k))
				memcpy((char *)&c->templates[i].limits + off,
				       (const char *)&l->base + off, sizeof(uint64_t));
		}
	}
}

void sbx_config_template_done(struct sbx_template *t)
{
	free(t->name);
	free(t->rootfs);
	sbx_config_texts_free(t->env);
}
