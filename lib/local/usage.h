/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the slots usage and ports of the local provider; see provider.h.  Any thread. */
#ifndef SBX_LOCAL_USAGE_H
#define SBX_LOCAL_USAGE_H

#include "provider.h"

int sbx_local_usage(struct sbx_pbox *box, struct sbx_usage *ret, struct sbx_err *err);
int sbx_local_ports(struct sbx_pbox *box, void (*each)(void *data, unsigned int port, const char *url), void *data,
		    struct sbx_err *err);

#endif
