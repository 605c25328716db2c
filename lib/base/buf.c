/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_buf.  One thread at a time per object. */
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sbx_buf_done(struct sbx_buf *b)
{
	free(b->data);
	*b = (struct sbx_buf)SBX_BUF_INIT;
}

int sbx_buf_reserve(struct sbx_buf *b, size_t len)
{
	size_t cap = b->cap ? b->cap : 64;
	char *data;

	if (len >= SIZE_MAX / 2) {
		b->failed = true;
		return -ENOMEM;
	}
	if (len + 1 <= b->cap)
		return 0;
	while (cap < len + 1)
		cap += cap / 2 + 1;
	data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return -ENOMEM;
	}
	data[b->len] = '\0';
	b->data = data;
	b->cap = cap;
	return 0;
}

int sbx_buf_append(struct sbx_buf *b, const void *data, size_t len)
{
	return sbx_buf_write(b, b->len, data, len);
}

int sbx_buf_text(struct sbx_buf *b, const char *text)
{
	return sbx_buf_append(b, text, strlen(text));
}

int sbx_buf_printf(struct sbx_buf *b, const char *fmt, ...)
{
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	r = sbx_buf_reserve(b, b->len + (size_t)n);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

int sbx_buf_resize(struct sbx_buf *b, size_t len)
{
	int r = sbx_buf_reserve(b, len);

	if (r < 0)
		return r;
	if (len > b->len)
		memset(b->data + b->len, 0, len - b->len);
	b->len = len;
	b->data[len] = '\0';
	return 0;
}

int sbx_buf_write(struct sbx_buf *b, size_t off, const void *data, size_t len)
{
	size_t end;
	int r;

	if (__builtin_add_overflow(off, len, &end)) {
		b->failed = true;
		return -ENOMEM;
	}
	if (end > b->len) {
		r = sbx_buf_resize(b, end);
		if (r < 0)
			return r;
	}
	if (len > 0)
		memcpy(b->data + off, data, len);
	return 0;
}
