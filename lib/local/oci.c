/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: runtime programs at work on boxes, a few at a time.  Loop thread. */
#include "base/spawn.h"
#include "init/protocol.h"
#include "local/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define RUNTIME_TIMEOUT_MS 60000 /* one command of the runtime, on a machine under load */
#define RUNTIMES_MAX 8		 /* at once: each takes 20M and a core for a while */

struct command {
	struct sbx_pbox *box; /* counted */
	void (*done)(struct sbx_pbox *box, const struct sbx_spawn_result *result);
};

bool sbx_oci_slot(struct sbx_pbox *box)
{
	struct sbx_provider *p = box->provider;

	if (p->oci_running < RUNTIMES_MAX)
		return true;
	if (!box->oci_waits) {
		box->oci_waits = true;
		sbx_list_append(&p->oci_queue, &box->oci_link);
		sbx_local_pbox_get(box);
	}
	return false;
}

static void next_in_queue(struct sbx_provider *p)
{
	struct sbx_pbox *box;

	if (sbx_list_empty(&p->oci_queue))
		return;
	box = sbx_list_first(&p->oci_queue, struct sbx_pbox, oci_link);
	sbx_list_remove(&box->oci_link);
	box->oci_waits = false;
	sbx_container_kick(box);
	sbx_local_pbox_put(box);
}

static void command_done(void *data, const struct sbx_spawn_result *result)
{
	struct command *c = data;
	struct sbx_pbox *box = c->box;

	box->provider->oci_running--;
	box->oci_busy = false;
	c->done(box, result);
	free(c);
	sbx_container_step(box);
	next_in_queue(box->provider);
	sbx_local_pbox_put(box);
}

int sbx_oci_command(struct sbx_pbox *box, const char *const *more, int fd,
		    void (*done)(struct sbx_pbox *box, const struct sbx_spawn_result *result),
		    struct sbx_err *err)
{
	const char *argv[SBX_RUNTIME_ARGS_MAX];
	char root[PATH_MAX + 8];
	struct sbx_spawn_fd map = { fd, SBX_INIT_FD };
	struct sbx_spawn_spec spec = { .argv = argv, .fds = &map, .fds_n = fd >= 0 ? 1 : 0,
				       .timeout_ms = RUNTIME_TIMEOUT_MS };
	struct command *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return sbx_err_set(err, ENOMEM, "no memory to start the OCI runtime");
	snprintf(root, sizeof(root), "%s/oci", box->provider->state->run_dir);
	sbx_runtime_argv(&box->provider->runtime, root, more, argv);
	c->box = sbx_local_pbox_get(box);
	c->done = done;
	box->oci_busy = true;
	box->provider->oci_running++;
	r = sbx_spawn_start(box->provider->loop, &spec, command_done, c, err);
	if (r < 0) {
		box->provider->oci_running--;
		box->oci_busy = false;
		sbx_local_pbox_put(box);
		free(c);
	}
	return r;
}
