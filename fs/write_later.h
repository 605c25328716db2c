/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: a write to a control file whose effect takes a while: the WRITE is parked until it is there.  Any thread. */
#ifndef SBX_FS_WRITE_LATER_H
#define SBX_FS_WRITE_LATER_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stddef.h>

struct sbx_err;
struct sbx_synth;

/*
 * sbx_write_later - hand @text to the file's write_later.  -EINPROGRESS: @req is answered when the answer comes (-EINTR: the writer
 * was ended by a signal; the change goes on).  Else the caller answers: 0 or -errno, with a reason in @err.
 */
int sbx_write_later(fuse_req_t req, struct sbx_synth *synth, const char *text, size_t len, struct sbx_err *err);

#endif
