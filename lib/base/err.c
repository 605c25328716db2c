/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_err.  Any thread, one at a time per object. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

int sbx_err_vset(struct sbx_err *err, int code, const char *fmt, va_list ap)
{
	if (err) {
		err->code = code;
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
	}
	return -code;
}

int sbx_err_set(struct sbx_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	sbx_err_vset(err, code, fmt, ap);
	va_end(ap);
	return -code;
}

int sbx_err_sys(struct sbx_err *err, int code, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!err)
		return -code;
	va_start(ap, fmt);
	sbx_err_vset(err, code, fmt, ap);
	va_end(ap);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerrordesc_np(code)
		 ? strerrordesc_np(code) : "unknown error");
	return -code;
}

int sbx_err_wrap(struct sbx_err *err, int r, const char *fmt, ...)
{
	char old[SBX_ERR_TEXT_MAX];
	va_list ap;
	size_t n;

	if (!err)
		return r;
	memcpy(old, err->text, sizeof(old));
	old[sizeof(old) - 1] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s", old);
	err->code = -r;
	return r;
}

const char *sbx_errno_name(int code)
{
	const char *name = strerrorname_np(code);

	return name ? name : "E?";
}
