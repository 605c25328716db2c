/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of what lib/cleanup_policy.c decides, with times of their own, and of what its timer is set to. */
#include "unit.h"

#include "box.h"
#include "catalog.h"
#include "cleanup_policy.h"
#include "config.h"

#include <errno.h>

#define S INT64_C(1000)
#define MIN (60 * S)
#define H (60 * MIN)
#define NEVER UINT64_MAX

struct want {
	int64_t now;
	enum sbx_cleanup_action action;
	int64_t next; /* of NOTHING */
};

static void check(const struct sbx_cleanup *c, const struct sbx_use *use, const struct want *want, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		int64_t next = -1;
		enum sbx_cleanup_action action = sbx_cleanup_decide(c, use, want[i].now, &next);

		if (action != want[i].action || (action == SBX_CLEANUP_NOTHING && next != want[i].next))
			fail_msg("at %lld: action %d, next %lld", (long long)want[i].now, action, (long long)next);
	}
}

static void an_idle_box_is_stopped_when_its_time_is_over(void **state)
{
	const struct sbx_cleanup c = { .idle_ms = H, .max_age_ms = NEVER };
	const struct sbx_use up = { .up = true, .used_ms = 5 * H };
	const struct sbx_use down = { .used_ms = 5 * H };
	static const struct want of_up[] = {
		{ 5 * H, SBX_CLEANUP_NOTHING, 6 * H },
		{ 6 * H - 1, SBX_CLEANUP_NOTHING, 6 * H },
		{ 6 * H, SBX_CLEANUP_STOP, 0 },
		{ 60 * H, SBX_CLEANUP_STOP, 0 },
	};
	static const struct want of_down[] = {
		{ 5 * H, SBX_CLEANUP_NOTHING, INT64_MAX },
		{ 60 * H, SBX_CLEANUP_NOTHING, INT64_MAX },
	};

	check(&c, &up, of_up, COUNT(of_up));
	check(&c, &down, of_down, COUNT(of_down));
}

static void an_idle_box_is_deleted_running_or_not(void **state)
{
	const struct sbx_cleanup c = { .idle_ms = H, .idle_deletes = true, .max_age_ms = NEVER };
	const struct sbx_use up = { .up = true, .used_ms = 5 * H }, down = { .used_ms = 5 * H };
	static const struct want want[] = {
		{ 6 * H - 1, SBX_CLEANUP_NOTHING, 6 * H },
		{ 6 * H, SBX_CLEANUP_IDLE_DELETE, 0 },
	};

	check(&c, &up, want, COUNT(want));
	check(&c, &down, want, COUNT(want));
}

static void a_busy_box_is_left_alone_and_looked_at_when_it_could_be_due(void **state)
{
	const struct sbx_cleanup idle = { .idle_ms = H, .idle_deletes = true, .max_age_ms = NEVER };
	const struct sbx_cleanup old = { .idle_ms = NEVER, .max_age_ms = 2 * H };
	const struct sbx_use use = { .busy = true, .up = true, .used_ms = 0 };
	static const struct want of_idle[] = { { 60 * H, SBX_CLEANUP_NOTHING, 61 * H } };
	static const struct want of_old[] = {
		{ H, SBX_CLEANUP_NOTHING, 2 * H },
		{ 60 * H, SBX_CLEANUP_NOTHING, 60 * H + MIN },
	};

	check(&idle, &use, of_idle, COUNT(of_idle));
	check(&old, &use, of_old, COUNT(of_old));
}

static void an_old_box_is_deleted_a_minute_after_its_last_use(void **state)
{
	const struct sbx_cleanup c = { .idle_ms = NEVER, .max_age_ms = 24 * H };
	const struct sbx_use use = { .made_ms = 10 * H, .used_ms = 34 * H - 10 * S };
	static const struct want want[] = {
		{ 20 * H, SBX_CLEANUP_NOTHING, 34 * H + 50 * S },
		{ 34 * H, SBX_CLEANUP_NOTHING, 34 * H + 50 * S },
		{ 34 * H + 50 * S, SBX_CLEANUP_AGE_DELETE, 0 },
	};

	check(&c, &use, want, COUNT(want));
}

/* used and made before this boot, mounted at 100 h */
static void a_mount_grants_a_minute(void **state)
{
	const struct sbx_cleanup idle = { .idle_ms = H, .idle_deletes = true, .max_age_ms = NEVER };
	const struct sbx_cleanup old = { .idle_ms = NEVER, .max_age_ms = H };
	const struct sbx_cleanup soon = { .idle_ms = NEVER, .max_age_ms = 5 * S };
	const struct sbx_use use = { .made_ms = -50 * H, .used_ms = -20 * H, .mounted_ms = 100 * H };
	static const struct want of_idle[] = {
		{ 100 * H, SBX_CLEANUP_NOTHING, 100 * H + MIN },
		{ 100 * H + MIN, SBX_CLEANUP_IDLE_DELETE, 0 },
	};
	static const struct want of_old[] = {
		{ 100 * H, SBX_CLEANUP_NOTHING, 100 * H + MIN },
		{ 100 * H + MIN, SBX_CLEANUP_AGE_DELETE, 0 },
	};
	static const struct want of_soon[] = {
		{ 100 * H, SBX_CLEANUP_NOTHING, 100 * H + 5 * S },
		{ 100 * H + 5 * S, SBX_CLEANUP_AGE_DELETE, 0 },
	};

	check(&idle, &use, of_idle, COUNT(of_idle));
	check(&old, &use, of_old, COUNT(of_old));
	check(&soon, &use, of_soon, COUNT(of_soon));
}

static void what_is_due_first_counts(void **state)
{
	const struct sbx_cleanup c = { .idle_ms = H, .max_age_ms = 24 * H };
	const struct sbx_use up = { .up = true, .used_ms = 2 * H }, down = { .used_ms = 2 * H };
	static const struct want of_up[] = {
		{ 2 * H, SBX_CLEANUP_NOTHING, 3 * H },
		{ 3 * H, SBX_CLEANUP_STOP, 0 },
		{ 24 * H, SBX_CLEANUP_AGE_DELETE, 0 },
	};
	static const struct want of_down[] = {
		{ 3 * H, SBX_CLEANUP_NOTHING, 24 * H },
		{ 24 * H, SBX_CLEANUP_AGE_DELETE, 0 },
	};

	check(&c, &up, of_up, COUNT(of_up));
	check(&c, &down, of_down, COUNT(of_down));
}

static void without_a_policy_nothing_is_ever_due(void **state)
{
	const struct sbx_cleanup c = { .idle_ms = NEVER, .max_age_ms = NEVER };
	const struct sbx_use use = { .up = true };
	static const struct want want[] = { { INT64_MAX / 4, SBX_CLEANUP_NOTHING, INT64_MAX } };

	check(&c, &use, want, COUNT(want));
}

/* ---- a backend whose boxes fail before box_create returns ---- */

static struct sbx_pbox *const pbox = (struct sbx_pbox *)&pbox; /* never looked into */

static int hasty_open(const struct sbx_config *config, struct sbx_loop *loop, struct sbx_provider **ret,
		      struct sbx_err *err)
{
	*ret = (struct sbx_provider *)&pbox;
	return 0;
}

static void hasty_close(struct sbx_provider *provider)
{
}

static int hasty_list(struct sbx_provider *provider, int (*each)(void *data, const char *name, struct sbx_err *err),
		      void *data, struct sbx_err *err)
{
	return 0;
}

static int hasty_name_check(struct sbx_provider *provider, const char *name, struct sbx_err *err)
{
	return 0;
}

static int hasty_create(struct sbx_provider *provider, const char *name, const struct sbx_template *template,
			const struct sbx_box_events *events, void *data, struct sbx_pbox **ret, struct sbx_err *err)
{
	struct sbx_err why = SBX_ERR_INIT;

	*ret = pbox;
	sbx_err_set(&why, EIO, "no container here");
	events->state(data, SBX_BOX_FAILED, &why);
	return 0;
}

static void hasty_info(struct sbx_pbox *box, struct sbx_pbox_info *ret)
{
	*ret = (struct sbx_pbox_info){ .template = "t" };
}

static void hasty_put(struct sbx_pbox *box)
{
}

static void a_box_that_fails_at_once_has_the_policy_of_its_template(void **state)
{
	static const struct sbx_provider_ops ops = {
		.name = "hasty", .open = hasty_open, .close = hasty_close, .list = hasty_list, .name_check = hasty_name_check,
		.box_create = hasty_create, .box_info = hasty_info, .box_put = hasty_put,
	};
	struct sbx_template template = { .name = "t", .cleanup = { .idle_ms = H, .idle_deletes = true, .max_age_ms = NEVER } };
	const struct sbx_config config = {
		.state_dir = "/tmp", .templates = &template, .templates_n = 1, .events_bytes = 4096,
		.cleanup = { .idle_ms = NEVER, .max_age_ms = NEVER },
	};
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_catalog *catalog;
	struct sbx_loop *loop;
	struct sbx_box *box;

	assert_int_equal(sbx_loop_new(&loop, &err), 0);
	assert_int_equal(sbx_loop_start(loop, &err), 0);
	assert_int_equal(sbx_catalog_new(&config, loop, &ops, &template, false, &catalog, &err), 0);
	assert_int_equal(sbx_catalog_create(catalog, "one", &template, &box, &err), 0);
	assert_ptr_equal(box->template, &template);
	sbx_lock(&catalog->policy.lock);
	assert_true(catalog->policy.at_ms != INT64_MAX);
	sbx_unlock(&catalog->policy.lock);
	sbx_box_put(box);
	sbx_catalog_close(catalog);
	sbx_loop_stop(loop);
	sbx_catalog_free(catalog);
	sbx_loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_idle_box_is_stopped_when_its_time_is_over),
		cmocka_unit_test(an_idle_box_is_deleted_running_or_not),
		cmocka_unit_test(a_busy_box_is_left_alone_and_looked_at_when_it_could_be_due),
		cmocka_unit_test(an_old_box_is_deleted_a_minute_after_its_last_use),
		cmocka_unit_test(a_mount_grants_a_minute),
		cmocka_unit_test(what_is_due_first_counts),
		cmocka_unit_test(without_a_policy_nothing_is_ever_due),
		cmocka_unit_test(a_box_that_fails_at_once_has_the_policy_of_its_template),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
