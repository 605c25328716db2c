/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what state.c and state_boxes.c share. */
#ifndef SBX_LOCAL_STATE_OWN_H
#define SBX_LOCAL_STATE_OWN_H

#include "local/state.h"

#include <stddef.h>

/* state.c: 8 hex digits */
void sbx_state_random_id(char ret[9]);
/* state.c: file @name of a folder of ours, whole or not at all.  0 or -errno */
int sbx_state_write_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode);
/* state_boxes.c: at open: removes what was half made, notes which ids are taken */
void sbx_state_recall(struct sbx_local_state *s);

#endif
