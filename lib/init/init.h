/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what the parts of the in-sandbox program know of each other.  One thread. */
#ifndef SBX_INIT_INIT_H
#define SBX_INIT_INIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* the descriptors that came with a start message; in is -1 for /dev/null */
struct sbx_run_fds {
	int spec, control, out, err, in;
};

/* sbx_supervise - the life of one run's supervisor, in its own process.  Ends the process. */
void sbx_supervise(uint32_t id, const struct sbx_run_fds *fds) __attribute__((noreturn));

/* sbx_stdio_null - descriptors 0, 1, 2 are /dev/null from now on.  0 or -1. */
int sbx_stdio_null(void);

/* sbx_code_dir - path of the private folder of run @id into @buf (64 bytes) */
void sbx_code_dir(uint32_t id, char *buf);
/* sbx_code_remove - remove that folder and the files right in it */
void sbx_code_remove(uint32_t id);

/*
 * sbx_kill_tree - send @sig to all descendants of @root, not to @root itself.
 * @skip: children of @root for which it says true are left out with all that is below them; may be NULL
 * SIGKILL stops all of them first, so that none can have a child between the look and the kill.
 * Returns how many live descendants were found.
 */
unsigned int sbx_kill_tree(pid_t root, int sig, bool (*skip)(pid_t pid));

/* sbx_host_role - what the program does when it is started with words on the host (host.c); the exit status */
int sbx_host_role(int argc, char **argv);

#endif
