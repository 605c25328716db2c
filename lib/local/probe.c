/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the aspects of the check.  Main thread; blocks. */
#include "local/probe.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "local/network.h"
#include "local/rootfs.h"
#include "local/runtime.h"
#include "local/volume.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

struct sink {
	void (*each)(void *data, const char *what, bool ok, bool needed, const char *text);
	void *data;
};

__attribute__((format(printf, 5, 6))) static void say(const struct sink *s, const char *what, bool ok,
						       bool needed, const char *fmt, ...)
{
	char text[2 * SBX_ERR_TEXT_MAX], *nl;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	while ((nl = strchr(text, '\n')))
		*nl = ' ';
	s->each(s->data, what, ok, needed, text);
}

/* a number in /proc/sys; -1: no such file */
static long sysctl_number(const char *name)
{
	char path[128];
	long n = -1;

	snprintf(path, sizeof(path), "/proc/sys/%s", name);
	{
		SBX_CLEANUP(sbx_fclosep) FILE *f = fopen(path, "re");

		if (f && fscanf(f, "%ld", &n) != 1)
			n = -1;
	}
	return n;
}

/* in a child: 0, or the errno of making a user namespace, + 1000 for using it */
static int try_userns(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) != 0)
			_exit(errno < 100 ? errno : 99);
		/* AppArmor lets it be made, but gives no rights in it */
		if (unshare(CLONE_NEWNS) != 0)
			_exit(100 + (errno < 100 ? errno : 99));
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return EIO;
	return WEXITSTATUS(status);
}

static void check_userns(const struct sink *s)
{
	int e = try_userns();

	if (e == 0)
		say(s, "user namespaces", true, true, "ok");
	else if (sysctl_number("kernel/apparmor_restrict_unprivileged_userns") == 1 && geteuid() != 0)
		say(s, "user namespaces", false, true,
		    "AppArmor keeps ordinary users from them (kernel.apparmor_restrict_unprivileged_userns = 1); as root: "
		    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (and in /etc/sysctl.d), or run sbxfs as root");
	else if (sysctl_number("kernel/unprivileged_userns_clone") == 0 && geteuid() != 0)
		say(s, "user namespaces", false, true,
		    "ordinary users may not make them; as root: sysctl -w kernel.unprivileged_userns_clone=1");
	else if (sysctl_number("user/max_user_namespaces") == 0)
		say(s, "user namespaces", false, true,
		    "switched off; as root: sysctl -w user.max_user_namespaces=10000");
	else
		say(s, "user namespaces", false, true, "cannot be made: %s%s", strerror(e % 100),
		    e % 100 == EPERM ? " (in a container? it must be allowed there, too)" : "");
}

static void check_disk(const struct sink *s, const struct sbx_config *config, const struct sbx_local_state *st)
{
	char have[SBX_TEXT_NUMBER_MAX], keep[SBX_TEXT_NUMBER_MAX];
	struct statvfs v;
	uint64_t room;

	if (statvfs(st->dir, &v) != 0) {
		say(s, "state directory", false, true, "'%s': %s", st->dir, strerror(errno));
		return;
	}
	room = (uint64_t)v.f_bavail * v.f_frsize;
	sbx_text_short_size(room, have);
	sbx_text_short_size(config->disk_reserve_bytes, keep);
	if (room > config->disk_reserve_bytes)
		say(s, "state directory", true, true, "ok: %s (%s free)", st->dir, have);
	else
		say(s, "state directory", false, false,
		    "%s has only %s free, %s are kept: sandboxes cannot write; make room or set another state_dir",
		    st->dir, have, keep);
}

static void check_runtime(const struct sink *s, const struct sbx_config *config,
			  const struct sbx_local_state *st)
{
	char dir[PATH_MAX + 32], oci[PATH_MAX + 64];
	struct sbx_trial t = { .wanted = config->oci_runtime, .dir = dir, .init_path = st->init_path,
			       .root = st->root, .id_base = st->ids_base };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_runtime rt;
	int r;

	/* beside what a live daemon has there */
	snprintf(dir, sizeof(dir), "%s/check-%d", st->run_dir, (int)getpid());
	if (mkdir(dir, 0711) != 0) {
		say(s, "OCI runtime", false, true, "cannot make '%s': %s", dir, strerror(errno));
		return;
	}
	r = sbx_runtime_find(&t, &rt, &err);
	snprintf(oci, sizeof(oci), "%s/oci", dir);
	rmdir(oci);
	rmdir(dir);
	if (r < 0) {
		say(s, "OCI runtime", false, true, "%s", err.text);
		return;
	}
	say(s, "OCI runtime", true, true, "ok: %s started a container%s", rt.path,
	    rt.systemd_cgroup ? " (with systemd's cgroups)" : "");
	if (rt.limits)
		say(s, "limits", true, false, "ok: cpu, memory and processes");
	else
		say(s, "limits", false, false,
		    "no limits of cpu and memory, and no pause (processes are limited all the same): %s",
		    rt.no_limits);
	if (sbx_volume_possible(&err) == 0)
		say(s, "disk limits", true, false, "ok: an image for each sandbox with limits.disk");
	else
		say(s, "disk limits", false, false, "%s", err.text);
}

static void check_programs(const struct sink *s)
{
	static const struct {
		const char *what, *names[4], *install;
		bool needed;
	} programs[] = {
		{ "sh", { "bash", "sh", NULL }, "bash", true },
		{ "python", { "python3", NULL }, "python3", false },
		{ "node", { "node", "nodejs", NULL }, "nodejs", false },
		{ "ruby", { "ruby", NULL }, "ruby", false },
		{ "perl", { "perl", NULL }, "perl", false },
		{ "php", { "php", NULL }, "php-cli", false },
		{ "lua", { "lua", "lua5.4", "lua5.3", NULL }, "lua5.4", false },
		{ "go", { "go", NULL }, "golang-go", false },
	};
	size_t i;

	for (i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		const char *found = sbx_rootfs_find(NULL, programs[i].names);

		if (found)
			say(s, programs[i].what, true, programs[i].needed, "ok: %s", found);
		else
			say(s, programs[i].what, false, programs[i].needed,
			    "not in /usr, so sandboxes do not have it; install the package %s", programs[i].install);
	}
}

static void check_network(const struct sink *s, const struct sbx_config *config)
{
	struct sbx_err err = SBX_ERR_INIT;
	char found[PATH_MAX];

	if (sbx_net_tool(config->network_tool, found, &err) == 0)
		say(s, "network tools", true, false, "ok: %s", found);
	else
		say(s, "network tools", false, false, "%s (none and host need nothing)", err.text);
}

void sbx_local_check(const struct sbx_config *config,
		     void (*each)(void *data, const char *what, bool ok, bool needed, const char *text),
		     void *data)
{
	const struct sink s = { each, data };
	struct sbx_err err = SBX_ERR_INIT;
	struct sbx_local_state *st;

	check_userns(&s);
	if (sbx_state_open_shared(config->state_dir, &st, &err) < 0) {
		say(&s, "state directory", false, true, "%s", err.text);
	} else {
		check_disk(&s, config, st);
		check_runtime(&s, config, st);
		sbx_state_close(st);
	}
	check_programs(&s);
	check_network(&s, config);
}
