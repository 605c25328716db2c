/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_table.  One thread at a time per table. */
#include "base/table.h"

#include <stdlib.h>

static void lists_init(struct sbx_list *lists, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		sbx_list_init(&lists[i]);
}

void sbx_table_init(struct sbx_table *t, uint64_t (*hash)(const struct sbx_list *item))
{
	lists_init(t->first, SBX_TABLE_FIRST);
	t->hash = hash;
	t->buckets = t->first;
	t->bucket_count = SBX_TABLE_FIRST;
	t->used = 0;
}

void sbx_table_done(struct sbx_table *t)
{
	if (t->buckets != t->first)
		free(t->buckets);
	t->buckets = NULL;
}

struct sbx_list *sbx_table_bucket(struct sbx_table *t, uint64_t hash)
{
	return &t->buckets[hash & (t->bucket_count - 1)];
}

static void grow(struct sbx_table *t)
{
	struct sbx_list *old = t->buckets, *pos, *next;
	size_t n = t->bucket_count, i;
	struct sbx_list *fresh = malloc(2 * n * sizeof(*fresh));

	if (!fresh)
		return;
	lists_init(fresh, 2 * n);
	t->buckets = fresh;
	t->bucket_count = 2 * n;
	for (i = 0; i < n; i++) {
		sbx_list_for_each_safe(pos, next, &old[i]) {
			sbx_list_remove(pos);
			sbx_list_append(sbx_table_bucket(t, t->hash(pos)), pos);
		}
	}
	if (old != t->first)
		free(old);
}

void sbx_table_add(struct sbx_table *t, struct sbx_list *item)
{
	sbx_list_append(sbx_table_bucket(t, t->hash(item)), item);
	if (++t->used > t->bucket_count)
		grow(t);
}

void sbx_table_remove(struct sbx_table *t, struct sbx_list *item)
{
	sbx_list_remove(item);
	t->used--;
}
