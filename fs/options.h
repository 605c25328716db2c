/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the command line.  Main thread. */
#ifndef SBX_FS_OPTIONS_H
#define SBX_FS_OPTIONS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdbool.h>

struct sbx_err;

struct sbx_options {
	char *source;	  /* malloc'ed */
	char *mountpoint; /* malloc'ed, absolute */
	char *config;	  /* -o config= */
	char *template;	  /* -o template= */
	char *links;	  /* -o links= */
	char *log;	  /* -o log= */
	int ephemeral, allow_other, foreground, debug, help, version, check;
	struct fuse_args args; /* what is left for libfuse */
};

/*
 * sbx_options_parse - reads argv.  -EINVAL with one clear line; nothing is touched outside.
 * sbx_options_done - frees.   sbx_options_usage - the text of --help.
 */
int sbx_options_parse(int argc, char **argv, struct sbx_options *ret, struct sbx_err *err);
void sbx_options_done(struct sbx_options *options);
extern const char sbx_options_usage[];

#endif
