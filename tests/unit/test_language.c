/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the tests of lib/language.c, detect.c and bootstrap.c.  The bootstraps are run with the interpreters of
 * this machine, in a private folder and a working folder apart from it, as in a box.
 */
#include "unit.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "config.h"
#include "language.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- names ---- */

static char *own_up[] = { (char *)"up", NULL };
static char *own_command[] = { (char *)"tr", (char *)"a-z", (char *)"A-Z", NULL };
static char *own_pl[] = { (char *)"pm", NULL };
static char *deno[] = { (char *)"deno", (char *)"run", (char *)"{code}", (char *)"--end", NULL };
static struct sbx_language own[] = {
	{ (char *)"upper", own_up, own_command },
	{ (char *)"perl", own_pl, deno },
};
static const struct sbx_languages config = { own, 2 };

static void extensions_name_languages(void **state)
{
	static const struct {
		const char *name, *language;
	} cases[] = {
		{ "code", "auto" },	  { "code.py", "python" },     { "code.js", "node" },
		{ "code.mjs", "node" },	  { "code.cjs", "node" },      { "code.ts", "typescript" },
		{ "code.sh", "sh" },	  { "code.bash", "bash" },     { "code.rb", "ruby" },
		{ "code.pl", "perl" },	  { "code.php", "php" },       { "code.lua", "lua" },
		{ "code.go", "go" },	  { "code.py~", NULL },	       { "code.py.bak", NULL },
		{ ".code.py.swp", NULL }, { "code.", NULL },	       { "code.PY", NULL },
		{ "codes.py", NULL },	  { "cod", NULL },	       { "", NULL },
		{ "code.up", NULL },	  { "mycode.py", NULL },       { "code.py.py", NULL },
	};
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		const char *language = sbx_language_of_name(NULL, cases[i].name);

		if (!language != !cases[i].language || (language && strcmp(language, cases[i].language) != 0))
			fail_msg("'%s' is %s", cases[i].name, language ? language : "none");
	}
	assert_string_equal(sbx_language_of_name(&config, "code.up"), "upper");
	assert_string_equal(sbx_language_of_name(&config, "code.pm"), "perl");
}

static void settings_are_known_or_not(void **state)
{
	char buf[200];

	assert_true(sbx_language_known(NULL, "auto"));
	assert_true(sbx_language_known(NULL, "python"));
	assert_true(sbx_language_known(&config, "upper"));
	assert_false(sbx_language_known(NULL, "upper"));
	assert_false(sbx_language_known(NULL, "py"));
	assert_false(sbx_language_known(NULL, ""));
	assert_string_equal(sbx_language_list(&config, buf, sizeof(buf)),
			    "python, node, typescript, sh, bash, ruby, perl, php, lua, go, upper");
	assert_string_equal(sbx_language_list(&config, buf, 7), "python");
}

/* ---- detection ---- */

static void every_snippet_is_told(void **state)
{
	const char *folder = getenv("SBX_SNIPPETS");
	SBX_CLEANUP(sbx_closedirp) DIR *d = opendir(folder ? folder : "tests/unit/snippets");
	struct dirent *e;
	int n = 0, bad = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char want[32], text[8192];
		const char *got;
		ssize_t len;
		int fd, number;

		if (sscanf(e->d_name, "%d-%31[a-z].txt", &number, want) != 2)
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY);
		assert_true(fd >= 0);
		len = read(fd, text, sizeof(text));
		close(fd);
		assert_true(len >= 0 && len < (ssize_t)sizeof(text));
		got = sbx_language_detect(text, (size_t)len);
		n++;
		if (strcmp(*got ? got : "none", want) != 0) {
			print_error("%s: told as '%s'\n", e->d_name, got);
			bad++;
		}
	}
	assert_int_equal(bad, 0);
	assert_true(n >= 60);
}

static void a_shebang_wins_over_the_text(void **state)
{
	assert_string_equal(sbx_language_detect("#!/bin/sh\nprint(1)\n", 19), "shebang");
	assert_string_equal(sbx_language_detect("#", 1), "");
	assert_string_equal(sbx_language_detect("", 0), "");
}

static void any_bytes_can_be_looked_at(void **state)
{
	static const char bytes[] = "\"'`\\/*#(){}[]\n\r\0\xff$@?!=>.:+-0aefr";
	size_t len, i, k;
	unsigned int seed = 1;

	for (i = 0; i < 3000; i++) {
		char *text;

		len = i % 200;
		text = malloc(len ? len : 1); /* exactly as long, so that ASan sees a read too far */
		for (k = 0; k < len; k++) {
			seed = seed * 1103515245 + 12345;
			text[k] = bytes[(seed >> 16) % (sizeof(bytes) - 1)];
		}
		assert_non_null(sbx_language_detect(text, len));
		free(text);
	}
}

/* ---- the command line ---- */

static const char *only; /* what the box has, " a b " ; NULL = everything */

static const char *interpreter(struct sbx_pbox *box, const char *const *names)
{
	for (; *names; names++) {
		char word[64];

		snprintf(word, sizeof(word), " %s ", *names);
		if (!only || strstr(only, word))
			return *names;
	}
	return NULL;
}

static int launch(const char *name, const char *setting, const char *code, struct sbx_launch *l,
		  struct sbx_err *err)
{
	static char arg1[] = "one", arg2[] = "-two";
	char *args[] = { arg1, arg2, NULL };

	return sbx_language_launch(&config, name, setting, code, strlen(code), args, "/workspace/sub",
				   interpreter, NULL, l, err);
}

static void joined(const struct sbx_launch *l, char *buf, size_t size)
{
	int i;

	buf[0] = '\0';
	for (i = 0; l->argv[i]; i++) {
		const char *a = i == l->code_arg ? "<code>" : strlen(l->argv[i]) > 60 ? "<boot>" : l->argv[i];

		snprintf(buf + strlen(buf), size - strlen(buf), "%s%s", i ? " " : "", a);
	}
}

static void commands_are_built(void **state)
{
	static const struct {
		const char *name, *setting, *code, *has, *argv, *code_name, *language, *env;
	} cases[] = {
		{ "code.py", "auto", "print(1)", " python3 ", "python3 -c <boot> <code> /workspace/sub/code.py one -two",
		  "code.py", "python", NULL },
		{ "code.py", "auto", "print(1)", " python3 python3>=3.11 ", "python3 -P <code> one -two", "code.py",
		  "python", "PYTHONPATH=/workspace/sub" },
		{ "code.py", "auto", "print(__file__)", " python3 python3>=3.11 ",
		  "python3 -c <boot> <code> /workspace/sub/code.py one -two", "code.py", "python", NULL },
		{ "code.py", "auto", "", " python ", "python -c <boot> <code> /workspace/sub/code.py one -two",
		  "code.py", "python", NULL },
		{ "code", "python", "x", " python3 ", "python3 -c <boot> <code> /workspace/sub/code.py one -two",
		  "code.py", "python", NULL },
		{ "code", "auto", "print(1)", " python3 ", "python3 -c <boot> <code> /workspace/sub/code.py one -two",
		  "code.py", "python", NULL },
		{ "code.mjs", "sh", "", " node ", "node -e <boot> <code> /workspace/sub/code.mjs one -two", "code.mjs",
		  "node", NULL }, /* the extension is stronger than the setting */
		{ "code.sh", "auto", "", " sh ", "sh <code> one -two", "code.sh", "sh", NULL },
		{ "code.lua", "auto", "", " lua5.4 ", "lua5.4 <code> one -two", "code.lua", "lua", NULL },
		{ "code.ts", "auto", "", " tsx node ", "tsx <code> one -two", "code.ts", "typescript", NULL },
		{ "code.ts", "auto", "", " deno ", "deno run -A <code> one -two", "code.ts", "typescript", NULL },
		{ "code.ts", "auto", "", " node ", "node -e <boot> <code> /workspace/sub/code.ts one -two", "code.ts",
		  "typescript", NULL },
		{ "code.go", "auto", "", " go ", "sh -c <boot> go <code> one -two", "code.go", "go",
		  "GOCACHE=/tmp/.cache/go-build" },
		{ "code.up", "auto", "", " tr ", "tr a-z A-Z <code> one -two", "code.up", "upper", NULL },
		{ "code", "upper", "", " tr ", "tr a-z A-Z <code> one -two", "code.up", "upper", NULL },
		{ "code", "auto", "#!/bin/sh\n", "", "<code> one -two", "code", "shebang", NULL },
		{ "code", "auto", "#!/usr/bin/python3 -u\n", "", "<code> one -two", "code", "shebang", NULL },
		{ "code", "auto", "#!/usr/bin/env -S python3\n", "", "<code> one -two", "code", "shebang", NULL },
		{ "code", "auto", "#! /usr/bin/env python3\nx", " python3 ",
		  "python3 -c <boot> <code> /workspace/sub/code.py one -two", "code.py", "python", NULL },
		{ "code", "auto", "#!/opt/bin/python3.12", " /opt/bin/python3.12 ",
		  "/opt/bin/python3.12 -c <boot> <code> /workspace/sub/code.py one -two", "code.py", "python", NULL },
		{ "code", "auto", "#!/usr/bin/env python3-config\n", "", "<code> one -two", "code", "shebang", NULL },
	};
	struct sbx_err err = SBX_ERR_INIT;
	char buf[400];
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		SBX_CLEANUP(sbx_launch_done) struct sbx_launch l = { .code_arg = -1 };
		const char *env = cases[i].env;
		int r;

		only = cases[i].has;
		r = launch(cases[i].name, cases[i].setting, cases[i].code, &l, &err);
		if (r != 0)
			fail_msg("case %zu: %d %s", i, r, err.text);
		joined(&l, buf, sizeof(buf));
		assert_string_equal(buf, cases[i].argv);
		assert_string_equal(l.code_name, cases[i].code_name);
		assert_string_equal(l.language, cases[i].language);
		if (!env && strcmp(l.language, "python") == 0)
			env = "PYTHONDONTWRITEBYTECODE=1";
		if (env)
			assert_string_equal(l.env[0], env);
		else
			assert_true(!l.env || !l.env[0]);
	}
}

static void own_commands_take_the_place_of_built_in_ones(void **state)
{
	SBX_CLEANUP(sbx_launch_done) struct sbx_launch l = { .code_arg = -1 };
	struct sbx_err err = SBX_ERR_INIT;
	char buf[400];

	only = " deno node ";
	assert_int_equal(launch("code.pl", "auto", "", &l, &err), 0);
	joined(&l, buf, sizeof(buf));
	assert_string_equal(buf, "deno run <code> --end one -two");
	assert_string_equal(l.code_name, "code.pl");
}

static void what_cannot_be_started_says_why(void **state)
{
	static const struct {
		const char *name, *setting, *code, *has;
		int r;
		const char *text;
	} cases[] = {
		{ "code.rb", "auto", "", "", -ENOENT, "no interpreter for ruby in this sandbox: looked for ruby" },
		{ "code.py", "auto", "", "", -ENOENT,
		  "no interpreter for python in this sandbox: looked for python3, python" },
		{ "code.ts", "auto", "", "", -ENOENT,
		  "no interpreter for typescript in this sandbox: looked for tsx, ts-node, deno, bun, node >= 22.13" },
		{ "code.up", "auto", "", "", -ENOENT, "no interpreter for upper in this sandbox: looked for tr" },
		{ "code", "auto", "#!/usr/bin/python3\n", "", -ENOENT,
		  "no interpreter for python in this sandbox: looked for /usr/bin/python3" },
		{ "code", "auto", "lorem ipsum", "", -ENOEXEC,
		  "cannot tell the language of this code: write it to code.py, code.js, code.sh, ..., begin it with #!, "
		  "or name it in the file 'language'" },
		{ "code", "cobol", "", "", -ENOEXEC,
		  "unknown language 'cobol': use auto, python, node, typescript, sh, bash, ruby, perl, php, lua, go, "
		  "upper" },
		{ "notes", "auto", "", "", -ENOEXEC, "'notes' is not a name for code" },
	};
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		struct sbx_launch l = { .code_arg = 99 };
		struct sbx_err err = SBX_ERR_INIT;

		only = cases[i].has;
		assert_int_equal(launch(cases[i].name, cases[i].setting, cases[i].code, &l, &err), cases[i].r);
		assert_string_equal(err.text, cases[i].text);
		assert_int_equal(l.code_arg, 99);
	}
}

static void exit_127_of_typescript_has_a_reason(void **state)
{
	assert_non_null(strstr(sbx_language_exit_reason("typescript", 127), "node >= 22.13"));
	assert_null(sbx_language_exit_reason("typescript", 1));
	assert_null(sbx_language_exit_reason("node", 127));
	assert_null(sbx_language_exit_reason(NULL, 127));
}

/* ---- bootstraps, run ---- */

struct ran {
	int status;
	char out[16384], err[16384];
};

static char base[64], work[96], private[96];

static void put(const char *folder, const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void slurp(int fd, char *buf, size_t size)
{
	ssize_t n = pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
}

/* false: the interpreter is not on this machine */
static bool run_with(const char *(*ask)(struct sbx_pbox *, const char *const *), const char *name,
		     const char *code, struct ran *ran)
{
	static char arg1[] = "one", arg2[] = "-two";
	char *args[] = { arg1, arg2, NULL };
	SBX_CLEANUP(sbx_launch_done) struct sbx_launch l = { .code_arg = -1 };
	struct sbx_err err = SBX_ERR_INIT;
	char path[200];
	int out = memfd_create("out", 0), e = memfd_create("err", 0), status;
	pid_t pid;

	put(private, name, code);
	snprintf(path, sizeof(path), "%s/%s", private, name);
	assert_int_equal(sbx_language_launch(NULL, name, "auto", code, strlen(code), args, work, ask, NULL, &l, &err),
			 0);
	free(l.argv[l.code_arg]);
	l.argv[l.code_arg] = strdup(path);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int i, null = open("/dev/null", O_RDONLY);

		for (i = 0; l.env && l.env[i]; i++)
			putenv(l.env[i]);
		dup2(null, 0);
		dup2(out, 1);
		dup2(e, 2);
		if (chdir(work) == 0)
			execvp(l.argv[0], l.argv);
		_exit(errno == ENOENT ? 233 : 234);
	}
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	slurp(out, ran->out, sizeof(ran->out));
	slurp(e, ran->err, sizeof(ran->err));
	close(out);
	close(e);
	ran->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return ran->status != 233;
}

static bool run_code(const char *name, const char *code, struct ran *ran)
{
	return run_with(NULL, name, code, ran);
}

static int make_folders(void **state)
{
	strcpy(base, "/tmp/sbx-unit-XXXXXX");
	assert_non_null(mkdtemp(base));
	snprintf(work, sizeof(work), "%s/work", base);
	snprintf(private, sizeof(private), "%s/private", base);
	assert_int_equal(mkdir(work, 0700), 0);
	assert_int_equal(mkdir(private, 0700), 0);
	put(work, "helper.py", "import sys\nN = 7\nif __name__ == '__main__': print('run as', sys.argv[0][-9:])\n");
	put(work, "lib.js", "exports.n = 7;\n");
	put(work, "es.mjs", "export const n = 8;\n");
	put(work, "part.rb", "N = 9\n");
	return 0;
}

static int remove_folders(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	return system(command) == 0 ? 0 : -1;
}

static void check_run(const char *name, const char *code, int status, const char *out, const char *err_part)
{
	struct ran ran;
	char want[16384], *p;

	if (!run_code(name, code, &ran)) {
		print_message("skipped: no interpreter for %s here\n", name);
		return;
	}
	/* WORK and PRIVATE stand for the folders */
	want[0] = '\0';
	for (p = (char *)out; *p;) {
		size_t n = strlen(want);

		if (strncmp(p, "WORK", 4) == 0) {
			snprintf(want + n, sizeof(want) - n, "%s", work);
			p += 4;
		} else {
			want[n] = *p++;
			want[n + 1] = '\0';
		}
	}
	if (ran.status != status || strcmp(ran.out, want) != 0 || (err_part && !strstr(ran.err, err_part)))
		fail_msg("%s: status %d (want %d)\nout '%s'\nwant '%s'\nerr '%s'", code, ran.status, status, ran.out,
			 want, ran.err);
	if (!err_part && ran.err[0])
		fail_msg("%s: err '%s'", code, ran.err);
}

static void python_runs_as_if_the_file_were_in_the_working_folder(void **state)
{
	check_run("code.py",
		  "import sys, os, helper, pdb, code\n"
		  "print(sys.argv, sys.path[0], __file__, __name__, helper.N, code.__file__.endswith('/code.py'), "
		  "'PYTHONPATH' in os.environ, sorted(k for k in globals() if k[0] != '_'))\n",
		  0,
		  "['WORK/code.py', 'one', '-two'] WORK WORK/code.py __main__ 7 True False "
		  "['code', 'helper', 'os', 'pdb', 'sys']\n",
		  NULL);
	check_run("code.py", "'doc'\nfrom __future__ import annotations\nprint(__doc__, __spec__, __package__)\n", 0,
		  "doc None None\n", NULL);
	check_run("code.py",
		  "import pickle, inspect\nclass K:\n\tx = 1\ndef f(): pass\n"
		  "print(type(pickle.loads(pickle.dumps(K()))), repr(inspect.getsource(K)), inspect.getsource(f))\n",
		  0, "<class '__main__.K'> 'class K:\\n\\tx = 1\\n' def f(): pass\n\n", NULL);
	check_run("code.py",
		  "import subprocess, sys\nsys.stdout.flush()\nsubprocess.run([sys.executable, '-m', 'helper'])\n", 0,
		  "run as helper.py\n", NULL);
	check_run("code.py",
		  "import asyncio\nasync def f():\n\tawait asyncio.sleep(0)\n\treturn 5\nprint(asyncio.run(f()))\n", 0,
		  "5\n", NULL);
}

static void python_sees_every_change_of_a_module(void **state)
{
	int i;

	for (i = 0; i < 3; i++) { /* within a second, and of the same size */
		char module[20], out[20];

		snprintf(module, sizeof(module), "N = %d\n", i);
		snprintf(out, sizeof(out), "%d\n", i);
		put(work, "m.py", module);
		check_run("code.py", "import m; print(m.N)", 0, out, NULL);
	}
}

static void python_multiprocessing_finds_the_main_file(void **state)
{
	check_run("code.py",
		  "import multiprocessing as m\ndef f(i): return i * i\n"
		  "if __name__ == '__main__':\n"
		  "\tfor way in ('fork', 'spawn', 'forkserver'):\n"
		  "\t\twith m.get_context(way).Pool(2) as p: print(way, p.map(f, [2, 3]), flush=True)\n",
		  0, "fork [4, 9]\nspawn [4, 9]\nforkserver [4, 9]\n", NULL);
}

static void python_fails_as_python_does(void **state)
{
	struct ran ran;

	check_run("code.py", "import sys; sys.exit(3)", 3, "", NULL);
	check_run("code.py", "raise SystemExit('bye')", 1, "", "bye\n");
	check_run("code.py", "import atexit; atexit.register(print, 'end')\ndef f():\n\t1/0\nf()\n", 1, "end\n",
		  "code.py\", line 4, in <module>\n    f()\n");
	check_run("code.py", "x = 1\ny = = 2\n", 1, "", "code.py\", line 2\n    y = = 2\n");
	check_run("code.py", "raise KeyboardInterrupt", 128 + SIGINT, "", "KeyboardInterrupt\n");
	check_run("code.py", "import sys\nsys.excepthook = lambda t, v, tb: print(t.__name__, tb.tb_lineno)\n\n1/0\n", 1,
		  "ZeroDivisionError 4\n", NULL);
	if (run_code("code.py", "def f():\n\traise ValueError('x')\nf()\n", &ran)) {
		assert_null(strstr(ran.err, "<string>")); /* our own frame is not shown */
		assert_non_null(strstr(ran.err, "ValueError: x\n"));
	}
}

static const char *new_python(struct sbx_pbox *box, const char *const *names)
{
	return names[0];
}

static void the_short_way_for_python_is_the_same(void **state)
{
	static const char code[] =
		"import sys, helper, pdb\nprint(sys.path[0], __name__, helper.N)\ndef f():\n\t1/0\nf()\n";
	struct ran quick, full;

	if (system("python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null") != 0)
		return; /* what the provider would say */
	assert_true(run_with(new_python, "code.py", code, &quick));
	assert_true(run_code("code.py", code, &full));
	assert_int_equal(quick.status, full.status);
	assert_string_equal(quick.out, full.out);
	assert_string_equal(quick.err, full.err);
}

static void node_runs_as_if_the_file_were_in_the_working_folder(void **state)
{
	check_run("code.js",
		  "console.log(process.argv[1], ...process.argv.slice(2), __filename, __dirname, require.main === module, "
		  "module.id, require('./lib').n, typeof fs, this === exports, process.execArgv.length);\n"
		  "import('./es.mjs').then(m => console.log(m.n, typeof globalThis.require));\n",
		  0, "WORK/code.js one -two WORK/code.js WORK true . 7 undefined true 0\n8 undefined\n", NULL);
	check_run("code.cjs", "console.log(__filename)", 0, "WORK/code.cjs\n", NULL);
	check_run("code.mjs",
		  "import { n } from './es.mjs'; import lib from './lib.js'; import fs from 'node:fs';\n"
		  "console.log(n, lib.n, import.meta.url, typeof require, typeof module, process.argv[1]);\n"
		  "await new Promise(r => setTimeout(r, 1)); console.log((await import('./es.mjs')).n);\n",
		  0, "8 7 file://WORK/code.mjs undefined undefined WORK/code.mjs\n8\n", NULL);
	check_run("code.js", "import { n } from './es.mjs';\nconsole.log(n, import.meta.url)", 0,
		  "8 file://WORK/code.js\n", NULL);
	check_run("code.js", "console.log(await Promise.resolve(4))", 0, "4\n", NULL);
	check_run("code.js", "const require = 5; const [a] = [await 1]; console.log(a + require)", 0, "6\n", NULL);
	check_run("code.js", "#!/usr/bin/env node\nconst s = 'import x'; console.log(s, module.id)", 0, "import x .\n",
		  NULL);
	put(work, "package.json", "{\"type\": \"module\"}");
	check_run("code.js", "console.log(typeof module, import.meta.url)", 0, "undefined file://WORK/code.js\n", NULL);
	check_run("code.cjs", "console.log(typeof module)", 0, "object\n", NULL);
	put(work, "package.json", "{}");
}

static void node_fails_as_node_does(void **state)
{
	check_run("code.js", "process.exit(3)", 3, "", NULL);
	check_run("code.js", "process.exitCode = 4", 4, "", NULL);
	check_run("code.js", "\nthrow new Error('boom')", 1, "", "work/code.js:2\nthrow new Error('boom')\n");
	check_run("code.js", "\nlet a = ;", 1, "", "work/code.js:2\nlet a = ;\n");
	check_run("code.mjs", "\nlet a = ;", 1, "", "work/code.mjs:2\nlet a = ;\n");
	check_run("code.mjs", "\nthrow new Error('boom')", 1, "", "work/code.mjs:2\nthrow new Error('boom')\n");
	check_run("code.js", "function f() { await 1 }", 1, "", "await is only valid in async functions");
	check_run("code.mjs", "await new Promise(() => {})", 13, "", "unsettled top-level await");
	check_run("code.js", "require('./nope')", 1, "", "Cannot find module './nope'");
}

static void node_can_start_its_own_file_again(void **state)
{
	check_run("code.js",
		  "const { fork } = require('child_process');\n"
		  "if (process.argv[2] === 'child') process.send(__filename);\n"
		  "else fork(__filename, ['child']).on('message', m => console.log(m));\n",
		  0, "WORK/code.js\n", NULL);
	check_run("code.js",
		  "const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');\n"
		  "if (isMainThread) new Worker(__filename, { workerData: 5 }).on('message', m => console.log(m));\n"
		  "else parentPort.postMessage(workerData + require('./lib').n);\n",
		  0, "12\n", NULL);
	check_run("code.mjs",
		  "import { Worker, isMainThread, parentPort } from 'node:worker_threads';\n"
		  "if (isMainThread) new Worker(new URL(import.meta.url)).on('message', m => console.log(m));\n"
		  "else parentPort.postMessage(import.meta.url);\n",
		  0, "file://WORK/code.mjs\n", NULL);
}

static void ruby_runs_as_if_the_file_were_in_the_working_folder(void **state)
{
	check_run("code.rb",
		  "require_relative 'part'\nputs N, __FILE__, __dir__, $0 == __FILE__, ARGV.inspect, DATA.read\n__END__\nrest\n",
		  0, "9\nWORK/code.rb\nWORK\ntrue\n[\"one\", \"-two\"]\nrest\n", NULL);
	check_run("code.rb", "exit 3", 3, "", NULL);
	check_run("code.rb", "\nraise 'boom'", 1, "", "code.rb:2:");
}

static void other_languages_get_arguments_and_give_their_status(void **state)
{
	check_run("code.sh", "echo \"$1 $2\"; exit 3", 3, "one -two\n", NULL);
	check_run("code.bash", "a=(\"$@\"); echo ${#a[@]}; exit 3", 3, "2\n", NULL);
	check_run("code.pl", "print \"@ARGV\\n\"; exit 3", 3, "one -two\n", NULL);
	check_run("code.php", "<?php echo $argv[1], \"\\n\"; exit(3);", 3, "one\n", NULL);
	check_run("code.lua", "print(arg[1]); os.exit(3)", 3, "one\n", NULL);
	check_run("code.go", "package main\nimport (\"fmt\"; \"os\")\nfunc main() { fmt.Println(os.Args[1:]); os.Exit(3) }",
		  3, "[one -two]\n", NULL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(extensions_name_languages),
		cmocka_unit_test(settings_are_known_or_not),
		cmocka_unit_test(every_snippet_is_told),
		cmocka_unit_test(a_shebang_wins_over_the_text),
		cmocka_unit_test(any_bytes_can_be_looked_at),
		cmocka_unit_test(commands_are_built),
		cmocka_unit_test(own_commands_take_the_place_of_built_in_ones),
		cmocka_unit_test(what_cannot_be_started_says_why),
		cmocka_unit_test(exit_127_of_typescript_has_a_reason),
		cmocka_unit_test(python_runs_as_if_the_file_were_in_the_working_folder),
		cmocka_unit_test(python_sees_every_change_of_a_module),
		cmocka_unit_test(python_multiprocessing_finds_the_main_file),
		cmocka_unit_test(python_fails_as_python_does),
		cmocka_unit_test(the_short_way_for_python_is_the_same),
		cmocka_unit_test(node_runs_as_if_the_file_were_in_the_working_folder),
		cmocka_unit_test(node_fails_as_node_does),
		cmocka_unit_test(node_can_start_its_own_file_again),
		cmocka_unit_test(ruby_runs_as_if_the_file_were_in_the_working_folder),
		cmocka_unit_test(other_languages_get_arguments_and_give_their_status),
	};

	return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
