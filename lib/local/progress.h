/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: telling in .sbxfs/events how far long work on a box has come.  Loop thread, but what line() reads is written by a worker. */
#ifndef SBX_LOCAL_PROGRESS_H
#define SBX_LOCAL_PROGRESS_H

#include "loop.h"

#include <stddef.h>

struct sbx_pbox;

#define SBX_PROGRESS_MS 2000 /* the first line comes after it, then one whenever there is news */

struct sbx_progress {
	struct sbx_pbox *box;
	/* line - what to say now; "" = nothing */
	void (*line)(struct sbx_progress *progress, char *buf, size_t size);
	struct sbx_timer timer;
	char last[160]; /* what was said */
};

/* sbx_progress_begin - @progress, zeroed but for line, lives until sbx_progress_end */
void sbx_progress_begin(struct sbx_progress *progress, struct sbx_pbox *box);
void sbx_progress_end(struct sbx_progress *progress);

#endif
