/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/base/text.c. */
#include "unit.h"

#include "base/buf.h"
#include "base/proc.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct value_case {
	const char *text;
	int r;
	uint64_t value;
};

static void check_values(int (*parse)(const char *, size_t, uint64_t *), const struct value_case *cases,
			 size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		size_t len = strlen(cases[i].text);
		/* without a NUL behind it, so that valgrind and ASan see a read too far */
		char *text = malloc(len ? len : 1);
		uint64_t value = 0x5eed;
		int r;

		memcpy(text, cases[i].text, len);
		r = parse(text, len, &value);
		free(text);
		if (r != cases[i].r || value != (r == 0 ? cases[i].value : 0x5eed))
			fail_msg("'%s': got %d and %llu", cases[i].text, r, (unsigned long long)value);
	}
}

static void sizes_take_units_of_1024(void **state)
{
	static const struct value_case cases[] = {
		{ "512", 0, 512 },
		{ "512B", 0, 512 },
		{ "0", 0, 0 },
		{ "0M", 0, 0 },
		{ "1k", 0, 1024 },
		{ "64M", 0, 67108864 },
		{ "64M\n", 0, 67108864 },
		{ " \t64M \n", 0, 67108864 },
		{ "64MiB", 0, 67108864 },
		{ "64mb", 0, 67108864 },
		{ "1.5G", 0, 1610612736 },
		{ "1.50G", 0, 1610612736 },
		{ ".5K", 0, 512 },
		{ "0.1K", 0, 102 },
		{ "2T", 0, 2199023255552ULL },
		{ "0.000000000000000000T", 0, 0 },
		{ "1.0000000000000000000000T", 0, 1099511627776ULL },
		{ "max", 0, UINT64_MAX },
		{ "max\n", 0, UINT64_MAX },
		{ "18446744073709551614", 0, UINT64_MAX - 1 },
		{ "18446744073709551615", -ERANGE, 0 }, /* would read back as "max" */
		{ "18446744073709551616", -ERANGE, 0 },
		{ "16777216T", -ERANGE, 0 },
		{ "16777215.999999999999T", 0, UINT64_MAX - 1 },
		{ "16777215.999999999999999999T", -ERANGE, 0 }, /* cut off it would be "max" */
		{ "99999999999999999999999999", -ERANGE, 0 },
		{ "0.0001K", -ERANGE, 0 }, /* not zero, so it must not become zero */
		{ "", -EINVAL, 0 },
		{ "\n", -EINVAL, 0 },
		{ " ", -EINVAL, 0 },
		{ ".", -EINVAL, 0 },
		{ "M", -EINVAL, 0 },
		{ "1.", -EINVAL, 0 },
		{ "1.M", -EINVAL, 0 },
		{ "1.5", -EINVAL, 0 },
		{ "1.0B", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ "1 M", -EINVAL, 0 },
		{ "1,5G", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "1e3", -EINVAL, 0 },
		{ "1MM", -EINVAL, 0 },
		{ "1Ki", -EINVAL, 0 },
		{ "64M\n\n", -EINVAL, 0 },
		{ "64M\n1", -EINVAL, 0 },
		{ "\n64M", -EINVAL, 0 },
		{ "Max", -EINVAL, 0 },
		{ "maximum", -EINVAL, 0 },
		{ "64M\r\n", -EINVAL, 0 },
		{ "0.0000000000000000001T", -EINVAL, 0 }, /* more digits than can be kept exactly */
	};

	check_values(sbx_text_size, cases, COUNT(cases));
}

static void durations_take_ms_s_m_h_and_bare_seconds(void **state)
{
	static const struct value_case cases[] = {
		{ "30", 0, 30000 },	  { "30s", 0, 30000 },	     { "500ms", 0, 500 },
		{ "5m", 0, 300000 },	  { "2h", 0, 7200000 },	     { "1.5s", 0, 1500 },
		{ "1.5", 0, 1500 },	  { "0.001", 0, 1 },	     { "0.0005", -ERANGE, 0 },
		{ "0", 0, 0 },		  { "0.5h", 0, 1800000 },    { "max", 0, UINT64_MAX },
		{ "1.5ms", -EINVAL, 0 },  { "1d", -EINVAL, 0 },	     { "5 m", -EINVAL, 0 },
		{ "10min", -EINVAL, 0 },  { "-5s", -EINVAL, 0 },     { "inf", -EINVAL, 0 },
		{ "18446744073709551", 0, 18446744073709551000ULL }, { "18446744073709552", -ERANGE, 0 },
		{ "5124095576031h", -ERANGE, 0 },
	};

	check_values(sbx_text_duration, cases, COUNT(cases));
}

static void cpus_are_cores_or_thousandths(void **state)
{
	static const struct value_case cases[] = {
		{ "1", 0, 1000 },	 { "0.5", 0, 500 },	 { "500m", 0, 500 },
		{ "2.25", 0, 2250 },	 { "max", 0, UINT64_MAX }, { "0.0001", -ERANGE, 0 },
		{ "500M", -EINVAL, 0 },	 { "1.5m", -EINVAL, 0 }, { "50%", -EINVAL, 0 },
		{ "18446744073709552", -ERANGE, 0 },
	};

	check_values(sbx_text_cpu, cases, COUNT(cases));
}

static void counts_are_whole_numbers(void **state)
{
	static const struct value_case cases[] = {
		{ "256", 0, 256 },     { "0", 0, 0 },	       { "max", 0, UINT64_MAX },
		{ "1.5", -EINVAL, 0 }, { "1k", -EINVAL, 0 },   { "", -EINVAL, 0 },
		{ "007", 0, 7 },       { "1 2", -EINVAL, 0 },
	};

	check_values(sbx_text_count, cases, COUNT(cases));
}

static void what_is_printed_reads_back(void **state)
{
	static const uint64_t values[] = { 0, 1, 2, 10, 500, 999, 1000, 1001, 1500, 60000, 67108864,
					   UINT64_MAX - 1, UINT64_MAX };
	char buf[SBX_TEXT_NUMBER_MAX];
	uint64_t v;
	size_t i;

	for (i = 0; i < COUNT(values); i++) {
		sbx_text_print_size(values[i], buf);
		assert_int_equal(sbx_text_size(buf, strlen(buf), &v), 0);
		assert_true(v == values[i]);
		sbx_text_print_duration(values[i], buf);
		assert_int_equal(sbx_text_duration(buf, strlen(buf), &v), 0);
		assert_true(v == values[i]);
		sbx_text_print_cpu(values[i], buf);
		assert_int_equal(sbx_text_cpu(buf, strlen(buf), &v), 0);
		assert_true(v == values[i]);
	}
	assert_string_equal(sbx_text_print_size(67108864, buf), "67108864");
	assert_string_equal(sbx_text_print_duration(300000, buf), "300");
	assert_string_equal(sbx_text_print_duration(500, buf), "0.5");
	assert_string_equal(sbx_text_print_duration(1050, buf), "1.05");
	assert_string_equal(sbx_text_print_duration(0, buf), "0");
	assert_string_equal(sbx_text_print_cpu(1500, buf), "1.5");
	assert_string_equal(sbx_text_print_cpu(10000, buf), "10");
	assert_string_equal(sbx_text_print_cpu(UINT64_MAX, buf), "max");
}

static void short_sizes_are_for_people(void **state)
{
	char buf[SBX_TEXT_NUMBER_MAX];

	assert_string_equal(sbx_text_short_size(100, buf), "100");
	assert_string_equal(sbx_text_short_size(1023, buf), "1023");
	assert_string_equal(sbx_text_short_size(1024, buf), "1K");
	assert_string_equal(sbx_text_short_size(512ULL << 20, buf), "512M");
	assert_string_equal(sbx_text_short_size(3ULL << 29, buf), "1.5G");
	assert_string_equal(sbx_text_short_size((1ULL << 20) - 1, buf), "1023.9K");
	assert_string_equal(sbx_text_short_size(UINT64_MAX - 1, buf), "15.9E");
	assert_string_equal(sbx_text_short_size(UINT64_MAX, buf), "max");
}

static void trim_cuts_blanks_and_newlines(void **state)
{
	size_t len = 8;
	const char *t = sbx_text_trim(" \na b\r\n\t", &len);

	assert_int_equal(len, 3);
	assert_memory_equal(t, "a b", 3);
	len = 3;
	sbx_text_trim(" \n ", &len);
	assert_int_equal(len, 0);
	len = 0;
	sbx_text_trim("", &len);
	assert_int_equal(len, 0);
}

static void box_names_are_as_documented(void **state)
{
	char long_name[65];

	memset(long_name, 'a', 64);
	long_name[64] = '\0';
	assert_false(sbx_text_box_name(long_name));
	long_name[63] = '\0';
	assert_true(sbx_text_box_name(long_name));
	assert_true(sbx_text_box_name("a"));
	assert_true(sbx_text_box_name("0"));
	assert_true(sbx_text_box_name("A.b_c-9"));
	assert_true(sbx_text_box_name("a.."));
	assert_false(sbx_text_box_name(""));
	assert_false(sbx_text_box_name("."));
	assert_false(sbx_text_box_name(".."));
	assert_false(sbx_text_box_name(".sbxfs"));
	assert_false(sbx_text_box_name("-a"));
	assert_false(sbx_text_box_name("_a"));
	assert_false(sbx_text_box_name("a b"));
	assert_false(sbx_text_box_name("a/b"));
	assert_false(sbx_text_box_name("a\n"));
	assert_false(sbx_text_box_name("\xc3\xa4"));
}

static void file_names_are_one_name(void **state)
{
	char long_name[257];

	memset(long_name, 'a', 256);
	long_name[256] = '\0';
	assert_false(sbx_text_file_name(long_name));
	long_name[255] = '\0';
	assert_true(sbx_text_file_name(long_name));
	assert_true(sbx_text_file_name("a\nb"));
	assert_true(sbx_text_file_name("\xff"));
	assert_true(sbx_text_file_name("..."));
	assert_true(sbx_text_file_name(".a"));
	assert_false(sbx_text_file_name(""));
	assert_false(sbx_text_file_name("."));
	assert_false(sbx_text_file_name(".."));
	assert_false(sbx_text_file_name("a/b"));
	assert_false(sbx_text_file_name("/"));
}

static void env_names_are_identifiers(void **state)
{
	assert_true(sbx_text_env_name("A_b9=", 4));
	assert_true(sbx_text_env_name("_", 1));
	assert_false(sbx_text_env_name("", 0));
	assert_false(sbx_text_env_name("9a", 2));
	assert_false(sbx_text_env_name("a-b", 3));
	assert_false(sbx_text_env_name("a=b", 3));
	assert_false(sbx_text_env_name("a\0b", 3));
}

static void subpaths_stay_inside(void **state)
{
	static const struct {
		const char *text;
		size_t len; /* 0 = strlen */
		int r;
		const char *path;
	} cases[] = {
		{ "", 0, 0, "" },
		{ "\n", 0, 0, "" },
		{ ".", 0, 0, "" },
		{ "./.", 0, 0, "" },
		{ "a", 0, 0, "a" },
		{ "a\n", 0, 0, "a" },
		{ "a/b", 0, 0, "a/b" },
		{ "a//b/", 0, 0, "a/b" },
		{ "./a/./b/.", 0, 0, "a/b" },
		{ " a", 0, 0, " a" },
		{ "...", 0, 0, "..." },
		{ "a/..b", 0, 0, "a/..b" },
		{ "..", 0, -EINVAL, NULL },
		{ "a/..", 0, -EINVAL, NULL },
		{ "a/../b", 0, -EINVAL, NULL },
		{ "../a", 0, -EINVAL, NULL },
		{ "./../a", 0, -EINVAL, NULL },
		{ "/", 0, -EINVAL, NULL },
		{ "/a", 0, -EINVAL, NULL },
		{ "a\0b", 3, -EINVAL, NULL },
		{ "abcdefghijklmno", 0, 0, "abcdefghijklmno" },
		{ "abcdefghijklmnop", 0, -ENAMETOOLONG, NULL },
		{ "abcdefgh/ijklmno", 0, -ENAMETOOLONG, NULL },
	};
	char buf[16], big[600], long_name[300];
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		int r;

		strcpy(buf, "untouched");
		r = sbx_text_subpath(cases[i].text, cases[i].len ? cases[i].len : strlen(cases[i].text), buf,
				     sizeof(buf));
		if (r != cases[i].r || strcmp(buf, r == 0 ? cases[i].path : "untouched") != 0)
			fail_msg("'%s': got %d and '%s'", cases[i].text, r, buf);
	}
	memset(long_name, 'a', sizeof(long_name));
	assert_int_equal(sbx_text_subpath(long_name, 256, big, sizeof(big)), -ENAMETOOLONG);
	assert_int_equal(sbx_text_subpath(long_name, 255, big, sizeof(big)), 0);
}

static const struct {
	const char *bytes;
	size_t len;
	bool ok;
} utf8_cases[] = {
	{ "", 0, true },
	{ "plain\n\"quoted\" \\ \x01\x7f", 20, true },
	{ "a\0b", 3, true },
	{ "\xc3\xa4", 2, true },
	{ "\xe2\x82\xac", 3, true },
	{ "\xf0\x9f\x98\x80", 4, true },
	{ "\xf4\x8f\xbf\xbf", 4, true },
	{ "\xed\x9f\xbf", 3, true },
	{ "\xee\x80\x80", 3, true },
	{ "\xe0\xa0\x80", 3, true },
	{ "\xf0\x90\x80\x80", 4, true },
	{ "\xc3", 1, false },
	{ "\xe2\x82", 2, false },
	{ "\x80", 1, false },
	{ "\xc0\x80", 2, false },	   /* overlong */
	{ "\xc1\xbf", 2, false },	   /* overlong */
	{ "\xe0\x9f\xbf", 3, false },	   /* overlong */
	{ "\xf0\x8f\xbf\xbf", 4, false },  /* overlong */
	{ "\xed\xa0\x80", 3, false },	   /* surrogate */
	{ "\xed\xbf\xbf", 3, false },	   /* surrogate */
	{ "\xf4\x90\x80\x80", 4, false },  /* above U+10FFFF */
	{ "\xf5\x80\x80\x80", 4, false },
	{ "\xff", 1, false },
	{ "\xe2\x28\xa1", 3, false },
	{ "\xc3\x41", 2, false },
	{ "ok\xc3\xa4\xff" "more", 9, false },
};

static void utf8_is_checked_in_pieces_of_any_size(void **state)
{
	size_t i, step, off;

	for (i = 0; i < COUNT(utf8_cases); i++) {
		for (step = 1; step <= 5; step++) {
			struct sbx_utf8 u = { 0 };

			for (off = 0; off < utf8_cases[i].len; off += step)
				sbx_utf8_feed(&u, utf8_cases[i].bytes + off,
					      utf8_cases[i].len - off < step ? utf8_cases[i].len - off : step);
			if (sbx_utf8_ok(&u) != utf8_cases[i].ok)
				fail_msg("case %zu in pieces of %zu", i, step);
		}
	}
}

static void json_length_is_known_before_escaping(void **state)
{
	size_t i;
	char all[128];

	for (i = 0; i < sizeof(all); i++)
		all[i] = (char)i;
	for (i = 0; i <= COUNT(utf8_cases); i++) {
		const char *bytes = i < COUNT(utf8_cases) ? utf8_cases[i].bytes : all;
		size_t len = i < COUNT(utf8_cases) ? utf8_cases[i].len : sizeof(all);
		struct sbx_utf8 u = { 0 };
		struct sbx_buf b = SBX_BUF_INIT;

		if (i < COUNT(utf8_cases) && !utf8_cases[i].ok)
			continue;
		sbx_utf8_feed(&u, bytes, len);
		assert_int_equal(sbx_json_escape(&b, bytes, len), 0);
		assert_int_equal(b.len, u.json_len);
		sbx_buf_done(&b);
	}
}

static void json_escapes_are_exact(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;
	static const char in[] = "a\"b\\c\nd\re\tf\bg\fh\x01i\x1fj\0k\x7fl/\xc3\xa4";

	assert_int_equal(sbx_json_escape(&b, in, sizeof(in) - 1), 0);
	assert_string_equal(sbx_buf_str(&b),
			    "a\\\"b\\\\c\\nd\\re\\tf\\bg\\fh\\u0001i\\u001fj\\u0000k\x7fl/\xc3\xa4");
	sbx_buf_done(&b);
}

static void base64_as_in_rfc_4648(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "", "" },	      { "f", "Zg==" },	      { "fo", "Zm8=" },	      { "foo", "Zm9v" },
		{ "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" }, { "foobar", "Zm9vYmFy" },
		{ "\xff\xfe\xfd", "//79" }, { "\xfb", "+w==" },
	};
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		struct sbx_buf b = SBX_BUF_INIT;

		sbx_buf_text(&b, "x");
		assert_int_equal(sbx_base64(&b, cases[i].in, strlen(cases[i].in)), 0);
		assert_string_equal(sbx_buf_str(&b) + 1, cases[i].out);
		sbx_buf_done(&b);
	}
}

static void mountinfo_escapes_become_bytes(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "", "" },		{ "/a/b", "/a/b" },   { "/a\\040b", "/a b" }, { "\\011\\012\\134", "\t\n\\" },
		{ "\\0", "\\0" },	{ "\\04", "\\04" }, { "\\999", "\\999" },   { "a\\", "a\\" },
		{ "\\303\\244", "\xc3\xa4" },
	};
	char text[32];
	size_t i;

	for (i = 0; i < COUNT(cases); i++) {
		snprintf(text, sizeof(text), "%s", cases[i].in);
		sbx_proc_unescape(text);
		assert_string_equal(text, cases[i].out);
	}
}

static void small_files_are_read_with_a_nul_at_the_end(void **state)
{
	char text[6] = "xxxxx";

	assert_int_equal(sbx_proc_read("/proc/self/none", text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
	assert_int_equal(sbx_proc_read("/proc/self/status", text, sizeof(text)), 5);
	assert_string_equal(text, "Name:");
	assert_int_equal(sbx_proc_read("/proc", text, sizeof(text)), -EISDIR);
	assert_string_equal(text, "");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_take_units_of_1024),
		cmocka_unit_test(durations_take_ms_s_m_h_and_bare_seconds),
		cmocka_unit_test(cpus_are_cores_or_thousandths),
		cmocka_unit_test(counts_are_whole_numbers),
		cmocka_unit_test(what_is_printed_reads_back),
		cmocka_unit_test(short_sizes_are_for_people),
		cmocka_unit_test(trim_cuts_blanks_and_newlines),
		cmocka_unit_test(box_names_are_as_documented),
		cmocka_unit_test(file_names_are_one_name),
		cmocka_unit_test(env_names_are_identifiers),
		cmocka_unit_test(subpaths_stay_inside),
		cmocka_unit_test(utf8_is_checked_in_pieces_of_any_size),
		cmocka_unit_test(json_length_is_known_before_escaping),
		cmocka_unit_test(json_escapes_are_exact),
		cmocka_unit_test(base64_as_in_rfc_4648),
		cmocka_unit_test(mountinfo_escapes_become_bytes),
		cmocka_unit_test(small_files_are_read_with_a_nul_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
