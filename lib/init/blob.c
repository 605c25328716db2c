/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the bytes of the static in-sandbox program inside the daemon, so that no helper need be installed. */
#include "blob.h"

#include "init_blob.h" /* made by build.sh: where the program is, and its hash */

__asm__(".section .rodata\n"
	".global sbx_init_blob_start\n"
	".global sbx_init_blob_end\n"
	".balign 16\n"
	"sbx_init_blob_start:\n"
	".incbin \"" SBX_INIT_FILE "\"\n"
	"sbx_init_blob_end:\n"
	".byte 0\n"
	".previous\n");

extern const char sbx_init_blob_start[], sbx_init_blob_end[];

const void *sbx_init_blob(size_t *ret_len)
{
	*ret_len = (size_t)(sbx_init_blob_end - sbx_init_blob_start);
	return sbx_init_blob_start;
}

const char *sbx_init_blob_hash(void)
{
	return SBX_INIT_HASH;
}
