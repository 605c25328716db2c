/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the text of .sbxfs/README: how to use the tree, for whoever knows nothing.  Read-only. */
#ifndef SBX_FS_README_H
#define SBX_FS_README_H

extern const char sbx_readme[];

#endif
