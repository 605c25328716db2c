/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a node lives exactly as long as somebody holds it, and the table keeps its promise under many threads. */
#include "unit.h"

#include "node.h"

#include "base/cleanup.h"

#include <pthread.h>
#include <stdlib.h>

static atomic_uint done_count;

static void count_done(struct sbx_node *node)
{
	atomic_fetch_add(&done_count, 1);
}

static const struct sbx_node_ops ops = { .done = count_done };

static struct sbx_node *fresh(void)
{
	struct sbx_node *node = calloc(1, sizeof(*node));

	assert_non_null(node);
	node->ops = &ops;
	return node;
}

static struct sbx_node *add(const void *owner, uint64_t id)
{
	struct sbx_node *mine = fresh(), *node = sbx_node_add(mine, owner, id);

	if (node != mine)
		free(mine);
	return node;
}

static int clean(void **state)
{
	sbx_node_drop_all();
	atomic_store(&done_count, 0);
	return 0;
}

static void a_key_is_one_node_and_its_lookups_are_counted(void **state)
{
	struct sbx_node *node = add(NULL, 7);

	assert_ptr_equal(add(NULL, 7), node);
	assert_ptr_equal(sbx_node_find(NULL, 7), node);
	assert_null(sbx_node_find(NULL, 8));
	assert_null(sbx_node_find(node, 7));
	assert_ptr_equal(sbx_node_of(sbx_node_id(node)), node);
	sbx_node_forget(node, 2);
	assert_int_equal(done_count, 0);
	sbx_node_forget(node, 1);
	assert_int_equal(done_count, 1);
	assert_int_equal(sbx_node_count(), 0);
}

static void a_reference_keeps_a_node_that_the_kernel_forgot_and_a_lookup_revives_it(void **state)
{
	struct sbx_node *node = sbx_node_ref(add(NULL, 1));

	sbx_node_forget(node, 1);
	assert_int_equal(done_count, 0);
	assert_ptr_equal(sbx_node_find(NULL, 1), node);
	sbx_node_unref(node);
	assert_int_equal(done_count, 0);
	sbx_node_forget(node, 1);
	assert_int_equal(done_count, 1);
}

static void an_unhashed_node_lives_on_beside_its_successor(void **state)
{
	struct sbx_node *old = add(NULL, 1), *node;

	sbx_node_unhash(old);
	assert_null(sbx_node_find(NULL, 1));
	node = add(NULL, 1);
	assert_ptr_not_equal(node, old);
	assert_int_equal(sbx_node_count(), 2);
	sbx_node_forget(old, 1);
	assert_ptr_equal(sbx_node_find(NULL, 1), node);
	sbx_node_forget(node, 2);
	assert_int_equal(done_count, 2);
	assert_int_equal(sbx_node_count(), 0);
}

static void too_many_forgets_free_once(void **state)
{
	struct sbx_node *node = sbx_node_ref(add(NULL, 1));

	sbx_node_forget(node, 1000);
	sbx_node_forget(node, 1);
	assert_int_equal(done_count, 0);
	sbx_node_unref(node);
	assert_int_equal(done_count, 1);
}

static void the_root_is_never_counted(void **state)
{
	static struct sbx_node root = { .ops = &ops };

	sbx_node_root_set(&root);
	assert_int_equal(sbx_node_id(&root), FUSE_ROOT_ID);
	assert_ptr_equal(sbx_node_of(FUSE_ROOT_ID), &root);
	sbx_node_forget(&root, 5);
	sbx_node_unref(sbx_node_ref(&root));
	assert_int_equal(done_count, 0);
	sbx_node_root_set(NULL);
}

static void the_table_grows_and_drop_all_frees_everything(void **state)
{
	uint64_t i;

	for (i = 0; i < 20000; i++) {
		struct sbx_node *node = add(&ops, i);

		if (i % 3 == 0)
			sbx_node_unhash(node);
		if (i % 5 == 0)
			sbx_node_ref(node);
	}
	assert_int_equal(sbx_node_count(), 20000);
	for (i = 0; i < 20000; i++)
		assert_int_equal(sbx_node_find(&ops, i) != NULL, i % 3 != 0);
	sbx_node_drop_all();
	assert_int_equal(done_count, 20000);
	assert_int_equal(sbx_node_count(), 0);
}

static atomic_uint made;

static void *worker(void *seed_data)
{
	unsigned int seed = (unsigned int)(uintptr_t)seed_data;
	int i;

	for (i = 0; i < 100000; i++) {
		uint64_t id = (uint64_t)rand_r(&seed) % 64;
		struct sbx_node *mine = calloc(1, sizeof(*mine)), *node;

		if (!mine)
			return NULL;
		mine->ops = &ops;
		node = sbx_node_add(mine, NULL, id);
		if (node == mine)
			atomic_fetch_add(&made, 1);
		else
			free(mine);
		if (rand_r(&seed) % 4 == 0)
			sbx_node_unhash(node);
		if (rand_r(&seed) % 2 == 0) {
			sbx_node_ref(node);
			sbx_node_forget(node, 1);
			sbx_node_unref(node);
		} else {
			sbx_node_forget(node, 1);
		}
	}
	return NULL;
}

static void many_threads_free_each_node_once(void **state)
{
	pthread_t threads[4];
	uintptr_t i;

	for (i = 0; i < COUNT(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)), 0);
	for (i = 0; i < COUNT(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(sbx_node_count(), 0);
	assert_int_equal(atomic_load(&done_count), atomic_load(&made));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_key_is_one_node_and_its_lookups_are_counted, clean),
		cmocka_unit_test_setup(
			a_reference_keeps_a_node_that_the_kernel_forgot_and_a_lookup_revives_it,
			clean),
		cmocka_unit_test_setup(an_unhashed_node_lives_on_beside_its_successor, clean),
		cmocka_unit_test_setup(too_many_forgets_free_once, clean),
		cmocka_unit_test_setup(the_root_is_never_counted, clean),
		cmocka_unit_test_setup(the_table_grows_and_drop_all_frees_everything, clean),
		cmocka_unit_test_setup(many_threads_free_each_node_once, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
