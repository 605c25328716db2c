/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sbxfs check`.  Main thread. */
#ifndef SBX_FS_CHECK_H
#define SBX_FS_CHECK_H

#include <stdio.h>

struct sbx_config;

/* sbx_check - one line per thing that a mount of @source needs: ok, or what is wrong and what to do.  Returns the exit
 * status: 0 = a mount will work, 1 = it will not. */
int sbx_check(const char *source, const struct sbx_config *config, FILE *out);

#endif
