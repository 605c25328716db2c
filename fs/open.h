/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the list of what is open (fi->fh).  The kernel sends RELEASE for each, but not when the mount is ended under open files:
 * then main.c drops what is left.  Any thread.
 */
#ifndef SBX_FS_OPEN_H
#define SBX_FS_OPEN_H

#include "base/list.h"

#include <stdint.h>

/* embedded in every struct behind fi->fh */
struct sbx_open {
	struct sbx_list link;
	void (*drop)(struct sbx_open *open); /* frees it as RELEASE would, without an answer */
};

void sbx_open_add(struct sbx_open *open, void (*drop)(struct sbx_open *open));
/* sbx_open_remove - at RELEASE, before it is freed; or when the kernel did not take the OPEN's answer */
void sbx_open_remove(struct sbx_open *open);
/* sbx_open_count - for stats */
uint64_t sbx_open_count(void);
/* sbx_open_drop_all - no request can come any more.  Main thread */
void sbx_open_drop_all(void);

#endif
