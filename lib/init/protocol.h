/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the daemon and the static in-sandbox program say to each other.  Both are built from the same
 * tree and on the same machine, so structs go over the sockets as they are; sizes and types are checked all the same.
 *
 * Main socket (SOCK_SEQPACKET, descriptor SBX_INIT_FD of the init):
 *   init -> daemon   struct sbx_init_hello, once; with a pidfd of the init
 *   daemon -> init   struct sbx_init_start, with descriptors: spec, control, stdout, stderr [, stdin]
 *                    struct sbx_init_kill
 *   EOF at the init: it exits, and the pid namespace with it.  EOF at the daemon: the box is dead.
 *
 * Control socket (SOCK_SEQPACKET, one per run, between the daemon and the run's supervisor):
 *   supervisor -> daemon   struct sbx_run_report: STARTED or FAILED, then EXITED
 *   daemon -> supervisor   struct sbx_run_signal
 *   EOF at the daemon: no descendant of the program is left.  EOF at the supervisor: it kills them all and exits.
 */
#ifndef SBX_INIT_PROTOCOL_H
#define SBX_INIT_PROTOCOL_H

#include <stdint.h>

#define SBX_INIT_FD 3		   /* where runc --preserve-fds puts the main socket */
#define SBX_INIT_VERSION 1
#define SBX_INIT_RUN_DIR "/run/sbxfs" /* private folders with the code of runs: RUN_DIR/ID/NAME */
#define SBX_INIT_WORKSPACE "/workspace"

enum sbx_init_type {
	SBX_INIT_HELLO = 1,
	SBX_INIT_START,
	SBX_INIT_KILL,
};

struct sbx_init_hello {
	uint32_t type; /* SBX_INIT_HELLO */
	uint32_t version;
};

struct sbx_init_start {
	uint32_t type; /* SBX_INIT_START */
	uint32_t id;   /* unique among the runs of this box that are not gone */
};

/* ends a run whose supervisor does not answer (a program of the same uid stopped or killed it) */
struct sbx_init_kill {
	uint32_t type; /* SBX_INIT_KILL */
	uint32_t id;
};

#define SBX_SPEC_MAGIC 0x53505831u
#define SBX_SPEC_STRINGS_MAX (8u << 20) /* bytes of argv, env, cwd and names together */

enum sbx_spec_flags {
	SBX_SPEC_DROP = 1, /* become uid and gid 1000 (as root daemon); else the ids stay */
};

/* The memfd: this header, then strings (argv, env, cwd, code name; each with its NUL), then the code. */
struct sbx_spec {
	uint32_t magic;
	uint32_t flags;
	uint32_t argc, envc;
	int32_t code_arg; /* index in argv, -1 = none */
	uint32_t has_code; /* 0 or 1 */
	uint32_t strings_len;
	uint32_t nproc; /* RLIMIT_NPROC of the program, 0 = leave it */
	uint64_t code_len;
};

enum sbx_report_type {
	SBX_REPORT_STARTED = 1,
	SBX_REPORT_FAILED,
	SBX_REPORT_EXITED,
};

/* where a program could not be started */
enum sbx_report_step {
	SBX_STEP_SPEC = 1, /* the supervisor could not read what to do */
	SBX_STEP_CODE,	   /* writing the code's file */
	SBX_STEP_FORK,
	SBX_STEP_IDS, /* becoming uid 1000 */
	SBX_STEP_CWD,
	SBX_STEP_EXEC,
};

struct sbx_run_report {
	uint32_t type;
	int32_t pid;	/* STARTED: inside the box */
	uint32_t step;	/* FAILED */
	int32_t error;	/* FAILED: errno */
	int32_t status; /* EXITED: as waitpid() gives it */
	uint32_t max_rss_kib;
	uint64_t user_us, sys_us; /* EXITED: of the program and its reaped children */
};

struct sbx_run_signal {
	int32_t sig;
};

#endif
