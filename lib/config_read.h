/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the files that read the configuration share: config.c (the whole), config_value.c (one value),
 * config_template.c, config_files.c and config_language.c.  For them only.  Main thread.
 *
 * Each mapping is a table of its keys, NAME_keys[]: the parser knows nothing else, and tests/unit/test_docs.py compares
 * the tables with the documentation.
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
	struct sbx_template base; /* what the top level says for every template that does not say otherwise */
	struct sbx_config_given *given; /* per template: what it says itself */
	char template_at[300];	  /* "FILE:LINE: " of `template` */
};

/* ---- config_value.c ---- */

/* one key of a mapping; a table of them ends with one without a name */
struct sbx_config_key {
	const char *name;
	size_t off_bytes; /* of the field in the object that the mapping is read into */
	/* read - the value into @field */
	int (*read)(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field);
	/* of a number, a uint64_t: sbx_config_number */
	int (*parse)(const char *text, size_t len, uint64_t *ret);
	const char *form;
	uint64_t min, max; /* max: UINT64_MAX = "max" is allowed */
	const char *min_text, *max_text;
};

#define SBX_CONFIG_SIZE sbx_config_number, sbx_text_size, "a size: bytes, or 64M, 1.5G"
#define SBX_CONFIG_TIME sbx_config_number, sbx_text_duration, "a time: seconds, or 500ms, 30s, 5m, 2h"

/*
 * sbx_config_map - @v is a mapping with the keys of @keys (at most 32), read into @object.
 * @given: bit i is set when keys[i] was there; may be NULL
 */
int sbx_config_map(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *keys,
		   void *object, uint32_t *given);
/* sbx_config_parse - a whole file: see sbx_yaml_parse */
int sbx_config_parse(struct sbx_yaml *y, const char *text, size_t len, const struct sbx_config_key *keys,
		     void *object);

/* readers.  text, path: the field is a char *, replaced; a path is absolute, "~/" is the home folder */
int sbx_config_number(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		      void *field);
int sbx_config_text(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field);
int sbx_config_path(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		    void *field);

/* sbx_config_texts_add - append a copy to a NULL-terminated list.   sbx_config_texts_free: NULL is fine */
int sbx_config_texts_add(struct sbx_yaml *y, char ***list, const char *text);
void sbx_config_texts_free(char **list);
/* sbx_config_home - the user's home folder, absolute; NULL: not known */
const char *sbx_config_home(void);

/* ---- config_template.c ---- */

/* which values a template has of its own: bits of the tables of keys */
struct sbx_config_given {
	uint32_t limits, cleanup;
};

/* sbx_config_limits, sbx_config_cleanup - `limits`, `cleanup` at the top, into loader->base.   sbx_config_templates: `templates`.  @field is not used */
int sbx_config_limits(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		      void *field);
int sbx_config_cleanup(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		       void *field);
int sbx_config_templates(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			 void *field);
/* sbx_config_template_get - by name; made if it is not there.  NULL: no memory */
struct sbx_template *sbx_config_template_get(struct sbx_config_loader *l, const char *name);
/* sbx_config_templates_complete - what a template does not say itself is as at the top.  -ENOMEM, or a language without a command */
int sbx_config_templates_complete(struct sbx_config_loader *l, struct sbx_err *err);
void sbx_config_template_done(struct sbx_template *t);

/* ---- config_files.c ---- */

/* sbx_config_files - `files` of a template; the field is its `files` */
int sbx_config_files(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		     void *field);
void sbx_config_files_done(struct sbx_template *t);

/* ---- config_language.c ---- */

/* sbx_config_languages - `languages`; the field is a struct sbx_languages */
int sbx_config_languages(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
			 void *field);
/*
 * sbx_config_languages_inherit - adds what @base has and @list does not: whole languages, and of a language of both its
 * command or its extensions.  -ENOMEM
 */
int sbx_config_languages_inherit(struct sbx_languages *list, const struct sbx_languages *base);
/* sbx_config_languages_check - can each be started? -EINVAL: one that is not built in has no command; only at the end is it known */
int sbx_config_languages_check(const struct sbx_languages *list, struct sbx_err *err);
void sbx_config_languages_done(struct sbx_languages *list);

#endif
