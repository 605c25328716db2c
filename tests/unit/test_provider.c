/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/provider.c. */
#include "unit.h"

#include "base/err.h"
#include "provider.h"

#include <errno.h>

static void the_local_provider_is_whole(void **state)
{
	const struct sbx_provider_ops *ops = sbx_provider_find("local");
	struct sbx_err err = SBX_ERR_INIT;

	assert_non_null(ops);
	assert_string_equal(ops->name, "local");
	if (sbx_provider_complete(ops, &err) != 0)
		fail_msg("%s", err.text);
}

static void unknown_names_are_not_found(void **state)
{
	assert_null(sbx_provider_find("loca"));
	assert_null(sbx_provider_find("locals"));
	assert_null(sbx_provider_find(""));
	assert_non_null(strstr(sbx_provider_names(), "local"));
}

/* also fails when a slot is added to the vtable and forgotten in the list of required ones */
static void every_slot_that_is_not_optional_is_required(void **state)
{
	static const size_t optional[] = {
		offsetof(struct sbx_provider_ops, files.flush),	  offsetof(struct sbx_provider_ops, files.room),
		offsetof(struct sbx_provider_ops, settings_save), offsetof(struct sbx_provider_ops, settings_load),
		offsetof(struct sbx_provider_ops, usage),	  offsetof(struct sbx_provider_ops, ports),
		offsetof(struct sbx_provider_ops, check),	  offsetof(struct sbx_provider_ops, limit_set),
	};
	const struct sbx_provider_ops *ops = sbx_provider_find("local");
	size_t off, i;

	for (off = 0; off < sizeof(*ops); off += sizeof(void *)) {
		struct sbx_provider_ops copy = *ops;
		struct sbx_err err = SBX_ERR_INIT;
		int want = -EINVAL;

		for (i = 0; i < COUNT(optional); i++) {
			if (optional[i] == off)
				want = 0;
		}
		memset((char *)&copy + off, 0, sizeof(void *));
		if (sbx_provider_complete(&copy, &err) != want)
			fail_msg("the slot at %zu: '%s'", off, err.text);
	}
}

static void a_missing_slot_is_named(void **state)
{
	struct sbx_provider_ops copy = *sbx_provider_find("local");
	struct sbx_err err = SBX_ERR_INIT;

	copy.files.rename = NULL;
	assert_int_equal(sbx_provider_complete(&copy, &err), -EINVAL);
	assert_string_equal(err.text, "provider 'local' lacks files.rename");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_local_provider_is_whole),
		cmocka_unit_test(unknown_names_are_not_found),
		cmocka_unit_test(every_slot_that_is_not_optional_is_required),
		cmocka_unit_test(a_missing_slot_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
