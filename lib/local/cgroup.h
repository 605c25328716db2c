/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: reading the cgroup of a box, on v1, hybrid and v2.  The runtime writes cgroups, we only read.
 */
#ifndef SBX_LOCAL_CGROUP_H
#define SBX_LOCAL_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* open files of one cgroup, -1 where there is none; read again and again from offset 0 */
struct sbx_cgroup {
	bool v2_memory;
	int oom_fd, memory_fd, pids_fd, cpu_fd;
	bool v2_cpu;
};

struct sbx_cgroup_usage {
	uint64_t memory_bytes, pids, cpu_us; /* UINT64_MAX = unknown */
};

/* sbx_cgroup_init - nothing open yet */
void sbx_cgroup_init(struct sbx_cgroup *c);
/* sbx_cgroup_open - of process @pid; what does not exist stays -1.  @c was sbx_cgroup_init'ed or done. */
void sbx_cgroup_open(struct sbx_cgroup *c, pid_t pid);
void sbx_cgroup_done(struct sbx_cgroup *c);

/* sbx_cgroup_oom_kills - how often the memory limit killed something in it; 0 if unknown */
uint64_t sbx_cgroup_oom_kills(const struct sbx_cgroup *c);
void sbx_cgroup_usage(const struct sbx_cgroup *c, struct sbx_cgroup_usage *ret);

/* sbx_cgroup_limit - limit of "memory" (bytes) or "pids" of process @pid.  0; UINT64_MAX = none; -ENOENT */
int sbx_cgroup_limit(pid_t pid, const char *controller, uint64_t *ret);
/* sbx_pidfd_pid - pid of a pidfd as we see it, 0 when it is dead or not ours to see */
pid_t sbx_pidfd_pid(int pidfd);

/* On the texts of the files, for the above and for tests. */

/*
 * sbx_cgroup_dir - folder of controller @name ("memory") for a process.
 * @proc_cgroup: text of /proc/PID/cgroup    @mountinfo: text of /proc/self/mountinfo
 * @ret: path (size @size)    @v2: true when it lies in the unified hierarchy
 * 0, -ENOENT: no such controller is mounted, -ENAMETOOLONG.
 */
int sbx_cgroup_dir(const char *proc_cgroup, const char *mountinfo, const char *name, char *ret,
		   size_t size, bool *v2);
/* sbx_cgroup_open_at, sbx_cgroup_limit_at - as those without _at, with the two texts of sbx_cgroup_dir */
void sbx_cgroup_open_at(struct sbx_cgroup *c, const char *proc_cgroup, const char *mountinfo);
int sbx_cgroup_limit_at(const char *proc_cgroup, const char *mountinfo, const char *controller, uint64_t *ret);
/*
 * sbx_cgroup_lacks - which of the controllers that limits need are not in @controllers (the text of cgroup.controllers).
 * @ret: "cpu, memory"; false: none is missing
 */
bool sbx_cgroup_lacks(const char *controllers, char *ret, size_t size);
/* sbx_cgroup_key - value of "KEY number" in a file of such lines; false: not there */
bool sbx_cgroup_key(const char *text, const char *key, uint64_t *ret);

#endif
