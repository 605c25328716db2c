/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/config.c and yamlread.c: texts, and what they give or the exact reason of a refusal. */
#include "unit.h"

#include "base/err.h"
#include "config.h"
#include "language.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char file[80];

static void put_at(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static int load(const char *text, size_t len, struct sbx_config **ret, struct sbx_err *err)
{
	put_at(file, text, len);
	return sbx_config_load(file, ret, err);
}

static struct sbx_config *load_ok(const char *text)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;

	if (load(text, strlen(text), &c, &err) != 0)
		fail_msg("'%s': %s", text, err.text);
	return c;
}

/* ---- refusals ---- */

static const struct {
	const char *text, *reason; /* behind "FILE:" */
} bad[] = {
	{ "stat_dir: /y\n", "1: stat_dir: unknown key, did you mean 'state_dir'?" },
	{ "state_dir: /x\n\nlimit:\n  cpu: 1\n", "3: limit: unknown key, did you mean 'limits'?" },
	{ "tempaltes: {}\n", "1: tempaltes: unknown key, did you mean 'templates'?" },
	{ "policy: {zzzzzz: 1}\n", "1: policy.zzzzzz: unknown key; known here: deny" },
	{ "templates:\n  default:\n    limits:\n      memroy: 1G\n",
	  "4: templates.default.limits.memroy: unknown key, did you mean 'memory'?" },
	{ "templates: {a: {netwrok: nat}}\n", "1: templates.a.netwrok: unknown key, did you mean 'network'?" },
	{ "languages: {a: {cmd: [x]}}\n", "1: languages.a.cmd: unknown key; known here: extensions, command" },
	{ "cleanup: {idle: 1h, action: stop}\n", "1: cleanup.action: unknown key; known here: idle, idle_action, max_age" },
	{ "cleanup: {idle_action: pause}\n", "1: cleanup.idle_action: 'pause' is none of stop, delete" },
	{ "cleanup: {max_age: 7d}\n",
	  "1: cleanup.max_age: '7d' is not a time: seconds, or 500ms, 30s, 5m, 2h, or max" },
	{ "templates: {a: {cleanup: {idle: 0}}}\n", "1: templates.a.cleanup.idle: '0' is too small: at least 1s" },
	{ "templates: {a: {files: {/x: /etc/hosts}}}\n",
	  "1: templates.a.files./x: not a place in the workspace: names with '/' between them, or '.'" },
	{ "templates: {a: {files: {a/../b: /etc/hosts}}}\n",
	  "1: templates.a.files.a/../b: not a place in the workspace: names with '/' between them, or '.'" },
	{ "templates: {a: {files: {a//b: /etc/hosts}}}\n",
	  "1: templates.a.files.a//b: not a place in the workspace: names with '/' between them, or '.'" },
	{ "templates: {a: {files: {a: etc/hosts}}}\n", "1: templates.a.files.a: 'etc/hosts' must be an absolute path" },
	{ "templates: {a: {files: {a: }}}\n", "1: templates.a.files.a: needs a path: from: /path" },
	{ "templates: {a: {files: {a: {mode: 644}}}}\n", "1: templates.a.files.a: needs a path: from: /path" },
	{ "templates: {a: {files: {a: {from: /x, mode: 0888}}}}\n",
	  "1: templates.a.files.a.mode: '0888' is not a mode: octal, 0 to 777" },
	{ "templates: {a: {files: {a: {from: /x, mode: 4755}}}}\n",
	  "1: templates.a.files.a.mode: '4755' is not a mode: octal, 0 to 777" },
	{ "templates: {a: {files: [/etc/hosts]}}\n",
	  "1: templates.a.files: must be a mapping (lines of \"name: value\")" },
	{ "policy: {dney: []}\n", "1: policy.dney: unknown key, did you mean 'deny'?" },
	{ "limits: {memory: lots}\n", "1: limits.memory: 'lots' is not a size: bytes, or 64M, 1.5G, or max" },
	{ "limits: {memory: 1M}\n", "1: limits.memory: '1M' is too small: at least 16M" },
	{ "limits: {memory: 99999999T}\n", "1: limits.memory: '99999999T' is out of range" },
	{ "limits: {pids: -3}\n", "1: limits.pids: '-3' is not a whole number, or max" },
	{ "limits: {pids: 0}\n", "1: limits.pids: '0' is too small: at least 4" },
	{ "limits: {cpu: many}\n", "1: limits.cpu: 'many' is not a number of cores: 0.5, 2, 500m, or max" },
	{ "limits: {cpu: 0}\n", "1: limits.cpu: '0' is too small: at least 0.01" },
	{ "limits: {timeout: soon}\n",
	  "1: limits.timeout: 'soon' is not a time: seconds, or 500ms, 30s, 5m, 2h, or max" },
	{ "limits: {timeout: 0}\n", "1: limits.timeout: '0' is too small: at least 1ms" },
	{ "limits: {output: }\n", "1: limits.output: has no value" },
	{ "limits: {output: ~}\n", "1: limits.output: has no value" },
	{ "limits: {output: [1]}\n", "1: limits.output: must be one value, not a list or a mapping" },
	{ "limits: 5\n", "1: limits: must be a mapping (lines of \"name: value\")" },
	{ "op_timeout: max\n", "1: op_timeout: 'max' is too large: at most 10m" },
	{ "code_max: 2G\n", "1: code_max: '2G' is too large: at most 1G" },
	{ "code_max: x\n", "1: code_max: 'x' is not a size: bytes, or 64M, 1.5G" },
	{ "max_wait: 10ms\n", "1: max_wait: '10ms' is too small: at least 1s" },
	{ "state_dir: relative/path\n", "1: state_dir: 'relative/path' must be an absolute path" },
	{ "state_dir:\n", "1: state_dir: has no value" },
	{ "oci_runtime: ''\n", "1: oci_runtime: has no value" },
	{ "templates: {a: {rootfs: x}}\n", "1: templates.a.rootfs: 'x' must be an absolute path" },
	{ "templates: {a: {network: 5g}}\n", "1: templates.a.network: '5g' is none of none, nat, host" },
	{ "templates: {../a: {}}\n", "1: templates.../a: not a name for a template: use letters, digits, '.', '-', '_'" },
	{ "templates:\n  - x\n", "2: templates: must be a mapping (lines of \"name: value\")" },
	{ "templates: {a: {env: {1X: y}}}\n",
	  "1: templates.a.env.1X: not a name for a variable: use letters, digits and _" },
	{ "templates: {a: {env: {X: [1]}}}\n", "1: templates.a.env.X: must be one value, not a list or a mapping" },
	{ "state_dir: /x\ntemplate: nope\n", "2: template: there is no template 'nope'" },
	{ "languages: {auto: {command: [x]}}\n",
	  "1: languages.auto: not a name for a language: letters, digits, '_', '+', '.', '-'; not auto" },
	{ "languages: {r: {extensions: [R]}}\n",
	  "1: languages.r: is not built in, so it needs a command: [program, \"{code}\"]" },
	{ "templates:\n  t:\n    languages:\n      r: {extensions: [R]}\n",
	  "4: templates.t.languages.r: is not built in, so it needs a command: [program, \"{code}\"]" },
	{ "languages: {r: {extensions: [.R], command: [Rscript]}}\n", "1: languages.r.extensions: '.R': without the dot" },
	{ "languages: {r: {extensions: [a/b], command: [x]}}\n",
	  "1: languages.r.extensions: 'a/b' is not an extension: letters, digits, '_', '+', '-'" },
	{ "languages:\n  r: {extensions: [R], command: [x]}\n  s:\n    extensions: [R]\n    command: [y]\n",
	  "4: languages.s.extensions: 'R' belongs to language 'r' already" },
	{ "languages: {r: {command: Rscript}}\n", "1: languages.r.command: must be a list: [a, b]" },
	{ "languages: {r: {command: []}}\n", "1: languages.r.command: must name a program" },
	{ "languages: {r: {command: [x, --file={code}]}}\n", NULL },
	{ "languages: {r: {command: [x, '--file={code}']}}\n",
	  "1: languages.r.command: '--file={code}': {code} must be an argument of its own" },
	{ "languages: {r: {command: [x, '{code}', '{code}']}}\n", "1: languages.r.command: {code} is there twice" },
	{ "policy:\n  deny: ['(']\n", "2: policy.deny: '(' is not a regular expression: Unmatched ( or \\(" },
	{ "policy:\n  deny:\n    - ok\n    - ''\n", "4: policy.deny: an empty pattern would refuse everything" },
	{ "policy: {deny: x}\n", "1: policy.deny: must be a list: [a, b]" },
	{ "policy: {deny: [{a: b}]}\n", "1: policy.deny: must be one value, not a list or a mapping" },
	{ "log: run\nspool: 1G\nlog: box\n", "3: log: is there twice" },
	{ "limits: {cpu: 1, cpu: 2}\n", "1: limits.cpu: is there twice" },
	{ "log: bogus\n", "1: log: 'bogus' are not parts of fuse, run, box, local, http (with commas and no blanks between), or all" },
	{ "spool: 1G\nlog: run, box\n",
	  "2: log: 'run, box' are not parts of fuse, run, box, local, http (with commas and no blanks between), or all" },
	{ "log: &a x\n", "1: log: anchors and aliases (& and *) are not supported; a text that begins so belongs in quotes" },
	{ "limits: &a {cpu: 1}\n",
	  "1: limits: anchors and aliases (& and *) are not supported; a text that begins so belongs in quotes" },
	{ "log: *a\n", "1: log: anchors and aliases (& and *) are not supported; a text that begins so belongs in quotes" },
	{ "log: !secret x\n", "1: log: tags (!) are not supported; a text that begins so belongs in quotes" },
	{ "log: !!binary eA==\n", "1: log: tags (!) are not supported; a text that begins so belongs in quotes" },
	{ "<<: {log: x}\n", NULL },
	{ "? [a]\n: b\n", "1: a key must be a plain word" },
	{ "- a\n", "1: must be a mapping (lines of \"name: value\")" },
	{ "just text\n", "1: must be a mapping (lines of \"name: value\")" },
	{ "log: run\n---\nlog: box\n", "2: only one document is allowed in a file" },
	{ "log: \"a\\0b\"\n", "1: log: must not hold a NUL byte" },
	{ "\"log\\0x\": b\n", "1: log: must not hold a NUL byte" },
	{ "log: [\n", NULL },
	{ "state_dir: [\n", NULL },
	{ "log: 'x\n", NULL },
	{ "state_dir:\t\n\t- x\n", NULL },
	{ "log: run\nlog\n", NULL },
};

static void every_mistake_is_told_with_file_line_and_key(void **state)
{
	size_t i;

	for (i = 0; i < COUNT(bad); i++) {
		struct sbx_err err = SBX_ERR_INIT;
		struct sbx_config *c = (struct sbx_config *)&err;
		char want[500];
		int r = load(bad[i].text, strlen(bad[i].text), &c, &err);

		if (r != -EINVAL || err.code != EINVAL || c != (struct sbx_config *)&err)
			fail_msg("'%s': got %d '%s'", bad[i].text, r, err.text);
		snprintf(want, sizeof(want), "%s:%s", file, bad[i].reason ? bad[i].reason : "");
		if (bad[i].reason ? strcmp(err.text, want) != 0 : strncmp(err.text, want, strlen(want)) != 0)
			fail_msg("'%s'\ngot  %s\nwant %s", bad[i].text, err.text, want);
	}
}

static void what_is_not_yaml_is_told_with_its_line(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;
	char want[200];

	assert_int_equal(load("log: run\n\nlog\n", 14, &c, &err), -EINVAL);
	snprintf(want, sizeof(want), "%s:4: not YAML: could not find expected ':'", file);
	assert_true(strncmp(err.text, want, strlen(want)) == 0 || strstr(err.text, ": not YAML: "));
	assert_int_equal(load("log: \xff\xfe\n", 8, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, ":1: not YAML: "));
	assert_int_equal(load("log: a\0b\n", 9, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, ":1: not YAML: "));
}

/* ---- what is read ---- */

static void an_empty_file_gives_the_defaults(void **state)
{
	static const char *const texts[] = { "", "# nothing\n", "---\n", "limits:\ntemplates:\npolicy:\n", "{}\n" };
	size_t i;

	for (i = 0; i < COUNT(texts); i++) {
		struct sbx_config *c = load_ok(texts[i]);
		const struct sbx_template *t = sbx_config_template(c, "default");

		assert_non_null(t);
		assert_string_equal(c->default_template, "default");
		assert_int_equal(c->templates_n, 1);
		assert_int_equal(t->limits.cpu_milli, 1000);
		assert_int_equal(t->limits.memory_bytes, 512 << 20);
		assert_true(t->limits.disk_bytes == UINT64_MAX);
		assert_int_equal(t->limits.pids, 256);
		assert_int_equal(t->limits.output_bytes, 64 << 20);
		assert_int_equal(t->limits.timeout_ms, 300000);
		assert_int_equal(t->network, SBX_NET_NONE);
		assert_null(t->rootfs);
		assert_null(t->env);
		assert_null(c->oci_runtime);
		assert_null(c->log);
		assert_null(c->policy_deny);
		assert_int_equal(c->op_timeout_ms, 5000);
		assert_int_equal(c->disk_reserve_bytes, 1 << 30);
		assert_int_equal(c->spool_bytes, 1 << 30);
		assert_int_equal(c->code_bytes, 16 << 20);
		assert_null(sbx_config_template(c, "other"));
		sbx_config_free(c);
	}
}

static void every_key_is_read(void **state)
{
	struct sbx_config *c = load_ok("state_dir: /srv/state # a comment\n"
				       "oci_runtime: runc\n"
				       "log: run,box\n"
				       "template: big\n"
				       "max_wait: 10m\n"
				       "op_timeout: 1.5s\n"
				       "disk_reserve: 2G\n"
				       "spool: max\n"
				       "code_max: 1M\n"
				       "limits:\n"
				       "  pids: 100\n"
				       "  timeout: max\n"
				       "templates:\n"
				       "  default:\n"
				       "    limits: {pids: 50}\n"
				       "  big:\n"
				       "    rootfs: /srv/root\n"
				       "    runtime: R 4.3\n"
				       "    network: host\n"
				       "    files:\n"
				       "      .: /srv/base\n"
				       "      data/set.csv: {from: /srv/set.csv, mode: 0440}\n"
				       "    limits: {cpu: 2.5, memory: 4G, disk: 10G, output: max}\n"
				       "    env:\n"
				       "      A: 1\n"
				       "      B: 'x = y'\n"
				       "      EMPTY:\n"
				       "      NULL_WORD: 'null'\n"
				       "languages:\n"
				       "  r: {extensions: [R, r], command: [Rscript, \"{code}\"]}\n"
				       "  python: {command: [pypy3]}\n"
				       "policy:\n"
				       "  deny:\n"
				       "    - rm +-rf +/\n"
				       "    - '[0-9]{3}'\n");
	const struct sbx_template *t = sbx_config_template(c, "big");

	assert_string_equal(c->state_dir, "/srv/state");
	assert_string_equal(c->oci_runtime, "runc");
	assert_string_equal(c->log, "run,box");
	assert_string_equal(c->default_template, "big");
	assert_int_equal(c->max_wait_ms, 600000);
	assert_int_equal(c->op_timeout_ms, 1500);
	assert_true(c->disk_reserve_bytes == 2ULL << 30);
	assert_true(c->spool_bytes == UINT64_MAX);
	assert_int_equal(c->code_bytes, 1 << 20);
	assert_non_null(t);
	assert_string_equal(t->rootfs, "/srv/root");
	assert_string_equal(t->runtime, "R 4.3");
	assert_int_equal(t->files_n, 2);
	assert_string_equal(t->files[0].to, ".");
	assert_string_equal(t->files[0].from, "/srv/base");
	assert_true(t->files[0].mode == UINT64_MAX);
	assert_string_equal(t->files[1].to, "data/set.csv");
	assert_string_equal(t->files[1].from, "/srv/set.csv");
	assert_int_equal(t->files[1].mode, 0440);
	assert_int_equal(t->network, SBX_NET_HOST);
	assert_int_equal(t->limits.cpu_milli, 2500);
	assert_true(t->limits.memory_bytes == 4ULL << 30);
	assert_true(t->limits.disk_bytes == 10ULL << 30);
	assert_true(t->limits.output_bytes == UINT64_MAX);
	assert_int_equal(t->limits.pids, 100); /* of `limits` */
	assert_true(t->limits.timeout_ms == UINT64_MAX);
	assert_string_equal(t->env[0], "A=1");
	assert_string_equal(t->env[1], "B=x = y");
	assert_string_equal(t->env[2], "EMPTY=");
	assert_string_equal(t->env[3], "NULL_WORD=null");
	assert_null(t->env[4]);
	t = sbx_config_template(c, "default");
	assert_int_equal(t->limits.pids, 50);
	assert_int_equal(t->limits.cpu_milli, 1000);
	assert_int_equal(c->languages.n, 2);
	assert_string_equal(c->languages.items[0].name, "r");
	assert_string_equal(c->languages.items[0].extensions[1], "r");
	assert_string_equal(c->languages.items[0].command[1], "{code}");
	assert_null(c->languages.items[0].command[2]);
	assert_string_equal(c->languages.items[1].command[0], "pypy3");
	assert_null(c->languages.items[1].extensions);
	assert_string_equal(c->policy_deny[0], "rm +-rf +/");
	assert_string_equal(c->policy_deny[1], "[0-9]{3}");
	assert_null(c->policy_deny[2]);
	sbx_config_free(c);
}

/* what a template says of a language is stronger than what the top level says; the rest is taken from there */
static void a_template_has_languages_of_its_own(void **state)
{
	struct sbx_config *c = load_ok("templates:\n"
				       "  t:\n"
				       "    languages:\n"
				       "      python: {command: [pypy3]}\n"
				       "      mine: {extensions: [R], command: [mine]}\n"
				       "languages:\n"
				       "  r: {extensions: [R, r], command: [Rscript]}\n"
				       "  python: {extensions: [pyw], command: [python3.12]}\n");
	const struct sbx_languages *own = &sbx_config_template(c, "t")->languages;
	const struct sbx_languages *plain = &sbx_config_template(c, "default")->languages;

	assert_int_equal(c->languages.n, 2);
	assert_int_equal(own->n, 3);
	assert_string_equal(own->items[0].name, "python");
	assert_string_equal(own->items[0].command[0], "pypy3");
	assert_string_equal(own->items[0].extensions[0], "pyw");
	assert_string_equal(sbx_language_of_name(own, "code.R"), "mine");
	assert_string_equal(sbx_language_of_name(own, "code.r"), "r");
	assert_string_equal(sbx_language_of_name(own, "code.pyw"), "python");
	assert_string_equal(sbx_language_of_name(plain, "code.R"), "r");
	assert_false(sbx_language_known(plain, "mine"));
	assert_int_equal(plain->n, 2);
	assert_string_equal(plain->items[1].command[0], "python3.12");
	sbx_config_free(c);
}

/* also of a language that is not built in, in whichever order the two stand */
static void a_template_changes_extensions_of_a_language_at_the_top(void **state)
{
	static const char *const texts[] = {
		"templates: {t: {languages: {r: {extensions: [q]}}}}\nlanguages: {r: {extensions: [R], command: [Rscript]}}\n",
		"languages: {r: {extensions: [R], command: [Rscript]}}\ntemplates: {t: {languages: {r: {extensions: [q]}}}}\n",
	};
	size_t i;

	for (i = 0; i < COUNT(texts); i++) {
		struct sbx_config *c = load_ok(texts[i]);
		const struct sbx_languages *own = &sbx_config_template(c, "t")->languages;

		assert_int_equal(own->n, 1);
		assert_string_equal(own->items[0].command[0], "Rscript");
		assert_string_equal(sbx_language_of_name(own, "code.q"), "r");
		assert_null(sbx_language_of_name(own, "code.R"));
		assert_string_equal(sbx_language_of_name(&c->languages, "code.R"), "r");
		sbx_config_free(c);
	}
}

static void a_template_has_a_cleanup_of_its_own(void **state)
{
	struct sbx_config *c = load_ok("templates:\n"
				       "  a: {cleanup: {idle: max}}\n"
				       "  b: {cleanup: {idle_action: stop, max_age: 2h}}\n"
				       "cleanup: {idle: 30m, idle_action: delete}\n");
	const struct sbx_cleanup *a = &sbx_config_template(c, "a")->cleanup;
	const struct sbx_cleanup *b = &sbx_config_template(c, "b")->cleanup;
	const struct sbx_cleanup *plain = &sbx_config_template(c, "default")->cleanup;

	assert_true(a->idle_ms == UINT64_MAX && a->idle_deletes && a->max_age_ms == UINT64_MAX);
	assert_true(b->idle_ms == 1800000 && !b->idle_deletes && b->max_age_ms == 7200000);
	assert_true(plain->idle_ms == 1800000 && plain->idle_deletes && plain->max_age_ms == UINT64_MAX);
	assert_true(c->cleanup.idle_ms == 1800000 && c->cleanup.idle_deletes);
	sbx_config_free(c);
}

static void json_is_yaml_too(void **state)
{
	struct sbx_config *c = load_ok("{\"state_dir\": \"/x\", \"limits\": {\"pids\": 64}, \"policy\": {\"deny\": [\"a\"]}}");

	assert_string_equal(c->state_dir, "/x");
	assert_int_equal(c->templates[0].limits.pids, 64);
	sbx_config_free(c);
}

/* ---- files ---- */

static void a_file_that_was_named_must_be_there(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;
	char want[200];

	assert_int_equal(sbx_config_load("/nowhere/config.yaml", &c, &err), -ENOENT);
	assert_string_equal(err.text, "config file '/nowhere/config.yaml': No such file or directory");
	assert_int_equal(sbx_config_load(dir, &c, &err), -EISDIR);
	snprintf(want, sizeof(want), "config file '%s': Is a directory", dir);
	assert_string_equal(err.text, want);
}

static void a_large_file_is_refused(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;
	size_t len = 1 << 20;
	char *text = malloc(len + 1);

	memset(text, '#', len + 1);
	assert_int_equal(load(text, len + 1, &c, &err), -EFBIG);
	assert_non_null(strstr(err.text, "is larger than 1M"));
	assert_int_equal(load(text, len, &c, &err), 0);
	sbx_config_free(c);
	free(text);
}

/* brackets a hundred thousand deep must not take the stack with them */
static void depth_is_bounded(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;
	size_t len = 100000, i;
	char *text = malloc(len);

	for (i = 0; i < len; i++)
		text[i] = i % 2 ? '[' : '{';
	assert_int_equal(load(text, len, &c, &err), -EINVAL);
	memset(text, '[', len);
	memcpy(text, "log: ", 5);
	assert_int_equal(load(text, len, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, ":1: log: must be one value"));
	free(text);
}

static void the_usual_places_are_read(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_config *c = NULL;
	char sub[100], path[120];

	if (access("/etc/sbxfs/config.yaml", F_OK) == 0)
		skip();
	setenv("XDG_CONFIG_HOME", dir, 1);
	assert_int_equal(sbx_config_load(NULL, &c, &err), 0); /* none there */
	sbx_config_free(c);
	snprintf(sub, sizeof(sub), "%s/sbxfs", dir);
	assert_int_equal(mkdir(sub, 0700), 0);
	snprintf(path, sizeof(path), "%s/config.yaml", sub);
	put_at(path, "oci_runtime: own\nstate_dir: ~/state\n", 36);
	setenv("HOME", "/home/somebody", 1);
	assert_int_equal(sbx_config_load(NULL, &c, &err), 0);
	assert_string_equal(c->oci_runtime, "own");
	assert_string_equal(c->state_dir, "/home/somebody/state");
	sbx_config_free(c);
	put_at(path, "x", 1);
	assert_int_equal(sbx_config_load(NULL, &c, &err), -EINVAL);
	assert_non_null(strstr(err.text, path));
	unlink(path);
	rmdir(sub);
}

static void the_state_folder_is_where_the_user_keeps_state(void **state)
{
	struct sbx_config *c = load_ok("");

	if (geteuid() == 0) {
		assert_string_equal(c->state_dir, "/var/lib/sbxfs");
	} else {
		sbx_config_free(c);
		setenv("XDG_STATE_HOME", "/xdg", 1);
		c = load_ok("");
		assert_string_equal(c->state_dir, "/xdg/sbxfs");
		sbx_config_free(c);
		setenv("XDG_STATE_HOME", "relative", 1);
		setenv("HOME", "/home/somebody", 1);
		c = load_ok("");
		assert_string_equal(c->state_dir, "/home/somebody/.local/state/sbxfs");
	}
	sbx_config_free(c);
}

/* every prefix of a good file is either read or refused with a reason, never more */
static void any_cut_of_a_file_is_survived(void **state)
{
	static const char text[] = "limits: {cpu: 2, memory: 1G}\ntemplates:\n  a:\n    env: {A: \"b\\n\", C: 'd'}\n"
				   "languages: {x: {extensions: [x], command: [y, \"{code}\"]}}\npolicy:\n  deny:\n  - a|b\n";
	size_t len;

	for (len = 0; len < sizeof(text); len++) {
		struct sbx_err err = SBX_ERR_INIT;
		struct sbx_config *c = NULL;
		int r = load(text, len, &c, &err);

		if (r == 0)
			sbx_config_free(c);
		else
			assert_true(r == -EINVAL && err.text[0]);
	}
}

static int setup(void **state)
{
	strcpy(dir, "/tmp/sbx-config-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/c.yaml", dir);
	return 0;
}

static int teardown(void **state)
{
	unlink(file);
	return rmdir(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_mistake_is_told_with_file_line_and_key),
		cmocka_unit_test(what_is_not_yaml_is_told_with_its_line),
		cmocka_unit_test(an_empty_file_gives_the_defaults),
		cmocka_unit_test(every_key_is_read),
		cmocka_unit_test(a_template_has_languages_of_its_own),
		cmocka_unit_test(a_template_changes_extensions_of_a_language_at_the_top),
		cmocka_unit_test(a_template_has_a_cleanup_of_its_own),
		cmocka_unit_test(json_is_yaml_too),
		cmocka_unit_test(a_file_that_was_named_must_be_there),
		cmocka_unit_test(a_large_file_is_refused),
		cmocka_unit_test(depth_is_bounded),
		cmocka_unit_test(the_usual_places_are_read),
		cmocka_unit_test(the_state_folder_is_where_the_user_keeps_state),
		cmocka_unit_test(any_cut_of_a_file_is_survived),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
