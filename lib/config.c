/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_config: defaults, where the files are, every key and every check of a value.  Main thread,
 * before others start.
 */
#include "config.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "language.h"
#include "yamlread.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (1024 * 1024)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* what is read: the configuration, and what is needed to complete it at the end */
struct loader {
	struct sbx_config *config;
	struct sbx_limits base; /* `limits`: of every template that does not say otherwise */
	unsigned int *own; /* per template: which limits it has of its own, bits of limit_keys */
	char template_at[300]; /* "FILE:LINE: " of `template` */
};

/* appends to a NULL-terminated vector */
static int strv_add(struct sbx_yaml *y, char ***v, const char *text)
{
	size_t n = 0;
	char **grown;

	while (*v && (*v)[n])
		n++;
	grown = realloc(*v, (n + 2) * sizeof(char *));
	if (!grown)
		return sbx_yaml_memory(y);
	*v = grown;
	grown[n + 1] = NULL;
	grown[n] = strdup(text);
	return grown[n] ? 0 : sbx_yaml_memory(y);
}

static void strv_free(char **v)
{
	size_t i;

	for (i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

/* ---- values with a unit, by table ---- */

struct number {
	const char *name;
	size_t off_bytes; /* of a uint64_t */
	int (*parse)(const char *text, size_t len, uint64_t *ret);
	const char *form;
	uint64_t min, max; /* max: UINT64_MAX = "max" is allowed */
	const char *min_text, *max_text;
};

#define SIZE_FORM "a size: bytes, or 64M, 1.5G"
#define TIME_FORM "a time: seconds, or 500ms, 30s, 5m, 2h"
#define LIMIT(field) offsetof(struct sbx_limits, field)
#define SETTING(field) offsetof(struct sbx_config, field)

static const struct number limit_keys[] = {
	{ "cpu", LIMIT(cpu_milli), sbx_text_cpu, "a number of cores: 0.5, 2, 500m", 10, UINT64_MAX,
	  "0.01", NULL },
	{ "memory", LIMIT(memory_bytes), sbx_text_size, SIZE_FORM, 16 << 20, UINT64_MAX, "16M",
	  NULL },
	{ "disk", LIMIT(disk_bytes), sbx_text_size, SIZE_FORM, 1 << 20, UINT64_MAX, "1M", NULL },
	{ "pids", LIMIT(pids), sbx_text_count, "a whole number", 4, UINT64_MAX, "4", NULL },
	{ "output", LIMIT(output_bytes), sbx_text_size, SIZE_FORM, 1, UINT64_MAX, "1", NULL },
	{ "timeout", LIMIT(timeout_ms), sbx_text_duration, TIME_FORM, 1, UINT64_MAX, "1ms", NULL },
};

static const struct number setting_keys[] = {
	{ "max_wait", SETTING(max_wait_ms), sbx_text_duration, TIME_FORM, 1000, UINT64_MAX, "1s",
	  NULL },
	{ "op_timeout", SETTING(op_timeout_ms), sbx_text_duration, TIME_FORM, 100, 600000, "100ms",
	  "10m" },
	{ "disk_reserve", SETTING(disk_reserve_bytes), sbx_text_size, SIZE_FORM, 0, 1ULL << 50, "0",
	  "1024T" },
	{ "spool", SETTING(spool_bytes), sbx_text_size, SIZE_FORM, 1 << 20, UINT64_MAX, "1M",
	  NULL },
	{ "code_max", SETTING(code_bytes), sbx_text_size, SIZE_FORM, 1, 1 << 30, "1", "1G" },
};

struct number_at {
	const struct number *key;
	void *object;
};

static int read_number(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct number_at *at = data;
	const struct number *key = at->key;
	const char *text = NULL;
	uint64_t n;
	int r = sbx_yaml_text(y, v, &text);

	if (r < 0)
		return r;
	r = key->parse(text, strlen(text), &n);
	if (r == -EINVAL)
		return sbx_yaml_fail(y, v->line, "'%.60s' is not %s%s", text, key->form,
				     key->max == UINT64_MAX ? ", or max" : "");
	if (r < 0)
		return sbx_yaml_fail(y, v->line, "'%.60s' is out of range", text);
	if (n < key->min)
		return sbx_yaml_fail(y, v->line, "'%.60s' is too small: at least %s", text,
				     key->min_text);
	if (n > key->max)
		return sbx_yaml_fail(y, v->line, "'%.60s' is too large: at most %s", text,
				     key->max_text);
	memcpy((char *)at->object + key->off_bytes, &n, sizeof(n));
	return 0;
}

/* ---- texts ---- */

static int set_text(struct sbx_yaml *y, char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return sbx_yaml_memory(y);
	free(*field);
	*field = copy;
	return 0;
}

static int read_text(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	const char *text = NULL;
	int r = sbx_yaml_text(y, v, &text);

	if (r == 0 && !*text)
		r = sbx_yaml_fail(y, v->line, "has no value");
	return r < 0 ? r : set_text(y, data, text);
}

static const char *home_dir(void)
{
	const char *home = getenv("HOME");
	struct passwd *pw;

	if (home && home[0] == '/')
		return home;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

/* an absolute path; "~/" is the home folder */
static int read_path(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	SBX_CLEANUP(sbx_freep) char *whole = NULL;
	const char *text = NULL;
	int r = sbx_yaml_text(y, v, &text);

	if (r < 0)
		return r;
	if (strncmp(text, "~/", 2) == 0 && home_dir()) {
		if (asprintf(&whole, "%s%s", home_dir(), text + 1) < 0) {
			whole = NULL;
			return sbx_yaml_memory(y);
		}
		text = whole;
	}
	if (text[0] != '/')
		return sbx_yaml_fail(y, v->line, "'%.100s' must be an absolute path", text);
	return set_text(y, data, text);
}

/* ---- templates ---- */

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

	for (i = 0; i < COUNT(limit_keys); i++) {
		struct number_at number = { &limit_keys[i], at->limits };

		if (strcmp(limit_keys[i].name, key) != 0)
			continue;
		*at->own |= 1U << i;
		return sbx_yaml_value(y, read_number, &number);
	}
	return sbx_yaml_unknown(y, line, key, known);
}

static int read_limits(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_limit, data);
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
	return strv_add(y, at->env, item);
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
	struct loader *l = y->user;
	struct sbx_template *t = data;
	struct limits_at at = { &t->limits, &l->own[t - l->config->templates] };

	if (strcmp(key, "rootfs") == 0)
		return sbx_yaml_value(y, read_path, &t->rootfs);
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

static struct sbx_template *template_get(struct loader *l, const char *name)
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
	struct loader *l = y->user;
	struct sbx_template *t;

	if (!sbx_text_box_name(key))
		return sbx_yaml_fail(
			y, line, "not a name for a template: use letters, digits, '.', '-', '_'");
	t = template_get(l, key);
	return t ? sbx_yaml_value(y, read_template, t) : sbx_yaml_memory(y);
}

static int read_templates(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_template, data);
}

/* ---- languages ---- */

static bool made_of(const char *text, const char *more, size_t max)
{
	size_t i;

	for (i = 0; text[i]; i++) {
		char c = text[i];

		if (i >= max || !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
				  (c >= '0' && c <= '9') || strchr(more, c)))
			return false;
	}
	return i > 0;
}

static int add_extension(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	const struct sbx_config *c = ((struct loader *)y->user)->config;
	struct sbx_language *lang = data;
	char **e;
	size_t i;

	if (text[0] == '.')
		return sbx_yaml_fail(y, line, "'%.60s': without the dot", text);
	if (!made_of(text, "_+-", 16))
		return sbx_yaml_fail(y, line,
				     "'%.60s' is not an extension: letters, digits, '_', '+', '-'",
				     text);
	for (i = 0; i < c->languages_n; i++) {
		for (e = c->languages[i].extensions; e && *e; e++) {
			if (strcmp(*e, text) == 0)
				return sbx_yaml_fail(y, line,
						     "'%s' belongs to language '%s' already", text,
						     c->languages[i].name);
		}
	}
	return strv_add(y, &lang->extensions, text);
}

static int read_extensions(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;

	strv_free(sbx_take(lang->extensions)); /* of an earlier file */
	return sbx_yaml_list(y, v, add_extension, lang);
}

static int add_argument(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	struct sbx_language *lang = data;

	if (strstr(text, "{code}") && strcmp(text, "{code}") != 0)
		return sbx_yaml_fail(y, line, "'%.60s': {code} must be an argument of its own",
				     text);
	return strv_add(y, &lang->command, text);
}

static int read_command(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;
	size_t i, codes = 0;
	int r;

	strv_free(sbx_take(lang->command));
	r = sbx_yaml_list(y, v, add_argument, lang);
	if (r < 0)
		return r;
	if (!lang->command || !lang->command[0][0])
		return sbx_yaml_fail(y, v->line, "must name a program");
	for (i = 0; lang->command[i]; i++)
		codes += strcmp(lang->command[i], "{code}") == 0;
	return codes > 1 ? sbx_yaml_fail(y, v->line, "{code} is there twice") : 0;
}

static int each_of_language(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "extensions", "command", NULL };

	if (strcmp(key, "extensions") == 0)
		return sbx_yaml_value(y, read_extensions, data);
	if (strcmp(key, "command") == 0)
		return sbx_yaml_value(y, read_command, data);
	return sbx_yaml_unknown(y, line, key, known);
}

static int read_language(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	struct sbx_language *lang = data;
	int r = sbx_yaml_map(y, v, each_of_language, data);

	if (r == 0 && !lang->command && !sbx_language_known(NULL, lang->name))
		r = sbx_yaml_fail(y, v->line,
				  "is not built in, so it needs a command: [program, \"{code}\"]");
	return r;
}

static int each_language(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	struct sbx_config *c = ((struct loader *)y->user)->config;
	struct sbx_language *grown;
	size_t i;

	if (!made_of(key, "_+.-", 32) || strcmp(key, "auto") == 0 || strcmp(key, "shebang") == 0)
		return sbx_yaml_fail(
			y, line,
			"not a name for a language: letters, digits, '_', '+', '.', '-'; not auto");
	for (i = 0; i < c->languages_n; i++) {
		if (strcmp(c->languages[i].name, key) == 0)
			return sbx_yaml_value(y, read_language, &c->languages[i]);
	}
	grown = realloc(c->languages, (c->languages_n + 1) * sizeof(*grown));
	if (!grown)
		return sbx_yaml_memory(y);
	c->languages = grown;
	grown[c->languages_n] = (struct sbx_language){ .name = strdup(key) };
	if (!grown[c->languages_n].name)
		return sbx_yaml_memory(y);
	return sbx_yaml_value(y, read_language, &grown[c->languages_n++]);
}

static int read_languages(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_language, data);
}

/* ---- policy ---- */

static int add_pattern(struct sbx_yaml *y, const char *text, size_t line, void *data)
{
	char why[120];
	regex_t re;
	int r = regcomp(&re, text, REG_EXTENDED | REG_ICASE | REG_NEWLINE | REG_NOSUB);

	if (r != 0) {
		regerror(r, &re, why, sizeof(why));
		return sbx_yaml_fail(y, line, "'%.100s' is not a regular expression: %s", text,
				     why);
	}
	regfree(&re);
	if (!*text)
		return sbx_yaml_fail(y, line, "an empty pattern would refuse everything");
	return strv_add(y, data, text);
}

static int read_deny(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_list(y, v, add_pattern, &((struct loader *)y->user)->config->policy_deny);
}

static int each_policy(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "deny", NULL };

	return strcmp(key, "deny") == 0 ? sbx_yaml_value(y, read_deny, NULL)
					: sbx_yaml_unknown(y, line, key, known);
}

static int read_policy(struct sbx_yaml *y, const struct sbx_yaml_value *v, void *data)
{
	return sbx_yaml_map(y, v, each_policy, data);
}

/* ---- the whole file ---- */

static int each_top(struct sbx_yaml *y, const char *key, size_t line, void *data)
{
	static const char *const known[] = { "state_dir", "oci_runtime", "log",		 "template",
					     "templates", "limits",	 "languages",	 "policy",
					     "max_wait",  "op_timeout",	 "disk_reserve", "spool",
					     "code_max",  NULL };
	struct loader *l = y->user;
	struct sbx_config *c = l->config;
	unsigned int ignored = 0;
	struct limits_at at = { &l->base, &ignored };
	size_t i;

	for (i = 0; i < COUNT(setting_keys); i++) {
		struct number_at number = { &setting_keys[i], c };

		if (strcmp(setting_keys[i].name, key) == 0)
			return sbx_yaml_value(y, read_number, &number);
	}
	if (strcmp(key, "state_dir") == 0)
		return sbx_yaml_value(y, read_path, &c->state_dir);
	if (strcmp(key, "oci_runtime") == 0)
		return sbx_yaml_value(y, read_text, &c->oci_runtime);
	if (strcmp(key, "log") == 0)
		return sbx_yaml_value(y, read_text, &c->log);
	if (strcmp(key, "template") == 0) {
		snprintf(l->template_at, sizeof(l->template_at), "%s:%zu: ", y->file, line);
		return sbx_yaml_value(y, read_text, &c->default_template);
	}
	if (strcmp(key, "templates") == 0)
		return sbx_yaml_value(y, read_templates, NULL);
	if (strcmp(key, "limits") == 0)
		return sbx_yaml_value(y, read_limits, &at);
	if (strcmp(key, "languages") == 0)
		return sbx_yaml_value(y, read_languages, NULL);
	if (strcmp(key, "policy") == 0)
		return sbx_yaml_value(y, read_policy, NULL);
	return sbx_yaml_unknown(y, line, key, known);
}

static int no_memory(struct sbx_err *err)
{
	return sbx_err_set(err, ENOMEM, "no memory for the configuration");
}

static int read_file(struct loader *l, const char *file, bool must, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	SBX_CLEANUP(sbx_freep) char *text = NULL;
	struct sbx_yaml y = { .file = file, .user = l, .err = err };
	size_t len = 0;

	if (fd < 0) {
		if (!must && (errno == ENOENT || errno == ENOTDIR))
			return 0;
		return sbx_err_sys(err, errno, "config file '%s'", file);
	}
	text = malloc(FILE_MAX + 1);
	if (!text)
		return no_memory(err);
	for (;;) {
		ssize_t n = read(fd, text + len, FILE_MAX + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return sbx_err_sys(err, errno, "config file '%s'", file);
		len += (size_t)n;
		if (n == 0)
			break;
		if (len > FILE_MAX)
			return sbx_err_set(err, EFBIG, "config file '%s' is larger than 1M", file);
	}
	return sbx_yaml_parse(&y, text, len, each_top, NULL);
}

/* ---- defaults and the end ---- */

static uint64_t default_max_wait_ms(void)
{
	SBX_CLEANUP(sbx_fclosep) FILE *f = fopen("/proc/sys/fs/fuse/max_request_timeout", "re");
	unsigned long long seconds = 0;

	if (!f || fscanf(f, "%llu", &seconds) != 1 || seconds == 0)
		return UINT64_MAX;
	return seconds > 60 ? (seconds - 30) * 1000 : seconds * 500;
}

static int default_state_dir(struct loader *l, struct sbx_err *err)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = home_dir();
	char **ret = &l->config->state_dir;
	int n;

	if (*ret)
		return 0;
	if (geteuid() == 0)
		n = asprintf(ret, "/var/lib/sbxfs");
	else if (state && state[0] == '/')
		n = asprintf(ret, "%s/sbxfs", state);
	else if (home)
		n = asprintf(ret, "%s/.local/state/sbxfs", home);
	else
		return sbx_err_set(err, EINVAL,
				   "no home folder is known: set state_dir in the config file");
	if (n < 0) {
		*ret = NULL;
		return no_memory(err);
	}
	return 0;
}

static int usual_files(struct loader *l, struct sbx_err *err)
{
	const char *dir = getenv("XDG_CONFIG_HOME"), *home = home_dir();
	SBX_CLEANUP(sbx_freep) char *own = NULL;
	int n = 0, r;

	r = read_file(l, "/etc/sbxfs/config.yaml", false, err);
	if (r < 0)
		return r;
	if (dir && dir[0] == '/')
		n = asprintf(&own, "%s/sbxfs/config.yaml", dir);
	else if (home)
		n = asprintf(&own, "%s/.config/sbxfs/config.yaml", home);
	if (n < 0) {
		own = NULL;
		return no_memory(err);
	}
	return own ? read_file(l, own, false, err) : 0;
}

static int complete(struct loader *l, struct sbx_err *err)
{
	struct sbx_config *c = l->config;
	size_t i, k;

	for (i = 0; i < c->templates_n; i++) {
		for (k = 0; k < COUNT(limit_keys); k++) {
			size_t off = limit_keys[k].off_bytes;

			if (!(l->own[i] & 1U << k))
				memcpy((char *)&c->templates[i].limits + off,
				       (const char *)&l->base + off, sizeof(uint64_t));
		}
	}
	if (!sbx_config_template(c, c->default_template))
		return sbx_err_set(err, EINVAL, "%stemplate: there is no template '%s'",
				   l->template_at, c->default_template);
	return default_state_dir(l, err);
}

static void config_freep(struct sbx_config **config)
{
	sbx_config_free(*config);
}

int sbx_config_load(const char *file, struct sbx_config **ret, struct sbx_err *err)
{
	SBX_CLEANUP(config_freep) struct sbx_config *c = calloc(1, sizeof(*c));
	SBX_CLEANUP(sbx_freep) struct loader *l = calloc(1, sizeof(*l));
	int r;

	if (!c || !l)
		return no_memory(err);
	l->config = c;
	l->base = (struct sbx_limits){
		.cpu_milli = 1000,
		.memory_bytes = 512ULL << 20,
		.disk_bytes = UINT64_MAX,
		.pids = 256,
		.output_bytes = 64ULL << 20,
		.timeout_ms = 300000,
	};
	c->max_wait_ms = default_max_wait_ms();
	c->op_timeout_ms = 5000;
	c->disk_reserve_bytes = 1ULL << 30;
	c->spool_bytes = 1ULL << 30;
	c->code_bytes = 16ULL << 20;
	c->default_template = strdup("default");
	if (!c->default_template || !template_get(l, "default"))
		r = no_memory(err);
	else
		r = file ? read_file(l, file, true, err) : usual_files(l, err);
	if (r == 0)
		r = complete(l, err);
	free(l->own);
	if (r < 0)
		return r;
	*ret = sbx_take(c);
	return 0;
}

void sbx_config_free(struct sbx_config *config)
{
	size_t i;

	if (!config)
		return;
	for (i = 0; i < config->templates_n; i++) {
		free(config->templates[i].name);
		free(config->templates[i].rootfs);
		strv_free(config->templates[i].env);
	}
	for (i = 0; i < config->languages_n; i++) {
		free(config->languages[i].name);
		strv_free(config->languages[i].extensions);
		strv_free(config->languages[i].command);
	}
	free(config->templates);
	free(config->languages);
	strv_free(config->policy_deny);
	free(config->state_dir);
	free(config->oci_runtime);
	free(config->log);
	free(config->default_template);
	free(config);
}

const struct sbx_template *sbx_config_template(const struct sbx_config *config, const char *name)
{
	size_t i;

	for (i = 0; i < config->templates_n; i++) {
		if (strcmp(config->templates[i].name, name) == 0)
			return &config->templates[i];
	}
	return NULL;
}

const char *sbx_network_name(enum sbx_network network)
{
	switch (network) {
	case SBX_NET_NAT:
		return "nat";
	case SBX_NET_HOST:
		return "host";
	case SBX_NET_NONE:
		break;
	}
	return "none";
}
