/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the walk over libyaml's events.  The only file that knows libyaml.  One thread at a time per object. */
#include "yamlread.h"

#include "base/cleanup.h"
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define KEYS_MAX 256 /* of one mapping */

/* ---- reasons ---- */

int sbx_yaml_fail(struct sbx_yaml *y, size_t line, const char *fmt, ...)
{
	char what[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return sbx_err_set(y->err, EINVAL, "%s:%zu: %s%s%s", y->file, line, y->path,
			   y->path[0] ? ": " : "", what);
}

int sbx_yaml_memory(struct sbx_yaml *y)
{
	return sbx_err_set(y->err, ENOMEM, "no memory to read '%s'", y->file);
}

/* edit distance, a swap of neighbours counts one; names longer than the table are far from everything */
static size_t distance(const char *a, const char *b)
{
	size_t d[34][34], n = strlen(a), m = strlen(b), i, k;

	if (n > 32 || m > 32)
		return 99;
	for (i = 0; i <= n; i++)
		d[i][0] = i;
	for (k = 0; k <= m; k++)
		d[0][k] = k;
	for (i = 1; i <= n; i++) {
		for (k = 1; k <= m; k++) {
			size_t best = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);

			if (d[i - 1][k] + 1 < best)
				best = d[i - 1][k] + 1;
			if (d[i][k - 1] + 1 < best)
				best = d[i][k - 1] + 1;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    d[i - 2][k - 2] + 1 < best)
				best = d[i - 2][k - 2] + 1;
			d[i][k] = best;
		}
	}
	return d[n][m];
}

int sbx_yaml_unknown(struct sbx_yaml *y, size_t line, const char *key, const char *const *known)
{
	size_t best = 99, i, n;
	const char *nearest = NULL;
	char all[200] = "";

	for (i = 0; known[i]; i++) {
		size_t d = distance(key, known[i]);

		if (d < best) {
			best = d;
			nearest = known[i];
		}
		n = strlen(all);
		snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", known[i]);
	}
	if (nearest && best <= 1 + strlen(key) / 2)
		return sbx_yaml_fail(y, line, "unknown key, did you mean '%s'?", nearest);
	return sbx_yaml_fail(y, line, "unknown key; known here: %s", all);
}

/* ---- events ---- */

static void event_done(yaml_event_t *ev)
{
	yaml_event_delete(ev);
}

/* the next event; anchors, aliases and tags are refused: a value is written where it counts */
static int next(struct sbx_yaml *y, yaml_event_t *ev)
{
	yaml_parser_t *parser = y->parser;
	const yaml_char_t *anchor = NULL, *tag = NULL;
	size_t line;

	if (!yaml_parser_parse(parser, ev)) {
		memset(ev, 0, sizeof(*ev));
		/* an error of the reader (not UTF-8) has no mark; the parser stands before it */
		line = parser->error == YAML_READER_ERROR ? parser->mark.line
							  : parser->problem_mark.line;
		if (parser->error == YAML_MEMORY_ERROR)
			return sbx_yaml_memory(y);
		return sbx_err_set(y->err, EINVAL, "%s:%zu: not YAML: %s%s%s", y->file, line + 1,
				   parser->problem ? parser->problem : "cannot be read",
				   parser->context ? " " : "",
				   parser->context ? parser->context : "");
	}
	if (ev->type == YAML_SCALAR_EVENT) {
		anchor = ev->data.scalar.anchor;
		tag = ev->data.scalar.tag;
	} else if (ev->type == YAML_MAPPING_START_EVENT) {
		anchor = ev->data.mapping_start.anchor;
		tag = ev->data.mapping_start.tag;
	} else if (ev->type == YAML_SEQUENCE_START_EVENT) {
		anchor = ev->data.sequence_start.anchor;
		tag = ev->data.sequence_start.tag;
	}
	line = ev->start_mark.line + 1;
	if (anchor || ev->type == YAML_ALIAS_EVENT)
		return sbx_yaml_fail(
			y, line,
			"anchors and aliases (& and *) are not supported; a text that begins so "
			"belongs in quotes");
	if (tag)
		return sbx_yaml_fail(
			y, line,
			"tags (!) are not supported; a text that begins so belongs in quotes");
	return 0;
}

static struct sbx_yaml_value value_of(const yaml_event_t *ev)
{
	struct sbx_yaml_value v = { .kind = SBX_YAML_OTHER, .line = ev->start_mark.line + 1 };

	if (ev->type == YAML_MAPPING_START_EVENT) {
		v.kind = SBX_YAML_MAP;
	} else if (ev->type == YAML_SEQUENCE_START_EVENT) {
		v.kind = SBX_YAML_LIST;
	} else if (ev->type == YAML_SCALAR_EVENT) {
		v.kind = SBX_YAML_SCALAR;
		v.text = (const char *)ev->data.scalar.value;
		v.nul = strlen(v.text) != ev->data.scalar.length;
		v.none = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
			 (!*v.text || strcmp(v.text, "~") == 0 || strcmp(v.text, "null") == 0);
	}
	return v;
}

/* ---- values ---- */

int sbx_yaml_value(struct sbx_yaml *y, sbx_yaml_read_fn read, void *data)
{
	SBX_CLEANUP(event_done) yaml_event_t ev = { 0 };
	struct sbx_yaml_value v;
	int r = next(y, &ev);

	if (r < 0)
		return r;
	v = value_of(&ev);
	return read(y, &v, data);
}

int sbx_yaml_text(struct sbx_yaml *y, const struct sbx_yaml_value *value, const char **ret)
{
	if (value->kind != SBX_YAML_SCALAR)
		return sbx_yaml_fail(y, value->line, "must be one value, not a list or a mapping");
	if (value->none)
		return sbx_yaml_fail(y, value->line, "has no value");
	if (value->nul)
		return sbx_yaml_fail(y, value->line, "must not hold a NUL byte");
	*ret = value->text;
	return 0;
}

int sbx_yaml_list(struct sbx_yaml *y, const struct sbx_yaml_value *value, sbx_yaml_item_fn each,
		  void *data)
{
	if (value->kind != SBX_YAML_LIST)
		return sbx_yaml_fail(y, value->line, "must be a list: [a, b]");
	for (;;) {
		SBX_CLEANUP(event_done) yaml_event_t ev = { 0 };
		struct sbx_yaml_value v;
		const char *text = NULL;
		int r = next(y, &ev);

		if (r < 0 || ev.type == YAML_SEQUENCE_END_EVENT)
			return r;
		v = value_of(&ev);
		r = sbx_yaml_text(y, &v, &text);
		if (r == 0)
			r = each(y, text, v.line, data);
		if (r < 0)
			return r;
	}
}

/* the keys of one mapping so far */
struct keys {
	char *names[KEYS_MAX];
	size_t n;
};

static void keys_done(struct keys *k)
{
	while (k->n > 0)
		free(k->names[--k->n]);
}

static int key_new(struct sbx_yaml *y, struct keys *k, const struct sbx_yaml_value *key)
{
	size_t i;

	if (key->nul)
		return sbx_yaml_fail(y, key->line, "must not hold a NUL byte");
	for (i = 0; i < k->n; i++) {
		if (strcmp(k->names[i], key->text) == 0)
			return sbx_yaml_fail(y, key->line, "is there twice");
	}
	if (k->n == KEYS_MAX)
		return sbx_yaml_fail(y, key->line, "too many keys");
	k->names[k->n] = strdup(key->text);
	if (!k->names[k->n])
		return sbx_yaml_memory(y);
	k->n++;
	return 0;
}

int sbx_yaml_map(struct sbx_yaml *y, const struct sbx_yaml_value *value, sbx_yaml_key_fn each,
		 void *data)
{
	SBX_CLEANUP(keys_done) struct keys keys = { .n = 0 };
	size_t path_len = strlen(y->path);

	if (value->kind == SBX_YAML_SCALAR && value->none)
		return 0; /* "limits:" with everything under it commented out */
	if (value->kind != SBX_YAML_MAP)
		return sbx_yaml_fail(y, value->line,
				     "must be a mapping (lines of \"name: value\")");
	for (;;) {
		SBX_CLEANUP(event_done) yaml_event_t ev = { 0 };
		struct sbx_yaml_value key;
		int r = next(y, &ev);

		if (r < 0 || ev.type == YAML_MAPPING_END_EVENT)
			return r;
		key = value_of(&ev);
		if (key.kind != SBX_YAML_SCALAR)
			return sbx_yaml_fail(y, key.line, "a key must be a plain word");
		snprintf(y->path + path_len, sizeof(y->path) - path_len, "%s%.60s",
			 path_len ? "." : "", key.text);
		r = key_new(y, &keys, &key);
		if (r == 0)
			r = each(y, key.text, key.line, data);
		if (r < 0)
			return r;
		y->path[path_len] = '\0';
	}
}

static int document(struct sbx_yaml *y, sbx_yaml_key_fn each, void *data)
{
	bool seen = false;

	for (;;) {
		SBX_CLEANUP(event_done) yaml_event_t ev = { 0 };
		struct sbx_yaml_value v;
		int r = next(y, &ev);

		if (r < 0 || ev.type == YAML_STREAM_END_EVENT)
			return r;
		if (ev.type == YAML_STREAM_START_EVENT || ev.type == YAML_DOCUMENT_END_EVENT)
			continue;
		v = value_of(&ev);
		if (ev.type == YAML_DOCUMENT_START_EVENT) {
			if (seen)
				return sbx_yaml_fail(y, v.line,
						     "only one document is allowed in a file");
			seen = true;
			continue;
		}
		r = sbx_yaml_map(y, &v, each, data);
		if (r < 0)
			return r;
	}
}

int sbx_yaml_parse(struct sbx_yaml *y, const char *text, size_t len, sbx_yaml_key_fn each,
		   void *data)
{
	yaml_parser_t parser;
	int r;

	y->path[0] = '\0';
	if (!yaml_parser_initialize(&parser))
		return sbx_yaml_memory(y);
	y->parser = &parser;
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	r = document(y, each, data);
	yaml_parser_delete(&parser);
	y->parser = NULL;
	return r;
}
