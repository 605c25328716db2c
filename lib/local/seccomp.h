/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: which system calls programs of a box may use, as data for the runtime.  Pure. */
#ifndef SBX_LOCAL_SECCOMP_H
#define SBX_LOCAL_SECCOMP_H

struct cJSON;

/* sbx_seccomp_json - the "seccomp" object of an OCI config; the caller's.  NULL: no memory. */
struct cJSON *sbx_seccomp_json(void);

#endif
