/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the small text forms of the tree and the configuration: sizes, times, counts, names, UTF-8,
 * base64, JSON strings.  Pure functions; any thread.
 */
#ifndef SBX_BASE_TEXT_H
#define SBX_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_buf;

#define SBX_TEXT_MAX_VALUE UINT64_MAX /* what "max" parses to */

/*
 * Parsers of one value: blanks around it and one newline behind it are allowed, nothing else.  0, or -EINVAL /
 * -ERANGE (too large, or not zero but less than one unit of the result) with *ret untouched.  A fraction of the
 * result's unit is cut off: "0.1K" is 102 bytes.  The text need not be NUL-terminated.
 *   size:     "64M", "1.5G", "512", "max"      K M G T are powers of 1024; also KiB, kb, 512B -> bytes
 *   duration: "500ms", "30s", "30", "5m", "2h", "1.5s", "max"   a bare number is seconds     -> ms
 *   cpu:      "0.5", "2", "500m", "max"        cores                                          -> 1/1000 core
 *   count:    "256", "max"
 */
int sbx_text_size(const char *text, size_t len, uint64_t *ret_bytes);
int sbx_text_duration(const char *text, size_t len, uint64_t *ret_ms);
int sbx_text_cpu(const char *text, size_t len, uint64_t *ret_milli);
int sbx_text_count(const char *text, size_t len, uint64_t *ret);

/* Printers: the read form of the tree, without newline: "67108864", "300" or "0.5" (seconds), "1.5" (cores), "max". */
#define SBX_TEXT_NUMBER_MAX 32
const char *sbx_text_print_size(uint64_t bytes, char buf[SBX_TEXT_NUMBER_MAX]);
const char *sbx_text_print_duration(uint64_t ms, char buf[SBX_TEXT_NUMBER_MAX]);
const char *sbx_text_print_cpu(uint64_t milli, char buf[SBX_TEXT_NUMBER_MAX]);
/* for messages: "512M", "1.5G", "100"; not exact: one digit behind the point, cut off */
const char *sbx_text_short_size(uint64_t bytes, char buf[SBX_TEXT_NUMBER_MAX]);

/* sbx_text_trim - cut blanks and newlines at both ends; returns the new start, *len changes */
const char *sbx_text_trim(const char *text, size_t *len);

/* sbx_text_box_name - [A-Za-z0-9][A-Za-z0-9._-]{0,62} */
bool sbx_text_box_name(const char *name);
/* sbx_text_file_name - what may come back from a provider as one name: 1..255 bytes, no '/', not "." or ".." */
bool sbx_text_file_name(const char *name);
/* sbx_text_env_name - [A-Za-z_][A-Za-z0-9_]* of @len bytes */
bool sbx_text_env_name(const char *name, size_t len);
/*
 * sbx_text_subpath - a path inside the workspace: relative, names checked one by one, no "..".
 * "." and "" mean the workspace; one newline behind it does not count.  Writes "a/b" into @ret (size @size), or
 * leaves it alone and returns -EINVAL, -ENAMETOOLONG.
 */
int sbx_text_subpath(const char *text, size_t len, char *ret, size_t size);

/*
 * Incremental UTF-8 check and length of the JSON string that the bytes would give.  Zeroed before the first use.
 */
struct sbx_utf8 {
	uint64_t json_len;  /* bytes of the escaped string so far, without the quotes */
	uint8_t need;	    /* bytes that the character still lacks */
	uint8_t second;	    /* text.c's: which values its second byte may have */
	bool bad;	    /* not UTF-8: stays true */
};
void sbx_utf8_feed(struct sbx_utf8 *u, const char *bytes, size_t len);
/* sbx_utf8_ok - were all bytes so far whole, valid UTF-8? */
bool sbx_utf8_ok(const struct sbx_utf8 *u);

/* sbx_json_escape - append the bytes (valid UTF-8) as the inside of a JSON string: " \ and controls escaped (\uXXXX or
 * \n \r \t \b \f), 0x7f as it is.  Exactly sbx_utf8.json_len bytes. 0 or -ENOMEM */
int sbx_json_escape(struct sbx_buf *out, const char *bytes, size_t len);
/* sbx_base64 - append; padding at the end.  Encode in pieces whose length is a multiple of 3.  0 or -ENOMEM */
int sbx_base64(struct sbx_buf *out, const void *bytes, size_t len);

#endif
