/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/events.c: lines that come for ever, of which the newest are kept. */
#include "unit.h"

#include "events.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static void add(struct sbx_events *ev, unsigned int number)
{
	char line[32];
	int n = snprintf(line, sizeof(line), "line %u\n", number);

	sbx_events_add(ev, line, (size_t)n);
}

/* reads from @off to the end, @step bytes at a time; malloc'ed text */
static char *text(struct sbx_events *ev, uint64_t *off, size_t step)
{
	char *all = calloc(1, 1 << 20);
	uint64_t at = *off;
	size_t n, len = 0;

	do {
		n = sbx_events_read(ev, &at, all + len, step);
		if (len == 0)
			*off = at;
		at += n;
		len += n;
	} while (n > 0);
	return all;
}

static void what_came_is_read_from_anywhere(void **state)
{
	struct sbx_events ev;
	uint64_t off = 0;
	char *all;

	sbx_events_init(&ev, 1 << 16);
	all = text(&ev, &off, 100);
	assert_string_equal(all, "");
	free(all);
	add(&ev, 1);
	add(&ev, 22);
	assert_int_equal(sbx_events_len(&ev), 15);
	all = text(&ev, &off, 3);
	assert_string_equal(all, "line 1\nline 22\n");
	free(all);
	off = 7;
	all = text(&ev, &off, 100);
	assert_string_equal(all, "line 22\n");
	assert_int_equal(off, 7);
	free(all);
	off = 100;
	all = text(&ev, &off, 100);
	assert_string_equal(all, "");
	free(all);
	sbx_events_done(&ev);
}

/* whole lines go, the oldest first; offsets stay what they were */
static void the_newest_are_kept_for_ever(void **state)
{
	static const size_t maxima[] = { 4096, 5000, 65536 };
	size_t k;

	for (k = 0; k < COUNT(maxima); k++) {
		struct sbx_events ev;
		unsigned int i, first = 0;
		uint64_t total = 0, off;
		char line[32], *all, *at;

		sbx_events_init(&ev, maxima[k]);
		for (i = 0; i < 100000; i++) {
			add(&ev, i);
			total += (uint64_t)snprintf(line, sizeof(line), "line %u\n", i);
		}
		assert_int_equal(sbx_events_len(&ev), total);
		off = 0;
		all = text(&ev, &off, 777);
		assert_true(strlen(all) <= maxima[k] && strlen(all) > maxima[k] - 20);
		assert_int_equal(off + strlen(all), total);
		assert_int_equal(sscanf(all, "line %u\n", &first), 1);
		for (at = all, i = first; i < 100000; i++) {
			int n = snprintf(line, sizeof(line), "line %u\n", i);

			assert_memory_equal(at, line, (size_t)n);
			at += n;
		}
		assert_string_equal(at, "");
		free(all);
		sbx_events_done(&ev);
	}
}

static void a_line_that_is_too_long_is_lost_and_nothing_else(void **state)
{
	struct sbx_events ev;
	char *line = malloc(9000), *all;
	uint64_t off = 0;

	memset(line, 'x', 9000);
	line[8999] = '\n';
	sbx_events_init(&ev, 4096);
	add(&ev, 1);
	sbx_events_add(&ev, line, 9000);
	add(&ev, 2);
	all = text(&ev, &off, 5000);
	assert_string_equal(all, "line 1\nline 2\n");
	free(all);
	free(line);
	sbx_events_done(&ev);
}

struct following {
	struct sbx_events ev;
	atomic_bool over;
};

static void *write_many(void *data)
{
	struct following *f = data;
	unsigned int i;

	for (i = 0; i < 200000; i++)
		add(&f->ev, i);
	atomic_store(&f->over, true);
	return NULL;
}

/* a reader beside the writer never sees half a line, nor one twice, nor out of order; it may miss some when it is slow */
static void a_follower_sees_lines_in_order(void **state)
{
	struct following f = { .over = false };
	char buf[300], rest[64] = "";
	unsigned int last = 0, seen = 0, number;
	size_t have = 0;
	uint64_t off = 0;
	pthread_t thread;
	bool over;

	sbx_events_init(&f.ev, 4096);
	assert_int_equal(pthread_create(&thread, NULL, write_many, &f), 0);
	for (;;) {
		uint64_t at = off;
		size_t n, i;

		over = atomic_load(&f.over);
		n = sbx_events_read(&f.ev, &at, buf, sizeof(buf));
		if (at != off)
			have = 0; /* skipped: it begins at a line again */
		off = at + n;
		for (i = 0; i < n; i++) {
			assert_true(have < sizeof(rest) - 1);
			rest[have++] = buf[i];
			if (buf[i] != '\n')
				continue;
			rest[have] = '\0';
			have = 0;
			assert_int_equal(sscanf(rest, "line %u\n", &number), 1);
			assert_true(seen == 0 || number > last);
			last = number;
			seen++;
		}
		if (n == 0 && over)
			break;
	}
	pthread_join(thread, NULL);
	assert_int_equal(last, 199999);
	sbx_events_done(&f.ev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_came_is_read_from_anywhere),
		cmocka_unit_test(the_newest_are_kept_for_ever),
		cmocka_unit_test(a_line_that_is_too_long_is_lost_and_nothing_else),
		cmocka_unit_test(a_follower_sees_lines_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
