/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the out-of-line part of cleanup.h.  Any thread. */
#include "base/cleanup.h"

#include <errno.h>

void sbx_closep(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}
