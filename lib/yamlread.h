/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: reading YAML event by event, with the line of every value.  Not into a tree: what the caller does not ask for
 * is refused before anything of it is looked at, which bounds depth and memory.  One thread at a time.
 */
#ifndef SBX_YAMLREAD_H
#define SBX_YAMLREAD_H

#include <stdbool.h>
#include <stddef.h>

struct sbx_err;

#define SBX_YAML_PATH_MAX 160 /* "templates.NAME.limits.memory" in messages */

/* one file being read; the caller's callbacks see it */
struct sbx_yaml {
	const char *file;	      /* for messages */
	void *user;		      /* the caller's */
	struct sbx_err *err;	      /* where reasons go */
	char path[SBX_YAML_PATH_MAX]; /* keys from the top to the value being read */
	void *parser;		      /* yamlread.c's */
};

enum sbx_yaml_kind { SBX_YAML_SCALAR, SBX_YAML_LIST, SBX_YAML_MAP, SBX_YAML_OTHER };

/* a value, or the beginning of one; valid in the callback */
struct sbx_yaml_value {
	enum sbx_yaml_kind kind;
	size_t line;
	const char *text; /* of a scalar */
	bool none;	  /* a scalar that is nothing: "key:", ~, null */
	bool nul;	  /* a scalar with a NUL byte in it */
};

/* reads the value of a key */
typedef int (*sbx_yaml_read_fn)(struct sbx_yaml *y, const struct sbx_yaml_value *value, void *data);
/* called for each key of a mapping: must call sbx_yaml_value exactly once, or fail */
typedef int (*sbx_yaml_key_fn)(struct sbx_yaml *y, const char *key, size_t line, void *data);
/* called for each text of a list */
typedef int (*sbx_yaml_item_fn)(struct sbx_yaml *y, const char *text, size_t line, void *data);

/*
 * sbx_yaml_parse - reads a text whose top is one mapping, or nothing.
 * Set by the caller: @y->file, user, err.  0; -EINVAL with "FILE:LINE: KEY: what is wrong"; -ENOMEM; or what a
 * callback returned.  Duplicate keys, anchors, aliases, tags and a second document are refused.
 */
int sbx_yaml_parse(struct sbx_yaml *y, const char *text, size_t len, sbx_yaml_key_fn each,
		   void *data);

/* sbx_yaml_value - reads the value of the key that was just given, with @read */
int sbx_yaml_value(struct sbx_yaml *y, sbx_yaml_read_fn read, void *data);
/* for use in a sbx_yaml_read_fn: the value must be a mapping, a list of texts, one text; else -EINVAL and the reason */
int sbx_yaml_map(struct sbx_yaml *y, const struct sbx_yaml_value *value, sbx_yaml_key_fn each,
		 void *data);
int sbx_yaml_list(struct sbx_yaml *y, const struct sbx_yaml_value *value, sbx_yaml_item_fn each,
		  void *data);
int sbx_yaml_text(struct sbx_yaml *y, const struct sbx_yaml_value *value, const char **ret);

/* sbx_yaml_fail - "FILE:LINE: KEY: " and the reason; returns -EINVAL */
int sbx_yaml_fail(struct sbx_yaml *y, size_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* sbx_yaml_unknown - the same for a key that nobody knows: names the nearest of @known (NULL-terminated) */
int sbx_yaml_unknown(struct sbx_yaml *y, size_t line, const char *key, const char *const *known);
/* sbx_yaml_memory - -ENOMEM and its reason */
int sbx_yaml_memory(struct sbx_yaml *y);

#endif
