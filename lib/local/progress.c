/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_progress.  Threads: see progress.h. */
#include "local/progress.h"

#include "base/list.h"
#include "local/internal.h"

#include <stdio.h>
#include <string.h>

static void on_timer(struct sbx_timer *timer)
{
	struct sbx_progress *p = sbx_container_of(timer, struct sbx_progress, timer);
	char now[sizeof(p->last)] = "";

	p->line(p, now, sizeof(now));
	if (now[0] && strcmp(now, p->last) != 0) {
		strcpy(p->last, now);
		sbx_container_progress(p->box, now);
	}
	sbx_timer_set(p->box->provider->loop, timer, SBX_PROGRESS_MS);
}

void sbx_progress_begin(struct sbx_progress *p, struct sbx_pbox *box)
{
	p->box = box;
	p->timer.fn = on_timer;
	sbx_timer_set(box->provider->loop, &p->timer, SBX_PROGRESS_MS);
}

void sbx_progress_end(struct sbx_progress *p)
{
	sbx_timer_cancel(p->box->provider->loop, &p->timer);
}
