/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked list with a head of the same type. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(head)                                                                  \
	{                                                                                \
		&(head), &(head)                                                         \
	}
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert(struct list *at, struct list *item)
{
	item->next = at->next;
	item->prev = at;
	at->next->prev = item;
	at->next = item;
}

static inline void list_push_front(struct list *head, struct list *item)
{
	list_insert(head, item);
}

static inline void list_push_back(struct list *head, struct list *item)
{
	list_insert(head->prev, item);
}

/* Leaves the item self-linked: removing twice is harmless. */
static inline void list_remove(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	list_init(item);
}

#define list_first(head, type, member) container_of((head)->next, type, member)
#define list_last(head, type, member) container_of((head)->prev, type, member)
#define list_for_each(it, head)                                                          \
	for ((it) = (head)->next; (it) != (head); (it) = (it)->next)
#define list_for_each_safe(it, nx, head)                                                 \
	for ((it) = (head)->next, (nx) = (it)->next; (it) != (head);                     \
	     (it) = (nx), (nx) = (it)->next)
