/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: config.json.  The root's skeleton is rootfs.c.
 * Threads: the loop and the prober, each with bundles of its own.
 */
#include "local/bundle.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "init/protocol.h"
#include "local/rootfs.h"
#include "local/seccomp.h"
#include "local/state.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TMP_BYTES_UNLIMITED (512ull << 20) /* /tmp of a box without a memory limit */
#define CPU_PERIOD_US 100000
#define NOFILE_SOFT 65536u
#define NOFILE_HARD 1048576u

/* what docker hides, too */
static const char *const masked[] = {
	"/proc/acpi",	       "/proc/asound",	     "/proc/kcore", "/proc/keys",
	"/proc/key-users",     "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
	"/proc/sched_debug",   "/proc/scsi",
};
static const char *const readonly_paths[] = { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
					      "/proc/sysrq-trigger" };
static const char *const caps_root[] = { "CAP_SETUID", "CAP_SETGID", "CAP_KILL" };

static cJSON *string_list(const char *const *names, size_t n)
{
	cJSON *list = cJSON_CreateArray();
	size_t i;

	for (i = 0; i < n; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(names[i]));
	return list;
}

/* @options: comma-separated */
static void add_mount(cJSON *mounts, const char *dest, const char *type, const char *source,
		      const char *options)
{
	cJSON *m = cJSON_CreateObject(), *list;
	SBX_CLEANUP(sbx_freep) char *copy = strdup(options);
	char *word, *save = NULL;

	cJSON_AddItemToArray(mounts, m);
	cJSON_AddStringToObject(m, "destination", dest);
	cJSON_AddStringToObject(m, "type", type);
	cJSON_AddStringToObject(m, "source", source);
	list = cJSON_AddArrayToObject(m, "options");
	for (word = copy ? strtok_r(copy, ",", &save) : NULL; word; word = strtok_r(NULL, ",", &save))
		cJSON_AddItemToArray(list, cJSON_CreateString(word));
}

static void add_bind_ro(void *mounts, const char *dest, const char *source)
{
	add_mount(mounts, dest, "bind", source, "rbind,ro,nosuid,nodev");
}

static void add_tmpfs(cJSON *mounts, const char *dest, uint64_t bytes, const char *rest)
{
	char options[160];

	/* inodes are kernel memory that is hard to see: one for each 4K is plenty */
	snprintf(options, sizeof(options), "nosuid,nodev,size=%" PRIu64 ",nr_inodes=%" PRIu64 "%s", bytes,
		 bytes / 4096 < 1024 ? (uint64_t)1024 : bytes / 4096, rest);
	add_mount(mounts, dest, "tmpfs", "tmpfs", options);
}

static void add_mounts(cJSON *config, const struct sbx_bundle *b)
{
	cJSON *mounts = cJSON_AddArrayToObject(config, "mounts");
	uint64_t tmp = b->limits->memory_bytes == UINT64_MAX ? TMP_BYTES_UNLIMITED
							      : b->limits->memory_bytes / 2;

	/* an ordinary user's programs have the uid of the init: hide what they may not look into */
	add_mount(mounts, "/proc", "proc", "proc", b->root ? "nosuid,noexec,nodev" : "nosuid,noexec,nodev,hidepid=2");
	add_mount(mounts, "/dev", "tmpfs", "tmpfs", "ro,nosuid,noexec,mode=755,size=65536");
	add_mount(mounts, "/dev/pts", "devpts", "devpts",
		  b->root ? "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"
			  : "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620");
	add_tmpfs(mounts, "/dev/shm", tmp, ",noexec,mode=1777");
	add_tmpfs(mounts, "/tmp", tmp, ",mode=1777");
	add_tmpfs(mounts, "/run", tmp / 2, ",mode=755");
	sbx_rootfs_binds(b, add_bind_ro, mounts);
	add_bind_ro(mounts, SBX_ROOTFS_INIT, b->init_path);
	add_mount(mounts, SBX_INIT_WORKSPACE, "bind", b->workspace, "bind,rw,nosuid,nodev");
}

static void add_rlimit(cJSON *list, const char *type, uint64_t soft, uint64_t hard)
{
	cJSON *r = cJSON_CreateObject();

	cJSON_AddItemToArray(list, r);
	cJSON_AddStringToObject(r, "type", type);
	cJSON_AddNumberToObject(r, "soft", (double)soft);
	cJSON_AddNumberToObject(r, "hard", (double)hard);
}

static void add_process(cJSON *config, const struct sbx_bundle *b)
{
	static const char *const args[] = { SBX_ROOTFS_INIT };
	static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin" };
	static const char *const sets[] = { "bounding", "effective", "permitted" };
	cJSON *p = cJSON_AddObjectToObject(config, "process"), *user, *caps, *limits;
	struct rlimit nofile = { NOFILE_SOFT, NOFILE_HARD };
	size_t i;

	cJSON_AddBoolToObject(p, "terminal", false);
	user = cJSON_AddObjectToObject(p, "user");
	cJSON_AddNumberToObject(user, "uid", 0);
	cJSON_AddNumberToObject(user, "gid", 0);
	cJSON_AddItemToObject(p, "args", string_list(args, 1));
	cJSON_AddItemToObject(p, "env", string_list(env, 1));
	cJSON_AddStringToObject(p, "cwd", "/");
	caps = cJSON_AddObjectToObject(p, "capabilities");
	for (i = 0; i < 3; i++)
		cJSON_AddItemToObject(caps, sets[i], string_list(caps_root, b->root ? 3 : 0));
	limits = cJSON_AddArrayToObject(p, "rlimits");
	getrlimit(RLIMIT_NOFILE, &nofile); /* cannot be raised by an ordinary user */
	if (nofile.rlim_max > NOFILE_HARD)
		nofile.rlim_max = NOFILE_HARD;
	add_rlimit(limits, "RLIMIT_NOFILE", nofile.rlim_max < NOFILE_SOFT ? nofile.rlim_max : NOFILE_SOFT,
		   nofile.rlim_max);
	add_rlimit(limits, "RLIMIT_CORE", 0, 0);
	cJSON_AddBoolToObject(p, "noNewPrivileges", true);
}

static void add_mapping(cJSON *linux_, const char *key, const struct sbx_bundle *b, uint32_t own)
{
	cJSON *list = cJSON_AddArrayToObject(linux_, key), *m = cJSON_CreateObject();

	cJSON_AddItemToArray(list, m);
	cJSON_AddNumberToObject(m, "containerID", 0);
	cJSON_AddNumberToObject(m, "hostID", b->root ? b->id_base : own);
	cJSON_AddNumberToObject(m, "size", b->root ? SBX_IDS_PER_BOX : 1);
}

/* @all: also say of what has no limit that it has none (-1) */
static void add_limits(cJSON *r, const struct sbx_limits *l, bool all)
{
	cJSON *part;

	if (all || l->memory_bytes != UINT64_MAX) {
		double limit = l->memory_bytes == UINT64_MAX ? -1 : (double)l->memory_bytes;

		part = cJSON_AddObjectToObject(r, "memory");
		cJSON_AddNumberToObject(part, "limit", limit);
		/* memory and swap together: no swap.  v1 kernels without swap accounting lack the file. */
		if (access("/sys/fs/cgroup/memory", F_OK) != 0 ||
		    access("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", F_OK) == 0)
			cJSON_AddNumberToObject(part, "swap", limit);
	}
	if (all || l->cpu_milli != UINT64_MAX) {
		part = cJSON_AddObjectToObject(r, "cpu");
		cJSON_AddNumberToObject(part, "period", CPU_PERIOD_US);
		cJSON_AddNumberToObject(part, "quota", l->cpu_milli == UINT64_MAX ? -1 : (double)l->cpu_milli * (CPU_PERIOD_US / 1000));
	}
	if (all || l->pids != UINT64_MAX) {
		part = cJSON_AddObjectToObject(r, "pids");
		cJSON_AddNumberToObject(part, "limit", l->pids == UINT64_MAX ? -1 : (double)(l->pids + SBX_BUNDLE_PIDS_EXTRA));
	}
}

static void add_resources(cJSON *linux_, const struct sbx_bundle *b)
{
	cJSON *r = cJSON_AddObjectToObject(linux_, "resources");

	if (b->root && b->with_limits) {
		cJSON *devices = cJSON_AddArrayToObject(r, "devices"), *all = cJSON_CreateObject();

		cJSON_AddItemToArray(devices, all);
		cJSON_AddBoolToObject(all, "allow", false);
		cJSON_AddStringToObject(all, "access", "rwm");
	}
	if (b->with_limits)
		add_limits(r, b->limits, false);
}

char *sbx_bundle_resources(const struct sbx_limits *limits)
{
	cJSON *r = cJSON_CreateObject();
	char *text;

	add_limits(r, limits, true);
	text = cJSON_PrintUnformatted(r);
	cJSON_Delete(r);
	return text;
}

static void add_linux(cJSON *config, const struct sbx_bundle *b)
{
	static const char *const types[] = { "pid", "ipc", "uts", "mount", "user", "cgroup", "network" };
	cJSON *l = cJSON_AddObjectToObject(config, "linux"), *list, *ns;
	size_t i, n = sizeof(types) / sizeof(types[0]);

	if (b->network == SBX_NET_HOST)
		n--;
	list = cJSON_AddArrayToObject(l, "namespaces");
	for (i = 0; i < n; i++) {
		if (strcmp(types[i], "cgroup") == 0 && access("/proc/self/ns/cgroup", F_OK) != 0)
			continue;
		ns = cJSON_CreateObject();
		cJSON_AddItemToArray(list, ns);
		cJSON_AddStringToObject(ns, "type", types[i]);
	}
	add_mapping(l, "uidMappings", b, geteuid());
	add_mapping(l, "gidMappings", b, getegid());
	if (b->cgroups_path)
		cJSON_AddStringToObject(l, "cgroupsPath", b->cgroups_path);
	add_resources(l, b);
	cJSON_AddItemToObject(l, "seccomp", sbx_seccomp_json());
	cJSON_AddItemToObject(l, "maskedPaths",
			      string_list(masked, sizeof(masked) / sizeof(masked[0])));
	cJSON_AddItemToObject(
		l, "readonlyPaths",
		string_list(readonly_paths, sizeof(readonly_paths) / sizeof(readonly_paths[0])));
}

static char *config_text(const struct sbx_bundle *b)
{
	cJSON *c = cJSON_CreateObject(), *root;
	char *text;

	cJSON_AddStringToObject(c, "ociVersion", "1.0.2");
	add_process(c, b);
	root = cJSON_AddObjectToObject(c, "root");
	cJSON_AddStringToObject(root, "path", "rootfs");
	cJSON_AddBoolToObject(root, "readonly", true);
	cJSON_AddStringToObject(c, "hostname", b->hostname);
	add_mounts(c, b);
	add_linux(c, b);
	text = cJSON_PrintUnformatted(c);
	cJSON_Delete(c);
	return text;
}

int sbx_bundle_make(const struct sbx_bundle *b, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int dir_fd = -1;
	char *text;
	int r;

	sbx_bundle_remove(b->dir);
	if (mkdir(b->dir, 0700) != 0)
		return sbx_err_sys(err, errno, "cannot make '%s'", b->dir);
	dir_fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* root of the user namespace has to walk through to rootfs */
	if (dir_fd < 0 || (b->root && fchmod(dir_fd, 0711) != 0))
		return sbx_err_sys(err, errno, "cannot open '%s'", b->dir);
	r = sbx_rootfs_make(dir_fd, b, err);
	if (r < 0)
		return r;
	text = config_text(b);
	if (!text)
		return sbx_err_set(err, ENOMEM, "no memory for the container's configuration");
	r = sbx_rootfs_file(dir_fd, "config.json", text, strlen(text), 0600);
	cJSON_free(text);
	return r < 0 ? sbx_err_sys(err, -r, "cannot write '%s/config.json'", b->dir) : 0;
}

void sbx_bundle_remove(const char *dir)
{
	sbx_tree_remove(AT_FDCWD, dir, NULL);
}
