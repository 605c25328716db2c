/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_later.  Any thread. */
#include "later.h"

#include <stdlib.h>

struct sbx_later *sbx_later_new(void)
{
	struct sbx_later *later = calloc(1, sizeof(*later));

	if (!later)
		return NULL;
	atomic_init(&later->refs, 1);
	sbx_gate_init(&later->gate);
	sbx_lock_init(&later->lock);
	return later;
}

struct sbx_later *sbx_later_get(struct sbx_later *later)
{
	if (later)
		atomic_fetch_add(&later->refs, 1);
	return later;
}

void sbx_later_put(struct sbx_later *later)
{
	if (!later || atomic_fetch_sub(&later->refs, 1) != 1)
		return;
	sbx_lock_done(&later->lock);
	free(later);
}

void sbx_later_done(struct sbx_later *later, int r, const struct sbx_err *err)
{
	if (!later)
		return;
	sbx_lock(&later->lock);
	later->done = true;
	later->r = r;
	if (err)
		later->err = *err;
	sbx_unlock(&later->lock);
	sbx_gate_notify(&later->gate);
}

bool sbx_later_answer(struct sbx_later *later, int *ret, struct sbx_err *err)
{
	bool done;

	sbx_lock(&later->lock);
	done = later->done;
	if (done)
		*ret = later->r;
	if (done && err)
		*err = later->err;
	sbx_unlock(&later->lock);
	return done;
}
