/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the state directory and the run directory.  Threads: main.
 * Everything the daemon makes here has mode 0700 or 0600; only workspaces belong to their box.
 */
#include "local/state_own.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "init/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

void sbx_state_random_id(char ret[9])
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

int sbx_state_write_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode)
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
	sbx_state_random_id(s->id);
	r = sbx_state_write_file(s->dir_fd, "id", s->id, 8, 0600);
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
	r = sbx_state_write_file(s->dir_fd, name, bytes, len, 0555);
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
	if (!shared)
		sbx_state_recall(s);
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
