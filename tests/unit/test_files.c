/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the files part of the local provider on a folder of its own, with the test in the part of the code in the box: it renames,
 * swaps and links behind the provider's back.  No container, no mount.
 */
#include "unit.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "local/fnode.h"
#include "local/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- the box: as much of local.c as files.c asks for ---- */

struct sbx_pbox {
	int fd;
	int refs;
	bool full;
};

static struct sbx_pbox box;

struct sbx_pbox *sbx_local_pbox_get(struct sbx_pbox *b)
{
	b->refs++;
	return b;
}

void sbx_local_pbox_put(struct sbx_pbox *b)
{
	b->refs--;
}

int sbx_local_workspace_fd(struct sbx_pbox *b, struct sbx_err *err)
{
	return b->fd;
}

int sbx_local_discard(struct sbx_pbox *b, int dir_fd, const char *name)
{
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

uint64_t sbx_local_ino(const struct sbx_pbox *b, uint64_t ino)
{
	return ino;
}

uid_t sbx_local_pbox_uid(const struct sbx_pbox *b)
{
	return geteuid() == 0 ? 4242 : geteuid();
}

gid_t sbx_local_pbox_gid(const struct sbx_pbox *b)
{
	return geteuid() == 0 ? 4243 : getegid();
}

bool sbx_local_disk_full(struct sbx_pbox *b)
{
	return b->full;
}

static const struct sbx_file_ops *const ops = &sbx_local_file_ops;
static char base[] = "/tmp/sbx-files-XXXXXX"; /* base/ws is the workspace, base/out lies outside */
static struct sbx_fnode *root;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int begin(void **state)
{
	struct sbx_freq req = { 0 };

	strcpy(base + strlen(base) - 6, "XXXXXX");
	if (!mkdtemp(base) || chdir(base) < 0 || mkdir("ws", 0755) < 0 || mkdir("out", 0755) < 0)
		return -1;
	close(open("out/secret", O_WRONLY | O_CREAT, 0644));
	if (chdir("ws") < 0)
		return -1;
	box.fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	box.full = false;
	if (ops->root(&box, &req) < 0)
		return -1;
	root = req.node;
	return 0;
}

static int end(void **state)
{
	unsigned int folders;
	uint64_t nodes;

	ops->forget(root, 1);
	sbx_fnode_counts(&nodes, &folders);
	close(box.fd);
	if (chdir("/") < 0 || nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0)
		return -1;
	/* nothing is left behind: no fnode, no folder, no reference of the box */
	return nodes == 0 && folders == 0 && box.refs == 0 ? 0 : -1;
}

static void forgetp(struct sbx_fnode **node)
{
	if (*node)
		ops->forget(*node, 1);
}

#define NODE SBX_CLEANUP(forgetp) struct sbx_fnode

/* looks a name up that must be there */
static struct sbx_fnode *lookup(struct sbx_fnode *dir, const char *name)
{
	struct sbx_freq req = { 0 };

	assert_int_equal(ops->lookup(dir, name, &req), 0);
	return req.node;
}

static int getattr(struct sbx_fnode *node, struct sbx_fattr *ret)
{
	struct sbx_freq req = { 0 };
	int r = ops->getattr(node, NULL, &req);

	if (ret)
		*ret = req.attr;
	return r;
}

static int open_node(struct sbx_fnode *node, int flags, struct sbx_fhandle *ret)
{
	struct sbx_freq req = { 0 };
	int r = ops->open(node, flags, &req);

	if (r == 0)
		*ret = req.fh;
	return r;
}

static void put_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* ---- identity ---- */

static void a_name_is_one_fnode_as_long_as_it_is_the_same_file(void **state)
{
	put_file("f", "x");
	{
		NODE *a = lookup(root, "f"), *b = lookup(root, "f");

		assert_ptr_equal(a, b);
		assert_int_equal(unlink("f"), 0);
		assert_int_equal(getattr(a, NULL), -ESTALE);
		put_file("f", "y"); /* often the same inode number */
		assert_int_equal(getattr(a, NULL), -ESTALE);
		NODE *c = lookup(root, "f");
		assert_ptr_not_equal(a, c);
		assert_int_equal(getattr(c, NULL), 0);
	}
}

static void hard_links_are_one_fnode_and_the_newest_name_counts(void **state)
{
	struct sbx_fattr attr;

	put_file("a", "x");
	assert_int_equal(link("a", "b"), 0);
	NODE *a = lookup(root, "a"), *b = lookup(root, "b");

	assert_ptr_equal(a, b);
	assert_int_equal(unlink("a"), 0);
	assert_int_equal(getattr(b, &attr), 0);
	assert_int_equal(attr.nlink, 1);
}

static void a_folder_that_the_box_moved_is_another_fnode_so_the_kernel_never_moves_one(void **state)
{
	assert_int_equal(mkdir("a", 0755), 0);
	assert_int_equal(mkdir("a/b", 0755), 0);
	NODE *a = lookup(root, "a");
	NODE *b = lookup(a, "b");

	assert_int_equal(ops->depth(root), 0);
	assert_int_equal(ops->depth(a), 1);
	assert_int_equal(ops->depth(b), 2);
	assert_int_equal(rename("a/b", "c"), 0);
	NODE *c = lookup(root, "c");
	assert_ptr_not_equal(b, c);
	assert_int_equal(ops->depth(c), 1);
	assert_int_equal(ops->depth(b), 2);
	assert_int_equal(getattr(b, NULL), -ESTALE);
}

static void a_folder_in_use_goes_on_after_it_lost_its_name(void **state)
{
	struct sbx_freq req = { 0 };

	assert_int_equal(mkdir("a", 0755), 0);
	NODE *a = lookup(root, "a");
	assert_int_equal(ops->lookup(a, "none", &req), -ENOENT); /* now it is open */
	assert_int_equal(rename("a", "z"), 0);
	put_file("z/f", "");
	NODE *f = lookup(a, "f");
	assert_int_equal(getattr(f, NULL), 0);
	assert_int_equal(getattr(a, NULL), 0);
}

/* ---- the attack ---- */

static void a_link_in_the_place_of_a_folder_is_never_followed(void **state)
{
	struct sbx_freq req = { 0 };

	assert_int_equal(mkdir("d", 0755), 0);
	NODE *d = lookup(root, "d");
	assert_int_equal(rmdir("d"), 0);
	assert_int_equal(symlink("../out", "d"), 0);
	assert_int_equal(ops->lookup(d, "secret", &req), -ESTALE);
	assert_int_equal(ops->unlink(d, "secret", &req), -ESTALE);
	assert_int_equal(ops->create(d, "new", O_WRONLY, 0644, &req), -ESTALE);
	assert_int_equal(ops->mkdir(d, "new", 0755, &req), -ESTALE);
	assert_int_equal(ops->opendir(d, &req), -ESTALE);
	assert_int_equal(access("../out/secret", F_OK), 0);
	assert_int_equal(access("../out/new", F_OK), -1);
}

static void a_link_in_the_place_of_a_file_is_never_followed(void **state)
{
	const struct sbx_fset cut = { .mask = SBX_FSET_SIZE, .size = 7 };
	const struct sbx_fset mode = { .mask = SBX_FSET_MODE, .mode = 0777 };
	const struct sbx_fset times = { .mask = SBX_FSET_MTIME, .mtime = { 5, 0 } };
	struct sbx_freq req = { 0 };
	struct sbx_fhandle fh;
	struct stat before, after;

	put_file("f", "text");
	assert_int_equal(stat("../out/secret", &before), 0);
	NODE *f = lookup(root, "f");
	assert_int_equal(unlink("f"), 0);
	assert_int_equal(symlink("../out/secret", "f"), 0);
	assert_int_equal(open_node(f, O_RDONLY, &fh), -ESTALE);
	assert_int_equal(open_node(f, O_RDWR | O_TRUNC, &fh), -ESTALE);
	assert_int_equal(ops->setattr(f, NULL, &cut, &req), -ESTALE);
	assert_int_equal(ops->setattr(f, NULL, &mode, &req), -ESTALE);
	assert_int_equal(ops->setattr(f, NULL, &times, &req), -ESTALE);
	assert_int_equal(ops->link(f, root, "g", &req), -ESTALE);
	/* by name: O_CREAT does not go through the link, and tells the kernel to look again */
	assert_int_equal(ops->create(root, "f", O_WRONLY, 0644, &req), -ESTALE);
	assert_int_equal(ops->create(root, "f", O_WRONLY | O_EXCL, 0644, &req), -EEXIST);
	assert_int_equal(stat("../out/secret", &after), 0);
	assert_int_equal(after.st_size, 0);
	assert_int_equal(after.st_mode, before.st_mode);
	assert_int_equal(after.st_mtime, before.st_mtime);
}

static void a_name_with_a_slash_or_dots_is_refused(void **state)
{
	static const char *const names[] = { "", ".", "..", "../out", "a/b", "/etc" };
	struct sbx_freq req = { 0 };
	size_t i;

	for (i = 0; i < COUNT(names); i++) {
		assert_int_equal(ops->lookup(root, names[i], &req), -EINVAL);
		assert_int_equal(ops->create(root, names[i], O_RDWR, 0644, &req), -EINVAL);
		assert_int_equal(ops->mkdir(root, names[i], 0755, &req), -EINVAL);
		assert_int_equal(ops->unlink(root, names[i], &req), -EINVAL);
		assert_int_equal(ops->rename(root, "x", root, names[i], 0, &req), -EINVAL);
	}
}

static void a_fifo_is_not_opened_and_nothing_waits(void **state)
{
	struct sbx_freq req = { 0 };
	struct sbx_fhandle fh;

	alarm(10);
	assert_int_equal(mkfifo("p", 0644), 0);
	NODE *p = lookup(root, "p");
	assert_int_equal(open_node(p, O_RDONLY, &fh), -ENXIO);
	/* swapped in behind the lookup of a file */
	put_file("f", "");
	NODE *f = lookup(root, "f");
	assert_int_equal(rename("p", "f"), 0);
	assert_int_equal(open_node(f, O_RDONLY, &fh), -ESTALE);
	assert_int_equal(open_node(f, O_WRONLY, &fh), -ESTALE);
	assert_int_equal(ops->create(root, "f", O_WRONLY, 0644, &req), -ESTALE);
	assert_int_equal(ops->mknod(root, "c", S_IFCHR | 0644, &req), -EPERM);
	assert_true(req.err.text[0]);
	alarm(0);
}

static atomic_bool swapping;

static void *swapper(void *data)
{
	while (atomic_load(&swapping)) {
		renameat2(AT_FDCWD, "d", AT_FDCWD, "l", RENAME_EXCHANGE);
		renameat2(AT_FDCWD, "f", AT_FDCWD, "k", RENAME_EXCHANGE);
	}
	return NULL;
}

static void while_links_and_folders_are_swapped_nothing_outside_is_touched(void **state)
{
	struct sbx_freq req;
	struct stat st;
	pthread_t thread;
	int i, opened = 0;

	assert_int_equal(mkdir("d", 0755), 0);
	assert_int_equal(symlink("../out", "l"), 0);
	assert_int_equal(symlink("../out/secret", "k"), 0);
	put_file("f", "inside");
	put_file("d/secret", "inside");
	atomic_store(&swapping, true);
	assert_int_equal(pthread_create(&thread, NULL, swapper, NULL), 0);
	for (i = 0; i < 20000; i++) {
		const char *name = i % 2 ? "d" : "f";
		struct sbx_fnode *node;

		req = (struct sbx_freq){ 0 };
		if (ops->lookup(root, name, &req) < 0)
			continue;
		node = req.node;
		if (i % 2) {
			if (ops->lookup(node, "secret", &req) == 0)
				ops->forget(req.node, 1);
			if (ops->create(node, "made", O_RDWR, 0644, &req) == 0) {
				ops->close(req.node, &req.fh);
				ops->forget(req.node, 1);
			}
			ops->unlink(node, "secret2", &req);
		} else if (ops->open(node, O_RDWR | (i % 4 ? O_TRUNC : 0), &req) == 0) {
			struct stat now;

			opened++;
			assert_int_equal(fstat(req.fh.fd, &now), 0);
			assert_int_equal(pwrite(req.fh.fd, "PWNED", 5, 0), 5);
			ops->close(node, &req.fh);
		}
		ops->forget(node, 1);
	}
	atomic_store(&swapping, false);
	pthread_join(thread, NULL);
	assert_true(opened > 0);
	assert_int_equal(stat("../out/secret", &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(access("../out/made", F_OK), -1);
}

/* ---- what tools do ---- */

static void what_is_made_belongs_to_the_box(void **state)
{
	struct sbx_freq req = { 0 };
	struct stat st;
	const char *const names[] = { "f", "d", "l", "p", "r" };
	size_t i;

	assert_int_equal(ops->create(root, "f", O_RDWR, 04755, &req), 0);
	ops->close(req.node, &req.fh);
	ops->forget(req.node, 1);
	assert_int_equal(ops->mkdir(root, "d", 0755, &req), 0);
	ops->forget(req.node, 1);
	assert_int_equal(ops->symlink(root, "l", "/x", &req), 0);
	ops->forget(req.node, 1);
	assert_int_equal(ops->mknod(root, "p", S_IFIFO | 0644, &req), 0);
	ops->forget(req.node, 1);
	assert_int_equal(ops->mknod(root, "r", S_IFREG | 0644, &req), 0);
	ops->forget(req.node, 1);
	for (i = 0; i < COUNT(names); i++) {
		assert_int_equal(lstat(names[i], &st), 0);
		assert_int_equal(st.st_uid, sbx_local_pbox_uid(&box));
		assert_int_equal(st.st_gid, sbx_local_pbox_gid(&box));
		assert_int_equal(st.st_mode & (S_ISUID | S_ISGID), 0);
	}
}

static void an_open_file_without_a_name_can_be_looked_at_changed_and_opened_again(void **state)
{
	const struct sbx_fset set = { .mask = SBX_FSET_MODE | SBX_FSET_MTIME | SBX_FSET_SIZE,
				      .mode = 0600, .size = 3, .mtime = { 77, 0 } };
	struct sbx_freq req = { 0 }, set_req = { 0 };
	struct sbx_fhandle again;

	assert_int_equal(ops->create(root, "f", O_RDWR, 0644, &req), 0);
	NODE *f = req.node;
	assert_int_equal(pwrite(req.fh.fd, "abcdef", 6, 0), 6);
	assert_int_equal(unlink("f"), 0);
	assert_int_equal(ops->setattr(f, &req.fh, &set, &set_req), 0);
	assert_int_equal(set_req.attr.size, 3);
	assert_int_equal(set_req.attr.mode, S_IFREG | 0600);
	assert_int_equal(set_req.attr.mtime.tv_sec, 77);
	assert_int_equal(set_req.attr.nlink, 0);
	assert_int_equal(getattr(f, NULL), 0);
	assert_int_equal(open_node(f, O_RDONLY, &again), 0);
	ops->close(f, &again);
	ops->close(f, &req.fh);
	assert_int_equal(getattr(f, NULL), -ESTALE);
}

static void truncate_works_through_a_handle_for_reading(void **state)
{
	const struct sbx_fset set = { .mask = SBX_FSET_SIZE, .size = 2 };
	struct sbx_freq req = { 0 };
	struct sbx_fhandle fh;

	put_file("f", "abcdef");
	NODE *f = lookup(root, "f");
	assert_int_equal(open_node(f, O_RDONLY, &fh), 0);
	assert_int_equal(ops->setattr(f, &fh, &set, &req), 0);
	assert_int_equal(req.attr.size, 2);
	ops->close(f, &fh);
}

static void rename_takes_the_fnode_along(void **state)
{
	struct sbx_freq req = { 0 };

	assert_int_equal(mkdir("a", 0755), 0);
	assert_int_equal(mkdir("a/b", 0755), 0);
	assert_int_equal(mkdir("c", 0755), 0);
	put_file("f", "");
	NODE *a = lookup(root, "a"), *c = lookup(root, "c"), *f = lookup(root, "f");
	NODE *b = lookup(a, "b");

	/* deeper: links in there are judged as before until the kernel has surely followed */
	assert_int_equal(ops->rename(root, "a", c, "a2", 0, &req), 0);
	assert_int_equal(ops->depth(b), 2);
	NODE *a2 = lookup(c, "a2");
	assert_ptr_equal(a, a2);
	usleep(1100000);
	assert_int_equal(ops->depth(b), 3);
	/* up again: at once */
	assert_int_equal(ops->rename(a, "b", root, "b", RENAME_NOREPLACE, &req), 0);
	assert_int_equal(ops->depth(b), 1);
	assert_int_equal(ops->rename(root, "f", c, "f", 0, &req), 0);
	assert_int_equal(getattr(f, NULL), 0);
	assert_int_equal(ops->rename(root, "b", root, "c", RENAME_NOREPLACE, &req), -EEXIST);
	assert_int_equal(ops->rename(root, "b", root, "c", 4, &req), -EINVAL);
	/* exchange: both */
	assert_int_equal(ops->rename(root, "b", c, "a2", RENAME_EXCHANGE, &req), 0);
	NODE *was_b = lookup(c, "a2"), *was_a = lookup(root, "b");
	assert_ptr_equal(was_b, b);
	assert_ptr_equal(was_a, a);
}

static void a_full_disk_is_told_with_its_reason_and_deleting_still_works(void **state)
{
	struct sbx_freq req = { 0 };

	put_file("f", "");
	box.full = true;
	assert_int_equal(ops->create(root, "g", O_RDWR, 0644, &req), -ENOSPC);
	assert_true(strstr(req.err.text, "reserve") != NULL);
	assert_int_equal(ops->mkdir(root, "g", 0755, &req), -ENOSPC);
	assert_int_equal(ops->room(root, NULL), -ENOSPC);
	assert_int_equal(ops->unlink(root, "f", &req), 0);
}

static void more_folders_than_descriptors_are_closed_and_opened_again(void **state)
{
	struct sbx_fnode *dirs[64], *deep[64];
	unsigned int folders;
	uint64_t nodes;
	char name[16];
	size_t i, round;
	struct sbx_fnode *at = root;

	sbx_fnode_limit(8);
	for (i = 0; i < 64; i++) {
		struct sbx_freq req = { 0 };

		snprintf(name, sizeof(name), "d%zu", i);
		assert_int_equal(mkdir(name, 0755), 0);
		dirs[i] = lookup(root, name);
		assert_int_equal(ops->mkdir(at, "x", 0755, &req), 0);
		at = deep[i] = req.node;
	}
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 64; i++) {
			struct sbx_freq req = { 0 };

			assert_int_equal(ops->lookup(dirs[i], "none", &req), -ENOENT);
			assert_int_equal(ops->lookup(deep[63 - i], "none", &req), -ENOENT);
		}
		sbx_fnode_counts(&nodes, &folders);
		assert_in_range(folders, 1, 8);
	}
	assert_int_equal(ops->depth(deep[63]), 64);
	for (i = 0; i < 64; i++) {
		ops->forget(dirs[i], 1);
		ops->forget(deep[i], 1);
	}
	sbx_fnode_limit(1000);
}

static void a_listing_gives_every_name_once_and_seeks(void **state)
{
	struct sbx_freq req = { 0 };
	struct sbx_fdirent e = { 0 };
	off_t off = 0, middle = 0;
	char name[16], at_middle[NAME_MAX + 1] = "";
	int i, n = 0;

	for (i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put_file(name, "");
	}
	assert_int_equal(ops->opendir(root, &req), 0);
	for (;; off = e.next) {
		assert_int_equal(ops->readdir(req.dir, off, &e, &req), 0);
		if (!e.name)
			break;
		assert_int_equal(e.name[0], 'f');
		if (n++ == 1500) {
			middle = off;
			strcpy(at_middle, e.name);
		}
	}
	assert_int_equal(n, 3000);
	assert_int_equal(ops->readdir(req.dir, middle, &e, &req), 0);
	assert_string_equal(e.name, at_middle);
	/* rewound: sees what is new */
	put_file("f-new", "");
	for (off = 0, n = 0;; off = e.next, n++) {
		assert_int_equal(ops->readdir(req.dir, off, &e, &req), 0);
		if (!e.name)
			break;
	}
	assert_int_equal(n, 3001);
	ops->closedir(req.dir);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(a_name_is_one_fnode_as_long_as_it_is_the_same_file),
		TEST(hard_links_are_one_fnode_and_the_newest_name_counts),
		TEST(a_folder_that_the_box_moved_is_another_fnode_so_the_kernel_never_moves_one),
		TEST(a_folder_in_use_goes_on_after_it_lost_its_name),
		TEST(a_link_in_the_place_of_a_folder_is_never_followed),
		TEST(a_link_in_the_place_of_a_file_is_never_followed),
		TEST(a_name_with_a_slash_or_dots_is_refused),
		TEST(a_fifo_is_not_opened_and_nothing_waits),
		TEST(while_links_and_folders_are_swapped_nothing_outside_is_touched),
		TEST(what_is_made_belongs_to_the_box),
		TEST(an_open_file_without_a_name_can_be_looked_at_changed_and_opened_again),
		TEST(truncate_works_through_a_handle_for_reading),
		TEST(rename_takes_the_fnode_along),
		TEST(a_full_disk_is_told_with_its_reason_and_deleting_still_works),
		TEST(more_folders_than_descriptors_are_closed_and_opened_again),
		TEST(a_listing_gives_every_name_once_and_seeks),
	};

	umask(0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
