/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one run folder (run/ or run/SLOT): its settings, its newest run, and the run that is to come.  Any thread.
 */
#ifndef SBX_SLOT_H
#define SBX_SLOT_H

#include "base/list.h"
#include "base/lock.h"
#include "box.h"
#include "gate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_buf;
struct sbx_err;
struct sbx_run;

#define SBX_SETTING_MAX (1024 * 1024) /* bytes of args or env */
#define SBX_STDIN_MAX (64 * 1024 * 1024)

enum sbx_setting {
	SBX_SET_ARGS, /* one per line */
	SBX_SET_CWD,
	SBX_SET_ENV, /* NAME=value lines */
	SBX_SET_STDIN,
	SBX_SET_TIMEOUT,
	SBX_SET_LANGUAGE,
	SBX_SETTINGS,
};

struct sbx_slot {
	atomic_uint refs;
	struct sbx_box *box; /* not counted: whoever holds a slot from outside holds its box too */
	char name[SBX_NAME_MAX];
	uint64_t ino_base;
	struct sbx_gate gate; /* a run started, a save is on its way, the slot was removed */
	struct sbx_list link; /* guarded by box->lock */

	void *files;			/* fs/: the code and scratch files here */
	void (*files_free)(void *files);

	struct sbx_lock lock;
	bool removed;			 /* guarded by lock */
	char *text[SBX_SETTINGS];	 /* guarded by lock: read form, NULL = default */
	size_t text_len[SBX_SETTINGS];	 /* guarded by lock */
	struct sbx_run *newest;		 /* guarded by lock: counted, never NULL */
	struct sbx_run *coming;		 /* guarded by lock: counted, never NULL */
};

/* sbx_slot_new - a counted reference; in no list yet.  @name: "" for run/ itself.  -ENOMEM */
int sbx_slot_new(struct sbx_box *box, const char *name, struct sbx_slot **ret, struct sbx_err *err);
struct sbx_slot *sbx_slot_get(struct sbx_slot *slot);
void sbx_slot_put(struct sbx_slot *slot);
/* sbx_slot_remove - box.c: it is not in the list any more */
void sbx_slot_remove(struct sbx_slot *slot);
bool sbx_slot_removed(struct sbx_slot *slot);

/* sbx_setting_name - "args" */
const char *sbx_setting_name(enum sbx_setting which);
/* sbx_slot_read - the read form of a setting: with newline at the end where there is text.  0 or -ENOMEM */
int sbx_slot_read(struct sbx_slot *slot, enum sbx_setting which, struct sbx_buf *out);
/* sbx_slot_write - check and take a value; -EINVAL, -ERANGE, -EFBIG with a reason, and nothing has changed. */
int sbx_slot_write(struct sbx_slot *slot, enum sbx_setting which, const char *text, size_t len,
		   struct sbx_err *err);
/* sbx_env_check - are these NAME=value lines? 0, -EINVAL, -EFBIG with a reason.  sbx_lines - a vector of them; NULL: no memory */
int sbx_env_check(const char *text, size_t len, struct sbx_err *err);
char **sbx_lines(const char *text, size_t len, bool skip_empty);
/* sbx_slot_reset - back to the default */
void sbx_slot_reset(struct sbx_slot *slot, enum sbx_setting which);

/* counted references, never NULL */
struct sbx_run *sbx_slot_newest(struct sbx_slot *slot);
struct sbx_run *sbx_slot_coming(struct sbx_slot *slot);
/*
 * sbx_slot_run - a save: run @code, which was written as @name.  Empty code runs nothing: the results are cleared.
 * The code is copied.  0; -EAGAIN (too many runs), -ENOMEM, -ESTALE (box or slot gone): nothing was started.
 */
int sbx_slot_run(struct sbx_slot *slot, const char *name, const char *code, size_t len,
		 struct sbx_err *err);
/* sbx_slot_refuse - a save that policy refused: status `refused`, @why in `error` */
void sbx_slot_refuse(struct sbx_slot *slot, const char *name, const struct sbx_err *why);
/*
 * sbx_slot_coming_release - a reader gives up waiting for @coming and takes the newest run, but keeps its inode number:
 * @coming gets new numbers.  Returns the newest (counted), or, if @coming was started meanwhile, @coming itself.
 */
struct sbx_run *sbx_slot_coming_release(struct sbx_slot *slot, struct sbx_run *coming);

#endif
