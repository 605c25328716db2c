/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what synth.c (nodes and folders), synth_list.c (listings) and synth_text.c (text files) share.  Nobody else includes it.
 */
#ifndef SBX_FS_SYNTH_OWN_H
#define SBX_FS_SYNTH_OWN_H

#include "synth.h"

/* sbx_synth_alive - 0, or -ESTALE: what @node speaks about is gone */
int sbx_synth_alive(const struct sbx_synth *node);
/* sbx_synth_type - S_IFMT bits of a line of a table */
mode_t sbx_synth_type(const struct sbx_file *file);
/* sbx_synth_entry_timeout_s - how long the kernel need not ask for @name in @dir again */
double sbx_synth_entry_timeout_s(const struct sbx_synth *dir, const char *name, const struct stat *attr);

#endif
