/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the few lines that run code which lies in a private folder as if it lay in the working folder.  They
 * are given to the interpreter as an argument (-c, -e) and get two more: the code's real path, and the path it
 * pretends to have (cwd/code.py); the program's own arguments follow.  Constants; any thread.
 */
#ifndef SBX_BOOTSTRAP_H
#define SBX_BOOTSTRAP_H

extern const char sbx_bootstrap_python[];
extern const char sbx_bootstrap_node[];
extern const char sbx_bootstrap_ruby[];
extern const char sbx_bootstrap_go[];

#endif
