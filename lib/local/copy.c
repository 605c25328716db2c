/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the walk over a tree of the host, and what is made of it in a workspace.  Threads: see copy.h. */
#include "local/copy.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 256		   /* two descriptors are open for each folder on the way */
#define PIECE_BYTES (4u * 1024 * 1024) /* between two looks whether to go on */
#define BUF_BYTES (256u * 1024)

/* one walk */
struct walk {
	struct sbx_copy *copy;
	bool count;    /* and copy nothing */
	uint64_t mode; /* of files; UINT64_MAX = theirs */
	char *buf;
	size_t len;
	char path[PATH_MAX]; /* for reasons: where it is now */
	struct sbx_err *err;
};

static int failed(struct walk *w, int e, const char *what)
{
	return sbx_err_sys(w->err, e, "'%s': %s", w->path, what);
}

static int go_on(struct walk *w)
{
	if (w->copy->stop && w->copy->stop(w->copy->data))
		return sbx_err_set(w->err, ECANCELED, "the copy was broken off");
	if (!w->count && w->copy->full && w->copy->full(w->copy->data))
		return sbx_err_set(w->err, ENOSPC,
				   "'%s': the file system of the state folder is down to its reserve", w->path);
	return 0;
}

/* "/" and a name more in the path; the length before it, for leave() */
static size_t enter(struct walk *w, const char *name)
{
	size_t before = w->len;
	int n = snprintf(w->path + w->len, sizeof(w->path) - w->len, "%s%s", name[0] ? "/" : "", name);

	w->len += n > 0 && (size_t)n < sizeof(w->path) - w->len ? (size_t)n : 0;
	w->path[w->len] = '\0';
	return before;
}

static void leave(struct walk *w, size_t before)
{
	w->len = before;
	w->path[before] = '\0';
}

/* owner, permissions and time of something new that is open */
static int dress(struct walk *w, int fd, const struct stat *st, mode_t mode)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, st->st_mtim };

	if (fchown(fd, w->copy->uid, w->copy->gid) != 0)
		return failed(w, errno, "cannot be given to the sandbox's user");
	if (fchmod(fd, mode & 0777) != 0)
		return failed(w, errno, "cannot get its permissions");
	if (futimens(fd, times) != 0)
		return failed(w, errno, "cannot get its time");
	return 0;
}

/* ---- a file's bytes ---- */

/* from @off to @end, by the kernel where it can */
static int copy_piece(struct walk *w, int from, int to, off_t off, off_t end, bool *by_kernel)
{
	while (off < end) {
		size_t want = (size_t)(end - off);
		off_t in = off, out = off;
		ssize_t n = -1, done = 0, k;

		if (*by_kernel) {
			n = copy_file_range(from, &in, to, &out, want, 0);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS &&
			    errno != EPERM)
				return failed(w, errno, "cannot be copied");
			*by_kernel = n >= 0;
		}
		if (!*by_kernel) {
			n = pread(from, w->buf, want < BUF_BYTES ? want : BUF_BYTES, off);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0)
				return failed(w, errno, "cannot be read");
			for (; done < n; done += k) {
				k = pwrite(to, w->buf + done, (size_t)(n - done), off + done);
				if (k < 0 && errno == EINTR)
					k = 0;
				else if (k <= 0)
					return failed(w, k < 0 ? errno : EIO, "cannot be written");
			}
		}
		if (n == 0)
			return sbx_err_set(w->err, EIO, "'%s': became shorter while it was copied", w->path);
		off += n;
	}
	return 0;
}

/* where the next bytes lie at or behind @off, and where they end */
static void next_data(int fd, off_t size, off_t *off, off_t *end)
{
	off_t data = lseek(fd, *off, SEEK_DATA), hole;

	if (data < 0 && errno == ENXIO) { /* only a hole is left */
		*off = *end = size;
		return;
	}
	if (data < 0 || data > size) { /* it does not know holes */
		*end = size;
		return;
	}
	hole = lseek(fd, data, SEEK_HOLE);
	*off = data;
	*end = hole > data && hole < size ? hole : size;
}

static int copy_bytes(struct walk *w, int from, int to, off_t size)
{
	off_t off = 0, end, next;
	bool by_kernel = true;
	int r = 0;

	if (ftruncate(to, size) != 0)
		return failed(w, errno, "cannot be written");
	while (r == 0 && off < size) {
		uint64_t before = (uint64_t)off;

		next_data(from, size, &off, &end);
		for (; r == 0 && off < end; off = next) {
			next = end - off > (off_t)PIECE_BYTES ? off + (off_t)PIECE_BYTES : end;
			r = go_on(w);
			if (r == 0)
				r = copy_piece(w, from, to, off, next, &by_kernel);
			if (r == 0)
				atomic_fetch_add(&w->copy->bytes, (uint64_t)next - before);
			before = (uint64_t)next;
		}
		if (off >= size && before < (uint64_t)size) /* the hole at the end */
			atomic_fetch_add(&w->copy->bytes, (uint64_t)size - before);
	}
	return r;
}

/* a file has no name until it is whole: a copy that is broken off leaves no half of one */
static int copy_file(struct walk *w, int from, const struct stat *st, int to_dir, const char *name)
{
	SBX_CLEANUP(sbx_closep) int to = openat(to_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char self[32];
	int r;

	if (to < 0)
		return failed(w, errno, "cannot be made");
	r = copy_bytes(w, from, to, st->st_size);
	if (r == 0)
		r = dress(w, to, st, w->mode == UINT64_MAX ? st->st_mode : (mode_t)w->mode);
	if (r < 0)
		return r;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", to);
	if (linkat(AT_FDCWD, self, to_dir, name, AT_SYMLINK_FOLLOW) != 0 && errno != EEXIST)
		return failed(w, errno, "cannot be made");
	return 0;
}

/* ---- what there is ---- */

static int copy_link(struct walk *w, int from_dir, const char *name, const struct stat *st, int to_dir, const char *as)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, st->st_mtim };
	char text[PATH_MAX];
	ssize_t n = readlinkat(from_dir, name, text, sizeof(text) - 1);

	if (n < 0)
		return failed(w, errno, "cannot be read");
	text[n] = '\0';
	if (symlinkat(text, to_dir, as) != 0)
		return errno == EEXIST ? 0 : failed(w, errno, "cannot be made");
	if (fchownat(to_dir, as, w->copy->uid, w->copy->gid, AT_SYMLINK_NOFOLLOW) != 0)
		return failed(w, errno, "cannot be given to the sandbox's user");
	utimensat(to_dir, as, times, AT_SYMLINK_NOFOLLOW); /* where links have times */
	return 0;
}

/* the folder @name in @dir, made if it is not there; a descriptor */
static int make_folder(struct walk *w, int dir, const char *name, bool *ret_made)
{
	int fd;

	*ret_made = mkdirat(dir, name, 0700) == 0;
	if (!*ret_made && errno != EEXIST)
		return failed(w, errno, "cannot be made");
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR
			       ? sbx_err_set(w->err, ENOTDIR, "'%s': something that is no folder is in its way", w->path)
			       : failed(w, errno, "cannot be opened in the workspace");
	return fd;
}

static int copy_entry(struct walk *w, int from_dir, const char *name, int to_dir, const char *as, unsigned int depth);

/* what is in @from goes into @to; closes @from */
static int copy_inside(struct walk *w, int from, int to, unsigned int depth)
{
	DIR *d = fdopendir(from);
	struct dirent *e;
	int r = 0;

	if (!d) {
		r = failed(w, errno, "cannot be read");
		close(from);
		return r;
	}
	while (r == 0) {
		size_t before;

		errno = 0;
		e = readdir(d);
		if (!e) {
			r = errno ? failed(w, errno, "cannot be read") : 0;
			break;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		before = enter(w, e->d_name);
		r = copy_entry(w, dirfd(d), e->d_name, to, e->d_name, depth + 1);
		leave(w, before);
	}
	closedir(d);
	return r;
}

/* closes @from; @to_dir, @as: where it goes, "." = the workspace itself */
static int copy_folder(struct walk *w, int from, const struct stat *st, int to_dir, const char *as, unsigned int depth)
{
	SBX_CLEANUP(sbx_closep) int to = -1;
	bool made = false, top = strcmp(as, ".") == 0;
	int r = 0;

	if (depth > DEPTH_MAX)
		r = sbx_err_set(w->err, ELOOP, "'%s': more than %u folders deep", w->path, DEPTH_MAX);
	if (r == 0 && !w->count) {
		to = make_folder(w, to_dir, as, &made);
		r = to < 0 ? to : 0;
		/* one that a copy has left half done may be closed for us */
		if (r == 0 && !top && !made && fchmod(to, 0700) != 0)
			r = failed(w, errno, "cannot be changed in the workspace");
	}
	if (r < 0) {
		close(from);
		return r;
	}
	r = copy_inside(w, from, to, depth);
	if (r == 0 && !w->count && !top)
		r = dress(w, to, st, st->st_mode);
	return r;
}

static int copy_open(struct walk *w, int from, int to_dir, const char *as, unsigned int depth)
{
	struct stat st;
	int r = 0;

	if (fstat(from, &st) != 0) {
		r = failed(w, errno, "cannot be looked at");
		close(from);
		return r;
	}
	atomic_fetch_add(&w->copy->files, 1);
	if (S_ISDIR(st.st_mode))
		return copy_folder(w, from, &st, to_dir, as, depth);
	if (!S_ISREG(st.st_mode))
		r = sbx_err_set(w->err, EINVAL, "'%s': neither a file nor a folder nor a link", w->path);
	else if (strcmp(as, ".") == 0)
		r = sbx_err_set(w->err, EINVAL, "'%s': a file needs a name to be copied to, not '.'", w->path);
	else
		r = copy_file(w, from, &st, to_dir, as);
	close(from);
	return r;
}

static void count_file(struct walk *w, const struct stat *st)
{
	atomic_fetch_add(&w->copy->files, 1);
	atomic_fetch_add(&w->copy->bytes, (uint64_t)st->st_size);
}

static int copy_entry(struct walk *w, int from_dir, const char *name, int to_dir, const char *as, unsigned int depth)
{
	struct stat st;
	int r = go_on(w), fd;

	if (r < 0)
		return r;
	if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return failed(w, errno, "cannot be looked at");
	if (S_ISLNK(st.st_mode)) {
		atomic_fetch_add(&w->copy->files, 1);
		return w->count ? 0 : copy_link(w, from_dir, name, &st, to_dir, as);
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) /* not even opened: that can have effects */
		return sbx_err_set(w->err, EINVAL, "'%s': neither a file nor a folder nor a link", w->path);
	if (w->count && S_ISREG(st.st_mode)) {
		count_file(w, &st);
		return 0;
	}
	/* what it is by now is looked at again */
	fd = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return failed(w, errno, "cannot be opened");
	return copy_open(w, fd, to_dir, as, depth);
}

/* ---- one line of `files` ---- */

/* the folder that @file->to lies in, made on the way; @ret_name: the last name, "." = the workspace itself */
static int walk_to(struct walk *w, const char *to, const char **ret_name)
{
	int dir = fcntl(w->copy->root_fd, F_DUPFD_CLOEXEC, 0), next;
	char name[NAME_MAX + 1];
	const char *slash;
	bool made;

	if (dir < 0)
		return failed(w, errno, "cannot be opened");
	while ((slash = strchr(to, '/'))) {
		snprintf(name, sizeof(name), "%.*s", (int)(slash - to), to);
		next = make_folder(w, dir, name, &made);
		close(dir);
		if (next < 0)
			return next;
		dir = next;
		if (made && (fchown(dir, w->copy->uid, w->copy->gid) != 0 || fchmod(dir, 0755) != 0)) {
			next = failed(w, errno, "cannot be given to the sandbox's user");
			close(dir);
			return next;
		}
		to = slash + 1;
	}
	*ret_name = to;
	return dir;
}

static int one(struct sbx_copy *copy, const struct sbx_template_file *file, bool count, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_freep) char *buf = count ? NULL : malloc(BUF_BYTES);
	struct walk w = { .copy = copy, .count = count, .mode = file->mode, .buf = buf, .err = err };
	SBX_CLEANUP(sbx_closep) int to_dir = -1;
	const char *name = strcmp(file->to, ".") == 0 ? "." : "";
	struct stat st;
	int from;

	if (!buf && !count)
		return sbx_err_set(err, ENOMEM, "no memory to copy '%s'", file->from);
	w.len = (size_t)snprintf(w.path, sizeof(w.path), "%s", file->from);
	if (w.len >= sizeof(w.path))
		return sbx_err_set(err, ENAMETOOLONG, "'%.100s...' is too long", file->from);
	if (!count) {
		to_dir = walk_to(&w, file->to, &name);
		if (to_dir < 0)
			return to_dir;
	}
	/* the path itself is the administrator's: links in it are meant.  Devices are not even opened. */
	if (stat(file->from, &st) != 0)
		return failed(&w, errno, "cannot be copied");
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return sbx_err_set(err, EINVAL, "'%s': neither a file nor a folder", file->from);
	if (count && S_ISREG(st.st_mode)) { /* files are not opened for that: they may be slow */
		count_file(&w, &st);
		return 0;
	}
	from = open(file->from, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (from < 0)
		return failed(&w, errno, "cannot be opened");
	return copy_open(&w, from, to_dir, name, 0);
}

int sbx_copy_count(struct sbx_copy *copy, const struct sbx_template_file *file, struct sbx_err *err)
{
	return one(copy, file, true, err);
}

int sbx_copy_run(struct sbx_copy *copy, const struct sbx_template_file *file, struct sbx_err *err)
{
	return one(copy, file, false, err);
}
