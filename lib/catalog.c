/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_catalog.  Knows: box.h, the provider's open, close and list.  Threads: see catalog.h. */
#include "catalog.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "box.h"
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define EPHEMERAL_PATIENCE_MS 10000

/* the place of @name, or where it would stand; *ret_found tells which */
static size_t place_locked(struct sbx_catalog *catalog, const char *name, bool *ret_found)
	SBX_REQUIRES(catalog->lock)
{
	size_t lo = 0, hi = catalog->n;

	*ret_found = false;
	while (lo < hi) {
		size_t i = (lo + hi) / 2;
		int c = strcmp(catalog->boxes[i]->name, name);

		if (c == 0) {
			*ret_found = true;
			return i;
		}
		if (c < 0)
			lo = i + 1;
		else
			hi = i;
	}
	return lo;
}

/* room for one more; -ENOMEM */
static int reserve_locked(struct sbx_catalog *catalog) SBX_REQUIRES(catalog->lock)
{
	size_t room = catalog->room ? catalog->room * 2 : 32;
	struct sbx_box **boxes;

	if (catalog->n < catalog->room)
		return 0;
	boxes = realloc(catalog->boxes, room * sizeof(struct sbx_box *));
	if (!boxes)
		return -ENOMEM;
	catalog->boxes = boxes;
	catalog->room = room;
	return 0;
}

static void insert_locked(struct sbx_catalog *catalog, size_t i, struct sbx_box *box)
	SBX_REQUIRES(catalog->lock)
{
	memmove(&catalog->boxes[i + 1], &catalog->boxes[i],
		(catalog->n - i) * sizeof(struct sbx_box *));
	catalog->boxes[i] = box;
	catalog->n++;
}

static int add_existing(void *data, const char *name, struct sbx_err *err)
{
	struct sbx_catalog *catalog = data;
	struct sbx_box *box;
	bool found;
	size_t i;
	int r;

	r = sbx_box_new(catalog, name, NULL, &box, err);
	if (r < 0)
		return sbx_err_wrap(err, r, "sandbox '%s'", name);
	sbx_lock(&catalog->lock);
	i = place_locked(catalog, name, &found);
	r = found ? -EEXIST : reserve_locked(catalog);
	if (r == 0)
		insert_locked(catalog, i, box);
	sbx_unlock(&catalog->lock);
	if (r < 0)
		sbx_box_put(box);
	else
		sbx_policy_watch(&catalog->policy, box);
	return r;
}

int sbx_catalog_new(const struct sbx_config *config, struct sbx_loop *loop,
		    const struct sbx_provider_ops *ops, const struct sbx_template *template,
		    bool ephemeral, struct sbx_catalog **ret, struct sbx_err *err)
{
	struct sbx_catalog *catalog = calloc(1, sizeof(*catalog));
	uint64_t start = 1;
	int r;

	if (!catalog)
		return sbx_err_set(err, ENOMEM, "no memory");
	catalog->config = config;
	catalog->loop = loop;
	catalog->ops = ops;
	catalog->template = template;
	catalog->ephemeral = ephemeral;
	catalog->spool_dir = -1;
	sbx_lock_init(&catalog->lock);
	sbx_list_init(&catalog->deleting);
	sbx_events_init(&catalog->events, config->events_bytes);
	sbx_policy_init(&catalog->policy, catalog);
	/*
	 * A random start, so that the numbers of two mounts do not meet: who holds a dirty handle is found by its number
	 * in /proc/PID/fdinfo.
	 */
	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		start = (uint64_t)sbx_clock_wall().tv_nsec;
	atomic_init(&catalog->next_ino, (start & UINT64_C(0x3fffffffffff)) + 1);
	r = ops->open(config, loop, &catalog->provider, err);
	if (r < 0) {
		sbx_catalog_free(catalog);
		return r;
	}
	catalog->spool_dir = open(config->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (catalog->spool_dir < 0)
		r = sbx_err_sys(err, errno, "state folder '%s'", config->state_dir);
	if (r == 0)
		r = ops->list(catalog->provider, add_existing, catalog, err);
	if (r < 0) {
		sbx_catalog_close(catalog);
		sbx_catalog_free(catalog);
		return r;
	}
	*ret = catalog;
	return 0;
}

void sbx_catalog_deleting(struct sbx_catalog *catalog, struct sbx_box *box)
{
	sbx_box_get(box);
	sbx_lock(&catalog->lock);
	sbx_list_append(&catalog->deleting, &box->deleting);
	sbx_unlock(&catalog->lock);
}

void sbx_catalog_gone(struct sbx_catalog *catalog, struct sbx_box *box)
{
	bool was;

	sbx_lock(&catalog->lock);
	was = !sbx_list_empty(&box->deleting);
	sbx_list_remove(&box->deleting);
	sbx_unlock(&catalog->lock);
	if (was)
		sbx_box_put(box);
}

/* any box that is still being deleted; NULL: none */
static struct sbx_box *next_deleting(struct sbx_catalog *catalog)
{
	struct sbx_box *box = NULL;

	sbx_lock(&catalog->lock);
	if (!sbx_list_empty(&catalog->deleting)) {
		box = sbx_list_first(&catalog->deleting, struct sbx_box, deleting);
		sbx_box_get(box);
	}
	sbx_unlock(&catalog->lock);
	return box;
}

/* -o ephemeral promises that nothing is left: waits for the removal, for a time; the rest is finished at the next mount */
static void await_ephemeral(struct sbx_catalog *catalog)
{
	const struct timespec moment = { 0, 5000000 };
	uint64_t until = sbx_clock_ms() + EPHEMERAL_PATIENCE_MS;
	struct sbx_list *i;
	bool any;

	do {
		any = false;
		sbx_lock(&catalog->lock);
		sbx_list_for_each (i, &catalog->deleting)
			any = any || sbx_container_of(i, struct sbx_box, deleting)->ephemeral;
		sbx_unlock(&catalog->lock);
		if (any)
			nanosleep(&moment, NULL);
	} while (any && sbx_clock_ms() < until);
}

void sbx_catalog_close(struct sbx_catalog *catalog)
{
	struct sbx_box **boxes, *box;
	size_t n, i;

	sbx_policy_stop(&catalog->policy);
	sbx_lock(&catalog->lock);
	boxes = sbx_take(catalog->boxes);
	n = catalog->n;
	catalog->n = catalog->room = 0;
	sbx_unlock(&catalog->lock);
	for (i = 0; i < n; i++) {
		if (boxes[i]->ephemeral)
			sbx_box_delete(boxes[i]);
		else
			sbx_box_close(boxes[i]);
		sbx_box_put(boxes[i]);
	}
	free(boxes);
	await_ephemeral(catalog);
	while ((box = next_deleting(catalog))) {
		sbx_catalog_gone(catalog, box);
		sbx_box_put(box);
	}
	if (catalog->provider)
		catalog->ops->close(sbx_take(catalog->provider));
}

void sbx_catalog_free(struct sbx_catalog *catalog)
{
	unsigned int i;

	if (!catalog)
		return;
	for (i = 0; i < SBX_ERRORS_KEPT; i++)
		free(catalog->errors[i]);
	free(catalog->boxes);
	sbx_closep(&catalog->spool_dir);
	sbx_events_done(&catalog->events);
	sbx_policy_done(&catalog->policy);
	sbx_lock_done(&catalog->lock);
	free(catalog);
}

uint64_t sbx_catalog_ino(struct sbx_catalog *catalog, unsigned int blocks)
{
	uint64_t n = atomic_fetch_add(&catalog->next_ino, blocks) & UINT64_C(0x7fffffffffffff);

	return (UINT64_C(1) << 63) | (n << 8);
}

int sbx_catalog_create(struct sbx_catalog *catalog, const char *name,
		       const struct sbx_template *template, struct sbx_box **ret, struct sbx_err *err)
{
	struct sbx_box *box;
	bool found;
	size_t i;
	int r;

	r = catalog->ops->name_check(catalog->provider, name, err);
	if (r < 0)
		return r;
	sbx_lock(&catalog->lock);
	place_locked(catalog, name, &found);
	sbx_unlock(&catalog->lock);
	if (found)
		return -EEXIST;
	r = sbx_box_new(catalog, name, template, &box, err);
	if (r < 0)
		return r;
	box->ephemeral = catalog->ephemeral;
	sbx_lock(&catalog->lock);
	i = place_locked(catalog, name, &found); /* the provider's own EEXIST decides between two makers */
	r = found ? -EEXIST : reserve_locked(catalog);
	if (r == 0)
		insert_locked(catalog, i, sbx_box_get(box));
	sbx_unlock(&catalog->lock);
	if (r < 0) {
		sbx_box_delete(box);
		sbx_box_put(box);
		return r;
	}
	sbx_catalog_event(catalog, name, "creating");
	*ret = box;
	return 0;
}

int sbx_catalog_delete(struct sbx_catalog *catalog, const char *name, struct sbx_err *err)
{
	struct sbx_box *box = NULL;
	bool found;
	size_t i;

	sbx_lock(&catalog->lock);
	i = place_locked(catalog, name, &found);
	if (found) {
		box = catalog->boxes[i];
		catalog->n--;
		memmove(&catalog->boxes[i], &catalog->boxes[i + 1],
			(catalog->n - i) * sizeof(struct sbx_box *));
	}
	sbx_unlock(&catalog->lock);
	if (!box)
		return sbx_err_set(err, ENOENT, "there is no sandbox '%s'", name);
	sbx_catalog_event(catalog, name, "deleting");
	sbx_box_delete(box);
	sbx_box_put(box);
	return 0;
}

void sbx_catalog_remove(struct sbx_catalog *catalog, struct sbx_box *box, const struct sbx_err *why)
{
	bool found;
	size_t i;

	sbx_lock(&catalog->lock);
	i = place_locked(catalog, box->name, &found);
	found = found && catalog->boxes[i] == box; /* else rmdir() was faster, and there may be a new one */
	if (found) {
		catalog->n--;
		memmove(&catalog->boxes[i], &catalog->boxes[i + 1],
			(catalog->n - i) * sizeof(struct sbx_box *));
	}
	sbx_unlock(&catalog->lock);
	if (!found)
		return;
	sbx_catalog_event(catalog, box->name, "deleting: %s", why->text);
	sbx_box_delete(box);
	sbx_box_put(box);
}

struct sbx_box *sbx_catalog_find(struct sbx_catalog *catalog, const char *name)
{
	struct sbx_box *box = NULL;
	bool found;
	size_t i;

	sbx_lock(&catalog->lock);
	i = place_locked(catalog, name, &found);
	if (found)
		box = sbx_box_get(catalog->boxes[i]);
	sbx_unlock(&catalog->lock);
	return box;
}

int sbx_catalog_snapshot(struct sbx_catalog *catalog, struct sbx_box ***ret, size_t *ret_n)
{
	struct sbx_box **boxes;
	size_t i, n;

	sbx_lock(&catalog->lock);
	n = catalog->n;
	boxes = calloc(n ? n : 1, sizeof(struct sbx_box *));
	for (i = 0; boxes && i < n; i++)
		boxes[i] = sbx_box_get(catalog->boxes[i]);
	sbx_unlock(&catalog->lock);
	if (!boxes)
		return -ENOMEM;
	*ret = boxes;
	*ret_n = n;
	return 0;
}

/* ---- events and errors ---- */

/* one line out of parts that may hold anything: controls become '?' */
static void one_line(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
	}
}

void sbx_catalog_event(struct sbx_catalog *catalog, const char *box, const char *fmt, ...)
{
	char text[SBX_ERR_TEXT_MAX + 64], when[SBX_CLOCK_TEXT_MAX];
	struct sbx_buf line = SBX_BUF_INIT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	one_line(text);
	sbx_buf_printf(&line, "%s %s %s\n", sbx_clock_format(sbx_clock_wall(), when), box ? box : "-", text);
	sbx_debug(SBX_LOG_BOX, "%s: %s", box ? box : "-", text);
	if (!line.failed)
		sbx_events_add(&catalog->events, line.data, line.len);
	sbx_buf_done(&line);
}

void sbx_catalog_fail(struct sbx_catalog *catalog, const char *box, const char *op, const char *path,
		      const struct sbx_err *err)
{
	char when[SBX_CLOCK_TEXT_MAX];
	struct sbx_buf line = SBX_BUF_INIT;
	char *old = NULL;

	sbx_buf_printf(&line, "%s %s %s %s %s %s", sbx_clock_format(sbx_clock_wall(), when), box ? box : "-",
		       op, path && path[0] ? path : "-", sbx_errno_name(err->code), err->text);
	atomic_fetch_add(&catalog->failures, 1);
	if (line.failed)
		return;
	one_line(line.data);
	sbx_log_write(SBX_LOG_WARNING, "%s %s %s: %s (%s)", box ? box : "-", op, path && path[0] ? path : "-",
		      err->text, sbx_errno_name(err->code));
	sbx_lock(&catalog->lock);
	old = catalog->errors[catalog->errors_next];
	catalog->errors[catalog->errors_next] = line.data;
	catalog->errors_next = (catalog->errors_next + 1) % SBX_ERRORS_KEPT;
	sbx_unlock(&catalog->lock);
	free(old);
}

int sbx_catalog_errors(struct sbx_catalog *catalog, struct sbx_buf *out)
{
	unsigned int i;

	sbx_lock(&catalog->lock);
	for (i = 0; i < SBX_ERRORS_KEPT; i++) {
		const char *line = catalog->errors[(catalog->errors_next + i) % SBX_ERRORS_KEPT];

		if (line)
			sbx_buf_printf(out, "%s\n", line);
	}
	sbx_unlock(&catalog->lock);
	return out->failed ? -ENOMEM : 0;
}

void sbx_catalog_stats(struct sbx_catalog *catalog, struct sbx_stats *ret)
{
	size_t i;

	memset(ret, 0, sizeof(*ret));
	ret->runs_started = atomic_load(&catalog->runs_started);
	ret->failures = atomic_load(&catalog->failures);
	sbx_lock(&catalog->lock);
	ret->boxes = catalog->n;
	for (i = 0; i < catalog->n; i++) {
		ret->runs_active += atomic_load(&catalog->boxes[i]->active);
		ret->spool_bytes += atomic_load(&catalog->boxes[i]->spooled);
	}
	sbx_unlock(&catalog->lock);
}
