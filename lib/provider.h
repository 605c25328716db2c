/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the interface that every backend implements, and the registry of backends.
 *
 * A provider has boxes (struct sbx_pbox, its own type), programs in them (struct sbx_exec) and the
 * files of their workspaces (struct sbx_fnode).  lib/box.c and lib/run.c call the first two, fs/tree_workspace.c the files.
 *
 * Asynchrony: lifecycle calls return at once and report through struct sbx_box_events on the loop
 * thread.  Programs report through struct sbx_exec_events on the loop thread.  File calls either finish at
 * once (return 0 or -errno, results in the request) or return -EINPROGRESS and call req->done later.
 * No call blocks.  No lock of the caller is held across a call, and none of the provider's across a callback.
 */
#ifndef SBX_PROVIDER_H
#define SBX_PROVIDER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct sbx_config;
struct sbx_later;
struct sbx_template;
struct sbx_loop;
struct sbx_provider; /* the provider's own type; its first member is: const struct sbx_provider_ops *ops */
struct sbx_pbox;     /* the provider's own type */
struct sbx_exec;     /* the provider's own type */
struct sbx_fnode;    /* the provider's own type */

/* ---- boxes ---- */

enum sbx_box_state {
	SBX_BOX_CREATING,
	SBX_BOX_RUNNING,
	SBX_BOX_PAUSED,
	SBX_BOX_STOPPED,
	SBX_BOX_FAILED,
	SBX_BOX_DELETING,
	SBX_BOX_GONE, /* deleted, nothing is left; never shown */
};

struct sbx_box_events {
	/*
	 * state - the box is now in @state.  @why: the reason for FAILED (and a STOPPED that nobody asked
	 * for), else NULL.  Loop thread.
	 */
	void (*state)(void *data, enum sbx_box_state state, const struct sbx_err *why);
	/* progress - a line for .sbxfs/events about long work ("starting the container").  Loop thread. */
	void (*progress)(void *data, const char *text);
	/*
	 * trouble - something failed in a box that stays in its state: @op is one word for what ("network").
	 * Loop thread.
	 */
	void (*trouble)(void *data, const char *op, const struct sbx_err *why);
};

/* which field of sbx_limits; lib/limit.h has their names and forms */
enum sbx_limit {
	SBX_LIMIT_CPU,
	SBX_LIMIT_MEMORY,
	SBX_LIMIT_DISK,
	SBX_LIMIT_PIDS,
	SBX_LIMIT_OUTPUT,
	SBX_LIMIT_TIMEOUT,
	SBX_LIMITS,
};

/* sizes and counts of one box; UINT64_MAX = no limit */
struct sbx_limits {
	uint64_t cpu_milli; /* 1000 = one core */
	uint64_t memory_bytes;
	uint64_t disk_bytes;
	uint64_t pids;
	uint64_t output_bytes; /* per stream of a run */
	uint64_t timeout_ms;   /* of a run */
};

/* what a box is made of, for info.json; strings belong to the pbox and live as long */
struct sbx_pbox_info {
	const char *id;		/* the backend's name of it (container id) */
	const char *runtime;	/* "host root" or the rootfs, or the backend's word */
	const char *network;	/* none, nat, host */
	const char *workspace;	/* absolute path of workspace/ as programs in the box see it */
	const char *template;	/* name of the template */
	struct timespec created;
	bool foreign; /* not made by sbxfs: the policy `cleanup` leaves it alone */
	struct sbx_limits limits; /* in force */
};

/* what a running box uses now; UINT64_MAX = not known */
struct sbx_usage {
	uint64_t cpu_us; /* user and system, since it came up */
	uint64_t memory_bytes, pids;
};

/* ---- programs ---- */

enum sbx_stream { SBX_STDOUT, SBX_STDERR };

struct sbx_exec_spec {
	const char *const *argv;     /* argv[0] is looked up in PATH of @env unless it has a '/' */
	const char *const *env;	     /* NAME=value, complete; NULL at the end */
	const char *cwd;	     /* inside the workspace: "" or "a/b"; checked, no "..", no '/' in front */
	int stdin_fd;		     /* readable from offset 0; -1 = /dev/null.  Stays the caller's */
	const char *code_name;	     /* NULL, or the name of the code's file ("code.py"), made in a private folder */
	const char *code;	     /* bytes of the code */
	size_t code_len;
	int code_arg;		     /* index in argv that is replaced by the path of the code's file; -1 none */
};

struct sbx_exec_end {
	int status;	  /* as waitpid() gives it; meaningless when @lost */
	bool lost;	  /* how it ended cannot be known (box died, connection lost) */
	bool oom;	  /* the box's memory limit killed something of it */
	uint64_t cpu_ms;  /* user + system, 0 if unknown */
	char reason[200]; /* of lost, or of a program that could not be started; else "" */
};

/* All on the loop thread, in this order: started?, output*, ended, gone. */
struct sbx_exec_events {
	void (*started)(void *data, int64_t pid); /* pid inside the box */
	void (*output)(void *data, enum sbx_stream which, const char *bytes, size_t len);
	/* all output that counts has been delivered; later output is drained to nowhere */
	void (*ended)(void *data, const struct sbx_exec_end *end);
	/* no descendant of the program is left either.  After it, no more events: the exec may be put. */
	void (*gone)(void *data);
};

/* ---- files ---- */

/* attributes as the mount shows them, but for the owner: fs/ puts that in */
struct sbx_fattr {
	uint64_t ino;
	mode_t mode; /* type and permission */
	nlink_t nlink;
	uint64_t size;
	uint64_t blocks; /* of 512 bytes */
	uint32_t blksize;
	uint32_t rdev;
	struct timespec atime, mtime, ctime;
};

/* which fields of sbx_fset count */
enum sbx_fset_mask {
	SBX_FSET_MODE = 1,
	SBX_FSET_SIZE = 2,
	SBX_FSET_ATIME = 4,
	SBX_FSET_MTIME = 8,
	SBX_FSET_ATIME_NOW = 16,
	SBX_FSET_MTIME_NOW = 32,
};

struct sbx_fset {
	unsigned int mask;
	mode_t mode;
	uint64_t size;
	struct timespec atime, mtime;
};

/* an open regular file: always a local descriptor (the real file, or a spool) */
struct sbx_fhandle {
	int fd;
	bool append; /* the descriptor has O_APPEND */
	void *priv;  /* the provider's */
};

/* an open folder; the provider's own type */
struct sbx_fdir;

struct sbx_fdirent {
	const char *name;
	uint64_t ino;
	mode_t type; /* S_IFMT bits, 0 = unknown */
	off_t next;  /* offset of the entry behind this one */
};

/*
 * One file request.  The caller zeroes it and sets @done; out fields are valid when the call
 * returned 0, or in done() with r == 0.
 */
struct sbx_freq {
	void (*done)(struct sbx_freq *req, int r); /* only after -EINPROGRESS; any thread */
	struct sbx_err err;			   /* reason of a failure; text "" = errno says it all */
	struct sbx_fnode *node;			   /* out: a counted reference, see forget */
	struct sbx_fattr attr;			   /* out */
	struct sbx_fhandle fh;			   /* out of open, create */
	struct sbx_fdir *dir;			   /* out of opendir */
	char *text;				   /* out of readlink: malloc'ed raw target, NUL-terminated */
	struct statvfs *statvfs;		   /* in: where statfs puts its answer */
};

struct sbx_file_ops {
	/* root - the workspace folder itself; a counted reference.  Works in every state of the box. */
	int (*root)(struct sbx_pbox *box, struct sbx_freq *req);
	/* forget - give back @n references got from root, lookup, create, mkdir, ... */
	void (*forget)(struct sbx_fnode *node, uint64_t n);
	/*
	 * depth - how many folders deep an entry of @node lies: 0 for entries of the workspace itself.  @node is no
	 * folder: how deep it lies itself.  Any thread.
	 */
	unsigned int (*depth)(struct sbx_fnode *node);

	int (*lookup)(struct sbx_fnode *dir, const char *name, struct sbx_freq *req);
	int (*getattr)(struct sbx_fnode *node, const struct sbx_fhandle *fh, struct sbx_freq *req);
	int (*setattr)(struct sbx_fnode *node, const struct sbx_fhandle *fh, const struct sbx_fset *set,
		       struct sbx_freq *req);
	int (*readlink)(struct sbx_fnode *node, struct sbx_freq *req);
	/* open - @flags: O_ACCMODE, O_APPEND, O_TRUNC, O_SYNC, O_DSYNC, O_DIRECT count */
	int (*open)(struct sbx_fnode *node, int flags, struct sbx_freq *req);
	int (*create)(struct sbx_fnode *dir, const char *name, int flags, mode_t mode, struct sbx_freq *req);
	/* flush - at every close(): an upload's error is told here.  NULL: nothing to do */
	int (*flush)(struct sbx_fnode *node, struct sbx_fhandle *fh, struct sbx_freq *req);
	/* fsync - @fh NULL: @node is a folder, its names */
	int (*fsync)(struct sbx_fnode *node, struct sbx_fhandle *fh, bool datasync, struct sbx_freq *req);
	void (*close)(struct sbx_fnode *node, struct sbx_fhandle *fh);
	int (*mkdir)(struct sbx_fnode *dir, const char *name, mode_t mode, struct sbx_freq *req);
	/* mknod - regular files and FIFOs and sockets; devices are -EPERM */
	int (*mknod)(struct sbx_fnode *dir, const char *name, mode_t mode, struct sbx_freq *req);
	int (*symlink)(struct sbx_fnode *dir, const char *name, const char *target, struct sbx_freq *req);
	int (*link)(struct sbx_fnode *node, struct sbx_fnode *dir, const char *name, struct sbx_freq *req);
	int (*unlink)(struct sbx_fnode *dir, const char *name, struct sbx_freq *req);
	int (*rmdir)(struct sbx_fnode *dir, const char *name, struct sbx_freq *req);
	/* rename - @flags: RENAME_NOREPLACE, RENAME_EXCHANGE */
	int (*rename)(struct sbx_fnode *dir, const char *name, struct sbx_fnode *new_dir,
		      const char *new_name, unsigned int flags, struct sbx_freq *req);
	int (*opendir)(struct sbx_fnode *dir, struct sbx_freq *req);
	/*
	 * readdir - one entry after another from @off; @ret is valid until the next call on @dir.  At the
	 * end returns 0 with ret->name NULL.  "." and ".." are not given.
	 */
	int (*readdir)(struct sbx_fdir *dir, off_t off, struct sbx_fdirent *ret, struct sbx_freq *req);
	void (*closedir)(struct sbx_fdir *dir);
	int (*statfs)(struct sbx_fnode *node, struct sbx_freq *req);
	/* room - may the host write more here? 0, or -ENOSPC with the reason.  Before each write, cheap.  NULL: always */
	int (*room)(struct sbx_fnode *node, struct sbx_err *err);
	/* changed - did anything that is not the mount write here since the last call? NULL: no way to know */
};

/* ---- the vtable ---- */

struct sbx_provider_ops {
	const char *name; /* SOURCE on the command line */

	/*
	 * open - at mount, before the loop thread starts; may block for a short time.  Finds boxes that exist, kills what a
	 * dead daemon left running, finishes half-deleted boxes.  -EBUSY: another live daemon has the state.
	 */
	int (*open)(const struct sbx_config *config, struct sbx_loop *loop, struct sbx_provider **ret,
		    struct sbx_err *err);
	/*
	 * close - after unmount: ends all programs and containers, frees the provider.  Main thread, loop thread still
	 * runs; may block for seconds.  All pboxes were put.
	 */
	void (*close)(struct sbx_provider *provider);

	/* list - calls @each for every box that exists; in the order of names.  Main thread, after open. */
	int (*list)(struct sbx_provider *provider,
		    int (*each)(void *data, const char *name, struct sbx_err *err), void *data,
		    struct sbx_err *err);
	/* name_check - may a box be called @name? 0, -EINVAL with the rule as reason.  Any thread. */
	int (*name_check)(struct sbx_provider *provider, const char *name, struct sbx_err *err);

	/*
	 * box_open - a box of list(): nothing is started, its state is STOPPED.
	 * box_create - a new one.  Returns quickly, with the workspace usable; the container starts behind it
	 * (events: CREATING is assumed, then RUNNING or FAILED).  Any thread.
	 * @data is handed to the @events.
	 */
	int (*box_open)(struct sbx_provider *provider, const char *name, const struct sbx_box_events *events,
			void *data, struct sbx_pbox **ret, struct sbx_err *err);
	int (*box_create)(struct sbx_provider *provider, const char *name,
			  const struct sbx_template *template, const struct sbx_box_events *events,
			  void *data, struct sbx_pbox **ret, struct sbx_err *err);
	/* Any thread; the answer is an event.  -EOPNOTSUPP with a reason where the backend cannot. */
	int (*box_start)(struct sbx_pbox *box, struct sbx_err *err);
	int (*box_stop)(struct sbx_pbox *box, struct sbx_err *err);
	int (*box_pause)(struct sbx_pbox *box, struct sbx_err *err);
	int (*box_resume)(struct sbx_pbox *box, struct sbx_err *err);
	/*
	 * box_delete - ends everything in it and removes everything of it.  The name is free at once for a
	 * new box.  Last event: GONE.  Open files stay readable (old handles of the mount are answered ESTALE by fs/).
	 */
	void (*box_delete)(struct sbx_pbox *box);
	void (*box_info)(struct sbx_pbox *box, struct sbx_pbox_info *ret);
	/*
	 * limit_set - change one limit; box_info shows it from then on, it holds for what runs, and it outlives the mount.  @value: at
	 * least the kind's smallest, UINT64_MAX = none.  0: done.  -EINPROGRESS: @later (NULL: nobody asks) gets the answer, with a reference
	 * of its own.  -EOPNOTSUPP, -EBUSY (more is in use) and others, in both ways with a reason.  Any thread.  NULL: limits
	 * cannot change.
	 */
	int (*limit_set)(struct sbx_pbox *box, enum sbx_limit which, uint64_t value, struct sbx_later *later,
			 struct sbx_err *err);
	/* box_put - lib/ has no use for @box any more; no events after it.  fnodes may still exist. */
	void (*box_put)(struct sbx_pbox *box);

	/*
	 * exec_start - start a program in a RUNNING box.  Any thread; copies what it needs of @spec.  0: events will
	 * come, `ended` and `gone` in any case.  <0: nothing was started.
	 * exec_signal - to the program's group and then to every descendant.  -ESRCH: nothing is left.
	 * exec_put - after `gone`: frees.  Before: the program is killed with all descendants, no more events.
	 */
	int (*exec_start)(struct sbx_pbox *box, const struct sbx_exec_spec *spec,
			  const struct sbx_exec_events *events, void *data, struct sbx_exec **ret,
			  struct sbx_err *err);
	int (*exec_signal)(struct sbx_exec *exec, int sig, struct sbx_err *err);
	void (*exec_put)(struct sbx_exec *exec);

	/*
	 * interpreter - first of @names (NULL-terminated) that exists in the box, or NULL; for reasons and choices.
	 * A name may ask for a version, "python3>=3.11": it exists only for a provider that knows (by the link python3 ->
	 * python3.11, say); others look for a program of that name and find none, which is right too.
	 */
	const char *(*interpreter)(struct sbx_pbox *box, const char *const *names);

	/*
	 * usage - -EAGAIN: it does not run.   ports - calls @each for every TCP port on which something listens in the box, in
	 * order; @url: how it is reached from outside, NULL = it is not.  Any thread; quick.  Both may be NULL.
	 */
	int (*usage)(struct sbx_pbox *box, struct sbx_usage *ret, struct sbx_err *err);
	int (*ports)(struct sbx_pbox *box, void (*each)(void *data, unsigned int port, const char *url),
		     void *data, struct sbx_err *err);

	/*
	 * settings_save, settings_load - one small text per box that outlives the mount: settings of run/ and slots, as lib/settings.c
	 * writes them.  save: any thread, atomic, may take a disk write.  load: malloc'ed in @ret; -ENOENT: none.  May be NULL.
	 */
	int (*settings_save)(struct sbx_pbox *box, const char *text, size_t len, struct sbx_err *err);
	int (*settings_load)(struct sbx_pbox *box, char **ret, size_t *ret_len, struct sbx_err *err);

	/*
	 * check - for `sbxfs check`: looks at everything that the backend needs, by doing it, and calls @each once per thing.
	 * @ok false and @needed: a mount will not work.  @text: "ok ..." or what is wrong and what to do; one line.  Main
	 * thread, may block for seconds; no provider is open.
	 */
	void (*check)(const struct sbx_config *config,
		      void (*each)(void *data, const char *what, bool ok, bool needed, const char *text),
		      void *data);

	struct sbx_file_ops files;
};

/* sbx_provider_find - by the name on the command line; NULL: no such.  Any thread. */
const struct sbx_provider_ops *sbx_provider_find(const char *name);
/* sbx_provider_names - "local, devbox" for messages.  Static string. */
const char *sbx_provider_names(void);
/* sbx_provider_complete - are all required slots there? 0 or -EINVAL, naming the first that is missing. */
int sbx_provider_complete(const struct sbx_provider_ops *ops, struct sbx_err *err);

#endif
