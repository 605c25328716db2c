/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the table of nodes.  A node is in a bucket (hashed) or in `orphans` (its key is free again, but the kernel or a
 * handle still holds it), so that every living node can be found at the end.  One lock; it is never held
 * across done().  Any thread.
 */
#include "node.h"

#include "base/lock.h"
#include "base/table.h"

#include <stdlib.h>

static struct sbx_lock table_lock = SBX_LOCK_INIT;
static struct sbx_table table SBX_GUARDED_BY(table_lock);
static bool table_ready SBX_GUARDED_BY(table_lock);
static size_t orphan_count SBX_GUARDED_BY(table_lock);
static struct sbx_list orphans SBX_GUARDED_BY(table_lock);
static atomic_bool dropping; /* sbx_node_drop_all runs: it alone frees */
static struct sbx_node *root;

static uint64_t hash_key(const void *owner, uint64_t id)
{
	return sbx_hash_mix(sbx_hash_mix(0, (uintptr_t)owner), id);
}

static uint64_t hash_item(const struct sbx_list *item)
{
	const struct sbx_node *node = sbx_container_of(item, struct sbx_node, link);

	return hash_key(node->owner, node->id);
}

static void table_init_locked(void) SBX_REQUIRES(table_lock)
{
	if (table_ready)
		return;
	sbx_table_init(&table, hash_item);
	sbx_list_init(&orphans);
	orphan_count = 0;
	table_ready = true;
}

static struct sbx_node *get_locked(const void *owner, uint64_t id) SBX_REQUIRES(table_lock)
{
	struct sbx_list *list = sbx_table_bucket(&table, hash_key(owner, id)), *pos;

	sbx_list_for_each(pos, list) {
		struct sbx_node *node = sbx_container_of(pos, struct sbx_node, link);

		if (node->owner != owner || node->id != id)
			continue;
		/* 0: only handles or parked requests held it; the kernel comes back */
		if (node->nlookup++ == 0)
			atomic_fetch_add(&node->refs, 1);
		return node;
	}
	return NULL;
}

struct sbx_node *sbx_node_of(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? root : (struct sbx_node *)(uintptr_t)ino;
}

fuse_ino_t sbx_node_id(const struct sbx_node *node)
{
	return node == root ? FUSE_ROOT_ID : (fuse_ino_t)(uintptr_t)node;
}

struct sbx_node *sbx_node_find(const void *owner, uint64_t id)
{
	struct sbx_node *node;

	sbx_lock(&table_lock);
	table_init_locked();
	node = get_locked(owner, id);
	sbx_unlock(&table_lock);
	return node;
}

struct sbx_node *sbx_node_add(struct sbx_node *fresh, const void *owner, uint64_t id)
{
	struct sbx_node *node;

	sbx_lock(&table_lock);
	table_init_locked();
	node = get_locked(owner, id);
	if (!node) {
		node = fresh;
		node->owner = owner;
		node->id = id;
		node->nlookup = 1;
		atomic_store(&node->refs, 1);
		node->hashed = true;
		sbx_table_add(&table, &node->link);
	}
	sbx_unlock(&table_lock);
	return node;
}

void sbx_node_unhash(struct sbx_node *node)
{
	sbx_lock(&table_lock);
	if (node->hashed) {
		node->hashed = false;
		sbx_table_remove(&table, &node->link);
		sbx_list_append(&orphans, &node->link);
		orphan_count++;
	}
	sbx_unlock(&table_lock);
}

/* Only the last reference needs the lock: a lookup must not find a node that is on its way out. */
static bool unref_locked(struct sbx_node *node) SBX_REQUIRES(table_lock)
{
	if (atomic_fetch_sub(&node->refs, 1) != 1 || atomic_load(&dropping))
		return false;
	if (node->hashed) {
		sbx_table_remove(&table, &node->link);
	} else {
		sbx_list_remove(&node->link);
		orphan_count--;
	}
	return true;
}

static void node_free(struct sbx_node *node)
{
	if (node->ops->done)
		node->ops->done(node);
	free(node);
}

void sbx_node_forget(struct sbx_node *node, uint64_t n)
{
	bool last = false;

	if (node == root || n == 0)
		return;
	sbx_lock(&table_lock);
	if (n > node->nlookup) /* the kernel does not do this; a wrong count must not free twice */
		n = node->nlookup;
	if (n > 0) {
		node->nlookup -= n;
		last = node->nlookup == 0 && unref_locked(node);
	}
	sbx_unlock(&table_lock);
	if (last)
		node_free(node);
}

struct sbx_node *sbx_node_ref(struct sbx_node *node)
{
	if (node != root)
		atomic_fetch_add(&node->refs, 1);
	return node;
}

void sbx_node_unref(struct sbx_node *node)
{
	unsigned int refs;
	bool last;

	if (!node || node == root)
		return;
	refs = atomic_load(&node->refs);
	while (refs > 1)
		if (atomic_compare_exchange_weak(&node->refs, &refs, refs - 1))
			return;
	sbx_lock(&table_lock);
	last = unref_locked(node);
	sbx_unlock(&table_lock);
	if (last)
		node_free(node);
}

void sbx_node_root_set(struct sbx_node *node)
{
	root = node;
}

uint64_t sbx_node_count(void)
{
	uint64_t n;

	sbx_lock(&table_lock);
	table_init_locked();
	n = table.used + orphan_count;
	sbx_unlock(&table_lock);
	return n;
}

void sbx_node_drop_all(void)
{
	struct sbx_list all, *pos, *next;
	size_t i;

	sbx_list_init(&all);
	sbx_lock(&table_lock);
	table_init_locked();
	atomic_store(&dropping, true);
	for (i = 0; i < table.bucket_count; i++)
		sbx_list_splice(&all, &table.buckets[i]);
	sbx_list_splice(&all, &orphans);
	sbx_table_done(&table);
	table_ready = false;
	sbx_unlock(&table_lock);
	/* a node may give back others in its done(): none is freed before all are done */
	sbx_list_for_each(pos, &all) {
		struct sbx_node *node = sbx_container_of(pos, struct sbx_node, link);

		if (node->ops->done)
			node->ops->done(node);
	}
	sbx_list_for_each_safe(pos, next, &all)
		free(sbx_container_of(pos, struct sbx_node, link));
	atomic_store(&dropping, false);
}
