/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the in-sandbox program as bytes.  Any thread. */
#ifndef SBX_INIT_BLOB_H
#define SBX_INIT_BLOB_H

#include <stddef.h>

/* sbx_init_blob - the static program; lives for ever */
const void *sbx_init_blob(size_t *ret_len);
/* sbx_init_blob_hash - 16 hex digits that change when the program does */
const char *sbx_init_blob_hash(void);

#endif
