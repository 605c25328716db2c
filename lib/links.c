/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the rule for links of a workspace.  Text is read name by name, never joined and then cleaned.  Any thread. */
#include "links.h"

#include <string.h>

/* next name of a path: skips '/' and ".", returns its length, 0 at the end */
static size_t name_next(const char **path)
{
	size_t n;

	for (;;) {
		*path += strspn(*path, "/");
		n = strcspn(*path, "/");
		if (n != 1 || **path != '.')
			return n;
		*path += 1;
	}
}

static bool is_up(const char *name, size_t len)
{
	return len == 2 && name[0] == '.' && name[1] == '.';
}

struct text {
	char *buf; /* SBX_LINK_MAX bytes */
	size_t len;
	bool full;
};

static void text_name(struct text *t, const char *name, size_t len)
{
	size_t slash = t->len > 0;
	size_t room = SBX_LINK_MAX - 1 - t->len;

	if (slash + len > room) {
		t->full = true;
		if (room <= slash) /* no name, and no slash at the end either */
			return;
		len = room - slash;
	}
	if (slash)
		t->buf[t->len++] = '/';
	memcpy(t->buf + t->len, name, len);
	t->len += len;
}

/* is @raw below @workspace? Then *raw is moved behind it. */
static bool strip_workspace(const char **raw, const char *workspace)
{
	const char *p = *raw;
	size_t n, m;

	while ((m = name_next(&workspace)) > 0) {
		n = name_next(&p);
		if (n != m || memcmp(p, workspace, n) != 0)
			return false;
		p += n;
		workspace += m;
	}
	*raw = p;
	return true;
}

static bool show_inside(const char *raw, unsigned int depth, const char *workspace, struct text *t)
{
	unsigned int ups = 0, names = 0;
	size_t n;

	if (raw[0] == '/') {
		if (!strip_workspace(&raw, workspace))
			return false;
		for (; ups < depth && !t->full; ups++)
			text_name(t, "..", 2);
		if (name_next(&raw) == 0) { /* the workspace itself */
			if (depth == 0)
				text_name(t, ".", 1);
			return !t->full;
		}
	}
	for (; (n = name_next(&raw)) > 0; raw += n) {
		if (is_up(raw, n)) {
			if (names > 0 || ++ups > depth)
				return false;
		} else {
			names++;
		}
		text_name(t, raw, n);
	}
	return names > 0 && !t->full;
}

bool sbx_link_show(const char *raw, unsigned int depth, const char *workspace,
		   char ret[SBX_LINK_MAX])
{
	struct text t = { .buf = ret };
	bool inside = show_inside(raw, depth, workspace, &t);
	size_t n;

	if (!inside) {
		t = (struct text){ .buf = ret };
		text_name(&t, SBX_LINK_OUTSIDE, strlen(SBX_LINK_OUTSIDE));
		for (; (n = name_next(&raw)) > 0 && !t.full; raw += n)
			if (!is_up(raw, n))
				text_name(&t, raw, n);
	}
	ret[t.len] = '\0';
	return inside;
}
