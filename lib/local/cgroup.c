/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: finding and reading the cgroup of a box.  Any thread, one at a time per object. */
#include "local/cgroup.h"

#include "base/cleanup.h"
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 65536

/* is @name one of the words of the comma-separated @list? */
static bool in_list(const char *list, size_t len, const char *name)
{
	size_t n = strlen(name);

	while (len >= n) {
		const char *comma = memchr(list, ',', len);
		size_t word = comma ? (size_t)(comma - list) : len;

		if (word == n && memcmp(list, name, n) == 0)
			return true;
		if (!comma)
			break;
		list += word + 1;
		len -= word + 1;
	}
	return false;
}

/* the path behind "N:controllers:"; @name "" = the v2 line */
static bool find_path(const char *text, const char *name, const char **ret, size_t *ret_len)
{
	const char *line, *end, *list, *path;

	for (line = text; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		list = memchr(line, ':', (size_t)(end - line));
		if (!list)
			continue;
		list++;
		path = memchr(list, ':', (size_t)(end - list));
		if (!path)
			continue;
		if (*name ? in_list(list, (size_t)(path - list), name)
			  : (path == list && line[0] == '0')) {
			*ret = path + 1;
			*ret_len = (size_t)(end - path - 1);
			return true;
		}
	}
	return false;
}

/* @name "" = the unified hierarchy */
static bool find_mount(const char *text, const char *name, char root[PATH_MAX], char point[PATH_MAX])
{
	const char *line, *end, *dash, *opts;
	char copy[2 * PATH_MAX], type[32];
	size_t len;

	for (line = text; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		len = (size_t)(end - line);
		if (len >= sizeof(copy))
			continue;
		memcpy(copy, line, len);
		copy[len] = '\0';
		dash = strstr(copy, " - ");
		if (!dash || sscanf(dash, " - %31s", type) != 1)
			continue;
		if (strcmp(type, *name ? "cgroup" : "cgroup2") != 0)
			continue;
		opts = strrchr(copy, ' ') + 1;
		if (*name && !in_list(opts, strlen(opts), name))
			continue;
		if (sscanf(copy, "%*s %*s %*s %4095s %4095s", root, point) != 2)
			continue;
		sbx_proc_unescape(root);
		sbx_proc_unescape(point);
		return true;
	}
	return false;
}

static int join(const char *root, const char *point, const char *path, size_t len, char *ret,
		size_t size)
{
	size_t n = strlen(root);

	/* a container's view: the mount shows only what is below @root */
	if (n > 1 && len >= n && memcmp(path, root, n) == 0 && (len == n || path[n] == '/')) {
		path += n;
		len -= n;
	}
	if (len == 1 && path[0] == '/')
		len = 0;
	if (snprintf(ret, size, "%s%.*s", point, (int)len, path) >= (int)size)
		return -ENAMETOOLONG;
	return 0;
}

int sbx_cgroup_dir(const char *proc_cgroup, const char *mountinfo, const char *name, char *ret,
		   size_t size, bool *v2)
{
	char root[PATH_MAX], point[PATH_MAX];
	const char *path;
	size_t len;

	*v2 = false;
	if (find_path(proc_cgroup, name, &path, &len) && find_mount(mountinfo, name, root, point))
		return join(root, point, path, len, ret, size);
	*v2 = true;
	if (find_path(proc_cgroup, "", &path, &len) && find_mount(mountinfo, "", root, point))
		return join(root, point, path, len, ret, size);
	return -ENOENT;
}

bool sbx_cgroup_key(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	while (text && *text) {
		if (strncmp(text, key, n) == 0 && text[n] == ' ') {
			*ret = strtoull(text + n + 1, NULL, 10);
			return true;
		}
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	return false;
}

static char *read_text(const char *path)
{
	char *text = malloc(TEXT_MAX);
	size_t len = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (!text || fd < 0) {
		free(text);
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	while (len < TEXT_MAX - 1 && (n = read(fd, text + len, TEXT_MAX - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(fd);
	return text;
}

void sbx_cgroup_init(struct sbx_cgroup *c)
{
	c->v2_memory = c->v2_cpu = false;
	c->oom_fd = c->memory_fd = c->pids_fd = c->cpu_fd = -1;
}

static int open_in(const char *dir, const char *file)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* the two texts that say where the cgroup of @pid is; the caller frees both.  false: not to be had */
static bool read_place(pid_t pid, char **proc, char **mounts)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	*proc = read_text(path);
	*mounts = read_text("/proc/self/mountinfo");
	return *proc && *mounts;
}

void sbx_cgroup_open(struct sbx_cgroup *c, pid_t pid)
{
	SBX_CLEANUP(sbx_freep) char *proc = NULL;
	SBX_CLEANUP(sbx_freep) char *mounts = NULL;

	sbx_cgroup_done(c);
	if (read_place(pid, &proc, &mounts))
		sbx_cgroup_open_at(c, proc, mounts);
}

void sbx_cgroup_open_at(struct sbx_cgroup *c, const char *proc, const char *mounts)
{
	char dir[PATH_MAX];
	bool v2;

	if (sbx_cgroup_dir(proc, mounts, "memory", dir, sizeof(dir), &v2) == 0) {
		c->v2_memory = v2;
		c->oom_fd = open_in(dir, v2 ? "memory.events" : "memory.oom_control");
		c->memory_fd = open_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
	}
	if (sbx_cgroup_dir(proc, mounts, "pids", dir, sizeof(dir), &v2) == 0)
		c->pids_fd = open_in(dir, "pids.current");
	if (sbx_cgroup_dir(proc, mounts, "cpuacct", dir, sizeof(dir), &v2) == 0) {
		c->v2_cpu = v2;
		c->cpu_fd = open_in(dir, v2 ? "cpu.stat" : "cpuacct.usage");
	}
}

void sbx_cgroup_done(struct sbx_cgroup *c)
{
	sbx_closep(&c->oom_fd);
	sbx_closep(&c->memory_fd);
	sbx_closep(&c->pids_fd);
	sbx_closep(&c->cpu_fd);
	sbx_cgroup_init(c);
}

static bool read_again(int fd, char *text, size_t size)
{
	ssize_t n = fd >= 0 ? pread(fd, text, size - 1, 0) : -1;

	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

uint64_t sbx_cgroup_oom_kills(const struct sbx_cgroup *c)
{
	char text[1024];
	uint64_t n = 0;

	if (read_again(c->oom_fd, text, sizeof(text)))
		sbx_cgroup_key(text, "oom_kill", &n);
	return n;
}

void sbx_cgroup_usage(const struct sbx_cgroup *c, struct sbx_cgroup_usage *ret)
{
	char text[2048];

	ret->memory_bytes = ret->pids = ret->cpu_us = UINT64_MAX;
	if (read_again(c->memory_fd, text, sizeof(text)))
		ret->memory_bytes = strtoull(text, NULL, 10);
	if (read_again(c->pids_fd, text, sizeof(text)))
		ret->pids = strtoull(text, NULL, 10);
	if (read_again(c->cpu_fd, text, sizeof(text))) {
		if (!c->v2_cpu)
			ret->cpu_us = strtoull(text, NULL, 10) / 1000;
		else
			sbx_cgroup_key(text, "usage_usec", &ret->cpu_us);
	}
}

int sbx_cgroup_limit(pid_t pid, const char *controller, uint64_t *ret)
{
	SBX_CLEANUP(sbx_freep) char *proc = NULL;
	SBX_CLEANUP(sbx_freep) char *mounts = NULL;

	if (!read_place(pid, &proc, &mounts))
		return -ENOENT;
	return sbx_cgroup_limit_at(proc, mounts, controller, ret);
}

int sbx_cgroup_limit_at(const char *proc, const char *mounts, const char *controller, uint64_t *ret)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	bool v2, memory = strcmp(controller, "memory") == 0;
	char dir[PATH_MAX], text[64];

	if (sbx_cgroup_dir(proc, mounts, controller, dir, sizeof(dir), &v2) < 0)
		return -ENOENT;
	fd = open_in(dir, !memory ? "pids.max" : v2 ? "memory.max" : "memory.limit_in_bytes");
	if (!read_again(fd, text, sizeof(text)))
		return -ENOENT;
	*ret = strncmp(text, "max", 3) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
	return 0;
}

bool sbx_cgroup_lacks(const char *controllers, char *ret, size_t size)
{
	static const char *const needed[] = { "cpu", "memory", "pids" };
	size_t i, n = 0, k;

	ret[0] = '\0';
	for (i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		const char *word = controllers;
		bool found = false;

		while (*word && !found) {
			word += strspn(word, " \n");
			k = strcspn(word, " \n");
			found = k == strlen(needed[i]) && memcmp(word, needed[i], k) == 0;
			word += k;
		}
		if (!found && n < size)
			n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? ", " : "", needed[i]);
	}
	return n > 0;
}

pid_t sbx_pidfd_pid(int pidfd)
{
	char path[64], text[1024], *at;
	int pid;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	sbx_proc_read(path, text, sizeof(text));
	at = strstr(text, "\nPid:");
	pid = at ? atoi(at + 5) : 0;
	return pid > 0 ? pid : 0;
}
