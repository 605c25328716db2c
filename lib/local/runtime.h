/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: finding the OCI runtime that really starts our containers here, and what it can limit; and how it is
 * called.  --version proves nothing: crun 1.8 refuses hybrid cgroups, so a container is started.
 */
#ifndef SBX_LOCAL_RUNTIME_H
#define SBX_LOCAL_RUNTIME_H

#include "local/internal.h"

#define SBX_RUNTIME_ARGS_MAX 16

/* what a trial needs; strings are the caller's */
struct sbx_trial {
	const char *wanted;    /* from the config, NULL = crun, then runc */
	const char *dir;       /* absolute; trial bundles and the runtime's own state go there */
	const char *init_path; /* the in-sandbox program on the host */
	bool root;
	uint32_t id_base;
};

/* sbx_runtime_argv - @more with the words that every call needs in front; @argv has SBX_RUNTIME_ARGS_MAX places */
void sbx_runtime_argv(const struct sbx_runtime *rt, const char *root, const char *const *more,
		      const char **argv);
/* sbx_runtime_cgroup - cgroupsPath of @container, in @buf; NULL = leave it to the runtime */
const char *sbx_runtime_cgroup(const struct sbx_runtime *rt, const char *container, char *buf,
			       size_t size);

/* sbx_runtime_program - the path of program @name: PATH, then the usual folders (also those of root).  Any thread. */
bool sbx_runtime_program(const char *name, char ret[PATH_MAX]);

/*
 * sbx_runtime_find - try runtimes by a real start, with limits first.  Blocks (0.1 s when all is well).
 * -ENOENT: none is installed.  Else -errno of the last one tried; reason names each and what it said.
 */
int sbx_runtime_find(const struct sbx_trial *trial, struct sbx_runtime *ret, struct sbx_err *err);

/*
 * sbx_runtime_state - is the provider's runtime known?  Starts the search when it is not; all boxes
 * are kicked when it has ended.  @err: reason of RUNTIME_FAILED.  Any thread.
 */
enum runtime_state sbx_runtime_state(struct sbx_provider *p, struct sbx_err *err);
/* sbx_runtime_search - the search on this thread: at open, when dead containers need it.  Blocks. */
enum runtime_state sbx_runtime_search(struct sbx_provider *p, struct sbx_err *err);
/* sbx_runtime_recall - take the answer of an earlier mount since boot, if there is one; at open */
void sbx_runtime_recall(struct sbx_provider *p);
/* sbx_runtime_forget - do not trust the remembered answer any more */
void sbx_runtime_forget(struct sbx_local_state *s);

#endif
