/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: an answer that comes later, for one who waits at a gate and may stop waiting at any time.  Counted: who asks and who
 * answers hold one reference each.  Any thread.
 */
#ifndef SBX_LATER_H
#define SBX_LATER_H

#include "base/err.h"
#include "base/lock.h"
#include "gate.h"

#include <stdatomic.h>
#include <stdbool.h>

struct sbx_later {
	atomic_uint refs;
	struct sbx_gate gate; /* notified when the answer is there */
	struct sbx_lock lock;
	bool done;	      /* guarded by lock */
	int r;		      /* guarded by lock: 0 or -errno */
	struct sbx_err err;   /* guarded by lock: its reason */
};

/* sbx_later_new - one reference; NULL: no memory */
struct sbx_later *sbx_later_new(void);
struct sbx_later *sbx_later_get(struct sbx_later *later);
void sbx_later_put(struct sbx_later *later);

/* sbx_later_done - the answer, once; @err may be NULL.  NULL @later: nobody asks.  No lock of ours held. */
void sbx_later_done(struct sbx_later *later, int r, const struct sbx_err *err);
/* sbx_later_answer - true: it is there, @ret and @err (may be NULL) are filled */
bool sbx_later_answer(struct sbx_later *later, int *ret, struct sbx_err *err);

#endif
