/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the configuration as text (YAML that sbx_config_load reads again).  Pure; any thread. */
#ifndef SBX_CONFIG_TEXT_H
#define SBX_CONFIG_TEXT_H

struct sbx_buf;
struct sbx_config;
struct sbx_template;

/* sbx_config_print - the effective configuration, defaults included, also env of templates.  0 or -ENOMEM */
int sbx_config_print(const struct sbx_config *config, struct sbx_buf *out);
/* sbx_template_print - one template, as it stands below `templates: NAME:`.  0 or -ENOMEM */
int sbx_template_print(const struct sbx_template *template, const char *indent, struct sbx_buf *out);

#endif
