/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the command line and the text of --help.  Main thread. */
#include "options.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "mounts.h"
#include "provider.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char sbx_options_usage[] =
	"usage: sbxfs [SOURCE] MOUNTPOINT [-o OPTION[,OPTION...]]   mount sandboxes as files\n"
	"       sbxfs check [SOURCE] [-o config=FILE]               is everything there that it needs?\n"
	"       fusermount3 -u MOUNTPOINT                           unmount; sandboxes and their files stay\n"
	"\n"
	"SOURCE is where sandboxes run: local (default) = containers on this machine.\n"
	"\n"
	"  -o config=FILE      configuration (default: /etc/sbxfs/config.yaml, then ~/.config/sbxfs/config.yaml)\n"
	"  -o template=NAME    template of the configuration that mkdir uses\n"
	"  -o ephemeral        unmounting deletes the sandboxes that this mount made\n"
	"  -o links=outside    links that leave a workspace are shown as .outside/... (default)\n"
	"  -o links=eperm      ... cannot be read at all\n"
	"  -o allow_other      other users may read (never write)\n"
	"  -o log=PARTS        debug lines of: fuse run box local http, or all; several: 'log=run\\,box'\n"
	"  -f                  stay in the foreground, log to stderr\n"
	"  -d                  the same, with every FUSE request\n"
	"  -h, --help          this text\n"
	"  -V, --version       versions\n"
	"and the mount options of libfuse, see mount.fuse3(8); what else stands in fstab is accepted.\n"
	"\n"
	"  mkdir ~/box && sbxfs ~/box && mkdir ~/box/demo && echo 'print(6*7)' > ~/box/demo/run/code.py && cat ~/box/demo/run/stdout\n"
	"The tree explains itself: MOUNTPOINT/.sbxfs/README\n";

#define OPTION(text, field, value)                                                                 \
	{                                                                                          \
		text, offsetof(struct sbx_options, field), value                                   \
	}

#define IGNORED(text) FUSE_OPT_KEY(text, FUSE_OPT_KEY_DISCARD)

static const struct fuse_opt options[] = {
	OPTION("config=%s", config, 0),
	OPTION("template=%s", template, 0),
	OPTION("links=%s", links, 0),
	OPTION("log=%s", log, 0),
	OPTION("ephemeral", ephemeral, 1),
	OPTION("allow_other", allow_other, 1),
	OPTION("-f", foreground, 1),
	OPTION("-d", debug, 1),
	OPTION("debug", debug, 1),
	OPTION("-h", help, 1),
	OPTION("--help", help, 1),
	OPTION("-V", version, 1),
	OPTION("--version", version, 1),
	/* of fstab: for mount(8) and systemd, or about times of access, which are not kept here */
	IGNORED("defaults"),
	IGNORED("auto"),
	IGNORED("noauto"),
	IGNORED("user"),
	IGNORED("user=%s"),
	IGNORED("nouser"),
	IGNORED("users"),
	IGNORED("owner"),
	IGNORED("group"),
	IGNORED("nofail"),
	IGNORED("_netdev"),
	IGNORED("comment=%s"),
	IGNORED("relatime"),
	IGNORED("norelatime"),
	IGNORED("strictatime"),
	IGNORED("nostrictatime"),
	IGNORED("diratime"),
	IGNORED("nodiratime"),
	IGNORED("lazytime"),
	IGNORED("nolazytime"),
	FUSE_OPT_END,
};

struct words {
	struct sbx_options *options;
	char *word[3];
	int n;
};

/* words that are not options: SOURCE and MOUNTPOINT; the rest goes to libfuse */
static int on_word(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	struct words *words = data;

	(void)outargs;
	if (key == FUSE_OPT_KEY_OPT && (strncmp(arg, "x-", 2) == 0 || strncmp(arg, "X-", 2) == 0))
		return 0; /* x-systemd.automount and the like: a space for comments */
	if (key != FUSE_OPT_KEY_NONOPT)
		return 1;
	if (words->n < 3)
		words->word[words->n] = strdup(arg);
	words->n++;
	return 0;
}

/* fuse_opt hands its data to the offsets above: the options struct must come first there, so the words follow it */
struct parse {
	struct sbx_options options;
	struct words words;
};

static int on_arg(void *data, const char *arg, int key, struct fuse_args *outargs)
{
	return on_word(&((struct parse *)data)->words, arg, key, outargs);
}

static int check_mountpoint(struct sbx_options *o, const char *path, struct sbx_err *err)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		if (errno == ENOTCONN || errno == ECONNABORTED)
			return sbx_err_set(err, EINVAL,
					   "mount point '%s': a mount whose daemon died is in the way; run: fusermount3 -u %s",
					   path, path);
		if (errno == ENOENT)
			return sbx_err_set(err, ENOENT, "mount point '%s' does not exist; run: mkdir %s", path,
					   path);
		return sbx_err_sys(err, errno, "mount point '%s'", path);
	}
	if (!S_ISDIR(st.st_mode))
		return sbx_err_set(err, ENOTDIR, "mount point '%s' is not a directory", path);
	o->mountpoint = realpath(path, NULL);
	if (!o->mountpoint)
		return sbx_err_sys(err, errno, "mount point '%s'", path);
	if (sbx_mounts_ours(o->mountpoint))
		return sbx_err_set(err, EBUSY, "mount point '%s' is busy: an sbxfs is mounted there; to end it: fusermount3 -u %s",
				   path, path);
	return 0;
}

int sbx_options_parse(int argc, char **argv, struct sbx_options *ret, struct sbx_err *err)
{
	struct parse parse;
	struct words *w = &parse.words;
	int r = 0;

	memset(&parse, 0, sizeof(parse));
	parse.options.args = (struct fuse_args)FUSE_ARGS_INIT(argc, argv);
	if (fuse_opt_parse(&parse.options.args, &parse, options, on_arg) < 0)
		r = sbx_err_set(err, EINVAL, "bad option; see sbxfs --help");
	*ret = parse.options;
	if (r == 0 && !ret->help && !ret->version) {
		ret->check = w->n > 0 && strcmp(w->word[0], "check") == 0 && w->n <= 2;
		if (ret->check) {
			ret->source = w->n > 1 ? sbx_take(w->word[1]) : strdup("local");
		} else if (w->n == 0) {
			r = sbx_err_set(err, EINVAL, "no mount point given; see sbxfs --help");
		} else if (w->n > 2) {
			r = sbx_err_set(err, EINVAL, "too many words: sbxfs [SOURCE] MOUNTPOINT [-o OPTIONS]");
		} else {
			ret->source = w->n == 2 ? sbx_take(w->word[0]) : strdup("local");
		}
		if (r == 0 && !ret->source)
			r = sbx_err_set(err, ENOMEM, "no memory");
		if (r == 0 && !sbx_provider_find(ret->source))
			r = sbx_err_set(err, EINVAL, "source '%s' is not known; known: %s", ret->source,
					sbx_provider_names());
		if (r == 0 && ret->links && strcmp(ret->links, "outside") != 0 && strcmp(ret->links, "eperm") != 0)
			r = sbx_err_set(err, EINVAL, "links=%s: write links=outside or links=eperm", ret->links);
		if (r == 0 && !ret->check)
			r = check_mountpoint(ret, w->n == 2 ? w->word[1] : w->word[0], err);
	}
	free(w->word[0]);
	free(w->word[1]);
	free(w->word[2]);
	return r;
}

void sbx_options_done(struct sbx_options *o)
{
	free(o->source);
	free(o->mountpoint);
	free(o->config);
	free(o->template);
	free(o->links);
	free(o->log);
	fuse_opt_free_args(&o->args);
}
