/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the tests of lib/local/cgroup.c on recorded files: what hosts with cgroup v2, with both versions (hybrid) and with v1
 * have in /proc/PID/cgroup, /proc/self/mountinfo and in a cgroup's folder.  The folder is a temporary one.
 */
#include "unit.h"

#include "local/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* where a cgroup file system is "mounted" */
static char top[64];

static void put(const char *name, const char *text)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void folder(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", top, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(top, "/tmp/sbx-cgroup-XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command) == 0 ? 0 : -1;
}

/* mountinfo, in which "@" stands for the temporary folder */
static const char *mounts(const char *form)
{
	static char text[4096];
	size_t n = 0;

	for (; *form; form++) {
		assert_true(n + sizeof(top) < sizeof(text));
		if (*form == '@')
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", top);
		else
			text[n++] = *form;
	}
	text[n] = '\0';
	return text;
}

/* of a Debian 12 with systemd; the lines around are as they come */
#define V2_MOUNTS                                                                                                    \
	"22 27 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n"                              \
	"31 22 0:26 / @ rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n" \
	"32 22 0:27 / /sys/fs/pstore rw,nosuid,nodev,noexec,relatime shared:10 - pstore pstore rw\n"
#define V2_PROC "0::/system.slice/sbxfs-1f2e3d4c.scope\n"
#define V2_DIR "system.slice/sbxfs-1f2e3d4c.scope"

/* what a container's cgroup has there, kernel 6.1 */
static void v2_files(void)
{
	folder("system.slice");
	folder(V2_DIR);
	put(V2_DIR "/memory.current", "27127808\n");
	put(V2_DIR "/memory.max", "536870912\n");
	put(V2_DIR "/memory.events", "low 0\nhigh 0\nmax 412\noom 3\noom_kill 2\noom_group_kill 1\n");
	put(V2_DIR "/pids.current", "7\n");
	put(V2_DIR "/pids.max", "320\n");
	put(V2_DIR "/cpu.stat", "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\ncore_sched.force_idle_usec 0\n"
				"nr_periods 100\nnr_throttled 12\nthrottled_usec 450000\nnr_bursts 0\nburst_usec 0\n");
}

static void a_v2_cgroup_is_read(void **state)
{
	struct sbx_cgroup_usage use;
	struct sbx_cgroup c;

	(void)state;
	v2_files();
	sbx_cgroup_init(&c);
	sbx_cgroup_open_at(&c, V2_PROC, mounts(V2_MOUNTS));
	assert_true(c.v2_memory && c.v2_cpu);
	sbx_cgroup_usage(&c, &use);
	assert_int_equal(use.memory_bytes, 27127808);
	assert_int_equal(use.pids, 7);
	assert_int_equal(use.cpu_us, 1234567);
	assert_int_equal(sbx_cgroup_oom_kills(&c), 2);
	/* read again and again through the same descriptors */
	put(V2_DIR "/memory.current", "4096\n");
	put(V2_DIR "/pids.current", "1\n");
	put(V2_DIR "/cpu.stat", "usage_usec 2000000\nuser_usec 1\n");
	put(V2_DIR "/memory.events", "low 0\nhigh 0\nmax 500\noom 10\noom_kill 9\n");
	sbx_cgroup_usage(&c, &use);
	assert_int_equal(use.memory_bytes, 4096);
	assert_int_equal(use.pids, 1);
	assert_int_equal(use.cpu_us, 2000000);
	assert_int_equal(sbx_cgroup_oom_kills(&c), 9);
	sbx_cgroup_done(&c);
	assert_int_equal(c.memory_fd, -1);
	assert_int_equal(sbx_cgroup_oom_kills(&c), 0);
}

static void v2_limits_are_read(void **state)
{
	uint64_t n = 0;

	(void)state;
	v2_files();
	assert_int_equal(sbx_cgroup_limit_at(V2_PROC, mounts(V2_MOUNTS), "memory", &n), 0);
	assert_int_equal(n, 536870912);
	assert_int_equal(sbx_cgroup_limit_at(V2_PROC, mounts(V2_MOUNTS), "pids", &n), 0);
	assert_int_equal(n, 320);
	put(V2_DIR "/memory.max", "max\n");
	put(V2_DIR "/pids.max", "max\n");
	assert_int_equal(sbx_cgroup_limit_at(V2_PROC, mounts(V2_MOUNTS), "memory", &n), 0);
	assert_true(n == UINT64_MAX);
	assert_int_equal(sbx_cgroup_limit_at(V2_PROC, mounts(V2_MOUNTS), "pids", &n), 0);
	assert_true(n == UINT64_MAX);
	assert_int_equal(sbx_cgroup_limit_at("", mounts(V2_MOUNTS), "memory", &n), -ENOENT);
	assert_int_equal(sbx_cgroup_limit_at("0::/gone\n", mounts(V2_MOUNTS), "memory", &n), -ENOENT);
}

/* v2 whose kernel has no memory and pids controller: the files are not there, cpu.stat always is, shorter */
static void a_v2_cgroup_without_controllers_is_unknown_not_zero(void **state)
{
	struct sbx_cgroup_usage use;
	struct sbx_cgroup c;

	(void)state;
	folder("box");
	put("box/cpu.stat", "usage_usec 4711\nuser_usec 4000\nsystem_usec 711\n");
	put("box/cgroup.procs", "1\n");
	sbx_cgroup_init(&c);
	sbx_cgroup_open_at(&c, "0::/box\n", mounts(V2_MOUNTS));
	sbx_cgroup_usage(&c, &use);
	assert_true(use.memory_bytes == UINT64_MAX && use.pids == UINT64_MAX);
	assert_int_equal(use.cpu_us, 4711);
	assert_int_equal(sbx_cgroup_oom_kills(&c), 0);
	sbx_cgroup_done(&c);
}

/* v2 only is mounted, but the kernel still lists v1 hierarchies in /proc/PID/cgroup */
static void v1_hierarchies_that_are_not_mounted_do_not_count(void **state)
{
	static const char proc[] = "9:name=systemd:/\n8:pids:/\n4:memory:/process_api/9beb2dc993f2f777\n"
				   "2:cpuacct:/\n1:cpu:/\n0::/" V2_DIR "\n";
	struct sbx_cgroup_usage use;
	struct sbx_cgroup c;

	(void)state;
	v2_files();
	sbx_cgroup_init(&c);
	sbx_cgroup_open_at(&c, proc, mounts(V2_MOUNTS));
	sbx_cgroup_usage(&c, &use);
	assert_int_equal(use.memory_bytes, 27127808);
	assert_int_equal(use.cpu_us, 1234567);
	sbx_cgroup_done(&c);
}

/* systemd's hybrid layout: controllers in v1, the unified hierarchy beside them and empty */
static void a_hybrid_host_is_read_in_v1(void **state)
{
	static const char hybrid[] = "30 24 0:26 / @/unified rw,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate\n"
				     "31 24 0:27 / @/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
				     "32 24 0:28 / @/cpu,cpuacct rw,nosuid shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
				     "33 24 0:29 / @/pids rw,nosuid shared:12 - cgroup cgroup rw,pids\n";
	static const char proc[] = "12:pids:/box\n11:cpu,cpuacct:/box\n5:memory:/box\n1:name=systemd:/init.scope\n0::/init.scope\n";
	struct sbx_cgroup_usage use;
	struct sbx_cgroup c;
	uint64_t n = 0;
	size_t i;
	static const char *const folders[] = { "unified", "memory", "memory/box", "cpu,cpuacct", "cpu,cpuacct/box", "pids", "pids/box" };

	(void)state;
	for (i = 0; i < COUNT(folders); i++)
		folder(folders[i]);
	put("memory/box/memory.usage_in_bytes", "8192\n");
	put("memory/box/memory.limit_in_bytes", "67108864\n");
	put("memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
	put("cpu,cpuacct/box/cpuacct.usage", "5000999\n");
	put("cpu,cpuacct/box/cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n");
	put("pids/box/pids.current", "3\n");
	put("pids/box/pids.max", "max\n");
	sbx_cgroup_init(&c);
	sbx_cgroup_open_at(&c, proc, mounts(hybrid));
	assert_false(c.v2_memory || c.v2_cpu);
	sbx_cgroup_usage(&c, &use);
	assert_int_equal(use.memory_bytes, 8192);
	assert_int_equal(use.pids, 3);
	assert_int_equal(use.cpu_us, 5000);
	assert_int_equal(sbx_cgroup_oom_kills(&c), 4);
	assert_int_equal(sbx_cgroup_limit_at(proc, mounts(hybrid), "memory", &n), 0);
	assert_int_equal(n, 67108864);
	assert_int_equal(sbx_cgroup_limit_at(proc, mounts(hybrid), "pids", &n), 0);
	assert_true(n == UINT64_MAX);
	sbx_cgroup_done(&c);
}

static void folders_are_found_in_every_layout(void **state)
{
	static const struct {
		const char *what, *proc, *mounts, *name, *dir;
		bool v2;
	} cases[] = {
		{ "v2, at the top", "0::/\n", "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "memory", "/sys/fs/cgroup", true },
		{ "v2, in a user's session", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/sbxfs-1.scope\n",
		  "31 22 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", "pids",
		  "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/user.slice/sbxfs-1.scope", true },
		{ "v2, a part of the tree is mounted (docker)", "0::/docker/4f5e/box\n",
		  "1 2 0:26 /docker/4f5e /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n", "memory", "/sys/fs/cgroup/box", true },
		{ "v2, a folder that only begins alike is none of it", "0::/docker/4f5e9/box\n",
		  "1 2 0:26 /docker/4f5e /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n", "memory",
		  "/sys/fs/cgroup/docker/4f5e9/box", true },
		{ "v2, seen from a namespace of its own", "0::/box\n",
		  "1 2 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n", "cpuacct", "/sys/fs/cgroup/box", true },
		{ "v2, a blank and a backslash in the place", "0::/box\n",
		  "1 2 0:26 / /my\\040cgroup\\134x rw - cgroup2 cgroup rw\n", "memory", "/my cgroup\\x/box", true },
		{ "v2, the last line has no end", "0::/box", "1 2 0:26 / /cg rw - cgroup2 cgroup rw", "memory", "/cg/box", true },
		{ "hybrid, memory in v1", "5:memory:/a\n0::/b\n",
		  "1 2 0:26 / /u rw - cgroup2 cgroup rw\n3 2 0:27 / /m rw - cgroup cgroup rw,memory\n", "memory", "/m/a", false },
		{ "hybrid, pids only in v2", "5:memory:/a\n0::/b\n",
		  "1 2 0:26 / /u rw - cgroup2 cgroup rw\n3 2 0:27 / /m rw - cgroup cgroup rw,memory\n", "pids", "/u/b", true },
		{ "v1, names that contain the name", "7:memory_hugetlb:/x\n5:memory:/a\n",
		  "3 2 0:27 / /h rw - cgroup cgroup rw,memory_hugetlb\n4 2 0:28 / /m rw - cgroup cgroup rw,xattr,memory\n", "memory",
		  "/m/a", false },
		{ "v1, a hierarchy called by its name only", "1:name=systemd:/a\n",
		  "3 2 0:27 / /s rw - cgroup cgroup rw,name=systemd\n", "memory", NULL, false },
		{ "no cgroups at all", "", "22 27 0:20 / /sys rw - sysfs sysfs rw\n", "memory", NULL, false },
		{ "v2 that is not mounted here", "0::/box\n", "22 27 0:20 / /sys rw - sysfs sysfs rw\n", "memory", NULL, false },
		{ "not the text that it should be", "0:\n:::\nx\n", "garbage\n1 2 3 - cgroup2\n\n", "memory", NULL, false },
	};
	char dir[256];
	size_t i;
	bool v2;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		int r = sbx_cgroup_dir(cases[i].proc, cases[i].mounts, cases[i].name, dir, sizeof(dir), &v2);

		if (r != (cases[i].dir ? 0 : -ENOENT))
			fail_msg("%s: %d", cases[i].what, r);
		if (cases[i].dir && (strcmp(dir, cases[i].dir) != 0 || v2 != cases[i].v2))
			fail_msg("%s: %s, v%d", cases[i].what, dir, v2 ? 2 : 1);
	}
	assert_int_equal(sbx_cgroup_dir("0::/a-long-name\n", "1 2 0:26 / /cg rw - cgroup2 cgroup rw\n", "memory", dir, 10, &v2),
			 -ENAMETOOLONG);
}

static void missing_controllers_are_named(void **state)
{
	static const struct {
		const char *controllers, *missing;
	} cases[] = {
		{ "cpuset cpu io memory hugetlb pids rdma misc\n", "" },
		{ "memory pids cpu", "" },
		{ "hugetlb\n", "cpu, memory, pids" },
		{ "", "cpu, memory, pids" },
		{ "cpuset io memory\n", "cpu, pids" }, /* cpuset is not cpu */
		{ "cpu pids\n", "memory" },
	};
	char text[64];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT(cases); i++) {
		assert_int_equal(sbx_cgroup_lacks(cases[i].controllers, text, sizeof(text)), cases[i].missing[0] != '\0');
		assert_string_equal(text, cases[i].missing);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_v2_cgroup_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(v2_limits_are_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_v2_cgroup_without_controllers_is_unknown_not_zero, set_up, tear_down),
		cmocka_unit_test_setup_teardown(v1_hierarchies_that_are_not_mounted_do_not_count, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_hybrid_host_is_read_in_v1, set_up, tear_down),
		cmocka_unit_test(folders_are_found_in_every_layout),
		cmocka_unit_test(missing_controllers_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
