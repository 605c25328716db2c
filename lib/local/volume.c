/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: volumes, see volume.h.  The only file that knows of loop devices and of ext4. */
#include "local/volume.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "base/spawn.h"
#include "base/text.h"
#include "local/runtime.h"
#include "local/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define IMAGE_EXTRA_BYTES (16u << 20) /* journal and tables of the smallest image */
#define INODE_EVERY_BYTES "8192"
#define SLACK_BYTES (128u << 10)      /* folders, and what tells where a file lies: on top of the limit */
#define SLACK_SHARE 256u	      /* one part in this many */
#define ROOM_BYTES_MAX (14ull << 40) /* more would make images that no file on ext4 can be */
#define GROW_MORE_BYTES (8u << 20)
#define CAPACITY_MIN_BYTES (1ull << 30) /* an image is made so large at least: sparse, so it costs nothing, and ... */
#define CAPACITY_FACTOR 4u		/* ... for so much more: a higher limit then only takes ballast away, but ... */
#define CAPACITY_MORE_BYTES (64ull << 30) /* ... not for more than this: reserving ballast takes time, and mkdir waits */
#define LOOP_TRIES 64 /* somebody else took the free device */
#define MKFS_TIMEOUT_MS 60000
#define RESIZE_IOCTL _IOW('f', 16, uint64_t) /* EXT4_IOC_RESIZE_FS: the headers of older systems lack it */

int sbx_volume_possible(struct sbx_err *err)
{
	char mkfs[PATH_MAX];

	if (geteuid() != 0)
		return sbx_err_set(err, EOPNOTSUPP, "only root can limit disk space (it takes a loop device)");
	if (access("/dev/loop-control", R_OK | W_OK) != 0)
		return sbx_err_set(err, EOPNOTSUPP, "limiting disk space needs loop devices, and there is no "
						    "/dev/loop-control here");
	if (!sbx_runtime_program("mke2fs", mkfs))
		return sbx_err_set(err, EOPNOTSUPP,
				   "limiting disk space needs mke2fs: install the package e2fsprogs");
	return 0;
}

/* ---- sizes ---- */

/* bytes of blocks that a box with this limit may fill; the state's file system is the end in any case */
static uint64_t room_for(int dir_fd, uint64_t limit_bytes)
{
	struct statvfs v;
	uint64_t most = ROOM_BYTES_MAX;

	if (fstatvfs(dir_fd, &v) == 0 && (uint64_t)v.f_blocks * v.f_frsize < most)
		most = (uint64_t)v.f_blocks * v.f_frsize;
	if (limit_bytes > most)
		limit_bytes = most;
	return limit_bytes + limit_bytes / SLACK_SHARE + SLACK_BYTES;
}

/* what a new image has room for: a limit that is raised later can be had without making the file system larger */
static uint64_t capacity_for(int dir_fd, uint64_t limit_bytes)
{
	uint64_t bytes = limit_bytes;

	if (limit_bytes <= CAPACITY_MORE_BYTES / (CAPACITY_FACTOR - 1))
		bytes = limit_bytes * CAPACITY_FACTOR;
	else if (limit_bytes <= UINT64_MAX - CAPACITY_MORE_BYTES)
		bytes = limit_bytes + CAPACITY_MORE_BYTES;
	return room_for(dir_fd, bytes < CAPACITY_MIN_BYTES ? CAPACITY_MIN_BYTES : bytes);
}

/* an image with at least @room bytes of blocks for files: inode tables take 3 percent, 2 are kept by ext4 */
static off_t image_size(uint64_t room)
{
	uint64_t size = room + room / 14 + IMAGE_EXTRA_BYTES;

	_Static_assert((ROOM_BYTES_MAX + ROOM_BYTES_MAX / SLACK_SHARE + SLACK_BYTES) / 14 * 15 + IMAGE_EXTRA_BYTES <
			       (1ull << 44) - BLOCK_BYTES,
		       "a file on ext4 has 2^32 blocks at most");
	return (off_t)((size + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES);
}

/* ---- the loop device ---- */

static int loop_configure(int loop_fd, int image_fd)
{
	struct loop_config config = { .fd = (uint32_t)image_fd, .block_size = 0,
				      .info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO } };

	snprintf((char *)config.info.lo_file_name, sizeof(config.info.lo_file_name), "sbxfs disk.img");
	if (ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
	config.info.lo_flags = LO_FLAGS_AUTOCLEAR; /* not every file system can do direct I/O */
	return ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0 ? 0 : -errno;
}

/* a device for @image_fd; it goes away by itself with the last mount and descriptor */
static int loop_attach(int image_fd, char dev[32], struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int i, n, fd, r = -EBUSY;

	if (control < 0)
		return sbx_err_sys(err, errno, "cannot open /dev/loop-control");
	for (i = 0; i < LOOP_TRIES && r == -EBUSY; i++) {
		n = ioctl(control, LOOP_CTL_GET_FREE);
		if (n < 0)
			return sbx_err_sys(err, errno, "no free loop device");
		snprintf(dev, 32, "/dev/loop%d", n);
		fd = open(dev, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return sbx_err_sys(err, errno, "cannot open '%s'", dev);
		r = loop_configure(fd, image_fd);
		if (r == 0)
			return fd;
		close(fd);
	}
	return sbx_err_sys(err, -r, "cannot set up '%s'", dev);
}

/* the device behind the mounted volume, by its number: nothing that we would have to remember */
static int loop_of(int mount_fd)
{
	char path[64], target[256], dev[300];
	const char *name;
	struct stat st;
	ssize_t n;

	if (fstat(mount_fd, &st) != 0)
		return -errno;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	name = strrchr(target, '/');
	snprintf(dev, sizeof(dev), "/dev/%s", name ? name + 1 : target);
	return open(dev, O_RDWR | O_CLOEXEC);
}

/* ---- making, mounting ---- */

static int make_fs(int image_fd, struct sbx_err *err)
{
	char mkfs[PATH_MAX];
	const char *const argv[] = { mkfs, "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-i",
				     INODE_EVERY_BYTES, "-J", "size=4",
				     "-E", "lazy_itable_init=1,nodiscard,root_owner=0:0", "/proc/self/fd/3", NULL };
	const struct sbx_spawn_fd map = { image_fd, 3 };
	struct sbx_spawn_spec spec = { .argv = argv, .fds = &map, .fds_n = 1, .timeout_ms = MKFS_TIMEOUT_MS,
				       .capture_stdout = true };
	struct sbx_spawn_result result;
	int r;

	if (!sbx_runtime_program("mke2fs", mkfs))
		return sbx_err_set(err, ENOENT, "mke2fs is not there any more: install the package e2fsprogs");
	r = sbx_spawn_wait(&spec, &result, err);
	return r < 0 ? r : sbx_spawn_check(mkfs, &result, err);
}

static bool is_mounted(int dir_fd)
{
	struct statx stx;

	return statx(dir_fd, "disk", AT_SYMLINK_NOFOLLOW, 0, &stx) == 0 &&
	       (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static int mount_image(int dir_fd, int image_fd, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int loop_fd = -1;
	char dev[32], path[64];
	int r = loop_attach(image_fd, dev, err);

	if (r < 0)
		return r;
	loop_fd = r;
	snprintf(path, sizeof(path), "/proc/self/fd/%d/disk", dir_fd);
	/* discard: what the box deletes is free on the host, too; the tables of a new sparse file are zero already */
	if (mount(dev, path, "ext4", MS_NOSUID | MS_NODEV, "discard,noinit_itable,errors=remount-ro") != 0)
		return sbx_err_sys(err, errno, "cannot mount the disk image on %s", dev);
	return 0;
}

/* the mounted root of the volume, or -errno */
static int open_mounted(int dir_fd, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int image_fd = -1;
	int fd, r;

	if (!is_mounted(dir_fd)) {
		image_fd = openat(dir_fd, "disk.img", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
		if (image_fd < 0)
			return sbx_err_sys(err, errno, "cannot open the disk image");
		r = mount_image(dir_fd, image_fd, err);
		if (r < 0)
			return r;
	}
	fd = openat(dir_fd, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? sbx_err_sys(err, errno, "cannot open the volume") : fd;
}

int sbx_volume_open(int dir_fd, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int root = open_mounted(dir_fd, err);
	int fd;

	if (root < 0)
		return root;
	fd = openat(root, "workspace", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? sbx_err_sys(err, errno, "cannot open the workspace") : fd;
}

int sbx_volume_empty(int dir_fd, const char *name, struct sbx_removal *removal)
{
	SBX_CLEANUP(sbx_closep) int box_fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	SBX_CLEANUP(sbx_closep) int root = -1;
	int r;

	if (box_fd < 0 || !is_mounted(box_fd))
		return 0;
	root = openat(box_fd, "disk", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = root < 0 ? -errno : sbx_tree_remove(root, "workspace", removal);
	sbx_volume_unmount(dir_fd, name); /* broken off, too: the rest goes with the image, at the next open */
	return r == -ECANCELED ? r : 0;
}

void sbx_volume_unmount(int dir_fd, const char *name)
{
	char path[64 + NAME_MAX];

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s/disk", dir_fd, name);
	umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* ---- the limit ---- */

struct sizes {
	uint64_t usable, free; /* of the file system, bytes of blocks that files may fill */
	uint64_t ballast;
};

static int look(int root, int ballast_fd, struct sizes *ret, struct sbx_err *err)
{
	struct statvfs v;
	struct stat st;

	if (fstatvfs(root, &v) != 0 || fstat(ballast_fd, &st) != 0)
		return sbx_err_sys(err, errno, "cannot look at the volume");
	ret->free = (uint64_t)v.f_bavail * v.f_frsize;
	ret->usable = (uint64_t)(v.f_blocks - (v.f_bfree - v.f_bavail)) * v.f_frsize;
	ret->ballast = (uint64_t)st.st_blocks * 512;
	return 0;
}

/* the file system and what is under it, @more_bytes larger; if it fails no smaller than before, and whole */
static int grow(int dir_fd, int root, uint64_t more_bytes, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int image_fd = openat(dir_fd, "disk.img", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	SBX_CLEANUP(sbx_closep) int loop_fd = loop_of(root);
	struct stat st;
	uint64_t blocks;
	bool resized;
	off_t size;
	int r;

	if (image_fd < 0 || loop_fd < 0 || fstat(image_fd, &st) != 0)
		return sbx_err_sys(err, errno, "cannot open the disk image");
	size = image_size((uint64_t)st.st_size + more_bytes + GROW_MORE_BYTES - IMAGE_EXTRA_BYTES);
	blocks = (uint64_t)size / BLOCK_BYTES;
	resized = false;
	if (ftruncate(image_fd, size) == 0 && ioctl(loop_fd, LOOP_SET_CAPACITY) == 0) {
		if (ioctl(root, RESIZE_IOCTL, &blocks) == 0)
			return 0;
		resized = errno != EPERM; /* a part of it, maybe: then it needs the room */
	}
	r = errno;
	if (resized)
		return sbx_err_sys(err, r, "cannot make the volume larger");
	if (ftruncate(image_fd, st.st_size) != 0 || ioctl(loop_fd, LOOP_SET_CAPACITY) != 0)
		return sbx_err_sys(err, errno, "cannot put the disk image back to its size");
	if (r == EPERM) /* root of a container often lacks it */
		return sbx_err_set(err, EOPNOTSUPP, "a limit of so much more than at first needs CAP_SYS_RESOURCE, "
						    "which sbxfs does not have here");
	return sbx_err_sys(err, r, "cannot make the volume larger");
}

static int set_limit(int dir_fd, int root, uint64_t limit_bytes, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int fd = openat(root, "ballast", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	uint64_t room = room_for(dir_fd, limit_bytes), used, ballast;
	char text[SBX_TEXT_NUMBER_MAX];
	struct sizes s;
	int r;

	if (fd < 0)
		return sbx_err_sys(err, errno, "cannot open the volume's ballast");
	r = look(root, fd, &s, err);
	if (r == 0 && s.usable < room) {
		r = grow(dir_fd, root, room - s.usable, err);
		if (r == 0)
			r = look(root, fd, &s, err);
		if (r == 0 && s.usable < room)
			r = sbx_err_set(err, EIO, "the volume did not grow far enough");
	}
	if (r < 0)
		return r;
	used = s.usable - s.free - s.ballast;
	if (used > room)
		return sbx_err_set(err, EBUSY, "%s are in use in the workspace: delete files first",
				   sbx_text_short_size(used, text));
	ballast = (s.usable - room) / BLOCK_BYTES * BLOCK_BYTES;
	if (ftruncate(fd, ballast < s.ballast ? (off_t)ballast : (off_t)s.ballast) != 0 ||
	    (ballast > 0 && fallocate(fd, 0, 0, (off_t)ballast) != 0)) {
		r = errno;
		if (r != ENOSPC) /* else the box writes at this moment */
			return sbx_err_sys(err, r, "cannot limit the volume");
		if (ftruncate(fd, (off_t)s.ballast) != 0)
			return sbx_err_sys(err, errno, "cannot limit the volume");
		return sbx_err_set(err, EBUSY, "the workspace is growing: delete files first");
	}
	return 0;
}

int sbx_volume_limit(int dir_fd, uint64_t limit_bytes, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int root = open_mounted(dir_fd, err);

	return root < 0 ? root : set_limit(dir_fd, root, limit_bytes, err);
}

int sbx_volume_make(int dir_fd, uint64_t limit_bytes, uid_t uid, gid_t gid, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int image_fd = -1;
	SBX_CLEANUP(sbx_closep) int root = -1;
	SBX_CLEANUP(sbx_closep) int workspace = -1;
	int r;

	image_fd = openat(dir_fd, "disk.img", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (image_fd < 0 || ftruncate(image_fd, image_size(capacity_for(dir_fd, limit_bytes))) != 0 ||
	    mkdirat(dir_fd, "disk", 0700) != 0)
		return sbx_err_sys(err, errno, "cannot make the disk image");
	r = make_fs(image_fd, err);
	if (r == 0)
		r = root = open_mounted(dir_fd, err);
	if (r < 0)
		return r;
	if (mkdirat(root, "workspace", 0755) != 0 ||
	    (workspace = openat(root, "workspace", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
	    fchown(workspace, uid, gid) != 0 || fchmod(workspace, 0755) != 0 || fchmod(root, 0755) != 0)
		return sbx_err_sys(err, errno, "cannot make the workspace");
	return set_limit(dir_fd, root, limit_bytes, err);
}
