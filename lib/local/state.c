/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the state directory.  Threads: open and close main; create any; trash any; sweep a worker.
 * Everything the daemon makes here has mode 0700 or 0600; only workspaces belong to their box.
 */
#include "local/state.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "init/blob.h"
#include "local/record.h"
#include "local/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static void random_id(char ret[9])
{
	uint32_t n = 0;

	while (getrandom(&n, sizeof(n), 0) != sizeof(n))
		;
	snprintf(ret, 9, "%08x", n);
}

/* makes all missing folders of @path with mode 0700 */
static int make_dirs(const char *path, struct sbx_err *err)
{
	char part[PATH_MAX];
	size_t i, len = strlen(path);

	if (len >= sizeof(part) || path[0] != '/')
		return sbx_err_set(err, EINVAL, "state directory '%s': not an absolute path", path);
	for (i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdir(part, 0700) != 0 && errno != EEXIST)
			return sbx_err_sys(err, errno, "cannot make the state directory '%s'", part);
	}
	return 0;
}

/* a folder of ours in @dir_fd; must not be a link or belong to another */
static int own_dir(int dir_fd, const char *name, mode_t mode, int *ret_fd, struct sbx_err *err)
{
	struct stat st;
	int fd;

	if (mkdirat(dir_fd, name, mode) != 0 && errno != EEXIST)
		return sbx_err_sys(err, errno, "cannot make '%s' in the state directory", name);
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return sbx_err_sys(err, errno, "cannot open '%s' in the state directory", name);
	if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || fchmod(fd, mode) != 0) {
		close(fd);
		return sbx_err_set(err, EPERM, "'%s' in the state directory belongs to another user", name);
	}
	*ret_fd = fd;
	return 0;
}

static int lock(struct sbx_local_state *s, struct sbx_err *err)
{
	char text[32] = "";
	ssize_t n;

	s->lock_fd = openat(s->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		return sbx_err_sys(err, errno, "cannot open the lock of '%s'", s->dir);
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK)
			return sbx_err_sys(err, errno, "cannot lock '%s'", s->dir);
		n = pread(s->lock_fd, text, sizeof(text) - 1, 0);
		text[n > 0 ? n : 0] = '\0';
		text[strcspn(text, "\n")] = '\0';
		return sbx_err_set(err, EBUSY,
				   "state directory '%s' is in use by another sbxfs (process %s): unmount that one, "
				   "or give this one its own state_dir in a config file",
				   s->dir, text[0] ? text : "?");
	}
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(s->lock_fd, 0) != 0 || pwrite(s->lock_fd, text, (size_t)n, 0) != n)
		return sbx_err_sys(err, errno, "cannot write the lock of '%s'", s->dir);
	return 0;
}

static int write_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
{
	int fd, e = 0;

	/* under another name first: a half-written file is never seen */
	unlinkat(dir_fd, ".part", 0);
	fd = openat(dir_fd, ".part", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0) {
			e = -errno;
			break;
		}
		data = (const char *)data + n;
		len -= (size_t)n;
	}
	if (e == 0 && fchmod(fd, mode) != 0) /* whatever the umask */
		e = -errno;
	if (close(fd) != 0 && e == 0)
		e = -errno;
	if (e == 0 && renameat(dir_fd, ".part", dir_fd, name) != 0)
		e = -errno;
	return e;
}

static int load_id(struct sbx_local_state *s, struct sbx_err *err)
{
	int fd = openat(s->dir_fd, "id", O_RDONLY | O_NOFOLLOW | O_CLOEXEC), r;
	ssize_t n = fd >= 0 ? read(fd, s->id, 8) : -1;

	if (fd >= 0)
		close(fd);
	s->id[n > 0 ? n : 0] = '\0';
	if (n == 8 && strspn(s->id, "0123456789abcdef") == 8)
		return 0;
	random_id(s->id);
	r = write_file(s->dir_fd, "id", s->id, 8, 0600);
	return r < 0 ? sbx_err_sys(err, -r, "cannot write '%s/id'", s->dir) : 0;
}

static int write_init(struct sbx_local_state *s, struct sbx_err *err)
{
	char name[64];
	struct dirent *e;
	struct stat st;
	size_t len;
	const void *bytes = sbx_init_blob(&len);
	DIR *d;
	int r, fd;

	snprintf(name, sizeof(name), "init-%s", sbx_init_blob_hash());
	if (snprintf(s->init_path, sizeof(s->init_path), "%s/%s", s->dir, name) >=
	    (int)sizeof(s->init_path))
		return sbx_err_set(err, ENAMETOOLONG, "state directory '%s'", s->dir);
	/* those of other versions: no container of theirs is alive when we are through */
	fd = dup(s->dir_fd);
	d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d && fd >= 0)
		close(fd);
	while (d && (e = readdir(d))) {
		if (s->lock_fd >= 0 && strncmp(e->d_name, "init-", 5) == 0 && strcmp(e->d_name, name) != 0)
			unlinkat(s->dir_fd, e->d_name, 0);
	}
	if (d)
		closedir(d);
	if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	    (size_t)st.st_size == len && (st.st_mode & 07777) == 0555 && st.st_uid == geteuid())
		return 0;
	r = write_file(s->dir_fd, name, bytes, len, 0555);
	return r < 0 ? sbx_err_sys(err, -r, "cannot write '%s'", s->init_path) : 0;
}

/* "sbxfs:BASE:COUNT" in /etc/subuid or /etc/subgid */
static bool subids(const char *file, uint32_t *base, uint32_t *count)
{
	SBX_CLEANUP(sbx_fclosep) FILE *f = fopen(file, "re");
	unsigned long b, c;
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "sbxfs:%lu:%lu", &b, &c) == 2 && b >= 65536 &&
		    b + c <= 0xfffffffe && c >= SBX_IDS_PER_BOX) {
			*base = (uint32_t)b;
			*count = (uint32_t)c;
			return true;
		}
	}
	return false;
}

static void find_ids(struct sbx_local_state *s)
{
	uint32_t ub, uc, gb, gc;

	s->ids_base = SBX_IDS_DEFAULT_BASE;
	s->ids_count = SBX_IDS_DEFAULT_COUNT;
	/* one number serves as uid and gid, so both files must have the same range */
	if (subids("/etc/subuid", &ub, &uc) && subids("/etc/subgid", &gb, &gc) && ub == gb && uc == gc) {
		s->ids_base = ub;
		s->ids_count = uc;
	}
}

/* the run directory, made or found, and held: another root daemon removes those that nobody holds */
static int take_run_dir(struct sbx_local_state *s, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int run = -1;
	SBX_CLEANUP(sbx_closep) int top = -1;
	struct stat held, named;
	int r, tries;

	if (!s->root)
		return own_dir(s->dir_fd, "run", 0700, &s->run_fd, err);
	run = open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (run < 0)
		return sbx_err_sys(err, errno, "cannot open /run");
	for (tries = 0; tries < 100; tries++) {
		sbx_closep(&top);
		r = own_dir(run, "sbxfs", 0711, &top, err);
		if (r == 0)
			r = own_dir(top, s->id, 0711, &s->run_fd, err);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0 && flock(s->run_fd, LOCK_SH) == 0 && fstat(s->run_fd, &held) == 0 &&
		    stat(s->run_dir, &named) == 0 && held.st_ino == named.st_ino && held.st_dev == named.st_dev)
			return 0;
		sbx_closep(&s->run_fd); /* it was removed in between */
	}
	return sbx_err_set(err, EBUSY, "it is removed again and again");
}

static int make_run_dir(struct sbx_local_state *s, struct sbx_err *err)
{
	int r;

	if (s->root)
		snprintf(s->run_dir, sizeof(s->run_dir), "%s/%s", SBX_STATE_RUN_ROOT, s->id);
	else if (snprintf(s->run_dir, sizeof(s->run_dir), "%s/run", s->dir) >= (int)sizeof(s->run_dir))
		return sbx_err_set(err, ENAMETOOLONG, "state directory '%s'", s->dir);
	r = take_run_dir(s, err);
	if (r < 0)
		return sbx_err_wrap(err, r, "run directory '%s'", s->run_dir);
	if (mkdirat(s->run_fd, "oci", 0700) != 0 && errno != EEXIST)
		return sbx_err_sys(err, errno, "cannot make '%s/oci'", s->run_dir);
	return 0;
}

static void mark_all_ids(struct sbx_local_state *s, int dir_fd);

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

static int open_state(const char *dir, bool shared, struct sbx_local_state **ret, struct sbx_err *err)
{
	struct sbx_local_state *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return sbx_err_set(err, ENOMEM, "no memory for the state");
	s->dir_fd = s->boxes_fd = s->trash_fd = s->lock_fd = s->run_fd = -1;
	s->root = geteuid() == 0;
	sbx_lock_init(&s->lock);
	snprintf(s->dir, sizeof(s->dir), "%s", dir);
	r = make_dirs(dir, err);
	if (r == 0) {
		s->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s->dir_fd < 0)
			r = sbx_err_sys(err, errno, "cannot open the state directory '%s'", dir);
	}
	if (r == 0 && !shared)
		r = lock(s, err);
	if (r == 0)
		r = load_id(s, err);
	if (r == 0)
		r = own_dir(s->dir_fd, "boxes", 0700, &s->boxes_fd, err);
	if (r == 0)
		r = own_dir(s->dir_fd, "trash", 0700, &s->trash_fd, err);
	if (r == 0)
		r = write_init(s, err);
	if (r == 0)
		r = make_run_dir(s, err);
	if (r < 0) {
		s->run_dir[0] = '\0';
		sbx_state_close(s);
		return r;
	}
	find_ids(s);
	if (!shared) {
		remove_half_made(s);
		mark_all_ids(s, s->boxes_fd);
		mark_all_ids(s, s->trash_fd);
	}
	*ret = s;
	return 0;
}

int sbx_state_open(const char *dir, struct sbx_local_state **ret, struct sbx_err *err)
{
	return open_state(dir, false, ret, err);
}

int sbx_state_open_shared(const char *dir, struct sbx_local_state **ret, struct sbx_err *err)
{
	return open_state(dir, true, ret, err);
}

void sbx_state_close(struct sbx_local_state *s)
{
	char path[PATH_MAX + 8];

	if (!s)
		return;
	if (s->run_dir[0] && flock(s->run_fd, LOCK_EX | LOCK_NB) == 0) { /* nobody else lives here */
		snprintf(path, sizeof(path), "%s/oci", s->run_dir);
		rmdir(path);
		rmdir(s->run_dir);
		if (s->root)
			rmdir(SBX_STATE_RUN_ROOT); /* stays while others use it */
	}
	sbx_closep(&s->run_fd);
	sbx_closep(&s->boxes_fd);
	sbx_closep(&s->trash_fd);
	sbx_closep(&s->dir_fd);
	sbx_closep(&s->lock_fd);
	sbx_lock_done(&s->lock);
	free(s);
}

/* ---- boxes ---- */

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
	r = write_file(box_fd, "box.json", json.data, json.len, 0600);
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
		r = write_file(box_fd, SBX_STATE_UNFILLED, "", 0, 0600);
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
	random_id(rec->id);
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

	return box_fd < 0 ? box_fd : sbx_volume_open(box_fd, err);
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

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int sbx_state_list_dir(int dir_fd, char ***ret, size_t *ret_n, struct sbx_err *err)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	char **names = NULL, **more;
	size_t n = 0, room = 0;
	struct dirent *e;

	if (!d) {
		int saved = errno;

		if (fd >= 0)
			close(fd);
		return sbx_err_sys(err, saved, "cannot read a folder of the state directory");
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		if (n == room) {
			room = room ? room * 2 : 64;
			more = realloc(names, room * sizeof(*names));
			if (!more)
				break;
			names = more;
		}
		names[n] = strdup(e->d_name);
		if (!names[n])
			break;
		n++;
	}
	closedir(d);
	if (e) {
		sbx_state_names_free(names, n);
		return sbx_err_set(err, ENOMEM, "no memory for a list of names");
	}
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	*ret = names;
	*ret_n = n;
	return 0;
}

void sbx_state_names_free(char **names, size_t n)
{
	while (n > 0)
		free(names[--n]);
	free(names);
}

void sbx_record_done(struct sbx_record *rec)
{
	free(rec->rootfs);
	free(rec->runtime);
	rec->rootfs = rec->runtime = NULL;
}
