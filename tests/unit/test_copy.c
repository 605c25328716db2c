/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the tests of lib/local/copy.c: real trees on a real file system. */
#include "unit.h"

#include "base/err.h"
#include "config.h"
#include "local/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64]; /* has from/ and to/ */
static int to_fd;

static const char *at(const char *where, const char *name)
{
	static char path[4][512];
	static unsigned int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s%s%s", dir, where, name);
	return path[i];
}

#define FROM(name) at("/from/", name)
#define TO(name) at("/to/", name)

static int make(void **state)
{
	char text[300];

	(void)state;
	strcpy(dir, "/var/tmp/sbx-copy-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(text, sizeof(text), "mkdir %s/from %s/to", dir, dir);
	if (system(text) != 0)
		return -1;
	to_fd = open(TO(""), O_RDONLY | O_DIRECTORY);
	return to_fd < 0 ? -1 : 0;
}

static int clean(void **state)
{
	char text[300];

	(void)state;
	close(to_fd);
	snprintf(text, sizeof(text), "chmod -R u+rwx %s && rm -rf %s", dir, dir);
	return system(text);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void has(const char *path, const char *text)
{
	char buf[200] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	buf[fread(buf, 1, sizeof(buf) - 1, f)] = '\0';
	fclose(f);
	assert_string_equal(buf, text);
}

/* @ret_all: what was counted before; may be NULL */
static int copy(const char *from, const char *to, uint64_t mode, struct sbx_copy *ret, struct sbx_copy *ret_all,
		struct sbx_err *err)
{
	struct sbx_template_file file = { .from = (char *)from, .to = (char *)to, .mode = mode };
	struct sbx_copy own = { 0 }, *c = ret ? ret : &own;

	c->root_fd = to_fd;
	c->uid = geteuid();
	c->gid = getegid();
	if (ret_all) {
		memset(ret_all, 0, sizeof(*ret_all));
		assert_int_equal(sbx_copy_count(ret_all, &file, err), 0);
	}
	return sbx_copy_run(c, &file, err);
}

static void a_tree_arrives_as_it_is(void **state)
{
	struct sbx_copy c = { 0 }, all;
	struct sbx_err err = SBX_ERR_INIT;
	struct timespec times[2] = { { 1000, 5 }, { 1234567, 890 } };
	char text[64];
	struct stat st;
	ssize_t n;

	mkdir(FROM("d"), 0755);
	mkdir(FROM("d/closed"), 0555);
	mkdir(FROM("d/empty"), 0700);
	put(FROM("d/file"), "text");
	put(FROM("d/prog"), "#!/bin/sh\n");
	chmod(FROM("d/prog"), 06751);
	chmod(FROM("d/closed"), 0755);
	put(FROM("d/closed/inner"), "in");
	chmod(FROM("d/closed"), 0555);
	assert_int_equal(symlink("../../../../etc/passwd", FROM("d/out")), 0);
	assert_int_equal(symlink("nowhere", FROM("d/broken")), 0);
	assert_int_equal(link(FROM("d/file"), FROM("d/hard")), 0);
	utimensat(AT_FDCWD, FROM("d/file"), times, 0);
	utimensat(AT_FDCWD, FROM("d/empty"), times, 0);
	assert_int_equal(copy(FROM("d"), "a/b", UINT64_MAX, &c, &all, &err), 0);
	has(TO("a/b/file"), "text");
	has(TO("a/b/hard"), "text");
	has(TO("a/b/closed/inner"), "in");
	n = readlink(TO("a/b/out"), text, sizeof(text) - 1);
	assert_int_equal(n, 22);
	n = readlink(TO("a/b/broken"), text, sizeof(text) - 1);
	assert_int_equal(n, 7);
	assert_int_equal(stat(TO("a/b/prog"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(stat(TO("a/b/closed"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(stat(TO("a/b/empty"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1234567);
	assert_int_equal(stat(TO("a/b/file"), &st), 0);
	assert_int_equal(st.st_mtim.tv_sec, 1234567);
	assert_int_equal(st.st_mtim.tv_nsec, 890);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(c.files, all.files);
	assert_int_equal(c.files, 9);
	assert_int_equal(c.bytes, all.bytes);
	assert_int_equal(c.bytes, 4 + 4 + 10 + 2);
}

static void a_file_gets_the_mode_that_is_asked_for(void **state)
{
	struct stat st;

	put(FROM("f"), "x");
	assert_int_equal(copy(FROM("f"), "g", 0640, NULL, NULL, NULL), 0);
	assert_int_equal(stat(TO("g"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(copy(FROM("f"), "deep/er/g", UINT64_MAX, NULL, NULL, NULL), 0);
	has(TO("deep/er/g"), "x");
}

static void holes_stay_holes(void **state)
{
	struct sbx_copy c = { 0 }, all;
	struct stat a, b;
	char byte = 0;
	int fd = open(FROM("sparse"), O_RDWR | O_CREAT, 0600);

	assert_int_equal(pwrite(fd, "begin", 5, 0), 5);
	assert_int_equal(pwrite(fd, "middle", 6, 20 << 20), 6);
	assert_int_equal(ftruncate(fd, 100 << 20), 0);
	assert_int_equal(fstat(fd, &a), 0);
	close(fd);
	assert_int_equal(copy(FROM("sparse"), "s", UINT64_MAX, &c, &all, NULL), 0);
	assert_int_equal(stat(TO("s"), &b), 0);
	assert_int_equal(b.st_size, 100 << 20);
	assert_true(b.st_blocks <= a.st_blocks + 64);
	assert_int_equal(c.bytes, 100 << 20);
	assert_int_equal(all.bytes, 100 << 20);
	fd = open(TO("s"), O_RDONLY);
	assert_int_equal(pread(fd, &byte, 1, (20 << 20) + 1), 1);
	assert_int_equal(byte, 'i');
	assert_int_equal(pread(fd, &byte, 1, 10 << 20), 1);
	assert_int_equal(byte, 0);
	close(fd);
}

static void large_files_come_whole(void **state)
{
	char command[400];

	snprintf(command, sizeof(command), "head -c 13000001 /dev/urandom > %s", FROM("big"));
	assert_int_equal(system(command), 0);
	assert_int_equal(copy(FROM("big"), "big", UINT64_MAX, NULL, NULL, NULL), 0);
	snprintf(command, sizeof(command), "cmp %s %s", FROM("big"), TO("big"));
	assert_int_equal(system(command), 0);
	/* of /proc the size is not known and the kernel does not copy: as cp, what stat() says */
	assert_int_equal(copy("/proc/version", "version", UINT64_MAX, NULL, NULL, NULL), 0);
}

static void what_is_there_is_left_alone_and_a_broken_copy_is_finished(void **state)
{
	mkdir(FROM("d"), 0755);
	put(FROM("d/old"), "from");
	put(FROM("d/new"), "from");
	mkdir(TO("d"), 0000); /* as a copy that was broken off leaves it */
	if (geteuid() != 0)
		chmod(TO("d"), 0700);
	put(TO("d/old"), "mine");
	if (geteuid() != 0)
		chmod(TO("d"), 0500);
	assert_int_equal(copy(FROM("d"), "d", UINT64_MAX, NULL, NULL, NULL), 0);
	has(TO("d/old"), "mine");
	has(TO("d/new"), "from");
}

static void the_workspace_itself_can_be_filled(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct stat before, after;

	assert_int_equal(fstat(to_fd, &before), 0);
	mkdir(FROM("d"), 0711);
	put(FROM("d/x"), "1");
	assert_int_equal(copy(FROM("d"), ".", UINT64_MAX, NULL, NULL, NULL), 0);
	has(TO("x"), "1");
	assert_int_equal(fstat(to_fd, &after), 0);
	assert_int_equal(before.st_mode, after.st_mode);
	assert_int_equal(copy(FROM("d/x"), ".", UINT64_MAX, NULL, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "needs a name"));
}

/* in the workspace a link may lie in the way: it must not lead the copy out */
static void no_link_is_followed(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;

	mkdir(FROM("d"), 0755);
	put(FROM("d/x"), "secret");
	mkdir(at("/", "elsewhere"), 0755);
	assert_int_equal(symlink("../elsewhere", TO("trap")), 0);
	assert_int_equal(copy(FROM("d"), "trap", UINT64_MAX, NULL, NULL, &err), -ENOTDIR);
	assert_non_null(strstr(err.text, "no folder is in its way"));
	assert_int_equal(copy(FROM("d"), "trap/deep", UINT64_MAX, NULL, NULL, &err), -ENOTDIR);
	assert_int_equal(copy(FROM("d/x"), "trap/x", UINT64_MAX, NULL, NULL, &err), -ENOTDIR);
	/* a link under the file's own name is something that is there: left alone */
	assert_int_equal(symlink("../elsewhere/x", TO("x")), 0);
	assert_int_equal(copy(FROM("d/x"), "x", UINT64_MAX, NULL, NULL, &err), 0);
	assert_int_equal(access(at("/", "elsewhere/x"), F_OK), -1);
	assert_int_equal(access(at("/", "elsewhere/deep"), F_OK), -1);
	/* but the path that the administrator wrote may be one */
	assert_int_equal(symlink("from/d", at("/", "short")), 0);
	assert_int_equal(copy(at("/", "short"), "y", UINT64_MAX, NULL, NULL, &err), 0);
	has(TO("y/x"), "secret");
}

static void what_is_no_file_is_refused(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;

	mkdir(FROM("d"), 0755);
	assert_int_equal(mkfifo(FROM("d/fifo"), 0644), 0);
	assert_int_equal(copy(FROM("d"), "d", UINT64_MAX, NULL, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "d/fifo': neither a file nor a folder nor a link"));
	assert_int_equal(copy("/dev/null", "n", UINT64_MAX, NULL, NULL, &err), -EINVAL);
	assert_int_equal(copy("/nowhere/at/all", "n", UINT64_MAX, NULL, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "'/nowhere/at/all'"));
}

static bool yes(void *data)
{
	(void)data;
	return true;
}

static bool after_three(void *data)
{
	return ++*(int *)data > 3;
}

static void it_ends_when_it_shall(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_copy c = { .stop = yes };
	struct stat st;
	int calls = 0;

	mkdir(FROM("d"), 0755);
	put(FROM("d/x"), "1");
	assert_int_equal(copy(FROM("d"), "d", UINT64_MAX, &c, NULL, &err), -ECANCELED);
	assert_int_equal(access(TO("d/x"), F_OK), -1);
	c = (struct sbx_copy){ .full = after_three, .data = &calls };
	assert_int_equal(truncate(FROM("d/x"), 0), 0);
	{
		int fd = open(FROM("d/x"), O_WRONLY);
		char block[4096] = { 1 };
		int i;

		for (i = 0; i < 8192; i++)
			assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
		close(fd);
	}
	assert_int_equal(copy(FROM("d"), "d", UINT64_MAX, &c, NULL, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "down to its reserve"));
	assert_int_equal(stat(TO("d/x"), &st), -1); /* no half of a file */
}

static void depth_is_bounded(void **state)
{
	struct sbx_err err = SBX_ERR_INIT;
	int fd = open(FROM(""), O_RDONLY | O_DIRECTORY), i;

	for (i = 0; i < 300; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	close(fd);
	assert_int_equal(copy(FROM("d"), "d", UINT64_MAX, NULL, NULL, &err), -ELOOP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_tree_arrives_as_it_is, make, clean),
		cmocka_unit_test_setup_teardown(a_file_gets_the_mode_that_is_asked_for, make, clean),
		cmocka_unit_test_setup_teardown(holes_stay_holes, make, clean),
		cmocka_unit_test_setup_teardown(large_files_come_whole, make, clean),
		cmocka_unit_test_setup_teardown(what_is_there_is_left_alone_and_a_broken_copy_is_finished, make, clean),
		cmocka_unit_test_setup_teardown(the_workspace_itself_can_be_filled, make, clean),
		cmocka_unit_test_setup_teardown(no_link_is_followed, make, clean),
		cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, make, clean),
		cmocka_unit_test_setup_teardown(it_ends_when_it_shall, make, clean),
		cmocka_unit_test_setup_teardown(depth_is_bounded, make, clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
