/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: boxes/NAME/settings, the text that lib/settings.c keeps with a box.  Any thread; lib/box.c sees to it that
 * nothing is saved any more once the box's folder has been taken away from its name.
 */
#include "local/stored.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "local/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_MAX (256u * 1024 * 1024) /* bytes; what is larger is not ours */

static int open_folder(struct sbx_pbox *box, struct sbx_err *err)
{
	int fd = openat(box->provider->state->boxes_fd, box->record.name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? sbx_err_sys(err, errno, "the box's folder") : fd;
}

int sbx_local_settings_save(struct sbx_pbox *box, const char *text, size_t len, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int dir = open_folder(box, err);
	SBX_CLEANUP(sbx_closep) int fd = -1;

	if (dir < 0)
		return dir;
	fd = openat(dir, "settings.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return sbx_err_sys(err, errno, "settings");
	while (len > 0) {
		ssize_t n = write(fd, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sbx_err_sys(err, n < 0 ? errno : EIO, "settings");
		text += n;
		len -= (size_t)n;
	}
	if (renameat(dir, "settings.new", dir, "settings") != 0)
		return sbx_err_sys(err, errno, "settings");
	return 0;
}

int sbx_local_settings_load(struct sbx_pbox *box, char **ret, size_t *ret_len, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int dir = open_folder(box, err);
	SBX_CLEANUP(sbx_closep) int fd = -1;
	SBX_CLEANUP(sbx_freep) char *text = NULL;
	struct stat st;
	size_t off = 0;

	if (dir < 0)
		return dir;
	fd = openat(dir, "settings", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return sbx_err_sys(err, errno, "settings");
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > TEXT_MAX)
		return sbx_err_set(err, EINVAL, "the stored settings are not a file of ours");
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return sbx_err_set(err, ENOMEM, "no memory for the settings");
	while (off < (size_t)st.st_size) {
		ssize_t n = read(fd, text + off, (size_t)st.st_size - off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sbx_err_sys(err, n < 0 ? errno : EIO, "settings");
		off += (size_t)n;
	}
	*ret = sbx_take(text);
	*ret_len = off;
	return 0;
}
