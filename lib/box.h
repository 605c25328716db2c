/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one sandbox: its state, its provider handle, its slots and runs, its last error.  Any thread unless said.
 * Lock order: catalog, box, slot, run; see docs/ARCHITECTURE.md.
 */
#ifndef SBX_BOX_H
#define SBX_BOX_H

#include "base/err.h"
#include "base/list.h"
#include "base/lock.h"
#include "gate.h"
#include "loop.h"
#include "monitor.h"
#include "provider.h"
#include "use.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct sbx_buf;
struct sbx_catalog;
struct sbx_languages;
struct sbx_later;
struct sbx_run;
struct sbx_slot;

#define SBX_NAME_MAX 64	      /* a box or slot name with its NUL */
#define SBX_MONITOR_INOS 4096 /* spans of monitor/ in seconds */
#define SBX_RUNS_KEPT 32      /* ended runs kept per box, besides those that run/ or a slot shows */
#define SBX_SLOTS_MAX 1024    /* run/SLOT folders per box */
#define SBX_RUNS_MAX 4096     /* runs of a box that are pending or running */
#define SBX_UNSTARTED_MAX 256 /* background processes that were named and have no command yet */

struct sbx_box {
	atomic_uint refs;
	struct sbx_catalog *catalog; /* outlives all boxes */
	struct sbx_pbox *pbox;	     /* the provider's handle, fixed */
	const struct sbx_template *template; /* the config's, NULL if it is not there any more */
	uint64_t ino_base;	     /* see sbx_catalog_ino */
	char name[SBX_NAME_MAX];
	struct sbx_gate gate;	     /* state changes */
	struct sbx_slot *run;	     /* run/ itself */
	struct sbx_monitor monitor;  /* its own lock */
	uint64_t monitor_ino;	     /* first of SBX_MONITOR_INOS inode numbers: of monitor/SPAN */
	bool loading;		     /* main thread, at mount: settings come from the store */
	struct sbx_lock save_lock;   /* one save of settings at a time; before all other locks */
	struct sbx_list deleting;    /* guarded by catalog->lock: in catalog->deleting, with a reference */
	struct sbx_task free_task;   /* see sbx_box_put */
	bool ephemeral;		     /* made by this mount, to be deleted at its end: -o ephemeral */

	struct sbx_lock lock;
	enum sbx_box_state state;    /* guarded by lock */
	bool deleted;		     /* guarded by lock: rmdir was answered */
	uint64_t events_n;	     /* guarded by lock: how many the provider has sent */
	bool starting;		     /* guarded by lock: box_start was called, no event yet */
	bool stopping;		     /* guarded by lock: box_stop was called, STOPPED has not come yet: what comes waits */
	bool stop_later;	     /* guarded by lock: box_stop is called at the next event: a start that nobody saw has no end */
	bool start_again;	     /* guarded by lock: and it is to start when STOPPED has come */
	bool pausing;		     /* guarded by lock: box_pause was called, no event yet */
	struct sbx_used used;	     /* guarded by lock: see use.h */
	char *env;		     /* guarded by lock: NAME=value lines for every program, NULL = none */
	struct sbx_err last;	     /* guarded by lock: what `error` shows */
	struct sbx_list slots;	     /* guarded by lock: run/SLOT, struct sbx_slot.link */
	unsigned int slots_n;	     /* guarded by lock */
	struct sbx_list runs;	     /* guarded by lock: oldest first, struct sbx_run.link */
	struct sbx_list waiting;     /* guarded by lock: runs that wait for RUNNING, struct sbx_run.wait_link */
	bool starved;		     /* guarded by lock: the daemon had no descriptor for one; all wait until retry_timer looks again */
	struct sbx_timer retry_timer; /* set: it holds a reference */
	uint64_t next_id;	     /* guarded by lock */
	atomic_uint_fast64_t spooled;	/* bytes of output kept, all runs */
	atomic_uint_fast64_t active;	/* runs pending or running */
};

/* one reference; put frees with the last */
struct sbx_box *sbx_box_get(struct sbx_box *box);
void sbx_box_put(struct sbx_box *box);

/*
 * sbx_box_new - the object for a box that exists (@template NULL) or is to be made.  Called by catalog.c, which lists it.
 * Errors of the provider (EEXIST, EINVAL, ENOSPC, EDQUOT ...).
 */
int sbx_box_new(struct sbx_catalog *catalog, const char *name, const struct sbx_template *template,
		struct sbx_box **ret, struct sbx_err *err);
/*
 * sbx_box_delete - rmdir was asked: all programs end, waiting readers get ECANCELED, nodes become stale.
 * Called by catalog.c after it took the box out of its list.  sbx_box_close - at unmount: runs end, the box is kept.
 */
void sbx_box_delete(struct sbx_box *box);
void sbx_box_close(struct sbx_box *box);

const struct sbx_provider_ops *sbx_box_ops(const struct sbx_box *box);
struct sbx_pbox *sbx_box_pbox(const struct sbx_box *box);
const char *sbx_box_name(const struct sbx_box *box);
bool sbx_box_deleted(struct sbx_box *box);

/* sbx_box_state - now.  @why: filled with the last error, may be NULL */
enum sbx_box_state sbx_box_state(struct sbx_box *box, struct sbx_err *why);
/* sbx_box_state_name - "running" */
const char *sbx_box_state_name(enum sbx_box_state state);
/* sbx_box_verb - what `status` takes: "start", "stop", "pause", "restart".  -EINVAL, -EOPNOTSUPP with a reason */
int sbx_box_verb(struct sbx_box *box, const char *verb, size_t len, struct sbx_err *err);
/* sbx_box_stop_if - "stop", if @still says so with the box's lock held; else -EBUSY */
int sbx_box_stop_if(struct sbx_box *box, bool (*still)(struct sbx_box *box, void *data), void *data,
		    struct sbx_err *err);

/*
 * sbx_box_fail - remember a failure: the box's `error`, .sbxfs/errors and an event.
 * @op, @path: see sbx_catalog_fail.   sbx_box_error: the text that `error` shows, "" = none
 */
void sbx_box_fail(struct sbx_box *box, const char *op, const char *path, const struct sbx_err *err);
void sbx_box_error(struct sbx_box *box, struct sbx_buf *out);
void sbx_box_error_clear(struct sbx_box *box);

/* sbx_box_languages - what its template, else the configuration, adds to the built-in languages; lives as long as that */
const struct sbx_languages *sbx_box_languages(const struct sbx_box *box);

/*
 * sbx_box_limits - in force now.  sbx_box_limit_write - what limits/NAME takes: -EINVAL, errors of the provider's limit_set, with a reason;
 * -EINPROGRESS: @later gets the answer.   sbx_box_limit_reset - back to what the template gives; a failure is told in `error`
 */
void sbx_box_limits(struct sbx_box *box, struct sbx_limits *ret);
int sbx_box_limit_write(struct sbx_box *box, enum sbx_limit which, const char *text, size_t len,
			struct sbx_later *later, struct sbx_err *err);
void sbx_box_limit_reset(struct sbx_box *box, enum sbx_limit which);

/* sbx_box_submit - @run (PENDING, in no list) gets its ID and starts as soon as the box runs; wakes a stopped box.  The box's
 * list takes a reference of its own.  -EAGAIN: SBX_RUNS_MAX are going on. */
int sbx_box_submit(struct sbx_box *box, struct sbx_run *run, struct sbx_err *err);
/*
 * sbx_box_process_new - a background process: listed under its ID, and under @label if not NULL; nothing is started until
 * sbx_run_command.  Counted reference.  -EINVAL (label: a box name that is not all digits), -EEXIST, -EAGAIN, -ESTALE.
 */
int sbx_box_process_new(struct sbx_box *box, const char *label, struct sbx_run **ret, struct sbx_err *err);
/* sbx_box_find_label - background process by its own name, a counted reference; NULL: no such */
struct sbx_run *sbx_box_find_label(struct sbx_box *box, const char *label);
/* sbx_box_last_process - the background process made last, counted; NULL: none is listed */
struct sbx_run *sbx_box_last_process(struct sbx_box *box);

/* sbx_box_env_read, _write - the lines of BOX/env; write checks them: -EINVAL, -EFBIG with a reason */
int sbx_box_env_read(struct sbx_box *box, struct sbx_buf *out);
int sbx_box_env_write(struct sbx_box *box, const char *text, size_t len, struct sbx_err *err);
/* sbx_box_env_vector - as NAME=value items, NULL-terminated, malloc'ed; NULL: no memory */
char **sbx_box_env_vector(struct sbx_box *box);

/* sbx_box_run_over - called by run.c when a run has ended: forgets the oldest beyond SBX_RUNS_KEPT */
void sbx_box_run_over(struct sbx_box *box);
/* sbx_box_find_run - by ID, a counted reference; NULL: no such */
struct sbx_run *sbx_box_find_run(struct sbx_box *box, uint64_t id);

/* sbx_box_forget_run - rmdir processes/ID: it is ended, and found no more; what shows it goes on to */
void sbx_box_forget_run(struct sbx_box *box, struct sbx_run *run);

/* sbx_box_slot_new - mkdir run/NAME: -EEXIST, -EINVAL, -ENOSPC (SBX_SLOTS_MAX). */
int sbx_box_slot_new(struct sbx_box *box, const char *name, struct sbx_slot **ret, struct sbx_err *err);
/* sbx_box_slot_remove - its runs go on, in processes/.  -ENOENT.   sbx_box_slot_find: counted reference or NULL */
int sbx_box_slot_remove(struct sbx_box *box, const char *name);
struct sbx_slot *sbx_box_slot_find(struct sbx_box *box, const char *name);
/* sbx_box_slots - calls @each for every slot but run/ itself, with the box's lock held: @each must not call back */
void sbx_box_slots(struct sbx_box *box, void (*each)(void *data, struct sbx_slot *slot), void *data);

/* sbx_box_settings_changed - a setting that outlives the mount has changed: store it.  No lock held */
void sbx_box_settings_changed(struct sbx_box *box);

#endif
