/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: struct sbx_spool.  Threads: see spool.h. */
#include "base/spool.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sbx_spool_init(struct sbx_spool *spool)
{
	sbx_lock_init(&spool->lock);
	spool->mem = NULL;
	spool->room = 0;
	spool->fd = -1;
	spool->len = 0;
}

void sbx_spool_done(struct sbx_spool *spool)
{
	free(spool->mem);
	spool->mem = NULL;
	sbx_closep(&spool->fd);
	sbx_lock_done(&spool->lock);
}

static int write_all(int fd, const char *bytes, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, bytes, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		bytes += n;
		len -= (size_t)n;
		off += (uint64_t)n;
	}
	return 0;
}

/* memory -> file; only the appender calls this, so that mem and len stand still meanwhile */
static int to_file(struct sbx_spool *spool, int dir_fd, char **old)
{
	SBX_CLEANUP(sbx_closep) int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = write_all(fd, spool->mem, spool->len, 0);
	if (r < 0)
		return r;
	sbx_lock(&spool->lock);
	*old = sbx_take(spool->mem);
	spool->fd = sbx_take_fd(fd);
	sbx_unlock(&spool->lock);
	return 0;
}

int sbx_spool_append(struct sbx_spool *spool, int dir_fd, const char *bytes, size_t len)
{
	SBX_CLEANUP(sbx_freep) char *old = NULL;
	int r;

	if (len == 0)
		return 0;
	if (spool->fd < 0 && spool->len + len <= SBX_SPOOL_MEMORY) {
		sbx_lock(&spool->lock);
		if (spool->len + len > spool->room) {
			size_t room = spool->room ? spool->room : 256;
			char *mem;

			while (room < spool->len + len)
				room *= 2;
			mem = realloc(spool->mem, room);
			if (!mem) {
				sbx_unlock(&spool->lock);
				return -ENOMEM;
			}
			spool->mem = mem;
			spool->room = room;
		}
		memcpy(spool->mem + spool->len, bytes, len);
		spool->len += len;
		sbx_unlock(&spool->lock);
		return 0;
	}
	if (spool->fd < 0) {
		r = to_file(spool, dir_fd, &old);
		if (r < 0)
			return r;
	}
	r = write_all(spool->fd, bytes, len, spool->len);
	if (r < 0)
		return r;
	sbx_lock(&spool->lock);
	spool->len += len;
	sbx_unlock(&spool->lock);
	return 0;
}

ssize_t sbx_spool_read(struct sbx_spool *spool, uint64_t off_bytes, char *buf, size_t size)
{
	uint64_t len;
	ssize_t n;
	int fd;

	sbx_lock(&spool->lock);
	len = spool->len;
	fd = spool->fd;
	if (off_bytes >= len) {
		sbx_unlock(&spool->lock);
		return 0;
	}
	if (size > len - off_bytes)
		size = (size_t)(len - off_bytes);
	if (spool->mem) {
		memcpy(buf, spool->mem + off_bytes, size);
		sbx_unlock(&spool->lock);
		return (ssize_t)size;
	}
	sbx_unlock(&spool->lock);
	do {
		n = pread(fd, buf, size, (off_t)off_bytes);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

uint64_t sbx_spool_len(struct sbx_spool *spool)
{
	uint64_t len;

	sbx_lock(&spool->lock);
	len = spool->len;
	sbx_unlock(&spool->lock);
	return len;
}
