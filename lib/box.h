/* SPDX-License-Identifier: Apache-2.0 */
/* placeholder: see the next commit */
#ifndef SBX_BOX_H
#define SBX_BOX_H
#endif
