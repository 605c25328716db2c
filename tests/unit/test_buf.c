/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/base/buf.c and err.c. */
#include "unit.h"

#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <stdlib.h>

static void appends_are_joined_and_nul_terminated(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;

	assert_string_equal(sbx_buf_str(&b), "");
	assert_int_equal(sbx_buf_text(&b, "ab"), 0);
	assert_int_equal(sbx_buf_append(&b, "c\0d", 3), 0);
	assert_int_equal(sbx_buf_printf(&b, "%s-%d", "e", 5), 0);
	assert_int_equal(b.len, 8);
	assert_memory_equal(b.data, "abc\0de-5", 9);
	assert_int_equal(sbx_buf_append(&b, NULL, 0), 0);
	assert_int_equal(b.len, 8);
	sbx_buf_done(&b);
	assert_int_equal(b.len, 0);
	assert_string_equal(sbx_buf_str(&b), "");
	sbx_buf_text(&b, "again");
	assert_string_equal(sbx_buf_str(&b), "again");
	sbx_buf_done(&b);
}

static void it_grows_by_single_bytes_to_a_megabyte(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;
	size_t i;

	for (i = 0; i < 1 << 20; i++) {
		char c = (char)(i * 7);

		sbx_buf_append(&b, &c, 1);
	}
	assert_false(b.failed);
	assert_int_equal(b.len, 1 << 20);
	for (i = 0; i < b.len; i++) {
		if (b.data[i] != (char)(i * 7))
			fail_msg("byte %zu", i);
	}
	sbx_buf_done(&b);
}

static void writes_behind_the_end_leave_nul_between(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;

	assert_int_equal(sbx_buf_write(&b, 4, "xy", 2), 0);
	assert_int_equal(b.len, 6);
	assert_memory_equal(b.data, "\0\0\0\0xy", 7);
	assert_int_equal(sbx_buf_write(&b, 1, "abc", 3), 0);
	assert_int_equal(b.len, 6);
	assert_memory_equal(b.data, "\0abcxy", 7);
	assert_int_equal(sbx_buf_write(&b, 5, "12", 2), 0);
	assert_memory_equal(b.data, "\0abcx12", 8);
	sbx_buf_done(&b);
}

/* what was cut must not come back when it grows again */
static void resize_cuts_and_fills_with_nul(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;

	sbx_buf_text(&b, "secret");
	assert_int_equal(sbx_buf_resize(&b, 2), 0);
	assert_string_equal(sbx_buf_str(&b), "se");
	assert_int_equal(sbx_buf_resize(&b, 6), 0);
	assert_memory_equal(b.data, "se\0\0\0\0", 7);
	sbx_buf_done(&b);
}

static void a_lost_append_is_remembered(void **state)
{
	struct sbx_buf b = SBX_BUF_INIT;

	sbx_buf_text(&b, "x");
	assert_int_equal(sbx_buf_reserve(&b, SIZE_MAX), -ENOMEM);
	assert_true(b.failed);
	sbx_buf_done(&b);
	assert_false(b.failed);
	assert_int_equal(sbx_buf_write(&b, SIZE_MAX, "ab", 2), -ENOMEM);
	assert_true(b.failed);
	assert_int_equal(b.len, 0);
	sbx_buf_done(&b);
}

static void reasons_are_set_wrapped_and_cut(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	char big[1000];

	assert_int_equal(sbx_err_set(&err, EINVAL, "no %s", "x"), -EINVAL);
	assert_int_equal(err.code, EINVAL);
	assert_int_equal(sbx_err_wrap(&err, -EINVAL, "box '%s'", "a"), -EINVAL);
	assert_string_equal(err.text, "box 'a': no x");
	assert_int_equal(sbx_err_sys(&err, ENOENT, "open"), -ENOENT);
	assert_string_equal(err.text, "open: No such file or directory");
	assert_int_equal(sbx_err_set(NULL, EIO, "nobody listens"), -EIO);
	assert_int_equal(sbx_err_sys(NULL, EIO, "nobody listens"), -EIO);
	assert_int_equal(sbx_err_wrap(NULL, -EIO, "nobody listens"), -EIO);
	memset(big, 'a', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	sbx_err_set(&err, EIO, "%s", big);
	assert_int_equal(strlen(err.text), SBX_ERR_TEXT_MAX - 1);
	sbx_err_wrap(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.text), SBX_ERR_TEXT_MAX - 1);
	assert_string_equal(sbx_errno_name(EACCES), "EACCES");
	assert_string_equal(sbx_errno_name(99999), "E?");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(appends_are_joined_and_nul_terminated),
		cmocka_unit_test(it_grows_by_single_bytes_to_a_megabyte),
		cmocka_unit_test(writes_behind_the_end_leave_nul_between),
		cmocka_unit_test(resize_cuts_and_fills_with_nul),
		cmocka_unit_test(a_lost_append_is_remembered),
		cmocka_unit_test(reasons_are_set_wrapped_and_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
