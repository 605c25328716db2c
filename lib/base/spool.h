/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: bytes that only grow at the end: in memory while few, then in an unnamed file.  One appender at a time,
 * any number of readers at once.
 */
#ifndef SBX_BASE_SPOOL_H
#define SBX_BASE_SPOOL_H

#include "base/lock.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SBX_SPOOL_MEMORY 65536 /* bytes kept in memory */

struct sbx_spool {
	struct sbx_lock lock;
	char *mem;    /* guarded by lock: NULL once the file is used */
	size_t room;  /* guarded by lock: of mem */
	int fd;	      /* guarded by lock for the change from -1; fixed after it */
	uint64_t len; /* guarded by lock */
};

void sbx_spool_init(struct sbx_spool *spool);
void sbx_spool_done(struct sbx_spool *spool);
/*
 * sbx_spool_append - @dir_fd: folder for the unnamed file.  0, or -errno (ENOSPC, ENOMEM, EMFILE): then nothing of
 * @bytes was taken.
 */
int sbx_spool_append(struct sbx_spool *spool, int dir_fd, const char *bytes, size_t len);
/* sbx_spool_read - returns bytes copied, 0 at the end, -errno.  Never blocks but for the disk. */
ssize_t sbx_spool_read(struct sbx_spool *spool, uint64_t off_bytes, char *buf, size_t size);
uint64_t sbx_spool_len(struct sbx_spool *spool);

#endif
