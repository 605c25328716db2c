/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the memfd that tells a supervisor what to run (lib/init/protocol.h).  Any thread. */
#ifndef SBX_LOCAL_SPEC_H
#define SBX_LOCAL_SPEC_H

struct sbx_err;
struct sbx_exec_spec;
struct sbx_pbox;

/* sbx_spec_make - a descriptor, or -errno (-E2BIG: argv and env over 8M) */
int sbx_spec_make(struct sbx_pbox *box, const struct sbx_exec_spec *spec, struct sbx_err *err);

#endif
