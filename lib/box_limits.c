/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what limits/ of a box reads and takes.  Knows: limit.h, the provider's limit_set.  Any thread. */
#include "box.h"

#include "base/clock.h"
#include "catalog.h"
#include "config.h"
#include "later.h"
#include "limit.h"

#include <errno.h>

void sbx_box_limits(struct sbx_box *box, struct sbx_limits *ret)
{
	struct sbx_pbox_info info;

	sbx_box_ops(box)->box_info(box->pbox, &info);
	*ret = info.limits;
}

static int set(struct sbx_box *box, enum sbx_limit which, uint64_t value, struct sbx_later *later,
	       struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(box);
	struct sbx_limits now;

	sbx_box_limits(box, &now);
	if (*sbx_limit_at(&now, which) == value)
		return 0;
	if (!ops->limit_set)
		return sbx_err_set(err, EOPNOTSUPP, "the limits of this sandbox cannot change");
	return ops->limit_set(box->pbox, which, value, later, err);
}

int sbx_box_limit_write(struct sbx_box *box, enum sbx_limit which, const char *text, size_t len,
			struct sbx_later *later, struct sbx_err *err)
{
	uint64_t value;
	int r = sbx_limit_parse(which, text, len, &value, err);

	if (r == 0)
		r = set(box, which, value, later, err);
	return r;
}

void sbx_box_limit_reset(struct sbx_box *box, enum sbx_limit which)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_limits given;
	int r;

	if (!box->template) /* it is not in the configuration any more */
		return;
	given = box->template->limits;
	r = set(box, which, *sbx_limit_at(&given, which), NULL, &err);
	if (r < 0 && r != -EINPROGRESS)
		sbx_box_fail(box, "unlink", sbx_limit_kinds[which].name, &err);
}
