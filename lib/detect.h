/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: telling Python from JavaScript by the text.  Pure; any thread. */
#ifndef SBX_DETECT_H
#define SBX_DETECT_H

#include <stddef.h>

/*
 * sbx_detect_text - "python", "node", or "" when the text does not tell.  Strings and comments do not count.
 * Looks at the first 64K only.
 */
const char *sbx_detect_text(const char *text, size_t len);

#endif
