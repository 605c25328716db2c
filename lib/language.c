/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the table of languages and how each is started.  Knows: the configuration's changes to the table, the
 * bootstraps, detection by text.  Pure; any thread.
 */
#include "language.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "bootstrap.h"
#include "config.h"
#include "detect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXTENSIONS_MAX 4
#define PROGRAMS_MAX 3
#define PREFIX_MAX 3

/* how the built-in languages are started: PROGRAM PREFIX... CODE [PRETENDED] ARGS... */
struct builtin {
	const char *name;
	const char *extensions[EXTENSIONS_MAX]; /* the first one names the file of plain `code` */
	const char *programs[PROGRAMS_MAX];	/* the first that the box has */
	const char *prefix[PREFIX_MAX];
	bool pretended; /* cwd/code.EXT is given behind the code's path, for a bootstrap */
	const char *env[PREFIX_MAX];
};

/*
 * Python takes a cached module for the source if both have the same second and size: files that are written and run
 * again at once would be run as they were before.  What pip installs is compiled by pip, and stays so.
 */
#define PYTHON_ENV "PYTHONDONTWRITEBYTECODE=1"

static const struct builtin builtins[] = {
	{ "python",
	  { "py" },
	  { "python3", "python" },
	  { "-c", sbx_bootstrap_python },
	  true,
	  { PYTHON_ENV } },
	{ "node",
	  { "js", "mjs", "cjs" },
	  { "node", "nodejs" },
	  { "-e", sbx_bootstrap_node },
	  true,
	  { NULL } },
	{ "typescript",
	  { "ts" },
	  { "node", "nodejs" },
	  { "-e", sbx_bootstrap_node },
	  true,
	  { NULL } },
	{ "sh", { "sh" }, { "sh" }, { NULL }, false, { NULL } },
	{ "bash", { "bash" }, { "bash" }, { NULL }, false, { NULL } },
	{ "ruby", { "rb" }, { "ruby" }, { "-e", sbx_bootstrap_ruby }, true, { NULL } },
	{ "perl", { "pl" }, { "perl" }, { NULL }, false, { NULL } },
	{ "php", { "php" }, { "php" }, { NULL }, false, { NULL } },
	{ "lua", { "lua" }, { "lua", "lua5.4", "luajit" }, { NULL }, false, { NULL } },
	{ "go",
	  { "go" },
	  { "go" },
	  { NULL },
	  false,
	  { "GOCACHE=/tmp/.cache/go-build", "GOTOOLCHAIN=local", "GOTELEMETRY=off" } },
};

/* what runs TypeScript without Node's help, the best first; node >= 22.13 is the last resort and checks itself */
static const struct {
	const char *program;
	const char *prefix[PREFIX_MAX];
} typescript[] = {
	{ "tsx", { NULL } },
	{ "ts-node", { NULL } },
	{ "deno", { "run", "-A" } },
	{ "bun", { "run" } },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct builtin *builtin_find(const char *name)
{
	size_t i;

	for (i = 0; i < COUNT(builtins); i++) {
		if (strcmp(builtins[i].name, name) == 0)
			return &builtins[i];
	}
	return NULL;
}

static const struct sbx_language *more_find(const struct sbx_languages *more, const char *name)
{
	size_t i;

	for (i = 0; more && i < more->n; i++) {
		if (strcmp(more->items[i].name, name) == 0)
			return &more->items[i];
	}
	return NULL;
}

/* ---- names ---- */

const char *sbx_language_of_name(const struct sbx_languages *more, const char *name)
{
	const char *ext;
	size_t i, k;

	if (strncmp(name, "code", 4) != 0)
		return NULL;
	if (name[4] == '\0')
		return "auto";
	if (name[4] != '.')
		return NULL;
	ext = name + 5;
	for (i = 0; more && i < more->n; i++) {
		char **e = more->items[i].extensions;

		for (; e && *e; e++) {
			if (strcmp(*e, ext) == 0)
				return more->items[i].name;
		}
	}
	for (i = 0; i < COUNT(builtins); i++) {
		for (k = 0; k < EXTENSIONS_MAX && builtins[i].extensions[k]; k++) {
			if (strcmp(builtins[i].extensions[k], ext) == 0)
				return builtins[i].name;
		}
	}
	return NULL;
}

bool sbx_language_known(const struct sbx_languages *more, const char *language)
{
	return strcmp(language, "auto") == 0 || builtin_find(language) ||
	       more_find(more, language);
}

const char *sbx_language_list(const struct sbx_languages *more, char *buf, size_t size)
{
	SBX_CLEANUP(sbx_buf_done) struct sbx_buf b = SBX_BUF_INIT;
	size_t i;

	for (i = 0; i < COUNT(builtins); i++)
		sbx_buf_printf(&b, "%s%s", i ? ", " : "", builtins[i].name);
	for (i = 0; more && i < more->n; i++) {
		if (!builtin_find(more->items[i].name))
			sbx_buf_printf(&b, ", %s", more->items[i].name);
	}
	snprintf(buf, size, "%s", sbx_buf_str(&b));
	return buf;
}

/* ---- which language ---- */

const char *sbx_language_detect(const char *code, size_t len)
{
	if (len >= 2 && code[0] == '#' && code[1] == '!')
		return "shebang";
	return sbx_detect_text(code, len);
}

/*
 * "#!/usr/bin/env python3" and "#!/usr/bin/node" without options are started as our own Python and Node, so that
 * imports from the working folder work there too; @program gets what the line names.
 */
static const char *shebang_language(const char *code, size_t len, char *program, size_t size)
{
	const char *end = memchr(code, '\n', len), *base;
	size_t n = end ? (size_t)(end - code) : len;
	char line[256], *word, *rest, *save = NULL;

	if (n >= sizeof(line))
		return NULL;
	memcpy(line, code, n);
	line[n] = '\0';
	if (strlen(line) != n)
		return NULL;
	word = strtok_r(line + 2, " \t", &save);
	if (word && (strcmp(word, "/usr/bin/env") == 0 || strcmp(word, "/bin/env") == 0))
		word = strtok_r(NULL, " \t", &save);
	rest = strtok_r(NULL, " \t", &save);
	if (!word || rest || strlen(word) >= size)
		return NULL;
	strcpy(program, word);
	base = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
	if (strcmp(base, "node") == 0 || strcmp(base, "nodejs") == 0)
		return "node";
	if (strncmp(base, "python3", 7) == 0 && strspn(base + 7, ".0123456789") == strlen(base + 7))
		return "python";
	return NULL;
}

/* ---- the command line ---- */

/* grows argv by @text; remembers a failure in *failed */
struct argv {
	char **v;
	size_t n;
	bool failed;
};

static void argv_add(struct argv *a, const char *text)
{
	char **v = realloc(a->v, (a->n + 2) * sizeof(char *));

	if (!v) {
		a->failed = true;
		return;
	}
	a->v = v;
	v[a->n] = strdup(text);
	if (!v[a->n]) {
		a->failed = true;
		return;
	}
	v[++a->n] = NULL;
}

static void argv_free(char **v)
{
	size_t i;

	for (i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

static void argv_freep(struct argv *a)
{
	argv_free(a->v);
}

void sbx_launch_done(struct sbx_launch *launch)
{
	free(launch->language);
	free(launch->code_name);
	argv_free(launch->argv);
	argv_free(launch->env);
	*launch = (struct sbx_launch){ .code_arg = -1 };
}

struct request {
	const char *name;     /* language */
	const char *filename; /* code.py */
	const char *cwd_abs;
	const char *program; /* of a shebang; NULL = look */
	const char *code;
	size_t code_len;
	const char *(*interpreter)(struct sbx_pbox *box, const char *const *names);
	struct sbx_pbox *box;
};

#define CODE_PLACEHOLDER "{code}"

/* first of @names that the box has; without a way to ask: the first */
static const char *pick(const struct request *q, const char *const *names)
{
	return q->interpreter ? q->interpreter(q->box, names) : names[0];
}

static int missing(const struct request *q, const char *const *names, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_buf_done) struct sbx_buf b = SBX_BUF_INIT;
	size_t i;

	for (i = 0; names[i]; i++)
		sbx_buf_printf(&b, "%s%s", i ? ", " : "", names[i]);
	return sbx_err_set(err, ENOENT, "no interpreter for %s in this sandbox: looked for %s",
			   q->name, sbx_buf_str(&b));
}

/* a command of the configuration; where it does not say where the code goes, that is behind it */
static int add_custom(const struct request *q, char *const *command, struct argv *a, int *code_arg,
		      struct sbx_err *err)
{
	const char *names[] = { command[0], NULL };
	size_t i;

	*code_arg = -1;
	if (strcmp(command[0], CODE_PLACEHOLDER) != 0 && !pick(q, names))
		return missing(q, names, err);
	for (i = 0; command[i]; i++) {
		if (strcmp(command[i], CODE_PLACEHOLDER) == 0)
			*code_arg = (int)i;
		argv_add(a, command[i]);
	}
	if (*code_arg < 0) {
		*code_arg = (int)i;
		argv_add(a, CODE_PLACEHOLDER);
	}
	return 0;
}

const char *sbx_language_exit_reason(const char *language, int code)
{
	if (code == 127 && language && strcmp(language, "typescript") == 0)
		return "exit 127: typescript needs tsx, ts-node, deno, bun, or node >= 22.13 in "
		       "the sandbox";
	return NULL;
}

/* programs that run TypeScript files themselves; 0 = none of them is there */
static int add_typescript(const struct request *q, struct argv *a)
{
	size_t i, k;

	if (!q->interpreter)
		return 0;
	for (i = 0; i < COUNT(typescript); i++) {
		const char *names[] = { typescript[i].program, NULL };
		const char *found = pick(q, names);

		if (!found)
			continue;
		argv_add(a, found);
		for (k = 0; k < PREFIX_MAX && typescript[i].prefix[k]; k++)
			argv_add(a, typescript[i].prefix[k]);
		return 1;
	}
	return 0;
}

static int missing_typescript(const struct request *q, struct sbx_err *err)
{
	const char *names[COUNT(typescript) + 2] = { NULL };
	size_t i;

	for (i = 0; i < COUNT(typescript); i++)
		names[i] = typescript[i].program;
	names[i] = "node >= 22.13";
	return missing(q, names, err);
}

/*
 * The short way for Python: `python3 -P CODE` with the working folder in PYTHONPATH.  It saves the bootstrap's call of
 * compile(), about 2 ms, but __file__ and argv[0] are the real path, and children inherit PYTHONPATH.  So it is taken
 * only when the code names nothing that could tell the difference, and the provider knows that -P is understood.
 */
static bool python_short(const struct request *q)
{
	static const char *const names[] = { "python3>=3.11", NULL };
	static const char *const differs[] = {
		"__file__",   "argv",	 "environ", "getenv",	  "subprocess", "multiprocessing",
		"concurrent", "system",	 "popen",   "exec",	  "spawn",	"fork",
		"runpy",      "inspect", "flags",   "__loader__", "pytest",	"PYTHONPATH"
	};
	size_t i;

	if (!q->interpreter || q->program || !pick(q, names))
		return false;
	for (i = 0; i < COUNT(differs); i++) {
		if (memmem(q->code, q->code_len, differs[i], strlen(differs[i])))
			return false;
	}
	return true;
}

static void add_python_short(const struct request *q, struct argv *a, struct argv *env,
			     int *code_arg)
{
	SBX_CLEANUP(sbx_buf_done) struct sbx_buf path = SBX_BUF_INIT;

	argv_add(a, "python3");
	argv_add(a, "-P");
	*code_arg = (int)a->n;
	argv_add(a, CODE_PLACEHOLDER);
	sbx_buf_printf(&path, "PYTHONPATH=%s", q->cwd_abs);
	a->failed |= path.failed;
	argv_add(env, sbx_buf_str(&path));
	argv_add(env, PYTHON_ENV);
}

static int add_builtin(const struct request *q, const struct builtin *lang, struct argv *a,
		       int *code_arg, struct sbx_err *err)
{
	const char *names[PROGRAMS_MAX + 1] = { NULL };
	bool pretended = lang->pretended;
	const char *program = q->program;
	size_t k;

	memcpy(names, lang->programs, sizeof(lang->programs));
	if (strcmp(lang->name, "typescript") == 0 && add_typescript(q, a)) {
		pretended = false;
	} else {
		if (program) { /* of a shebang: this one and no other */
			names[0] = program;
			names[1] = NULL;
		}
		program = pick(q, names);
		if (!program)
			return strcmp(lang->name, "typescript") == 0 ? missing_typescript(q, err)
								     : missing(q, names, err);
		if (strcmp(lang->name, "go") ==
		    0) { /* a compiler: the shell starts what it makes */
			argv_add(a, "sh");
			argv_add(a, "-c");
			argv_add(a, sbx_bootstrap_go);
			argv_add(a, "go");
		} else {
			argv_add(a, program);
		}
		for (k = 0; k < PREFIX_MAX && lang->prefix[k]; k++)
			argv_add(a, lang->prefix[k]);
	}
	*code_arg = (int)a->n;
	argv_add(a, CODE_PLACEHOLDER);
	if (pretended) {
		SBX_CLEANUP(sbx_buf_done) struct sbx_buf path = SBX_BUF_INIT;
		bool slash = q->cwd_abs[0] && q->cwd_abs[strlen(q->cwd_abs) - 1] == '/';

		sbx_buf_printf(&path, "%s%s%s", q->cwd_abs, slash ? "" : "/", q->filename);
		a->failed |= path.failed;
		argv_add(a, sbx_buf_str(&path));
	}
	return 0;
}

/* "code.py" for plain `code` in python; else the name as it was written */
static char *code_filename(const struct sbx_languages *more, const char *name, const char *language)
{
	const struct sbx_language *own = more_find(more, language);
	const struct builtin *lang = builtin_find(language);
	const char *ext = NULL;
	char *ret;

	if (strcmp(name, "code") != 0)
		return strdup(name);
	if (lang)
		ext = lang->extensions[0];
	else if (own && own->extensions)
		ext = own->extensions[0];
	if (!ext)
		return strdup(name);
	return asprintf(&ret, "code.%s", ext) < 0 ? NULL : ret;
}

static int decide(const struct sbx_languages *more, const char *name, const char *setting,
		  const char *code, size_t code_len, const char **language, struct sbx_err *err)
{
	char list[300];

	*language = sbx_language_of_name(more, name);
	if (!*language)
		return sbx_err_set(err, ENOEXEC, "'%s' is not a name for code", name);
	if (strcmp(*language, "auto") != 0)
		return 0;
	if (setting && strcmp(setting, "auto") != 0) {
		*language = setting;
		if (sbx_language_known(more, setting))
			return 0;
		return sbx_err_set(err, ENOEXEC, "unknown language '%s': use auto, %s", setting,
				   sbx_language_list(more, list, sizeof(list)));
	}
	*language = sbx_language_detect(code, code_len);
	if (**language)
		return 0;
	return sbx_err_set(err, ENOEXEC,
			   "cannot tell the language of this code: write it to code.py, code.js, "
			   "code.sh, ..., "
			   "begin it with #!, or name it in the file 'language'");
}

int sbx_language_launch(const struct sbx_languages *more, const char *name, const char *setting,
			const char *code, size_t code_len, char *const *args, const char *cwd_abs,
			const char *(*interpreter)(struct sbx_pbox *box, const char *const *names),
			struct sbx_pbox *box, struct sbx_launch *ret, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_launch_done) struct sbx_launch out = { .code_arg = -1 };
	SBX_CLEANUP(argv_freep) struct argv a = { 0 };
	SBX_CLEANUP(argv_freep) struct argv env = { 0 };
	struct request q = { .cwd_abs = cwd_abs,
			     .code = code,
			     .code_len = code_len,
			     .interpreter = interpreter,
			     .box = box };
	const struct sbx_language *own;
	const struct builtin *lang;
	char program[256];
	size_t k;
	int r;

	r = decide(more, name, setting, code, code_len, &q.name, err);
	if (r < 0)
		return r;
	if (strcmp(q.name, "shebang") == 0) {
		const char *known = shebang_language(code, code_len, program, sizeof(program));

		if (known) {
			q.name = known;
			q.program = program;
		}
	}
	out.language = strdup(q.name);
	out.code_name =
		strcmp(q.name, "shebang") == 0 ? strdup(name) : code_filename(more, name, q.name);
	if (!out.language || !out.code_name)
		return sbx_err_set(err, ENOMEM, "no memory to start the code");
	q.filename = out.code_name;
	own = more_find(more, q.name);
	lang = builtin_find(q.name);
	if (strcmp(q.name, "shebang") == 0) {
		argv_add(&a, CODE_PLACEHOLDER);
		out.code_arg = 0;
	} else if (own && own->command && !q.program) {
		r = add_custom(&q, own->command, &a, &out.code_arg, err);
	} else if (lang && strcmp(lang->name, "python") == 0 && python_short(&q)) {
		add_python_short(&q, &a, &env, &out.code_arg);
	} else if (lang) {
		r = add_builtin(&q, lang, &a, &out.code_arg, err);
		for (k = 0; k < PREFIX_MAX && lang->env[k]; k++)
			argv_add(&env, lang->env[k]);
	} else {
		return sbx_err_set(err, ENOEXEC, "language '%s' has no command", q.name);
	}
	if (r < 0)
		return r;
	for (k = 0; args && args[k]; k++)
		argv_add(&a, args[k]);
	if (a.failed || env.failed)
		return sbx_err_set(err, ENOMEM, "no memory to start the code");
	out.argv = sbx_take(a.v);
	out.env = sbx_take(env.v);
	*ret = out;
	out = (struct sbx_launch){ .code_arg = -1 };
	return 0;
}
