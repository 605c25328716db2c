/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: a growing byte buffer.  One thread at a time.  A failed allocation is remembered: check
 * @failed once at the end instead of every append.
 */
#ifndef SBX_BASE_BUF_H
#define SBX_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct sbx_buf {
	char *data; /* NUL-terminated whenever not NULL */
	size_t len; /* bytes, without the NUL */
	size_t cap;
	bool failed; /* an append was lost: ENOMEM */
};

#define SBX_BUF_INIT                                                                               \
	{                                                                                          \
		NULL, 0, 0, false                                                                  \
	}

void sbx_buf_done(struct sbx_buf *b); /* frees; @b is empty and usable again */
int sbx_buf_reserve(struct sbx_buf *b, size_t len); /* room for @len bytes in all; 0 or -ENOMEM */
int sbx_buf_append(struct sbx_buf *b, const void *data, size_t len); /* 0 or -ENOMEM */
int sbx_buf_text(struct sbx_buf *b, const char *text);
int sbx_buf_printf(struct sbx_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int sbx_buf_resize(struct sbx_buf *b, size_t len); /* cuts, or fills with NUL */
/* writes @len bytes at @off, growing (a gap is NUL); 0 or -ENOMEM */
int sbx_buf_write(struct sbx_buf *b, size_t off, const void *data, size_t len);
/* the text, never NULL */
static inline const char *sbx_buf_str(const struct sbx_buf *b)
{
	return b->data ? b->data : "";
}

#endif
