/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the allow-list.  What is not in it is ENOSYS, so that programs take their fallback as on an older
 * kernel; what is dangerous and well known is EPERM.  Native architecture only.
 */
#include "local/seccomp.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <linux/falloc.h>
#include <sched.h>
#include <stddef.h>
#include <sys/socket.h>

static const char *const allowed[] = {
	/* files */
	"access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
	"dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fchdir", "fchmod",
	"fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
	"flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat",
	"getcwd", "getdents", "getdents64", "getxattr", "inotify_add_watch", "inotify_init",
	"inotify_init1", "inotify_rm_watch", "ioctl", "lchown", "lgetxattr", "link", "linkat",
	"listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat",
	"mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pipe",
	"pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read",
	"readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat",
	"renameat2", "rmdir", "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink",
	"symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink",
	"unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev", "cachestat",
	/* memory */
	"brk", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "mincore", "mlock",
	"mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall",
	"munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise", "process_mrelease",
	"process_vm_readv", "process_vm_writev", "remap_file_pages", "get_mempolicy", "mbind",
	"set_mempolicy", "set_mempolicy_home_node",
	/* processes and threads */
	"alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork",
	"futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
	"get_thread_area", "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getitimer",
	"getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresuid",
	"getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get", "ioprio_set", "kcmp",
	"kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "nanosleep",
	"pause", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "prctl", "ptrace",
	"restart_syscall", "riscv_hwprobe", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
	"rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
	"sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
	"sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
	"sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp",
	"set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid",
	"setgroups", "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid",
	"setreuid", "setrlimit", "setsid", "setuid", "sigaltstack", "sysinfo", "tgkill", "time",
	"timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "times",
	"tkill", "uname", "vfork", "wait4", "waitid", "waitpid",
	/* time */
	"adjtimex", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep",
	"gettimeofday",
	/* waiting and talking */
	"accept", "accept4", "bind", "connect", "epoll_create", "epoll_create1", "epoll_ctl",
	"epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getpeername",
	"getrandom", "getsockname", "getsockopt", "io_cancel", "io_destroy", "io_getevents",
	"io_pgetevents", "io_setup", "io_submit", "listen", "mq_getsetattr", "mq_notify", "mq_open",
	"mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "poll",
	"ppoll", "pselect6", "recvfrom", "recvmmsg", "recvmsg", "select", "semctl", "semget", "semop",
	"semtimedop", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shmat", "shmctl", "shmdt",
	"shmget", "shutdown", "signalfd", "signalfd4", "socketpair", "timerfd_create",
	"timerfd_gettime", "timerfd_settime",
};

static const char *const refused[] = {
	"acct", "add_key", "bpf", "chroot", "clock_settime", "delete_module", "fanotify_init",
	"finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter",
	"io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load", "keyctl",
	"lookup_dcookie", "mount", "mount_setattr", "move_mount", "move_pages", "migrate_pages",
	"open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "quotactl", "quotactl_fd",
	"reboot", "request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff",
	"swapon", "syslog", "umount", "umount2", "unshare", "userfaultfd", "vhangup",
};

/* the namespaces that clone() could make */
static const unsigned int clone_new[] = {
	CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
	CLONE_NEWUSER, CLONE_NEWPID,	CLONE_NEWNET,
};
#define CLONE_NEW_ALL                                                                              \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

static const int families[] = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };

/* as docker allows: Linux and its UNAME26, and asking */
static const unsigned int personalities[] = { 0x0, 0x8, 0x20000, 0x20008, 0xffffffff };

static cJSON *rule(cJSON *list, const char *action, int error)
{
	cJSON *r = cJSON_CreateObject();

	cJSON_AddItemToArray(list, r);
	cJSON_AddItemToObject(r, "names", cJSON_CreateArray());
	cJSON_AddStringToObject(r, "action", action);
	if (error)
		cJSON_AddNumberToObject(r, "errnoRet", error);
	return r;
}

static void rule_name(cJSON *r, const char *name)
{
	cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(r, "names"),
			     cJSON_CreateString(name));
}

static void rule_arg(cJSON *r, unsigned int index, const char *op, double value, double value_two)
{
	cJSON *args = cJSON_AddArrayToObject(r, "args"), *arg = cJSON_CreateObject();

	cJSON_AddItemToArray(args, arg);
	cJSON_AddNumberToObject(arg, "index", index);
	cJSON_AddNumberToObject(arg, "value", value);
	cJSON_AddNumberToObject(arg, "valueTwo", value_two);
	cJSON_AddStringToObject(arg, "op", op);
}

/* one rule for one call with a condition on one argument */
static void rule_if(cJSON *list, const char *name, const char *action, int error, unsigned int index,
		    const char *op, double value, double value_two)
{
	cJSON *r = rule(list, action, error);

	rule_name(r, name);
	rule_arg(r, index, op, value, value_two);
}

static void add_conditional(cJSON *list)
{
	const char *allow = "SCMP_ACT_ALLOW", *deny = "SCMP_ACT_ERRNO";
	size_t i;
	int family, known;

	/* clone: threads and processes yes, namespaces no.  clone3 (flags in memory) is ENOSYS by default. */
	rule_if(list, "clone", allow, 0, 0, "SCMP_CMP_MASKED_EQ", CLONE_NEW_ALL, 0);
	for (i = 0; i < sizeof(clone_new) / sizeof(clone_new[0]); i++)
		rule_if(list, "clone", deny, EPERM, 0, "SCMP_CMP_MASKED_EQ", clone_new[i], clone_new[i]);

	for (family = 0; family <= AF_NETLINK; family++) {
		known = 0;
		for (i = 0; i < sizeof(families) / sizeof(families[0]); i++)
			known |= families[i] == family;
		rule_if(list, "socket", known ? allow : deny, known ? 0 : EAFNOSUPPORT, 0,
			"SCMP_CMP_EQ", family, 0);
	}
	rule_if(list, "socket", deny, EAFNOSUPPORT, 0, "SCMP_CMP_GT", AF_NETLINK, 0);

	for (i = 0; i < sizeof(personalities) / sizeof(personalities[0]); i++)
		rule_if(list, "personality", allow, 0, 0, "SCMP_CMP_EQ", personalities[i], 0);

	/* its own limits only: for an ordinary user the init has the same uid as programs */
	rule_if(list, "prlimit64", allow, 0, 0, "SCMP_CMP_EQ", 0, 0);
	rule_if(list, "prlimit64", deny, EPERM, 0, "SCMP_CMP_GT", 0, 0);

	/*
	 * Punching holes yes, reserving space no: a reservation of any size takes no time, so the disk watcher could not be
	 * in time.  Libraries then write zeros, as on file systems that cannot reserve.
	 */
	rule_if(list, "fallocate", allow, 0, 1, "SCMP_CMP_MASKED_EQ", FALLOC_FL_PUNCH_HOLE, FALLOC_FL_PUNCH_HOLE);
	rule_if(list, "fallocate", deny, EOPNOTSUPP, 1, "SCMP_CMP_MASKED_EQ", FALLOC_FL_PUNCH_HOLE, 0);
}

cJSON *sbx_seccomp_json(void)
{
	cJSON *j = cJSON_CreateObject(), *archs, *list, *r;
	size_t i;

	cJSON_AddStringToObject(j, "defaultAction", "SCMP_ACT_ERRNO");
	cJSON_AddNumberToObject(j, "defaultErrnoRet", ENOSYS);
	archs = cJSON_AddArrayToObject(j, "architectures");
#if defined(__x86_64__)
	cJSON_AddItemToArray(archs, cJSON_CreateString("SCMP_ARCH_X86_64"));
#elif defined(__aarch64__)
	cJSON_AddItemToArray(archs, cJSON_CreateString("SCMP_ARCH_AARCH64"));
#elif defined(__riscv)
	cJSON_AddItemToArray(archs, cJSON_CreateString("SCMP_ARCH_RISCV64"));
#else
#error "name the architecture of this machine for seccomp here"
#endif
	list = cJSON_AddArrayToObject(j, "syscalls");
	r = rule(list, "SCMP_ACT_ALLOW", 0);
	for (i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		rule_name(r, allowed[i]);
	r = rule(list, "SCMP_ACT_ERRNO", EPERM);
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		rule_name(r, refused[i]);
	add_conditional(list);
	return j;
}
