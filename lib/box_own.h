/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what box.c and box_runs.c share.  See box.h for what others may know. */
#ifndef SBX_BOX_OWN_H
#define SBX_BOX_OWN_H

#include "box.h"

/*
 * sbx_box_start_or_wait - @run is PENDING and listed, in no list of those that wait: it starts now if the box runs (true), else when
 * it does; a stopped one is woken.  Any thread.
 */
bool sbx_box_start_or_wait(struct sbx_box *box, struct sbx_run *run);

#endif
