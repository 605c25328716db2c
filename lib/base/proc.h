/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: reading what the kernel tells in small files.  Any thread. */
#ifndef SBX_BASE_PROC_H
#define SBX_BASE_PROC_H

#include <stddef.h>
#include <sys/types.h>

/*
 * sbx_proc_read - the first @size - 1 bytes of a file of /proc or /sys, as one read gives them; @buf always ends in NUL.
 * Bytes, or -errno of open or read.
 */
ssize_t sbx_proc_read(const char *path, char *buf, size_t size);
/* sbx_proc_unescape - undoes the octal escapes of mountinfo, \040 and its like, in place */
void sbx_proc_unescape(char *text);

#endif
