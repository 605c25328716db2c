/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: see write_later.h.  Knows: park.h, lib/later.h. */
#include "write_later.h"

#include "base/err.h"
#include "later.h"
#include "park.h"
#include "reply.h"
#include "synth.h"

#include <errno.h>
#include <stdlib.h>

struct writing {
	struct sbx_parked parked;
	struct sbx_node *node; /* counted */
	struct sbx_later *later;
	size_t len;
	struct sbx_err err;
};

static int attempt(struct sbx_parked *parked)
{
	struct writing *w = (struct writing *)parked;
	int r;

	parked->gate = &w->later->gate;
	parked->seen = sbx_gate_seen(parked->gate);
	if (!sbx_later_answer(w->later, &r, &w->err))
		return -EAGAIN;
	return r == -EAGAIN ? -EBUSY : r; /* EAGAIN would be to wait */
}

static void finish(struct sbx_parked *parked, int r)
{
	struct writing *w = (struct writing *)parked;
	struct sbx_synth *synth = sbx_synth_of(w->node);

	if (r == 0)
		fuse_reply_write(parked->req, w->len);
	else if (w->err.code)
		sbx_fail(parked->req, synth->ref.box, "write", synth->file->name, &w->err, r);
	else
		sbx_reply_err(parked->req, r);
	sbx_later_put(w->later);
	sbx_node_unref(w->node);
}

int sbx_write_later(fuse_req_t req, struct sbx_synth *synth, const char *text, size_t len, struct sbx_err *err)
{
	struct writing *w = calloc(1, sizeof(*w));
	struct sbx_later *later = w ? sbx_later_new() : NULL;
	int r = later ? synth->file->write_later(&synth->ref, text, len, later, err) : -ENOMEM;

	if (r != -EINPROGRESS) {
		sbx_later_put(later);
		free(w);
		return r;
	}
	w->parked.req = req;
	w->parked.attempt = attempt;
	w->parked.finish = finish;
	w->node = sbx_node_ref(&synth->node);
	w->later = later;
	w->len = len;
	sbx_park_run(&w->parked);
	return -EINPROGRESS;
}
