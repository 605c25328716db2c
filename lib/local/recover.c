/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: recovery at open.  Threads: main, and a few of its own while containers are removed. */
#include "local/recover.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/spawn.h"
#include "local/bundle.h"
#include "local/network.h"
#include "local/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECOVER_THREADS 4
#define COMMAND_TIMEOUT_MS 30000

struct removal {
	struct sbx_provider *p;
	const char *run_dir;
	char **names;
	size_t n;
	atomic_size_t next;
};

static int command(struct sbx_provider *p, const char *run_dir, const char *container, const char *const *words)
{
	const char *argv[SBX_RUNTIME_ARGS_MAX];
	struct sbx_spawn_spec spec = { .argv = argv, .timeout_ms = COMMAND_TIMEOUT_MS };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_spawn_result result;
	char root[PATH_MAX + 8];
	int r;

	snprintf(root, sizeof(root), "%s/oci", run_dir);
	sbx_runtime_argv(&p->runtime, root, words, argv);
	r = sbx_spawn_wait(&spec, &result, &err);
	if (r == 0)
		r = sbx_spawn_check(p->runtime.path, &result, &err);
	if (r < 0)
		sbx_debug(SBX_LOG_LOCAL, "%s %s: %s", words[0], container, err.text);
	return r;
}

static void remove_container(struct sbx_provider *p, const char *run_dir, const char *name)
{
	const char *const killing[] = { "kill", name, "KILL", NULL };
	const char *const resume[] = { "resume", name, NULL };
	const char *const del[] = { "delete", "--force", name, NULL }; /* crun takes no option after the name */

	/* A kill waits in a frozen process until it is thawed (cgroup v1); so it never runs again. */
	if (p->runtime.limits && command(p, run_dir, name, killing) == 0)
		command(p, run_dir, name, resume);
	command(p, run_dir, name, del);
}

static void *remover(void *data)
{
	struct removal *r = data;
	size_t i;

	while ((i = atomic_fetch_add(&r->next, 1)) < r->n)
		remove_container(r->p, r->run_dir, r->names[i]);
	return NULL;
}

static void remove_containers(struct sbx_provider *p, const char *run_dir, char **names, size_t n)
{
	struct removal r = { .p = p, .run_dir = run_dir, .names = names, .n = n };
	pthread_t threads[RECOVER_THREADS];
	size_t i, started = 0;

	for (i = 0; i + 1 < RECOVER_THREADS && i + 1 < n; i++) {
		if (pthread_create(&threads[started], NULL, remover, &r) == 0)
			started++;
	}
	remover(&r);
	for (i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

static void empty_trash(struct sbx_provider *p)
{
	char **names;
	size_t n, i;

	if (sbx_state_list_dir(p->state->trash_fd, &names, &n, NULL) < 0)
		return;
	for (i = 0; i < n; i++)
		sbx_trash_sweep(p, names[i]);
	sbx_state_names_free(names, n);
}

static bool runtime_ready(struct sbx_provider *p)
{
	bool ready;

	sbx_lock(&p->lock);
	ready = p->runtime_state == RUNTIME_READY;
	sbx_unlock(&p->lock);
	return ready;
}

static void recover_net(int run_fd, const char *name)
{
	SBX_CLEANUP(sbx_closep) int fd = openat(run_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		sbx_net_recover(fd);
}

/* everything in a run directory whose daemon is dead: containers, then bundles */
static void clean_run_dir(struct sbx_provider *p, int run_fd, const char *run_dir)
{
	SBX_CLEANUP(sbx_closep) int oci_fd = openat(run_fd, "oci", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char **names;
	size_t n, i;

	if (oci_fd >= 0 && sbx_state_list_dir(oci_fd, &names, &n, NULL) == 0) {
		if (n && (runtime_ready(p) || sbx_runtime_search(p, NULL) == RUNTIME_READY))
			remove_containers(p, run_dir, names, n);
		sbx_state_names_free(names, n);
	}
	if (sbx_state_list_dir(run_fd, &names, &n, NULL) < 0)
		return;
	for (i = 0; i < n; i++) {
		if (strcmp(names[i], "oci") == 0)
			continue;
		recover_net(run_fd, names[i]);
		sbx_tree_remove(run_fd, names[i], NULL);
	}
	sbx_state_names_free(names, n);
}

/* ---- run directories that nobody will come back for: their state directory was deleted ---- */

static void clean_orphan(struct sbx_provider *p, int top_fd, const char *id)
{
	SBX_CLEANUP(sbx_closep) int fd = openat(top_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char path[PATH_MAX];

	/* live daemons hold it shared, see state.c */
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
		return;
	snprintf(path, sizeof(path), "%s/%s", SBX_STATE_RUN_ROOT, id);
	clean_run_dir(p, fd, path);
	unlinkat(fd, "oci", AT_REMOVEDIR);
	unlinkat(top_fd, id, AT_REMOVEDIR);
}

struct orphans {
	struct sbx_job job;
	struct sbx_provider *p;
};

static void clean_orphans(struct sbx_job *job, const atomic_bool *stop)
{
	struct orphans *o = sbx_container_of(job, struct orphans, job);
	struct sbx_provider *p = o->p;
	SBX_CLEANUP(sbx_closep) int top_fd = open(SBX_STATE_RUN_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char **names;
	size_t n, i;

	free(o);
	if (top_fd < 0 || sbx_state_list_dir(top_fd, &names, &n, NULL) < 0)
		return;
	for (i = 0; i < n && !*stop; i++) {
		if (strcmp(names[i], p->state->id) != 0)
			clean_orphan(p, top_fd, names[i]);
	}
	sbx_state_names_free(names, n);
}

void sbx_recover(struct sbx_provider *p)
{
	struct orphans *o = p->state->root ? calloc(1, sizeof(*o)) : NULL;

	clean_run_dir(p, p->state->run_fd, p->state->run_dir);
	empty_trash(p);
	if (!o)
		return;
	o->job.fn = clean_orphans;
	o->p = p;
	if (sbx_worker_post(p->prober, &o->job, NULL) < 0)
		free(o);
}
