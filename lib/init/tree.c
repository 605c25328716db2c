/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: signals to all descendants of a process, through the box's own /proc.
 * Knows: /proc/PID/stat; "children" of ourselves where the kernel has it.
 */
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MAX 64 /* looks at a tree that keeps changing */

struct proc {
	pid_t pid, parent;
	bool below;   /* a descendant of the root */
	bool skipped; /* belongs to somebody else */
	bool done;    /* got its signal in an earlier round */
};

struct table {
	struct proc *p;
	size_t n, room;
};

/* @state: R S D Z T ... */
static bool read_stat(const char *pid, pid_t *parent, char *state)
{
	char path[64], text[512], *end;
	int fd, ppid;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, ')'); /* a program may call itself ") R 1" */
	if (!end || sscanf(end + 1, " %c %d", state, &ppid) != 2)
		return false;
	*parent = ppid;
	return true;
}

static bool table_add(struct table *t, pid_t pid, pid_t parent)
{
	if (t->n == t->room) {
		size_t room = t->room ? t->room * 2 : 256;
		struct proc *p = realloc(t->p, room * sizeof(*p));

		if (!p)
			return false;
		t->p = p;
		t->room = room;
	}
	t->p[t->n++] = (struct proc){ .pid = pid, .parent = parent };
	return true;
}

static struct proc *table_find(const struct table *t, pid_t pid)
{
	size_t i;

	for (i = 0; i < t->n; i++) {
		if (t->p[i].pid == pid)
			return &t->p[i];
	}
	return NULL;
}

/*
 * Children that hide (not dumpable, where /proc shows only what we may look into): the kernel lists them for
 * their parent.  What is below them comes to us, their subreaper, when they die.
 */
static void look_at_own(struct table *t)
{
	char path[64], text[65536], *at = text, *end;
	int fd, pid;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (;; at = end) {
		pid = (int)strtol(at, &end, 10);
		if (end == at || pid <= 0)
			break;
		if (!table_find(t, pid))
			table_add(t, pid, getpid());
	}
}

static void look(struct table *t)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t parent;
	char state;

	t->n = 0;
	if (!d)
		return;
	while ((e = readdir(d))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		/* zombies count as links of the tree, but need no signal */
		if (read_stat(e->d_name, &parent, &state) &&
		    table_add(t, (pid_t)atoi(e->d_name), parent) && state == 'Z')
			t->p[t->n - 1].done = true;
	}
	closedir(d);
	look_at_own(t);
}

static void mark(struct table *t, pid_t root, bool (*skip)(pid_t pid))
{
	bool more = true;
	size_t i;

	while (more) {
		more = false;
		for (i = 0; i < t->n; i++) {
			struct proc *p = &t->p[i], *up;

			if (p->below || p->skipped || p->pid == root)
				continue;
			if (p->parent == root) {
				p->skipped = skip && skip(p->pid);
				p->below = !p->skipped;
				more = true;
				continue;
			}
			up = table_find(t, p->parent);
			if (up && (up->below || up->skipped)) {
				p->below = up->below;
				p->skipped = up->skipped;
				more = true;
			}
		}
	}
}

/* one look; returns how many new ones got @sig */
static unsigned int round_once(struct table *now, struct table *before, pid_t root, int sig,
			       bool (*skip)(pid_t pid))
{
	unsigned int n = 0;
	size_t i;

	look(now);
	mark(now, root, skip);
	for (i = 0; i < now->n; i++) {
		struct proc *p = &now->p[i], *old;

		if (!p->below || p->done)
			continue;
		old = before ? table_find(before, p->pid) : NULL;
		if (old && old->done) {
			p->done = true;
			continue;
		}
		if (kill(p->pid, sig) == 0)
			n++;
		p->done = true;
	}
	return n;
}

unsigned int sbx_kill_tree(pid_t root, int sig, bool (*skip)(pid_t pid))
{
	struct table a = { 0 }, b = { 0 }, swap;
	unsigned int found = 0, n, rounds;

	if (sig != SIGKILL) {
		found = round_once(&a, NULL, root, sig, skip);
		free(a.p);
		return found;
	}
	for (rounds = 0; rounds < ROUNDS_MAX; rounds++) {
		n = round_once(&b, &a, root, SIGSTOP, skip);
		found += n;
		swap = a;
		a = b;
		b = swap;
		if (n == 0)
			break;
	}
	for (rounds = 0; found > 0 && rounds < ROUNDS_MAX; rounds++) {
		if (round_once(&b, NULL, root, SIGKILL, skip) == 0)
			break;
	}
	free(a.p);
	free(b.p);
	return found;
}
