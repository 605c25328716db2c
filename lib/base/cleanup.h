/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: cleanup attributes, so that no function needs goto.  Any thread.
 */
#ifndef SBX_BASE_CLEANUP_H
#define SBX_BASE_CLEANUP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* SBX_CLEANUP(f) T x: f(&x) runs when @x goes out of scope. */
#define SBX_CLEANUP(fn) __attribute__((cleanup(fn)))

/* sbx_take(p): the value of pointer @p, and @p becomes NULL: ownership moves to the caller. */
#define sbx_take(p)                                                                                \
	({                                                                                         \
		__typeof__(p) sbx_taken_ = (p);                                                    \
		(p) = NULL;                                                                        \
		sbx_taken_;                                                                        \
	})

/* sbx_take_fd(fd): the same for a descriptor; @fd becomes -1. */
#define sbx_take_fd(fd)                                                                            \
	({                                                                                         \
		int sbx_taken_fd_ = (fd);                                                          \
		(fd) = -1;                                                                         \
		sbx_taken_fd_;                                                                     \
	})

/* for SBX_CLEANUP on any malloc'ed pointer */
static inline void sbx_freep(void *p)
{
	free(*(void **)p);
}

/* for SBX_CLEANUP on a descriptor; -1 is ignored, errno is kept */
void sbx_closep(int *fd);

static inline void sbx_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void sbx_closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

#endif
