/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the table of languages: extension, shebang, detection -> how the code is started.  Pure; any thread.
 * @more: what the configuration adds to the table or changes in it; NULL = nothing.
 */
#ifndef SBX_LANGUAGE_H
#define SBX_LANGUAGE_H

#include <stdbool.h>
#include <stddef.h>

struct sbx_languages;
struct sbx_err;
struct sbx_provider_ops;
struct sbx_pbox;

/* how one run is started; everything malloc'ed, freed by sbx_launch_done */
struct sbx_launch {
	char *language;	 /* "python" */
	char **argv;	 /* NULL-terminated; argv[code_arg] is a placeholder for the code's path */
	int code_arg;	 /* -1: none */
	char *code_name; /* "code.py": the file's name in its private folder */
	char **env;	 /* extra NAME=value for this language (PYTHONPATH), NULL-terminated, may be NULL */
};

/*
 * sbx_language_of_name - is @name a code file: "code" or "code.EXT" with EXT in the table (@more first)?
 * Returns the language's name, "auto" for plain `code`, NULL if it is not one.  Static or @more's string.
 */
const char *sbx_language_of_name(const struct sbx_languages *more, const char *name);

/* sbx_language_known - a name that the file `language` takes: a language of the table, or "auto" */
bool sbx_language_known(const struct sbx_languages *more, const char *language);
/* sbx_language_list - "python, node, ..." for messages, into @buf */
const char *sbx_language_list(const struct sbx_languages *more, char *buf, size_t size);

/*
 * sbx_language_detect - which language is this text (plain `code` without a setting)?
 * A shebang wins: "shebang".  Else Python or Node by the text: "python", "node".  "" = cannot tell.  Never NULL.
 */
const char *sbx_language_detect(const char *code, size_t len);

/*
 * sbx_language_launch - how to start @code.
 * @name: the file written ("code.py", "code")   @setting: the file `language`, "auto" = by name or detection
 * @args: NULL-terminated, appended; may be NULL   @cwd_abs: absolute cwd in the box
 * @interpreter: asks which of several programs the box has (provider slot; may be NULL: the first is taken)
 * -ENOEXEC: the language cannot be told, reason says what to do.  -ENOENT: no interpreter for it in the box, reason
 * names those looked for (the run ends with 127).  -ENOMEM.
 */
int sbx_language_launch(const struct sbx_languages *more, const char *name, const char *setting,
			const char *code, size_t code_len, char *const *args, const char *cwd_abs,
			const char *(*interpreter)(struct sbx_pbox *box, const char *const *names),
			struct sbx_pbox *box, struct sbx_launch *ret, struct sbx_err *err);
void sbx_launch_done(struct sbx_launch *launch);

/*
 * sbx_language_exit_reason - what exit @code of a program in @language says about the interpreter; NULL: nothing.
 * Node finds out by itself whether it is new enough for TypeScript: too late for sbx_language_launch to say so.
 */
const char *sbx_language_exit_reason(const char *language, int code);

#endif
