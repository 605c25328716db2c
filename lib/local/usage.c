/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: what a running box uses and which ports it listens on, looked at from outside.  Any thread. */
#include "local/usage.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "local/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_LISTEN 0x0a /* of /proc/net/tcp */
#define PORTS_MAX 1024

int sbx_local_usage(struct sbx_pbox *box, struct sbx_usage *ret, struct sbx_err *err)
{
	struct sbx_cgroup_usage usage = { UINT64_MAX, UINT64_MAX, UINT64_MAX };
	bool up;

	sbx_lock(&box->lock);
	up = box->have == HAVE_UP || box->have == HAVE_PAUSED;
	/* without limits there is no cgroup of its own: the numbers would be another's */
	if (up && box->provider->runtime.limits)
		sbx_cgroup_usage(&box->cgroup, &usage);
	sbx_unlock(&box->lock);
	if (!up)
		return sbx_err_set(err, EAGAIN, "the sandbox does not run");
	ret->cpu_us = usage.cpu_us;
	ret->memory_bytes = usage.memory_bytes;
	ret->pids = usage.pids;
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const unsigned int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* listening ports in one of /proc/PID/net/tcp, tcp6; returns how many there are in @ports then */
static size_t read_ports(int pid, const char *file, unsigned int *ports, size_t n)
{
	SBX_CLEANUP(sbx_fclosep) FILE *f = NULL;
	SBX_CLEANUP(sbx_freep) char *line = NULL;
	char path[64];
	size_t room = 0;

	snprintf(path, sizeof(path), "/proc/%d/net/%s", pid, file);
	f = fopen(path, "re");
	while (f && n < PORTS_MAX && getline(&line, &room, f) > 0) {
		unsigned int port, state;

		if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &port, &state) == 2 &&
		    state == STATE_LISTEN && port > 0 && port < 65536)
			ports[n++] = port;
	}
	return n;
}

int sbx_local_ports(struct sbx_pbox *box, void (*each)(void *data, unsigned int port, const char *url), void *data,
		    struct sbx_err *err)
{
	SBX_CLEANUP(sbx_freep) unsigned int *ports = calloc(PORTS_MAX, sizeof(*ports));
	bool host = box->record.network == SBX_NET_HOST;
	size_t n = 0, i;
	int pid;

	if (!ports)
		return sbx_err_set(err, ENOMEM, "no memory");
	sbx_lock(&box->lock);
	pid = box->have == HAVE_UP || box->have == HAVE_PAUSED ? box->init_pid : 0;
	sbx_unlock(&box->lock);
	if (pid == 0 || host) /* with the host's network they are the host's, not the box's */
		return 0;
	n = read_ports(pid, "tcp", ports, n);
	n = read_ports(pid, "tcp6", ports, n);
	qsort(ports, n, sizeof(*ports), by_number);
	for (i = 0; i < n; i++) {
		if (i == 0 || ports[i] != ports[i - 1])
			each(data, ports[i], NULL);
	}
	return 0;
}
