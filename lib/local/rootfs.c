/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the skeleton.  Threads: as its bundle; sbx_rootfs_find any. */
#include "local/rootfs.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "local/bundle.h"
#include "local/network.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COPY_MAX 65536 /* bytes of a small file of /etc */

/* of the host, when a box has no root of its own */
static const char *const host_tops[] = { "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

/* folders and files of the host's /etc without which programs from /usr do not work; no secrets in them */
static const char *const host_etc_binds[] = {
	"alternatives", "ld.so.cache", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted",
	"fonts",	"perl",	       "php",	    "lua",
};
/* and those whose names begin so */
static const char *const host_etc_prefixes[] = { "python2", "python3", "java-", "php" };
static const char *const host_etc_copies[] = { "mime.types", "protocols", "services", "localtime",
					       "timezone", "ssl/openssl.cnf", "gai.conf", "inputrc",
					       "os-release", "debian_version" };

/* the first ones are mount points that every root needs; none of them can be a link, see ours() */
static const char *const empty_dirs[] = { "dev",     "proc",    "run",       "tmp",  "workspace", "etc",
					  "etc/ssl", "home",    "root",      "var",  "var/lib",   "var/log",
					  "mnt",     "var/cache", "srv" };
#define EMPTY_DIRS_ALWAYS 5

int sbx_rootfs_file(int dir_fd, const char *name, const char *text, size_t len, mode_t mode)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode), e = 0;

	if (fd < 0)
		return -errno;
	while (len > 0 && e == 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0) {
			e = -errno;
		} else {
			text += n;
			len -= (size_t)n;
		}
	}
	if (fchmod(fd, mode) != 0 && e == 0) /* whatever the umask */
		e = -errno;
	close(fd);
	return e;
}

static int make_dir(int fd, const char *path)
{
	char part[PATH_MAX];
	size_t i, len = strlen(path);

	for (i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdirat(fd, part, 0755) != 0) {
			if (errno != EEXIST)
				return -errno;
		} else if (fchmodat(fd, part, 0755, 0) != 0) { /* whatever the umask */
			return -errno;
		}
	}
	return 0;
}

/* a mount point for something like @source: folder or file; @path has no '/' in front */
static int make_point(int fd, const char *path, const char *source)
{
	char parent[PATH_MAX];
	struct stat st;
	char *slash;
	int r;

	if (stat(source, &st) != 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return make_dir(fd, path);
	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash) {
		*slash = '\0';
		r = make_dir(fd, parent);
		if (r < 0)
			return r;
	}
	r = sbx_rootfs_file(fd, path, "", 0, 0644);
	return r == -EEXIST ? 0 : r;
}

static void copy_small(int fd, const char *name)
{
	char path[PATH_MAX], text[COPY_MAX];
	ssize_t n;
	int from;

	snprintf(path, sizeof(path), "/etc/%s", name);
	from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (from < 0)
		return;
	n = read(from, text, sizeof(text));
	close(from);
	snprintf(path, sizeof(path), "etc/%s", name);
	if (n > 0 && n < COPY_MAX)
		sbx_rootfs_file(fd, path, text, (size_t)n, 0644);
}

/* names are asked of the network's tool: the host's servers may be out of a box's reach */
static int make_resolv(int fd, const char *name, const struct sbx_bundle *b)
{
	char host[COPY_MAX], text[COPY_MAX];
	int from = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = from >= 0 ? read(from, host, sizeof(host) - 1) : -1;

	if (from >= 0)
		close(from);
	host[n > 0 ? n : 0] = '\0';
	return sbx_rootfs_file(fd, name, text, sbx_net_resolv(b->net_tool, host, text, sizeof(text)), 0644);
}

static int make_etc(int fd, const struct sbx_bundle *b)
{
	char text[512];
	size_t i;
	int r, n;

	n = b->root ? snprintf(text, sizeof(text),
			       "root:x:0:0:root:/root:/bin/sh\n"
			       "sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n"
			       "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")
		    : snprintf(text, sizeof(text),
			       "sandbox:x:0:0:sandbox:/workspace:/bin/sh\n"
			       "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n");
	r = sbx_rootfs_file(fd, "etc/passwd", text, (size_t)n, 0644);
	n = snprintf(text, sizeof(text), b->root ? "root:x:0:\ntty:x:5:\nsandbox:x:1000:\nnogroup:x:65534:\n"
						 : "sandbox:x:0:\nnogroup:x:65534:\n");
	if (r == 0)
		r = sbx_rootfs_file(fd, "etc/group", text, (size_t)n, 0644);
	n = snprintf(text, sizeof(text), "passwd: files\ngroup: files\nhosts: files%s\n",
		     b->network == SBX_NET_NONE ? "" : " dns");
	if (r == 0)
		r = sbx_rootfs_file(fd, "etc/nsswitch.conf", text, (size_t)n, 0644);
	n = snprintf(text, sizeof(text), "%s\n", b->hostname);
	if (r == 0)
		r = sbx_rootfs_file(fd, "etc/hostname", text, (size_t)n, 0644);
	n = snprintf(text, sizeof(text), "127.0.0.1 localhost %s\n::1 localhost ip6-localhost\n",
		     b->hostname);
	if (r == 0)
		r = sbx_rootfs_file(fd, "etc/hosts", text, (size_t)n, 0644);
	for (i = 0; i < sizeof(host_etc_copies) / sizeof(host_etc_copies[0]); i++)
		copy_small(fd, host_etc_copies[i]);
	if (b->network == SBX_NET_HOST)
		copy_small(fd, "resolv.conf");
	else if (b->network == SBX_NET_NAT && r == 0)
		r = make_resolv(fd, "etc/resolv.conf", b);
	return r;
}

/* ---- what is bound ---- */

struct bind_fn {
	void (*add)(void *data, const char *dest, const char *source);
	void *data;
};

static void bind_one(const struct bind_fn *f, const char *dest, const char *source)
{
	f->add(f->data, dest, source);
}

static void bind_host_etc(const struct bind_fn *f)
{
	SBX_CLEANUP(sbx_closedirp) DIR *d = opendir("/etc");
	char path[PATH_MAX];
	struct dirent *e;
	struct stat st;
	size_t i;

	for (i = 0; i < sizeof(host_etc_binds) / sizeof(host_etc_binds[0]); i++) {
		snprintf(path, sizeof(path), "/etc/%s", host_etc_binds[i]);
		if (stat(path, &st) == 0)
			bind_one(f, path, path);
	}
	while (d && (e = readdir(d))) {
		for (i = 0; i < sizeof(host_etc_prefixes) / sizeof(host_etc_prefixes[0]); i++) {
			const char *prefix = host_etc_prefixes[i];

			if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || strcmp(e->d_name, "php") == 0)
				continue;
			snprintf(path, sizeof(path), "/etc/%s", e->d_name);
			if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
				bind_one(f, path, path);
		}
	}
}

static bool ours(const char *name)
{
	static const char *const names[] = { "dev", "proc", "run", "sys", "tmp", "workspace", "lost+found" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

/* one entry of the root's top: a link is copied (skeleton), a folder is bound */
static int top_entry(const char *base, const char *name, int skeleton_fd, const struct bind_fn *f)
{
	char source[PATH_MAX], target[PATH_MAX], dest[NAME_MAX + 2];
	struct stat st;
	ssize_t n;

	if (snprintf(source, sizeof(source), "%s/%s", base, name) >= (int)sizeof(source) ||
	    lstat(source, &st) != 0)
		return 0;
	snprintf(dest, sizeof(dest), "/%s", name);
	if (S_ISDIR(st.st_mode)) {
		if (f)
			bind_one(f, dest, source);
		return f ? 0 : make_dir(skeleton_fd, name);
	}
	if (!S_ISLNK(st.st_mode) || f)
		return 0;
	n = readlink(source, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, skeleton_fd, name) == 0 || errno == EEXIST ? 0 : -errno;
}

static int tops(const struct sbx_bundle *b, int skeleton_fd, const struct bind_fn *f)
{
	SBX_CLEANUP(sbx_closedirp) DIR *d = NULL;
	struct dirent *e;
	size_t i;
	int r = 0;

	if (!b->rootfs) {
		for (i = 0; r == 0 && i < sizeof(host_tops) / sizeof(host_tops[0]); i++)
			r = top_entry("", host_tops[i], skeleton_fd, f);
		return r;
	}
	d = opendir(b->rootfs);
	if (!d)
		return -errno;
	while (r == 0 && (e = readdir(d))) {
		if (e->d_name[0] != '.' && !ours(e->d_name))
			r = top_entry(b->rootfs, e->d_name, skeleton_fd, f);
	}
	return r;
}

/* a root of its own has an /etc of its own: our resolv.conf lies over its file, if that is one (and no link) */
static void bind_resolv(const struct sbx_bundle *b, const struct bind_fn *f)
{
	char path[PATH_MAX], source[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/etc/resolv.conf", b->rootfs) < (int)sizeof(path) &&
	    lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	    snprintf(source, sizeof(source), "%s/resolv.conf", b->dir) < (int)sizeof(source))
		bind_one(f, "/etc/resolv.conf", source);
}

void sbx_rootfs_binds(const struct sbx_bundle *b,
		      void (*add)(void *data, const char *dest, const char *source), void *data)
{
	const struct bind_fn f = { add, data };

	tops(b, -1, &f);
	if (!b->rootfs)
		bind_host_etc(&f);
	else if (b->network == SBX_NET_NAT)
		bind_resolv(b, &f);
}

/* mount points for what bind_host_etc() binds */
static void point_for(void *data, const char *dest, const char *source)
{
	make_point(*(int *)data, dest + 1, source);
}

int sbx_rootfs_make(int dir_fd, const struct sbx_bundle *b, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	struct bind_fn points = { point_for, &fd };
	size_t i, n;
	int r = 0;

	if (mkdirat(dir_fd, "rootfs", 0755) != 0)
		return sbx_err_sys(err, errno, "cannot make the root of the container");
	fd = openat(dir_fd, "rootfs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0755) != 0)
		return sbx_err_sys(err, errno, "cannot open the root of the container");
	r = tops(b, fd, NULL);
	if (r < 0)
		return sbx_err_sys(err, -r, "root '%s'", b->rootfs ? b->rootfs : "/usr");
	n = b->rootfs ? EMPTY_DIRS_ALWAYS : sizeof(empty_dirs) / sizeof(empty_dirs[0]);
	for (i = 0; r == 0 && i < n; i++)
		r = make_dir(fd, empty_dirs[i]);
	/* runc gives a tmpfs the mode of the folder that it covers */
	if (r == 0 && fchmodat(fd, "tmp", 01777, 0) != 0)
		r = -errno;
	if (r == 0)
		r = sbx_rootfs_file(fd, &SBX_ROOTFS_INIT[1], "", 0, 0555);
	if (r == 0 && !b->rootfs) {
		r = symlinkat("../tmp", fd, "var/tmp") == 0 ? 0 : -errno;
		if (r == 0)
			r = symlinkat("../run", fd, "var/run") == 0 ? 0 : -errno;
		if (r == 0)
			r = make_etc(fd, b);
		bind_host_etc(&points);
	}
	if (r == 0 && b->rootfs && b->network == SBX_NET_NAT)
		r = make_resolv(dir_fd, "resolv.conf", b);
	return r < 0 ? sbx_err_sys(err, -r, "cannot make the root of the container") : 0;
}

/* "python3.11" has version 3.11; @fd is the program itself, after all links.  Is it @want ("3.11") or newer? */
static bool version_ok(int fd, const char *want)
{
	unsigned int have_major = 0, have_minor = 0, want_major = 0, want_minor = 0;
	char self[64], path[PATH_MAX], *name;
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	name = strrchr(path, '/');
	name = name ? name + strcspn(name, "0123456789") : path;
	if (sscanf(name, "%u.%u", &have_major, &have_minor) < 1 || sscanf(want, "%u.%u", &want_major, &want_minor) < 1)
		return false;
	return have_major > want_major || (have_major == want_major && have_minor >= want_minor);
}

static bool program_in(int root, const char *path, const char *version)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
	SBX_CLEANUP(sbx_closep) int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0001) &&
	       (!version || version_ok(fd, version));
}

const char *sbx_rootfs_find(const char *rootfs, const char *const *names)
{
	static const char *const dirs[] = { "usr/local/bin", "usr/bin", "bin", "usr/local/sbin", "usr/sbin", "sbin" };
	SBX_CLEANUP(sbx_closep) int root = open(rootfs ? rootfs : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1], path[PATH_MAX], *version;
	size_t i, k;

	for (i = 0; root >= 0 && names[i]; i++) {
		if (snprintf(name, sizeof(name), "%s", names[i]) >= (int)sizeof(name))
			continue;
		version = strstr(name, ">=");
		if (version) {
			*version = '\0';
			version += 2;
		}
		if (strchr(name, '/') && program_in(root, name, version))
			return names[i];
		for (k = 0; !strchr(name, '/') && k < sizeof(dirs) / sizeof(dirs[0]); k++) {
			snprintf(path, sizeof(path), "%s/%s", dirs[k], name);
			if (program_in(root, path, version))
				return names[i];
		}
	}
	return NULL;
}
