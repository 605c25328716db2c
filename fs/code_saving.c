/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what readers of results ask about writers: is a save on its way, and is it the reader's own?  Any thread. */
#include "code_file.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/proc.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "fs.h"
#include "gate.h"
#include "language.h"
#include "reply.h"
#include "slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* gone, or a zombie that only waits to be reaped */
static bool thread_gone(pid_t tid)
{
	char path[64], text[512], *p;

	if (tid == 0) /* of another pid namespace: cannot be told, so the longer wait */
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	if (sbx_proc_read(path, text, sizeof(text)) <= 0)
		return true;
	p = strrchr(text, ')');
	return !p || p[1] == '\0' || p[2] == 'Z' || p[2] == 'X';
}

enum sbx_saving sbx_code_saving(struct sbx_slot *slot)
{
	enum sbx_saving saving = SBX_SAVING_NOT;
	struct codes *codes = sbx_codes_of(slot);
	pid_t openers[8];
	unsigned int n = 0;
	struct sbx_list *i, *k;

	if (!codes)
		return SBX_SAVING_NOT;
	sbx_lock(&codes->lock);
	if (codes->dirty_n > 0) {
		sbx_list_for_each (i, &codes->files) {
			struct code_file *file = sbx_container_of(i, struct code_file, link);

			if (!sbx_code_starts_run_locked(file))
				continue;
			sbx_list_for_each (k, &file->handles) {
				struct code_handle *h = sbx_container_of(k, struct code_handle, link);

				if (!h->dirty || h->refused)
					continue;
				if (h->flushed)
					saving = SBX_SAVING_CLOSING;
				else if (saving == SBX_SAVING_NOT)
					saving = SBX_SAVING_WRITING;
				if (!h->flushed && n < 8)
					openers[n++] = h->opener;
			}
		}
	}
	sbx_unlock(&codes->lock);
	while (saving == SBX_SAVING_WRITING && n > 0) {
		if (thread_gone(openers[--n]))
			saving = SBX_SAVING_CLOSING;
	}
	return saving;
}

bool sbx_code_held_by(struct sbx_slot *slot, pid_t pid)
{
	struct codes *codes = sbx_codes_of(slot);
	uint64_t inos[16];
	unsigned int n = 0, k;
	struct sbx_list *i;
	struct dirent *entry;
	char path[64];
	bool found = false;
	DIR *dir;

	if (!codes || pid == 0)
		return false;
	sbx_lock(&codes->lock);
	sbx_list_for_each (i, &codes->files) {
		struct code_file *file = sbx_container_of(i, struct code_file, link);

		if (sbx_code_starts_run_locked(file) && file->latest && n < 16)
			inos[n++] = file->ino;
	}
	sbx_unlock(&codes->lock);
	if (n == 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
	dir = opendir(path);
	if (!dir)
		return false; /* another user's: the bounded wait decides */
	while (!found && (entry = readdir(dir))) {
		char text[512], *line;
		unsigned long long ino;
		unsigned int flags;
		ssize_t len;
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		len = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (len <= 0)
			continue;
		text[len] = '\0';
		line = strstr(text, "flags:");
		if (!line || sscanf(line, "flags: %o", &flags) != 1 || (flags & O_ACCMODE) == O_RDONLY)
			continue;
		line = strstr(text, "\nino:");
		if (!line || sscanf(line, "\nino: %llu", &ino) != 1)
			continue;
		for (k = 0; k < n; k++)
			found = found || inos[k] == ino;
	}
	closedir(dir);
	return found;
}
