/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sbxfs check local`: what this machine has of what the local provider needs, found out by doing it. */
#ifndef SBX_LOCAL_PROBE_H
#define SBX_LOCAL_PROBE_H

#include <stdbool.h>

struct sbx_config;

/*
 * sbx_local_check - see provider.h, check.  Starts (and removes) a container and a child process.
 * Works beside a live daemon on the same state directory.
 */
void sbx_local_check(const struct sbx_config *config,
		     void (*each)(void *data, const char *what, bool ok, bool needed, const char *text),
		     void *data);

#endif
