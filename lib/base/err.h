/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the reason of a failure, from where it is found up to the user.  Lives on the caller's
 * stack, cannot fail, nothing to free.  One thread at a time.
 */
#ifndef SBX_BASE_ERR_H
#define SBX_BASE_ERR_H

#include <stdbool.h>
#include <stdarg.h>

#define SBX_ERR_TEXT_MAX 400 /* bytes; longer reasons are cut at the end */

struct sbx_err {
	int code; /* positive errno, 0 = none */
	char text[SBX_ERR_TEXT_MAX];
};

#define SBX_ERR_INIT                                                                               \
	{                                                                                          \
		0, ""                                                                              \
	}

/*
 * sbx_err_set - remember a reason.
 * @err: may be NULL    @code: positive errno
 * Returns -code, so that `return sbx_err_set(...)` works.
 */
int sbx_err_set(struct sbx_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));
int sbx_err_vset(struct sbx_err *err, int code, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0), cold));

/*
 * sbx_err_sys - the same, with ": " and the text of @code at the end.  For system calls.
 */
int sbx_err_sys(struct sbx_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/*
 * sbx_err_wrap - put one noun and ": " before the reason on the way up.
 * @r: the negative errno that is passed on, also when @err is NULL.  Returns @r.
 */
int sbx_err_wrap(struct sbx_err *err, int r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), cold));

/* sbx_errno_name - "EINVAL" for 22; "E?" when unknown. Static string; any thread. */
const char *sbx_errno_name(int code);

#endif
