/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the configuration: defaults, then /etc/sbxfs/config.yaml, then ~/.config/sbxfs/config.yaml; or only the
 * file of `-o config=`.  A later file changes what an earlier one said.  Read once before threads start,
 * read-only after that: any thread.
 */
#ifndef SBX_CONFIG_H
#define SBX_CONFIG_H

#include "provider.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_err;

enum sbx_network { SBX_NET_NONE, SBX_NET_NAT, SBX_NET_HOST };

/* one language: how a file extension is run */
struct sbx_language {
	char *name;	   /* "python" */
	char **extensions; /* "py"; NULL at the end */
	char **command;	   /* own command line from the config, "{code}" is the file, else that is behind it; NULL = built in */
	char *at;	   /* "FILE:LINE: KEY" where it was read without a command, else NULL */
};

/* additions and changes to the built-in table */
struct sbx_languages {
	struct sbx_language *items;
	size_t n;
};

/* what a new box finds in its workspace */
struct sbx_template_file {
	char *to;      /* inside the workspace: "a/b", or "." for the workspace itself; checked, no "..", no '/' in front */
	char *from;    /* absolute path on the host: a file or a folder */
	uint64_t mode; /* permission bits of files; UINT64_MAX = as they are */
};

/* when boxes go by themselves; UINT64_MAX = never */
struct sbx_cleanup {
	uint64_t idle_ms;    /* not used for so long: stopped */
	bool idle_deletes;   /* ... or deleted */
	uint64_t max_age_ms; /* so old, and not in use: deleted */
};

/* how a kind of box is made; "default" always exists */
struct sbx_template {
	char *name;
	char *rootfs; /* absolute path of another root, NULL = the host's /usr */
	char *runtime; /* what `runtime` shows, NULL = the backend's word */
	enum sbx_network network;
	struct sbx_limits limits;
	char **env; /* NAME=value, NULL at the end; NULL = none */
	struct sbx_template_file *files;
	size_t files_n;
	struct sbx_languages languages; /* its own first, then those of the configuration */
	struct sbx_cleanup cleanup;
};

struct sbx_config {
	char *state_dir;   /* absolute; made if missing */
	char *network_tool; /* name or path of pasta or slirp4netns; NULL = the first of them that is there */
	char *oci_runtime; /* program name or path; NULL = the first of crun, runc that works */
	char *log;	   /* components with debug lines, may be NULL */
	char *default_template;
	struct sbx_template *templates;
	size_t templates_n;
	struct sbx_languages languages;
	struct sbx_cleanup cleanup; /* of boxes whose template is not there any more; templates have their own */
	char **policy_deny;	 /* case-insensitive extended regular expressions; NULL at the end; may be NULL */
	uint64_t max_wait_ms;	 /* how long a reader may wait; UINT64_MAX = for ever */
	uint64_t op_timeout_ms;	 /* metadata calls to a remote backend */
	uint64_t disk_reserve_bytes; /* local: what a box may not use up of the state file system */
	uint64_t spool_bytes;	     /* per box: all kept output together */
	uint64_t events_bytes;	     /* of .sbxfs/events: what is kept */
	uint64_t code_bytes;	     /* size limit of one program text */
};

/*
 * sbx_config_load - read and check everything.
 * @file: NULL = the usual places (a missing file is fine), else this file and it must exist.
 * -EINVAL: "FILE:LINE: KEY: what is wrong" as reason; unknown keys name the nearest known one.  Main thread.
 */
int sbx_config_load(const char *file, struct sbx_config **ret, struct sbx_err *err);
void sbx_config_free(struct sbx_config *config);
/* sbx_config_template - by name; NULL: no such */
const struct sbx_template *sbx_config_template(const struct sbx_config *config, const char *name);
/* sbx_network_name - "none", "nat", "host" */
const char *sbx_network_name(enum sbx_network network);

#endif
