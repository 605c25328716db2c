/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_config. */
#include "config.h"

#include "base/cleanup.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void config_freep(struct sbx_config **config)
{
	sbx_config_free(*config);
}

int sbx_config_load(const char *file, struct sbx_config **ret, struct sbx_err *err)
{
	SBX_CLEANUP(config_freep) struct sbx_config *c = calloc(1, sizeof(*c));

	if (!c)
		return sbx_err_set(err, ENOMEM, "no memory for the configuration");
	c->state_dir = strdup("/var/lib/sbxfs");
	c->default_template = strdup("default");
	c->templates = calloc(1, sizeof(*c->templates));
	if (!c->state_dir || !c->default_template || !c->templates)
		return sbx_err_set(err, ENOMEM, "no memory for the configuration");
	c->templates_n = 1;
	c->templates[0].name = strdup("default");
	c->templates[0].limits = (struct sbx_limits){
		.cpu_milli = 1000,
		.memory_bytes = 512ULL << 20,
		.disk_bytes = UINT64_MAX,
		.pids = 256,
		.output_bytes = 64ULL << 20,
		.timeout_ms = 300000,
	};
	if (!c->templates[0].name)
		return sbx_err_set(err, ENOMEM, "no memory for the configuration");
	c->max_wait_ms = UINT64_MAX;
	c->op_timeout_ms = 5000;
	c->disk_reserve_bytes = 1ULL << 30;
	c->spool_bytes = 1ULL << 30;
	c->code_bytes = 16ULL << 20;
	*ret = sbx_take(c);
	return 0;
}

void sbx_config_free(struct sbx_config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->templates_n; i++)
		free(config->templates[i].name);
	free(config->templates);
	free(config->state_dir);
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
