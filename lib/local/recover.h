/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: cleaning up after a daemon that did not end well. */
#ifndef SBX_LOCAL_RECOVER_H
#define SBX_LOCAL_RECOVER_H

struct sbx_provider;

/*
 * sbx_recover - kill and remove containers that a dead daemon left (also frozen ones), remove their
 * bundles, let the sweeper empty the trash.  At open, with the lock of the state held; blocks while containers die.
 */
void sbx_recover(struct sbx_provider *p);

#endif
