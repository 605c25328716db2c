/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the hash table of intrusive items, which grows and never fails: without memory for more buckets it is
 * slower, not wrong.  No locking of its own.
 */
#ifndef SBX_BASE_TABLE_H
#define SBX_BASE_TABLE_H

#include "base/list.h"

#include <stddef.h>
#include <stdint.h>

#define SBX_TABLE_FIRST 256 /* buckets that are always there; a power of two */

struct sbx_table {
	uint64_t (*hash)(const struct sbx_list *item); /* of an item in the table */
	struct sbx_list *buckets;
	size_t bucket_count;
	size_t used; /* items */
	struct sbx_list first[SBX_TABLE_FIRST];
};

/* sbx_table_init - empty.  sbx_table_done: the items are forgotten, not freed. */
void sbx_table_init(struct sbx_table *t, uint64_t (*hash)(const struct sbx_list *item));
void sbx_table_done(struct sbx_table *t);

/* sbx_table_bucket - the list in which all items with this hash are, among others */
struct sbx_list *sbx_table_bucket(struct sbx_table *t, uint64_t hash);
void sbx_table_add(struct sbx_table *t, struct sbx_list *item);
/* sbx_table_remove - @item is in @t; afterwards it is initialised and in no list */
void sbx_table_remove(struct sbx_table *t, struct sbx_list *item);

/* sbx_hash_mix - one more word into a hash; the low bits are good */
static inline uint64_t sbx_hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 32);
}

#endif
