/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the text forms of values, names, UTF-8, JSON strings and base64.  Knows nothing of the tree.
 * Pure functions; any thread.
 */
#include "base/text.h"

#include "base/buf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- numbers with a unit ---- */

struct unit {
	const char *suffix; /* lower case */
	uint64_t factor;    /* base units in one, times 1/divisor of the table */
	bool exact_case;    /* only as written */
};

static const struct unit size_units[] = {
	{ "", 1, false },
	{ "b", 1, false },
	{ "k", 1ULL << 10, false },
	{ "kb", 1ULL << 10, false },
	{ "kib", 1ULL << 10, false },
	{ "m", 1ULL << 20, false },
	{ "mb", 1ULL << 20, false },
	{ "mib", 1ULL << 20, false },
	{ "g", 1ULL << 30, false },
	{ "gb", 1ULL << 30, false },
	{ "gib", 1ULL << 30, false },
	{ "t", 1ULL << 40, false },
	{ "tb", 1ULL << 40, false },
	{ "tib", 1ULL << 40, false },
	{ NULL, 0, false },
};

static const struct unit duration_units[] = {
	{ "", 1000, false },   { "ms", 1, false },	{ "s", 1000, false },
	{ "m", 60000, false }, { "h", 3600000, false }, { NULL, 0, false },
};

/* "500M" would be a size or a slip: only the small m is a thousandth of a core */
static const struct unit cpu_units[] = {
	{ "", 1000, false },
	{ "m", 1, true },
	{ NULL, 0, false },
};

static const struct unit count_units[] = {
	{ "", 1, false },
	{ NULL, 0, false },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool suffix_is(const char *text, size_t len, const struct unit *u)
{
	size_t i;

	if (strlen(u->suffix) != len)
		return false;
	for (i = 0; i < len; i++) {
		if ((u->exact_case ? text[i] : lower(text[i])) != u->suffix[i])
			return false;
	}
	return true;
}

#define FRACTION_DIGITS_MAX 18 /* 10^18 times the largest factor fits into 128 bits */

/*
 * A decimal number and a unit, exactly: no floating point.  What is less than one base unit is cut off, but a
 * value that is not zero never becomes zero, and no number becomes "max".
 */
static int parse(const char *text, size_t len, const struct unit *units, uint64_t *ret)
{
	const struct unit *u;
	uint64_t whole = 0, frac = 0, frac_div = 1, part, value;
	size_t i = 0, digits = 0, frac_digits = 0;
	bool over = false;

	while (len > 0 && is_blank(*text)) {
		text++;
		len--;
	}
	while (len > 0 && is_blank(text[len - 1]))
		len--;
	if (len > 0 && text[len - 1] == '\n')
		len--;
	while (len > 0 && is_blank(text[len - 1]))
		len--;

	if (len == 3 && memcmp(text, "max", 3) == 0) {
		*ret = SBX_TEXT_MAX_VALUE;
		return 0;
	}
	for (; i < len && is_digit(text[i]); i++, digits++) {
		if (__builtin_mul_overflow(whole, (uint64_t)10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(text[i] - '0'), &whole))
			over = true;
	}
	if (i < len && text[i] == '.') {
		for (i++; i < len && is_digit(text[i]); i++, frac_digits++) {
			if (frac_digits < FRACTION_DIGITS_MAX) {
				frac = frac * 10 + (uint64_t)(text[i] - '0');
				frac_div *= 10;
			} else if (text[i] != '0') {
				return -EINVAL;
			}
		}
		if (frac_digits == 0)
			return -EINVAL;
	}
	if (digits + frac_digits == 0)
		return -EINVAL;
	for (u = units; u->suffix; u++) {
		if (suffix_is(text + i, len - i, u))
			break;
	}
	if (!u->suffix)
		return -EINVAL;
	if (u->factor == 1 && frac_digits > 0) /* half a byte, half a process */
		return -EINVAL;
	if (over || __builtin_mul_overflow(whole, u->factor, &value))
		return -ERANGE;
	part = (uint64_t)((unsigned __int128)frac * u->factor / frac_div);
	if (__builtin_add_overflow(value, part, &value) || value == SBX_TEXT_MAX_VALUE)
		return -ERANGE;
	if (value == 0 && frac > 0)
		return -ERANGE;
	*ret = value;
	return 0;
}

int sbx_text_size(const char *text, size_t len, uint64_t *ret_bytes)
{
	return parse(text, len, size_units, ret_bytes);
}

int sbx_text_duration(const char *text, size_t len, uint64_t *ret_ms)
{
	return parse(text, len, duration_units, ret_ms);
}

int sbx_text_cpu(const char *text, size_t len, uint64_t *ret_milli)
{
	return parse(text, len, cpu_units, ret_milli);
}

int sbx_text_count(const char *text, size_t len, uint64_t *ret)
{
	return parse(text, len, count_units, ret);
}

const char *sbx_text_print_size(uint64_t bytes, char buf[SBX_TEXT_NUMBER_MAX])
{
	if (bytes == SBX_TEXT_MAX_VALUE)
		return strcpy(buf, "max");
	snprintf(buf, SBX_TEXT_NUMBER_MAX, "%llu", (unsigned long long)bytes);
	return buf;
}

/* thousandths without zeros at the end: 1500 -> "1.5" */
static const char *print_milli(uint64_t milli, char buf[SBX_TEXT_NUMBER_MAX])
{
	size_t n;

	if (milli == SBX_TEXT_MAX_VALUE)
		return strcpy(buf, "max");
	snprintf(buf, SBX_TEXT_NUMBER_MAX, "%llu.%03u", (unsigned long long)(milli / 1000),
		 (unsigned int)(milli % 1000));
	for (n = strlen(buf); buf[n - 1] == '0'; n--)
		buf[n - 1] = '\0';
	if (buf[n - 1] == '.')
		buf[n - 1] = '\0';
	return buf;
}

const char *sbx_text_print_duration(uint64_t ms, char buf[SBX_TEXT_NUMBER_MAX])
{
	return print_milli(ms, buf);
}

const char *sbx_text_print_cpu(uint64_t milli, char buf[SBX_TEXT_NUMBER_MAX])
{
	return print_milli(milli, buf);
}

const char *sbx_text_short_size(uint64_t bytes, char buf[SBX_TEXT_NUMBER_MAX])
{
	static const char letters[] = "KMGTPE";
	unsigned int shift = 10, i = 0, tenths;

	if (bytes == SBX_TEXT_MAX_VALUE || bytes < 1024)
		return sbx_text_print_size(bytes, buf);
	while (letters[i + 1] && bytes >> (shift + 10)) {
		i++;
		shift += 10;
	}
	tenths = (unsigned int)(((unsigned __int128)(bytes & ((1ULL << shift) - 1)) * 10) >> shift);
	if (tenths)
		snprintf(buf, SBX_TEXT_NUMBER_MAX, "%u.%u%c", (unsigned int)(bytes >> shift),
			 tenths, letters[i]);
	else
		snprintf(buf, SBX_TEXT_NUMBER_MAX, "%u%c", (unsigned int)(bytes >> shift),
			 letters[i]);
	return buf;
}

/* ---- names and paths ---- */

const char *sbx_text_trim(const char *text, size_t *len)
{
	size_t n = *len;

	while (n > 0 && (is_blank(*text) || *text == '\n' || *text == '\r')) {
		text++;
		n--;
	}
	while (n > 0 && (is_blank(text[n - 1]) || text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	*len = n;
	return text;
}

static bool is_alnum(char c)
{
	return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z');
}

bool sbx_text_box_name(const char *name)
{
	size_t i;

	if (!is_alnum(name[0]))
		return false;
	for (i = 1; name[i]; i++) {
		if (!is_alnum(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-')
			return false;
		if (i >= 63)
			return false;
	}
	return true;
}

static bool file_name(const char *name, size_t len)
{
	if (len == 0 || len > NAME_MAX || memchr(name, '/', len) || memchr(name, '\0', len))
		return false;
	return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

bool sbx_text_file_name(const char *name)
{
	return file_name(name, strnlen(name, NAME_MAX + 1));
}

bool sbx_text_env_name(const char *name, size_t len)
{
	size_t i;

	if (len == 0 || is_digit(name[0]))
		return false;
	for (i = 0; i < len; i++) {
		if (!is_alnum(name[i]) && name[i] != '_')
			return false;
	}
	return true;
}

int sbx_text_subpath(const char *text, size_t len, char *ret, size_t size)
{
	size_t out = 0, i = 0;

	if (size == 0)
		return -ENAMETOOLONG;
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len > 0 && text[0] == '/')
		return -EINVAL;
	/* first pass: nothing is written before everything is known to be right */
	while (i < len) {
		const char *name = text + i;
		const char *slash = memchr(name, '/', len - i);
		size_t n = slash ? (size_t)(slash - name) : len - i;

		i += n + 1;
		if (n == 0 || (n == 1 && name[0] == '.'))
			continue;
		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		if (!file_name(name, n))
			return -EINVAL;
		out += n + (out > 0);
		if (out >= size)
			return -ENAMETOOLONG;
	}
	out = 0;
	for (i = 0; i < len;) {
		const char *name = text + i;
		const char *slash = memchr(name, '/', len - i);
		size_t n = slash ? (size_t)(slash - name) : len - i;

		i += n + 1;
		if (n == 0 || (n == 1 && name[0] == '.'))
			continue;
		if (out > 0)
			ret[out++] = '/';
		memcpy(ret + out, name, n);
		out += n;
	}
	ret[out] = '\0';
	return 0;
}

/* ---- UTF-8 and JSON ---- */

/* length of an ASCII byte inside a JSON string */
static unsigned int json_width(unsigned char c)
{
	if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f')
		return 2;
	return c < 0x20 ? 6 : 1;
}

/* bounds of the byte behind the first one: no overlong form, no surrogate, nothing above U+10FFFF */
enum second { ANY, FROM_A0, TO_9F, FROM_90, TO_8F };

static bool second_ok(unsigned char c, uint8_t which)
{
	switch ((enum second)which) {
	case FROM_A0:
		return c >= 0xa0;
	case TO_9F:
		return c <= 0x9f;
	case FROM_90:
		return c >= 0x90;
	case TO_8F:
		return c <= 0x8f;
	case ANY:
		break;
	}
	return true;
}

void sbx_utf8_feed(struct sbx_utf8 *u, const char *bytes, size_t len)
{
	const unsigned char *p = (const unsigned char *)bytes, *end = p + len;

	for (; p < end && !u->bad; p++) {
		unsigned char c = *p;

		if (u->need > 0) {
			if ((c & 0xc0) != 0x80 || !second_ok(c, u->second)) {
				u->bad = true;
				return;
			}
			u->need--;
			u->second = ANY;
			u->json_len++;
		} else if (c < 0x80) {
			u->json_len += json_width(c);
		} else {
			if (c >= 0xc2 && c <= 0xdf)
				u->need = 1;
			else if (c >= 0xe0 && c <= 0xef)
				u->need = 2;
			else if (c >= 0xf0 && c <= 0xf4)
				u->need = 3;
			else
				u->bad = true;
			u->second = c == 0xe0	? FROM_A0
				    : c == 0xed ? TO_9F
				    : c == 0xf0 ? FROM_90
				    : c == 0xf4 ? TO_8F
						: ANY;
			u->json_len++;
		}
	}
}

bool sbx_utf8_ok(const struct sbx_utf8 *u)
{
	return !u->bad && u->need == 0;
}

int sbx_json_escape(struct sbx_buf *out, const char *bytes, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	size_t start = 0, i;
	int r = 0;

	for (i = 0; i < len && r == 0; i++) {
		unsigned char c = (unsigned char)bytes[i];
		char esc[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };

		if (c >= 0x80 || json_width(c) == 1)
			continue;
		r = sbx_buf_append(out, bytes + start, i - start);
		start = i + 1;
		if (r < 0)
			break;
		if (json_width(c) == 2) {
			esc[1] = c == '\n'   ? 'n'
				 : c == '\r' ? 'r'
				 : c == '\t' ? 't'
				 : c == '\b' ? 'b'
				 : c == '\f' ? 'f'
					     : (char)c;
			r = sbx_buf_append(out, esc, 2);
		} else {
			r = sbx_buf_append(out, esc, 6);
		}
	}
	return r < 0 ? r : sbx_buf_append(out, bytes + start, len - start);
}

int sbx_base64(struct sbx_buf *out, const void *bytes, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = bytes;
	size_t start = out->len, i, end;
	char *to;

	if (len > SIZE_MAX / 4 || __builtin_add_overflow(start, (len + 2) / 3 * 4, &end) ||
	    sbx_buf_resize(out, end) < 0) {
		out->failed = true;
		return -ENOMEM;
	}
	to = out->data + start;
	for (i = 0; i + 2 < len; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];

		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = digits[v >> 6 & 63];
		*to++ = digits[v & 63];
	}
	if (i < len) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < len ? (uint32_t)p[i + 1] << 8 : 0);

		*to++ = digits[v >> 18];
		*to++ = digits[v >> 12 & 63];
		*to++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
		*to++ = '=';
	}
	return 0;
}
