/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: boxes/NAME and trash/ID of the state directory: made whole or not at all, loaded, changed, swept; and which ranges of ids are taken.
 * Threads: recall main; create, load, save, trash any; sweep a worker.
 */
#include "local/state_own.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "local/record.h"
#include "local/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

void sbx_record_done(struct sbx_record *rec)
{
	free(rec->rootfs);
	free(rec->runtime);
	rec->rootfs = rec->runtime = NULL;
}

static int load(int dir_fd, const char *name, struct sbx_record *ret, int *ret_fd,
		struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int box_fd = -1;
	SBX_CLEANUP(sbx_closep) int json_fd = -1;
	char text[16384];
	ssize_t n;
	int fd, r;

	box_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (box_fd < 0)
		return sbx_err_sys(err, errno, "sandbox '%s'", name);
	json_fd = openat(box_fd, "box.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	n = json_fd >= 0 ? read(json_fd, text, sizeof(text) - 1) : -1;
	if (n < 0)
		return sbx_err_sys(err, errno, "sandbox '%s': cannot read box.json", name);
	text[n] = '\0';
	r = sbx_record_parse(text, ret, err);
	if (r < 0)
		return sbx_err_wrap(err, r, "sandbox '%s': box.json", name);
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->unfilled = faccessat(box_fd, SBX_STATE_UNFILLED, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	*ret_fd = -1;
	if (ret->volume) /* mounted when it is needed */
		return 0;
	fd = openat(box_fd, "workspace", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		r = errno;
		sbx_record_done(ret);
		return sbx_err_sys(err, r, "sandbox '%s': cannot open its workspace", name);
	}
	*ret_fd = fd;
	return 0;
}

static void mark_ids(struct sbx_local_state *s, uint32_t id_base, bool used)
{
	uint32_t slot = (id_base - s->ids_base) / SBX_IDS_PER_BOX;

	if (!s->root || id_base < s->ids_base || slot >= SBX_IDS_SLOTS_MAX)
		return;
	sbx_lock(&s->lock);
	if (used)
		s->ids_used[slot / 8] |= (uint8_t)(1 << slot % 8);
	else
		s->ids_used[slot / 8] &= (uint8_t)~(1 << slot % 8);
	sbx_unlock(&s->lock);
}

/* ranges of boxes that exist, so that no two boxes share one */
static void mark_all_ids(struct sbx_local_state *s, int dir_fd)
{
	char **names;
	size_t n, i;
	int fd;

	if (!s->root || sbx_state_list_dir(dir_fd, &names, &n, NULL) < 0)
		return;
	for (i = 0; i < n; i++) {
		struct sbx_record rec = { 0 };

		if (load(dir_fd, names[i], &rec, &fd, NULL) < 0)
			continue;
		mark_ids(s, rec.id_base, true);
		sbx_closep(&fd);
		sbx_record_done(&rec);
	}
	sbx_state_names_free(names, n);
}

static void remove_half_made(struct sbx_local_state *s)
{
	char **names;
	size_t n, i;

	if (sbx_state_list_dir(s->trash_fd, &names, &n, NULL) < 0)
		return;
	for (i = 0; i < n; i++) {
		if (strncmp(names[i], "new-", 4) != 0)
			continue;
		sbx_volume_unmount(s->trash_fd, names[i]);
		sbx_tree_remove(s->trash_fd, names[i], NULL);
	}
	sbx_state_names_free(names, n);
}

void sbx_state_recall(struct sbx_local_state *s)
{
	remove_half_made(s);
	mark_all_ids(s, s->boxes_fd);
	mark_all_ids(s, s->trash_fd);
}

/* A random place in the range: boxes of several state directories seldom meet, those of one never. */
static int pick_ids(struct sbx_local_state *s, struct sbx_record *rec, struct sbx_err *err)
{
	uint32_t total = s->ids_count / SBX_IDS_PER_BOX, n = 0, tries, slot;
	bool found = false;

	rec->id_base = 0;
	if (!s->root)
		return 0;
	if (total > SBX_IDS_SLOTS_MAX)
		total = SBX_IDS_SLOTS_MAX;
	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		n = (uint32_t)getpid();
	sbx_lock(&s->lock);
	for (tries = 0; tries < total && !found; tries++, n++) {
		slot = n % total;
		found = !(s->ids_used[slot / 8] & (1 << slot % 8));
		if (found) {
			s->ids_used[slot / 8] |= (uint8_t)(1 << slot % 8);
			rec->id_base = s->ids_base + slot * SBX_IDS_PER_BOX;
		}
	}
	sbx_unlock(&s->lock);
	if (!found)
		return sbx_err_set(err, ENOSPC, "no range of user ids is free (%u in all)", total);
	return 0;
}

static int write_record(int box_fd, const struct sbx_record *rec, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_buf_done) struct sbx_buf json = SBX_BUF_INIT;
	int r = sbx_record_format(rec, &json, err);

	if (r < 0)
		return r;
	r = sbx_state_write_file(box_fd, "box.json", json.data, json.len, 0600);
	return r < 0 ? sbx_err_sys(err, -r, "cannot write box.json") : 0;
}

static int fill_new(struct sbx_local_state *s, int box_fd, struct sbx_record *rec, int *ret_fd,
		    struct sbx_err *err)
{
	uid_t owner = s->root ? rec->id_base + 1000 : geteuid();
	gid_t group = s->root ? rec->id_base + 1000 : getegid();
	SBX_CLEANUP(sbx_closep) int fd = -1;
	int r;

	/* where there cannot be one, the box is made without, and says so when it runs */
	rec->volume = rec->limits.disk_bytes != UINT64_MAX && sbx_volume_possible(NULL) == 0;
	if (rec->volume) {
		r = sbx_volume_make(box_fd, rec->limits.disk_bytes, owner, group, err);
		if (r < 0)
			return r;
		fd = sbx_volume_open(box_fd, err);
		if (fd < 0)
			return fd;
	} else {
		if (mkdirat(box_fd, "workspace", 0755) != 0)
			return sbx_err_sys(err, errno, "cannot make the workspace");
		fd = openat(box_fd, "workspace", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return sbx_err_sys(err, errno, "cannot open the workspace");
		if (fchown(fd, owner, group) != 0 || fchmod(fd, 0755) != 0)
			return sbx_err_sys(err, errno, "cannot give the workspace to its user");
	}
	r = write_record(box_fd, rec, err);
	if (r == 0 && rec->unfilled) {
		r = sbx_state_write_file(box_fd, SBX_STATE_UNFILLED, "", 0, 0600);
		if (r < 0)
			sbx_err_sys(err, -r, "cannot write in the sandbox's folder");
	}
	if (r < 0)
		return r;
	*ret_fd = sbx_take_fd(fd);
	return 0;
}

int sbx_state_create(struct sbx_local_state *s, struct sbx_record *rec, int *ret_fd,
		     struct sbx_err *err)
{
	char tmp[32];
	int box_fd, fd = -1, r;
	struct stat st;

	if (fstatat(s->boxes_fd, rec->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return sbx_err_set(err, EEXIST, "sandbox '%s' exists", rec->name);
	sbx_state_random_id(rec->id);
	rec->created = sbx_clock_wall();
	r = pick_ids(s, rec, err);
	if (r < 0)
		return r;
	snprintf(tmp, sizeof(tmp), "new-%s", rec->id);
	if (mkdirat(s->trash_fd, tmp, 0700) != 0 ||
	    (box_fd = openat(s->trash_fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
		r = sbx_err_sys(err, errno, "cannot make a folder in '%s'", s->dir);
	} else {
		r = fill_new(s, box_fd, rec, &fd, err);
		close(box_fd);
	}
	/* whole or not at all: the name appears when everything is there */
	if (r == 0 && syscall(SYS_renameat2, s->trash_fd, tmp, s->boxes_fd, rec->name,
			      RENAME_NOREPLACE) != 0) {
		r = errno == EEXIST ? sbx_err_set(err, EEXIST, "sandbox '%s' exists", rec->name)
				    : sbx_err_sys(err, errno, "cannot make sandbox '%s'", rec->name);
		close(fd);
	}
	if (r < 0) {
		sbx_volume_unmount(s->trash_fd, tmp);
		sbx_tree_remove(s->trash_fd, tmp, NULL);
		mark_ids(s, rec->id_base, false);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int sbx_state_load(struct sbx_local_state *s, const char *name, struct sbx_record *ret, int *ret_fd,
		   struct sbx_err *err)
{
	return load(s->boxes_fd, name, ret, ret_fd, err);
}

static int open_box(struct sbx_local_state *s, const char *name, struct sbx_err *err)
{
	int fd = openat(s->boxes_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? sbx_err_sys(err, errno, "sandbox '%s'", name) : fd;
}

int sbx_state_volume(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int box_fd = open_box(s, rec->name, err);

	if (box_fd < 0)
		return box_fd;
	/* a daemon that was killed may have left it half changed; if it cannot be (in a full one) it is as it was */
	sbx_volume_limit(box_fd, rec->limits.disk_bytes, NULL);
	return sbx_volume_open(box_fd, err);
}

int sbx_state_save(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int box_fd = open_box(s, rec->name, err);

	return box_fd < 0 ? box_fd : write_record(box_fd, rec, err);
}

int sbx_state_volume_limit(struct sbx_local_state *s, const struct sbx_record *rec, uint64_t limit_bytes,
			   struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int box_fd = open_box(s, rec->name, err);

	return box_fd < 0 ? box_fd : sbx_volume_limit(box_fd, limit_bytes, err);
}

int sbx_state_trash(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err)
{
	if (renameat(s->boxes_fd, rec->name, s->trash_fd, rec->id) != 0)
		return sbx_err_sys(err, errno, "cannot move sandbox '%s' to the trash", rec->name);
	return 0;
}

int sbx_state_sweep(struct sbx_local_state *s, const char *id, uint32_t id_base,
		    struct sbx_removal *removal, struct sbx_err *err)
{
	int r;

	r = sbx_volume_empty(s->trash_fd, id, removal);
	if (r == 0)
		r = sbx_tree_remove(s->trash_fd, id, removal);
	if (r == 0)
		mark_ids(s, id_base, false);

	if (r < 0 && r != -ECANCELED)
		sbx_err_sys(err, -r, "cannot delete '%s/trash/%s'", s->dir, id);
	return r;
}
