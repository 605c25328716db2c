/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: `sbxfs check`: FUSE here, the rest by the provider.  Main thread. */
#include "check.h"

#include "config.h"
#include "provider.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct report {
	FILE *out;
	bool works;
};

static void each(void *data, const char *what, bool ok, bool needed, const char *text)
{
	struct report *report = data;

	fprintf(report->out, "%-18s %s%s\n", what, ok ? "" : needed ? "MISSING: " : "note: ", text);
	if (!ok && needed)
		report->works = false;
}

static void check_dev_fuse(struct report *report)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	int e = errno;

	if (fd >= 0)
		close(fd);
	if (fd >= 0)
		each(report, "/dev/fuse", true, true, "ok");
	else if (e == ENOENT || e == ENODEV || e == ENXIO)
		each(report, "/dev/fuse", false, true, "not there; load the kernel module as root: modprobe fuse");
	else if (e == EACCES || e == EPERM)
		each(report, "/dev/fuse", false, true, "not allowed for this user; as root: chmod 0666 /dev/fuse");
	else
		each(report, "/dev/fuse", false, true, strerror(e));
}

/* a set-uid program on PATH */
static void check_fusermount(struct report *report)
{
	const char *path = getenv("PATH");
	char *copy = strdup(path ? path : "/usr/bin:/bin"), *dir, *rest = copy;
	bool found = false, suid = false;

	while (copy && (dir = strsep(&rest, ":"))) {
		char file[4096];
		struct stat st;

		snprintf(file, sizeof(file), "%s/fusermount3", dir);
		if (!found && stat(file, &st) == 0 && S_ISREG(st.st_mode)) {
			found = true;
			suid = (st.st_mode & S_ISUID) && st.st_uid == 0;
		}
	}
	free(copy);
	if (!found)
		each(report, "fusermount3", false, true, "not on PATH; install the package fuse3");
	else if (!suid && geteuid() != 0)
		each(report, "fusermount3", false, true,
		     "not set-uid root, so only root can mount; as root: chmod u+s on it, or reinstall fuse3");
	else
		each(report, "fusermount3", true, true, "ok");
}

int sbx_check(const char *source, const struct sbx_config *config, FILE *out)
{
	const struct sbx_provider_ops *ops = sbx_provider_find(source);
	struct report report = { out, true };

	check_dev_fuse(&report);
	check_fusermount(&report);
	if (ops->check)
		ops->check(config, each, &report);
	return report.works ? 0 : 1;
}
