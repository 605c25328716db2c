/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: looking at the mount table.  Any thread. */
#include "mounts.h"

#include "base/cleanup.h"
#include "base/proc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* @path NULL: is there a line with @id?  else the ID of the last line on @path.  @ret_ours: is that one of sbxfs? */
static int64_t search(const char *path, int64_t id, bool *ret_read, bool *ret_ours)
{
	SBX_CLEANUP(sbx_fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
	SBX_CLEANUP(sbx_freep) char *line = NULL;
	int64_t found = -1;
	size_t room = 0;

	*ret_read = f != NULL;
	while (f && getline(&line, &room, f) > 0) {
		SBX_CLEANUP(sbx_freep) char *where = NULL;
		int64_t this_id;

		if (sscanf(line, "%" SCNd64 " %*d %*s %*s %ms", &this_id, &where) != 2)
			continue;
		if (!path && this_id == id)
			return id;
		sbx_proc_unescape(where);
		if (path && strcmp(where, path) == 0) {
			found = this_id;
			*ret_ours = strstr(line, " - fuse.sbxfs ") != NULL;
		}
	}
	return found;
}

int64_t sbx_mounts_find(const char *path)
{
	bool was_read, ours;

	return search(path, -1, &was_read, &ours);
}

bool sbx_mounts_ours(const char *path)
{
	bool was_read, ours = false;

	search(path, -1, &was_read, &ours);
	return ours;
}

bool sbx_mounts_has(int64_t id)
{
	bool was_read, ours;
	int64_t found = search(NULL, id, &was_read, &ours);

	return found == id || !was_read;
}
