/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the files that read the configuration share: config.c (the whole), config_value.c (one value),
 * config_template.c and config_language.c.  For them only.  Main thread.
 */
#ifndef SBX_CONFIG_READ_H
#define SBX_CONFIG_READ_H

#include "config.h"
#include "yamlread.h"

#include <stddef.h>
#include <stdint.h>

/* what is read: the configuration, and what is needed to complete it at the end; sbx_yaml.user points to it */
struct sbx_config_loader {
	struct sbx_config *config;
	struct sbx_limits base; /* `limits`: of every template that does not say otherwise */
	unsigned int *own;	/* per template: which limits it has of its own, bits of the table of limits */
	char template_at[300];	/* "FILE:LINE: " of `template` */
};

/* ---- config_value.c ---- */

/* a number with a unit; sbx_config_number_read gets a struct sbx_config_number_at as its data */
struct sbx_config_number {
	const char *name;
	size_t off_bytes; /* of a uint64_t */
	int (*parse)(const char *text, size_t len, uint64_t *ret);
	const char *form;
	uint64_t min, max; /* max: UINT64_MAX = "max" is allowed */
	const char *min_text, *max_text;
};

struct sbx_config_number_at {
	const struct sbx_config_number *key;
	void *object;
};

#define SBX_CONFIG_SIZE "a size: bytes, or 64M, 1.5G"
#define SBX_CONFIG_TIME "a time: seconds, or 500ms, 30s, 5m, 2h"
#define SBX_CONFIG_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* readers of values (sbx_yaml_read_fn).  text, path: @data is a char **; path: absolute, "~/" is the home folder */
int sbx_config_number_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);
int sbx_config_text_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);
int sbx_config_path_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);

/* sbx_config_texts_add - append a copy to a NULL-terminated list.   sbx_config_texts_free: NULL is fine */
int sbx_config_texts_add(struct sbx_yaml *y, char ***list, const char *text);
void sbx_config_texts_free(char **list);
/* sbx_config_home - the user's home folder, absolute; NULL: not known */
const char *sbx_config_home(void);

/* ---- config_template.c ---- */

/* sbx_config_limits_read - the top level's `limits` into loader->base.   templates_read: `templates` */
int sbx_config_limits_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);
int sbx_config_templates_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);
/* sbx_config_template_get - by name; made if it is not there.  NULL: no memory */
struct sbx_template *sbx_config_template_get(struct sbx_config_loader *l, const char *name);
/* sbx_config_templates_complete - what a template does not say itself is as in loader->base */
void sbx_config_templates_complete(struct sbx_config_loader *l);
void sbx_config_template_done(struct sbx_template *t);

/* ---- config_language.c ---- */

/* sbx_config_languages_read - `languages` */
int sbx_config_languages_read(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data);
void sbx_config_language_done(struct sbx_language *lang);

#endif
