/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: struct sbx_config as a whole: defaults, where the files are, the keys at the top.  What is below them is read by
 * config_template.c and config_language.c.  Main thread, before others start.
 */
#include "config_read.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX (1024 * 1024)
#define SETTING(field) offsetof(struct sbx_config, field)

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
	return sbx_config_texts_add(y, data, text);
}

static int read_deny(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		     void *field)
{
	(void)key;
	return sbx_yaml_list(y, v, add_pattern, field);
}

static const struct sbx_config_key policy_keys[] = {
	{ "deny", SETTING(policy_deny), read_deny },
	{ NULL },
};

static int read_policy(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key,
		       void *field)
{
	(void)key;
	return sbx_config_map(y, v, policy_keys, field, NULL);
}

/* ---- the whole file ---- */

static int read_log(struct sbx_yaml *y, const struct sbx_yaml_value *v, const struct sbx_config_key *key, void *field)
{
	int r = sbx_config_text(y, v, key, field);
	unsigned int parts;

	if (r == 0 && sbx_log_parts(v->text, &parts) < 0)
		r = sbx_yaml_fail(y, v->line, "'%.60s' are not parts of %s (with commas and no blanks between), or all",
				  v->text, SBX_LOG_PARTS_TEXT);
	return r;
}

static int read_default_template(struct sbx_yaml *y, const struct sbx_yaml_value *v,
				 const struct sbx_config_key *key, void *field)
{
	struct sbx_config_loader *l = y->user;

	snprintf(l->template_at, sizeof(l->template_at), "%s:%zu: ", y->file, v->line);
	return sbx_config_text(y, v, key, field);
}

static const struct sbx_config_key top_keys[] = {
	{ "state_dir", SETTING(state_dir), sbx_config_path },
	{ "oci_runtime", SETTING(oci_runtime), sbx_config_text },
	{ "network_tool", SETTING(network_tool), sbx_config_text },
	{ "log", SETTING(log), read_log },
	{ "template", SETTING(default_template), read_default_template },
	{ "limits", 0, sbx_config_limits },
	{ "templates", 0, sbx_config_templates },
	{ "languages", SETTING(languages), sbx_config_languages },
	{ "cleanup", 0, sbx_config_cleanup },
	{ "policy", 0, read_policy },
	{ "max_wait", SETTING(max_wait_ms), SBX_CONFIG_TIME, 1000, UINT64_MAX, "1s", NULL },
	{ "op_timeout", SETTING(op_timeout_ms), SBX_CONFIG_TIME, 100, 600000, "100ms", "10m" },
	{ "disk_reserve", SETTING(disk_reserve_bytes), SBX_CONFIG_SIZE, 0, 1ULL << 50, "0", "1024T" },
	{ "spool", SETTING(spool_bytes), SBX_CONFIG_SIZE, 1 << 20, UINT64_MAX, "1M", NULL },
	{ "events_max", SETTING(events_bytes), SBX_CONFIG_SIZE, 4096, 1 << 30, "4K", "1G" },
	{ "code_max", SETTING(code_bytes), SBX_CONFIG_SIZE, 1, 1 << 30, "1", "1G" },
	{ NULL },
};

static int no_memory(struct sbx_err *err)
{
	return sbx_err_set(err, ENOMEM, "no memory for the configuration");
}

static int read_file(struct sbx_config_loader *l, const char *file, bool must, struct sbx_err *err)
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
	return sbx_config_parse(&y, text, len, top_keys, l->config);
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

static int default_state_dir(struct sbx_config_loader *l, struct sbx_err *err)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = sbx_config_home();
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

static int usual_files(struct sbx_config_loader *l, struct sbx_err *err)
{
	const char *dir = getenv("XDG_CONFIG_HOME"), *home = sbx_config_home();
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

static int complete(struct sbx_config_loader *l, struct sbx_err *err)
{
	struct sbx_config *c = l->config;
	int r = sbx_config_templates_complete(l, err);

	if (r < 0)
		return r;
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
	SBX_CLEANUP(sbx_freep) struct sbx_config_loader *l = calloc(1, sizeof(*l));
	int r;

	if (!c || !l)
		return no_memory(err);
	l->config = c;
	l->base.limits = (struct sbx_limits){
		.cpu_milli = 1000,
		.memory_bytes = 512ULL << 20,
		.disk_bytes = UINT64_MAX,
		.pids = 256,
		.output_bytes = 64ULL << 20,
		.timeout_ms = 300000,
	};
	l->base.cleanup = (struct sbx_cleanup){ .idle_ms = UINT64_MAX, .max_age_ms = UINT64_MAX };
	c->max_wait_ms = default_max_wait_ms();
	c->op_timeout_ms = 5000;
	c->disk_reserve_bytes = 1ULL << 30;
	c->spool_bytes = 1ULL << 30;
	c->events_bytes = 4ULL << 20;
	c->code_bytes = 16ULL << 20;
	c->default_template = strdup("default");
	if (!c->default_template || !sbx_config_template_get(l, "default"))
		r = no_memory(err);
	else
		r = file ? read_file(l, file, true, err) : usual_files(l, err);
	if (r == 0)
		r = complete(l, err);
	free(l->given);
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
	for (i = 0; i < config->templates_n; i++)
		sbx_config_template_done(&config->templates[i]);
	free(config->templates);
	sbx_config_languages_done(&config->languages);
	sbx_config_texts_free(config->policy_deny);
	free(config->state_dir);
	free(config->oci_runtime);
	free(config->network_tool);
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
