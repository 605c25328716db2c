/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the read functions of BOX/usage and BOX/ports, for tree_box.c's table.  Any thread. */
#ifndef SBX_FS_TREE_MONITOR_H
#define SBX_FS_TREE_MONITOR_H

#include "synth.h"

int sbx_usage_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err);
int sbx_ports_read(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err);

#endif
