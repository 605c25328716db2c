/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the files of its template that a new box gets before it runs for the first time.  They are copied by a worker; a file `unfilled` in
 * the box's folder says that this is not done, also over the end of a daemon.  Loop thread.
 */
#ifndef SBX_LOCAL_FILL_H
#define SBX_LOCAL_FILL_H

#include <stdbool.h>

struct sbx_pbox;
struct sbx_provider;

/* sbx_fill_step - before the container is started.  @up: it is to be.  True: not now; the box is stepped again when it is time */
bool sbx_fill_step(struct sbx_pbox *box, bool up);
/* sbx_fill_new - the workers of a provider.  -ENOMEM.   sbx_fill_stop: no more work.   sbx_fill_free: main thread, both */
int sbx_fill_new(struct sbx_provider *provider);
void sbx_fill_stop(struct sbx_provider *provider);
void sbx_fill_free(struct sbx_provider *provider);

#endif
