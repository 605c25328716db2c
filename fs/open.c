/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the list of what is open.  Any thread; one lock, held for a few instructions. */
#include "open.h"

#include "base/lock.h"

static struct sbx_lock open_lock = SBX_LOCK_INIT;
static struct sbx_list all = { &all, &all }; /* guarded by open_lock */
static uint64_t count;			     /* guarded by open_lock */

void sbx_open_add(struct sbx_open *open, void (*drop)(struct sbx_open *open))
{
	open->drop = drop;
	sbx_lock(&open_lock);
	sbx_list_append(&all, &open->link);
	count++;
	sbx_unlock(&open_lock);
}

void sbx_open_remove(struct sbx_open *open)
{
	sbx_lock(&open_lock);
	if (!sbx_list_empty(&open->link)) /* sbx_open_drop_all has taken it out already */
		count--;
	sbx_list_remove(&open->link);
	sbx_unlock(&open_lock);
}

uint64_t sbx_open_count(void)
{
	uint64_t n;

	sbx_lock(&open_lock);
	n = count;
	sbx_unlock(&open_lock);
	return n;
}

void sbx_open_drop_all(void)
{
	struct sbx_open *open;

	do {
		open = NULL;
		sbx_lock(&open_lock);
		if (!sbx_list_empty(&all)) {
			open = sbx_list_first(&all, struct sbx_open, link);
			sbx_list_remove(&open->link);
			count--;
		}
		sbx_unlock(&open_lock);
		if (open)
			open->drop(open);
	} while (open);
}
