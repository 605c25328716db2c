/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: starting programs of the host: no shell, an argv, a map of descriptors, and what they say on
 * stderr (the end of it, bounded) as the reason when they fail.
 */
#ifndef SBX_BASE_SPAWN_H
#define SBX_BASE_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_err;
struct sbx_loop;
struct sbx_spawn;

#define SBX_SPAWN_TEXT_MAX 4096 /* bytes kept of the last output, with the NUL */
#define SBX_SPAWN_FDS_MAX 8

struct sbx_spawn_fd {
	int from; /* ours; stays ours */
	int to;	  /* number in the child, 3 or more (0 and 1 are /dev/null, 2 is captured) */
};

struct sbx_spawn_spec {
	const char *const *argv; /* argv[0]: looked up in PATH unless it has a '/' */
	const struct sbx_spawn_fd *fds;
	size_t fds_n;
	uint64_t timeout_ms; /* then it is killed; 0 = never */
	bool capture_stdout; /* stdout goes where stderr goes */
	struct sbx_spawn **handle; /* set when it has started; good until @done has returned; may be NULL */
};

struct sbx_spawn_result {
	int status; /* as waitpid() gives it */
	bool timed_out;
	char text[SBX_SPAWN_TEXT_MAX]; /* what it said, without newlines at the end */
};

/*
 * sbx_spawn_start - start a program; @done is called once on the loop thread when it has ended.  Any thread;
 * blocks only for the exec.  @done may run before this returns.
 * -ENOENT and so on: it could not be started, @done is not called.
 */
int sbx_spawn_start(struct sbx_loop *loop, const struct sbx_spawn_spec *spec,
		    void (*done)(void *data, const struct sbx_spawn_result *result), void *data,
		    struct sbx_err *err);

/*
 * sbx_spawn_kill - send @sig to a program of sbx_spawn_start whose @done has not been called.  Loop thread.
 * sbx_spawn_pid - its number, and that of its process group; until @done is called it is its own
 */
void sbx_spawn_kill(struct sbx_spawn *spawn, int sig);
int sbx_spawn_pid(const struct sbx_spawn *spawn);

/* sbx_spawn_wait - the same, waiting for the end (at open, in threads of our own; never on the loop). */
int sbx_spawn_wait(const struct sbx_spawn_spec *spec, struct sbx_spawn_result *ret,
		   struct sbx_err *err);

/* sbx_spawn_check - 0 when it exited 0, else -EIO with "PROGRAM: what it said" as reason.  Any thread. */
int sbx_spawn_check(const char *program, const struct sbx_spawn_result *result, struct sbx_err *err);

#endif
