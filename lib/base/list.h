/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the intrusive doubly linked list.  No locking of its own. */
#ifndef SBX_BASE_LIST_H
#define SBX_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sbx_list {
	struct sbx_list *prev, *next;
};

#define sbx_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void sbx_list_init(struct sbx_list *l)
{
	l->prev = l->next = l;
}

static inline bool sbx_list_empty(const struct sbx_list *l)
{
	return l->next == l;
}

static inline void sbx_list_append(struct sbx_list *head, struct sbx_list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

/* safe on an item that is in no list but was initialised; leaves it initialised */
static inline void sbx_list_remove(struct sbx_list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	sbx_list_init(item);
}

/* moves all of @from to the end of @to; @from is empty then */
static inline void sbx_list_splice(struct sbx_list *to, struct sbx_list *from)
{
	if (sbx_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	sbx_list_init(from);
}

#define sbx_list_for_each(pos, head) for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define sbx_list_for_each_safe(pos, tmp, head)                                                     \
	for ((pos) = (head)->next, (tmp) = (pos)->next; (pos) != (head);                           \
	     (pos) = (tmp), (tmp) = (pos)->next)
#define sbx_list_first(head, type, member) sbx_container_of((head)->next, type, member)

#endif
