/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: which link texts of a box reach the host, and that a text shown never climbs out of workspace/. */
#include "unit.h"

#include "links.h"

#include <stdlib.h>

struct row {
	const char *raw;
	unsigned int depth;
	const char *shown;
	bool inside;
};

static const struct row rows[] = {
	{ "a", 0, "a", true },
	{ "a/b/c", 0, "a/b/c", true },
	{ "../a", 1, "../a", true },
	{ "../../a/b", 2, "../../a/b", true },
	{ "../a", 2, "../a", true },
	{ "...", 0, "...", true },
	{ "..a", 0, "..a", true },
	{ ".a", 0, ".a", true },
	{ "a b\nc", 0, "a b\nc", true },
	{ "\xff\xfe", 0, "\xff\xfe", true },
	/* the same place in other words */
	{ "./a", 0, "a", true },
	{ "a//b", 0, "a/b", true },
	{ "a/", 0, "a", true },
	{ "a/.", 0, "a", true },
	{ "./.././a/./b//", 1, "../a/b", true },
	/* absolute, into the workspace */
	{ "/workspace/a", 0, "a", true },
	{ "/workspace/a/b", 2, "../../a/b", true },
	{ "//workspace/./a/", 1, "../a", true },
	{ "/workspace/../etc/passwd", 3, ".outside/workspace/etc/passwd", false },
	{ "/workspace/a/../../etc", 3, ".outside/workspace/a/etc", false },
	{ "/workspaces/a", 0, ".outside/workspaces/a", false },
	{ "/workspac", 0, ".outside/workspac", false },
	{ "/workspace", 0, ".", true },
	{ "/workspace/", 1, "..", true },
	{ "/./workspace//.", 2, "../..", true },
	{ "/workspace/..", 2, ".outside/workspace", false },
	/* outside */
	{ "/etc/passwd", 5, ".outside/etc/passwd", false },
	{ "/", 0, ".outside", false },
	{ "", 0, ".outside", false },
	{ ".", 0, ".outside", false },
	{ "..", 1, ".outside", false },
	{ "../..", 5, ".outside", false },
	{ "../a", 0, ".outside/a", false },
	{ "../../a", 1, ".outside/a", false },
	{ "a/..", 1, ".outside/a", false },
	{ "a/../b", 3, ".outside/a/b", false },
	{ "a/../../b", 9, ".outside/a/b", false },
	{ "../a/../b", 9, ".outside/a/b", false },
	{ "/proc/self/root", 0, ".outside/proc/self/root", false },
	{ ".outside/x", 0, ".outside/x", true },
};

static void a_link_is_shown_as_the_table_says(void **state)
{
	char text[SBX_LINK_MAX];
	size_t i;

	for (i = 0; i < COUNT(rows); i++) {
		bool inside = sbx_link_show(rows[i].raw, rows[i].depth, "/workspace", text);

		assert_string_equal(text, rows[i].shown);
		assert_int_equal(inside, rows[i].inside);
	}
}

static void a_workspace_of_several_names_is_stripped(void **state)
{
	char text[SBX_LINK_MAX];

	assert_true(sbx_link_show("/home/devbox/project/x", 1, "/home/devbox/project", text));
	assert_string_equal(text, "../x");
	assert_false(sbx_link_show("/home/devbox/x", 1, "/home/devbox/project/", text));
	assert_string_equal(text, ".outside/home/devbox/x");
}

static void a_text_that_does_not_fit_is_cut_and_outside(void **state)
{
	char raw[SBX_LINK_MAX], text[SBX_LINK_MAX];
	size_t n;

	/* absolute, rewritten, too long with its ../../.. in front */
	memset(raw, 'x', sizeof(raw));
	memcpy(raw, "/workspace/", 11);
	raw[sizeof(raw) - 1] = '\0';
	assert_true(sbx_link_show(raw, 1, "/workspace", text));
	assert_false(sbx_link_show(raw, 1000, "/workspace", text));
	assert_int_equal(strncmp(text, ".outside/", 9), 0);
	assert_in_range(strlen(text), 4000, SBX_LINK_MAX - 1);
	/* every length around the limit; ASan watches */
	for (n = SBX_LINK_MAX - 32; n < SBX_LINK_MAX; n++) {
		memset(raw, 'x', n);
		raw[0] = '/';
		raw[n / 2] = '/';
		raw[n] = '\0';
		assert_false(sbx_link_show(raw, 3, "/workspace", text));
		assert_true(strlen(text) < SBX_LINK_MAX);
	}
	assert_true(sbx_link_show(raw + 1, 3, "/workspace", text));
}

/* the promise itself: walk a shown text with a counter, as a kernel would, for many random texts */
static void no_random_text_climbs_out(void **state)
{
	static const char *const parts[] = { "..", ".", "", "a", "workspace", "/", "..a" };
	char raw[256], text[SBX_LINK_MAX];
	unsigned int seed = 1;
	int i, k;

	for (i = 0; i < 200000; i++) {
		unsigned int depth = (unsigned int)rand_r(&seed) % 4;
		int level = (int)depth;
		char *p, *save = NULL;

		raw[0] = '\0';
		for (k = rand_r(&seed) % 8; k >= 0; k--) {
			strcat(raw, parts[rand_r(&seed) % 7]);
			if (rand_r(&seed) % 4)
				strcat(raw, "/");
		}
		sbx_link_show(raw, depth, "/workspace", text);
		assert_int_not_equal(text[0], '/');
		assert_int_not_equal(text[0], '\0');
		for (p = strtok_r(text, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
			if (strcmp(p, ".") == 0)
				assert_string_equal(text, ".");
			else if (strcmp(p, "..") == 0)
				assert_true(--level >= 0);
			else
				level = 0; /* from here any ".." is a failure */
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_link_is_shown_as_the_table_says),
		cmocka_unit_test(a_workspace_of_several_names_is_stripped),
		cmocka_unit_test(a_text_that_does_not_fit_is_cut_and_outside),
		cmocka_unit_test(no_random_text_climbs_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
