/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the network of boxes with `network: nat`.  Two programs each: the tool, for as long as the container lives, and for
 * a moment a helper (lib/init/host.c) in the box's namespaces, which waits for the tool's device and sets the routes that
 * keep the host out of reach.  Both die with the daemon; a tool that dies is started again.
 * Threads: tool and resolv any; recover at open; all else the loop.
 */
#include "local/network.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/proc.h"
#include "base/spawn.h"
#include "local/addresses.h"
#include "local/internal.h"
#include "local/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE "eth0"		   /* in the box */
#define READY_TIMEOUT_MS 20000	   /* milliseconds are usual */
#define REAP_MS 5
#define AGAIN_MS 500		   /* before a tool that died is started again; doubled up to */
#define AGAIN_MAX_MS 60000
#define STEADY_MS 60000		   /* one that lived so long starts anew with AGAIN_MS */
#define PID_FILE "network.pid"
#define WORDS_MAX 64

/* pasta hands on what is sent there (port 53) to the host's first server of that kind; slirp4netns has its own */
#define PASTA_DNS4 "169.254.1.1"
#define PASTA_DNS6 "fd53:6278:6673::53"
#define SLIRP_DNS "10.0.2.3"
#define SLIRP_GATEWAY "10.0.2.2"

struct sbx_net {
	struct sbx_pbox *box;
	char tool_path[PATH_MAX];
	pid_t pid; /* the box's first process */
	struct sbx_spawn *tool, *helper; /* each holds a reference of the box */
	pid_t group; /* of the tool, whose own children are not all gone; with a reference as well */
	struct sbx_timer reap;
	bool ready;    /* told to be there */
	bool was;      /* it has been there since the box came up */
	bool stopping;
	struct sbx_err why; /* of what fails now */
	struct sbx_timer again;
	unsigned int tries; /* since it was steady */
	uint64_t ready_ms;
};

/* ---- which tool ---- */

static bool is_pasta(const char *path)
{
	const char *name = strrchr(path, '/');

	return strstr(name ? name + 1 : path, "pasta") != NULL;
}

static int usable_tun(struct sbx_err *err)
{
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (errno == EACCES || errno == EPERM)
		return sbx_err_set(err, EOPNOTSUPP,
				   "network 'nat' needs /dev/net/tun, which this user may not open; as root: chmod 0666 /dev/net/tun");
	return sbx_err_set(err, EOPNOTSUPP, "network 'nat' needs /dev/net/tun: %s; as root: modprobe tun", strerror(errno));
}

int sbx_net_tool(const char *wanted, char ret[PATH_MAX], struct sbx_err *err)
{
	static const char *const names[] = { "pasta", "slirp4netns" };
	size_t i;

	if (wanted) {
		if (!is_pasta(wanted) && !strstr(wanted, "slirp4netns"))
			return sbx_err_set(err, EOPNOTSUPP, "network_tool '%s': neither pasta nor slirp4netns", wanted);
		if (!sbx_runtime_program(wanted, ret))
			return sbx_err_set(err, EOPNOTSUPP, "network 'nat' needs '%s' (network_tool), which is not there", wanted);
		return usable_tun(err);
	}
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (sbx_runtime_program(names[i], ret))
			return usable_tun(err);
	}
	return sbx_err_set(err, EOPNOTSUPP, "network 'nat' needs pasta (package passt) or slirp4netns: install one");
}

/* ---- names ---- */

/* the next line of *@text, without blanks in front; NULL at the end */
static const char *next_line(const char **text, size_t *len)
{
	const char *line = *text;

	if (!line || !*line)
		return NULL;
	*len = strcspn(line, "\n");
	*text = line[*len] ? line + *len + 1 : line + *len;
	while (*len > 0 && (*line == ' ' || *line == '\t')) {
		line++;
		(*len)--;
	}
	return line;
}

static bool begins(const char *line, size_t len, const char *word)
{
	size_t n = strlen(word);

	return len > n && strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\t');
}

size_t sbx_net_resolv(const char *tool, const char *host, char *ret, size_t size)
{
	const char *first = "nameserver " PASTA_DNS4 "\n", *second = "", *rest = host, *line;
	bool four = false, six = false;
	size_t len, n;

	while ((line = next_line(&rest, &len))) {
		if (!begins(line, len, "nameserver"))
			continue;
		if (!memchr(line, ':', len))
			four = true;
		else if (!six && !four) /* the host asks it first */
			first = "nameserver " PASTA_DNS6 "\n";
		if (memchr(line, ':', len))
			six = true;
	}
	if (four && six)
		second = strstr(first, PASTA_DNS6) ? "nameserver " PASTA_DNS4 "\n" : "nameserver " PASTA_DNS6 "\n";
	if (!is_pasta(tool)) {
		first = "nameserver " SLIRP_DNS "\n";
		second = "";
	}
	n = (size_t)snprintf(ret, size, "%s%s", first, second);
	for (rest = host; (line = next_line(&rest, &len));) {
		if (!begins(line, len, "search") && !begins(line, len, "domain") && !begins(line, len, "options"))
			continue;
		if (n + len + 2 > size)
			break;
		n += (size_t)snprintf(ret + n, size - n, "%.*s\n", (int)len, line);
	}
	return n;
}

/* ---- the programs ---- */

static void net_ended(struct sbx_net *net);

/* what a program said last, or how it ended */
static void reason_of(const char *program, const struct sbx_spawn_result *result, struct sbx_err *err)
{
	const char *name = strrchr(program, '/'), *last = strrchr(result->text, '\n');

	name = name ? name + 1 : program;
	last = last ? last + 1 : result->text;
	if (WIFSIGNALED(result->status))
		sbx_err_set(err, EIO, "%s was killed by signal %d", name, WTERMSIG(result->status));
	else if (last[0])
		sbx_err_set(err, EIO, "%s: %s", name, last);
	else
		sbx_err_set(err, EIO, "%s ended with %d", name, WEXITSTATUS(result->status));
}

static void end_both(struct sbx_net *net)
{
	if (net->helper)
		sbx_spawn_kill(net->helper, SIGKILL);
	if (net->tool)
		sbx_spawn_kill(net->tool, SIGKILL); /* it has nothing to put in order */
}

/* what a dead tool had started itself is ours now, as the subreaper: nothing of it stays, not even a zombie */
static void reap_group(struct sbx_net *net)
{
	struct sbx_pbox *box = net->box;
	pid_t pid;

	while ((pid = waitpid(-net->group, NULL, WNOHANG)) > 0)
		;
	if (pid == 0) {
		kill(-net->group, SIGKILL); /* there is a child of ours in it: the number is still the group's */
		sbx_timer_set(box->provider->loop, &net->reap, REAP_MS);
		return;
	}
	net->group = 0;
	net_ended(net);
	sbx_local_pbox_put(box);
}

static void on_reap(struct sbx_timer *timer)
{
	reap_group(sbx_container_of(timer, struct sbx_net, reap));
}

static void tool_done(void *data, const struct sbx_spawn_result *result)
{
	struct sbx_net *net = data;

	net->group = sbx_spawn_pid(net->tool);
	net->tool = NULL;
	if (!net->why.code)
		reason_of(net->tool_path, result, &net->why);
	end_both(net);
	net->reap.fn = on_reap;
	reap_group(net);
}

static void helper_done(void *data, const struct sbx_spawn_result *result)
{
	struct sbx_net *net = data;
	struct sbx_pbox *box = net->box;
	bool ok = WIFEXITED(result->status) && WEXITSTATUS(result->status) == 0;

	net->helper = NULL;
	if (!net->stopping && ok && net->tool && !net->why.code) {
		net->ready = net->was = true;
		net->ready_ms = sbx_clock_ms();
		sbx_container_net(box, NULL);
	} else {
		if (result->timed_out && !net->why.code)
			sbx_err_set(&net->why, ETIMEDOUT, "no network after %d s", READY_TIMEOUT_MS / 1000);
		else if (!net->why.code)
			reason_of("network", result, &net->why);
		end_both(net);
		net_ended(net);
	}
	sbx_local_pbox_put(box);
}

static int start_program(struct sbx_net *net, const char *const *argv, uint64_t timeout_ms,
			 void (*done)(void *data, const struct sbx_spawn_result *result), struct sbx_spawn **ret,
			 struct sbx_err *err)
{
	struct sbx_spawn_spec spec = { .argv = argv, .timeout_ms = timeout_ms, .handle = ret };
	int r;

	sbx_local_pbox_get(net->box);
	r = sbx_spawn_start(net->box->provider->loop, &spec, done, net, err);
	if (r < 0)
		sbx_local_pbox_put(net->box);
	return r;
}

/* when process @pid was started, in ticks since boot; 0 = there is none */
static uint64_t process_start(int pid)
{
	char path[64], text[1024], *at;
	uint64_t start = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	sbx_proc_read(path, text, sizeof(text));
	at = strrchr(text, ')'); /* its name may have anything in it */
	/* state, then 18 numbers, then the 22nd field of all */
	if (!at || sscanf(at + 1,
			  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64, &start) != 1)
		return 0;
	return start;
}

/* a dead daemon's tool must be found again even if its tie to the daemon did not hold */
static void note_pid(struct sbx_net *net, int pid)
{
	const struct sbx_pbox *box = net->box;
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s/" PID_FILE, box->provider->state->run_dir, box->record.id);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	dprintf(fd, "%d %" PRIu64 "\n", pid, process_start(pid));
	close(fd);
}

static int start_tool(struct sbx_net *net, const char *const *ns, const char *parent, struct sbx_err *err)
{
	const char *argv[WORDS_MAX] = { net->box->provider->state->init_path, "tool", parent, net->tool_path };
	/* no port of either side is handed on; the gateway's address is not the host; nothing but what is set here */
	static const char *const pasta[] = { "--foreground", "--quiet", "--config-net", "--no-map-gw",
					     "--no-dhcp", "--no-dhcpv6", "--no-ra", "-t", "none", "-u", "none",
					     "-T", "none", "-U", "none", "--dns-forward", PASTA_DNS4,
					     "--dns-forward", PASTA_DNS6, "-I", DEVICE };
	static const char *const slirp[] = { "--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox",
					     "--enable-seccomp" };
	char pid[16];
	size_t n = 4, i;
	int r;

	if (is_pasta(net->tool_path)) {
		for (i = 0; i < sizeof(pasta) / sizeof(pasta[0]); i++)
			argv[n++] = pasta[i];
		if (net->box->provider->state->root) {
			/* else it becomes nobody first, who may not enter; in the box's user namespace root is nobody */
			argv[n++] = "--runas";
			argv[n++] = "0";
		}
		argv[n++] = "--userns";
		argv[n++] = ns[0];
		argv[n++] = "--netns";
		argv[n++] = ns[1];
	} else {
		for (i = 0; i < sizeof(slirp) / sizeof(slirp[0]); i++)
			argv[n++] = slirp[i];
		snprintf(pid, sizeof(pid), "%d", (int)net->pid); /* with paths its sandbox fails for ordinary users */
		argv[n++] = pid;
		argv[n++] = DEVICE;
	}
	argv[n] = NULL;
	r = start_program(net, argv, 0, tool_done, &net->tool, err);
	if (r == 0)
		note_pid(net, sbx_spawn_pid(net->tool));
	return r;
}

static int start_helper(struct sbx_net *net, const char *const *ns, const char *parent, struct sbx_err *err)
{
	const char *const first[] = { net->box->provider->state->init_path, "net", parent, ns[0], ns[1], DEVICE };
	struct sbx_addresses words = { 0 };
	size_t i;
	int r = 0;

	for (i = 0; r == 0 && i < sizeof(first) / sizeof(first[0]); i++)
		r = sbx_addresses_add(&words, "%s", first[i]);
	/* first what stays, whatever the host's own addresses are: the first word for an address holds */
	if (r == 0)
		r = sbx_addresses_add(&words, "+%s/32", is_pasta(net->tool_path) ? PASTA_DNS4 : SLIRP_DNS);
	if (r == 0 && !is_pasta(net->tool_path))
		r = sbx_addresses_add(&words, "+%s/32", SLIRP_GATEWAY);
	if (r == 0)
		r = sbx_addresses_unreachable(&words);
	if (r < 0)
		sbx_err_sys(err, -r, "cannot tell the host's own addresses");
	else
		r = start_program(net, (const char *const *)words.list, READY_TIMEOUT_MS, helper_done, &net->helper, err);
	sbx_addresses_done(&words);
	return r;
}

static int start_both(struct sbx_net *net, struct sbx_err *err)
{
	char userns[64], netns[64], parent[16];
	const char *const ns[] = { userns, netns };
	int r;

	net->why = (struct sbx_err)SBX_ERR_INIT;
	net->ready = false;
	snprintf(userns, sizeof(userns), "/proc/%d/ns/user", (int)net->pid);
	snprintf(netns, sizeof(netns), "/proc/%d/ns/net", (int)net->pid);
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	r = start_tool(net, ns, parent, err);
	if (r < 0)
		return r;
	/* what fails from here on is told when the tool has ended */
	if (start_helper(net, ns, parent, &net->why) < 0)
		end_both(net);
	return 0;
}

/* ---- its life ---- */

static void plan_again(struct sbx_net *net);

static void on_again(struct sbx_timer *timer)
{
	struct sbx_net *net = sbx_container_of(timer, struct sbx_net, again);
	struct sbx_err err = SBX_ERR_INIT;

	if (start_both(net, &err) < 0) {
		net->why = err;
		plan_again(net);
	}
}

static void plan_again(struct sbx_net *net)
{
	uint64_t delay = net->tries < 7 ? (uint64_t)AGAIN_MS << net->tries : AGAIN_MAX_MS;
	struct sbx_err why = SBX_ERR_INIT;

	sbx_err_set(&why, ENETDOWN, "the network of the sandbox is gone: %s; it is started again", net->why.text);
	if (net->tries < 2) /* a host that stays without a network fills no log */
		sbx_container_net(net->box, &why);
	net->tries++;
	net->again.fn = on_again;
	sbx_timer_set(net->box->provider->loop, &net->again, delay);
}

/* a program of it has ended for a reason; when both have, something follows */
static void net_ended(struct sbx_net *net)
{
	struct sbx_err why = SBX_ERR_INIT;

	if (net->tool || net->helper || net->group)
		return;
	if (net->stopping) {
		sbx_container_step(net->box);
		return;
	}
	if (net->ready && sbx_clock_ms() - net->ready_ms > STEADY_MS)
		net->tries = 0;
	net->ready = false;
	if (net->was) {
		plan_again(net);
		return;
	}
	sbx_err_set(&why, EIO, "network 'nat' cannot be set up: %s", net->why.text);
	sbx_container_net(net->box, &why);
}

int sbx_net_prepare(struct sbx_pbox *box, const char **ret_tool, struct sbx_err *err)
{
	int r;

	if (!box->net) {
		box->net = calloc(1, sizeof(*box->net));
		if (!box->net)
			return sbx_err_set(err, ENOMEM, "no memory for the network");
		box->net->box = box;
	}
	r = sbx_net_tool(box->provider->config->network_tool, box->net->tool_path, err);
	if (r == 0)
		*ret_tool = box->net->tool_path;
	return r;
}

int sbx_net_start(struct sbx_pbox *box, pid_t pid, struct sbx_err *err)
{
	struct sbx_net *net = box->net;

	net->pid = pid;
	net->stopping = net->was = false;
	net->tries = 0;
	if (pid <= 0)
		return sbx_err_set(err, ESRCH, "the sandbox ended");
	return start_both(net, err);
}

void sbx_net_stop(struct sbx_pbox *box)
{
	if (!box->net)
		return;
	box->net->stopping = true;
	sbx_timer_cancel(box->provider->loop, &box->net->again);
	end_both(box->net);
}

bool sbx_net_busy(const struct sbx_pbox *box)
{
	return box->net && (box->net->tool || box->net->helper || box->net->group);
}

void sbx_net_free(struct sbx_net *net)
{
	free(net);
}

/* ---- after a daemon that was killed ---- */

void sbx_net_recover(int dir_fd)
{
	int fd = openat(dir_fd, PID_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), pid;
	char text[64];
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	uint64_t start;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* the number and the time of its start: no other process has both */
	if (sscanf(text, "%d %" SCNu64, &pid, &start) == 2 && pid > 1 && start != 0 &&
	    process_start(pid) == start)
		kill(pid, SIGKILL);
}
