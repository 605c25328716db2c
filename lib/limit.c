/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the table of limits.  Any thread. */
#include "limit.h"

#include "base/err.h"

#include <errno.h>

#define KIND(which, name, field, parse, print, form, min, min_text)                                                    \
	[SBX_LIMIT_##which] = { name, #field, offsetof(struct sbx_limits, field), parse, print, form, min, min_text },

const struct sbx_limit_kind sbx_limit_kinds[SBX_LIMITS] = { SBX_LIMIT_LIST(KIND) };

int sbx_limit_parse(enum sbx_limit which, const char *text, size_t len, uint64_t *ret, struct sbx_err *err)
{
	const struct sbx_limit_kind *kind = &sbx_limit_kinds[which];
	int shown, r;
	uint64_t n;

	text = sbx_text_trim(text, &len);
	shown = (int)(len > 60 ? 60 : len);
	r = kind->parse(text, len, &n);
	if (r == -EINVAL)
		return sbx_err_set(err, EINVAL, "'%.*s' is not %s, or max", shown, text, kind->form);
	if (r < 0)
		return sbx_err_set(err, EINVAL, "'%.*s' is out of range", shown, text);
	if (n < kind->min)
		return sbx_err_set(err, EINVAL, "'%.*s' is too small: at least %s", shown, text, kind->min_text);
	*ret = n;
	return 0;
}
