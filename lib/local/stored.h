/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the slots settings_save and settings_load of the local provider; see provider.h.  Any thread. */
#ifndef SBX_LOCAL_STORED_H
#define SBX_LOCAL_STORED_H

#include <stddef.h>

struct sbx_pbox;
struct sbx_err;

int sbx_local_settings_save(struct sbx_pbox *box, const char *text, size_t len, struct sbx_err *err);
int sbx_local_settings_load(struct sbx_pbox *box, char **ret, size_t *ret_len, struct sbx_err *err);

#endif
