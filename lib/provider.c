/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the list of backends, and the check that one is whole.  Any thread.
 */
#include "provider.h"

#include "base/err.h"
#include "local/local.h"

#include <errno.h>
#include <string.h>

static const struct sbx_provider_ops *const providers[] = {
	&sbx_local_ops,
};

static const char provider_names[] = "local";

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const struct sbx_provider_ops *sbx_provider_find(const char *name)
{
	size_t i;

	for (i = 0; i < COUNT(providers); i++) {
		if (strcmp(providers[i]->name, name) == 0)
			return providers[i];
	}
	return NULL;
}

const char *sbx_provider_names(void)
{
	return provider_names;
}

struct slot {
	const char *name;
	size_t off_bytes;
};

#define SLOT(member)                                               \
	{                                                          \
#member, offsetof(struct sbx_provider_ops, member) \
	}

/* every slot but those that provider.h allows to be NULL; test_provider.c has the same list the other way round */
static const struct slot slots[] = {
	SLOT(name),	      SLOT(open),	   SLOT(close),		 SLOT(list),
	SLOT(name_check),     SLOT(box_open),	   SLOT(box_create),	 SLOT(box_start),
	SLOT(box_stop),	      SLOT(box_pause),	   SLOT(box_resume),	 SLOT(box_delete),
	SLOT(box_info),	      SLOT(box_put),	   SLOT(exec_start),	 SLOT(exec_signal),
	SLOT(exec_put),	      SLOT(interpreter),   SLOT(files.root),	 SLOT(files.forget),
	SLOT(files.depth),    SLOT(files.lookup),  SLOT(files.getattr),	 SLOT(files.setattr),
	SLOT(files.readlink), SLOT(files.open),	   SLOT(files.create),	 SLOT(files.fsync),
	SLOT(files.close),    SLOT(files.mkdir),   SLOT(files.mknod),	 SLOT(files.symlink),
	SLOT(files.link),     SLOT(files.unlink),  SLOT(files.rmdir),	 SLOT(files.rename),
	SLOT(files.opendir),  SLOT(files.readdir), SLOT(files.closedir), SLOT(files.statfs),
};

int sbx_provider_complete(const struct sbx_provider_ops *ops, struct sbx_err *err)
{
	static const char zero[sizeof(void (*)(void))];
	size_t i;

	for (i = 0; i < COUNT(slots); i++) {
		/* the slots have many types; all are one pointer wide, and NULL is all zero bits here */
		if (memcmp((const char *)ops + slots[i].off_bytes, zero, sizeof(zero)) == 0)
			return sbx_err_set(err, EINVAL, "provider '%s' lacks %s",
					   ops->name ? ops->name : "?", slots[i].name);
	}
	return 0;
}
