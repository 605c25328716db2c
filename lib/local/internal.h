/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the types that the parts of the local provider share.
 *
 * Threads: everything of a box is changed on the loop thread, under box->lock where other threads
 * read it.  exec_start and the public calls run on any thread: they take box->lock for a moment and post.
 * Order of locks: provider->lock, box->lock, exec->lock.  None is held across a callback.
 */
#ifndef SBX_LOCAL_INTERNAL_H
#define SBX_LOCAL_INTERNAL_H

#include "local/local.h"

#include "base/err.h"
#include "base/list.h"
#include "base/lock.h"
#include "config.h"
#include "local/cgroup.h"
#include "local/state.h"
#include "local/worker.h"
#include "loop.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

struct sbx_spawn_result;
struct sbx_fill;

#define IO_BUF_BYTES (256u * 1024)
#define FILL_WORKERS 4 /* copies of templates at the same time */

/* which runtime starts our containers, and what it can do here; see probe.h */
struct sbx_runtime {
	char path[PATH_MAX];
	bool systemd_cgroup; /* --systemd-cgroup */
	bool limits;	     /* cpu, memory and pids limits work */
	char no_limits[SBX_ERR_TEXT_MAX]; /* why they do not */
};

enum runtime_state { RUNTIME_UNKNOWN, RUNTIME_PROBING, RUNTIME_READY, RUNTIME_FAILED };

struct sbx_provider {
	const struct sbx_provider_ops *ops; /* first, as the interface says */
	const struct sbx_config *config;
	struct sbx_loop *loop;
	struct sbx_local_state *state;
	struct sbx_worker *prober;  /* finds the runtime */
	struct sbx_worker *sweeper; /* empties the trash */
	struct sbx_worker *fillers[FILL_WORKERS]; /* copy files of templates */
	unsigned int filling[FILL_WORKERS];	  /* loop thread: copies that each has to do */
	char *io_buf;		    /* loop thread */

	struct sbx_lock lock;
	pthread_cond_t idle;		  /* a box left @boxes; with lock */
	struct sbx_list boxes;		  /* guarded by lock: pboxes, each with one reference */
	enum runtime_state runtime_state; /* guarded by lock */
	struct sbx_err runtime_err;	  /* guarded by lock */
	uint64_t runtime_failed_ms;	  /* guarded by lock */
	struct sbx_runtime runtime;	  /* written by the prober before READY, fixed after it */
	bool closing;			  /* guarded by lock */

	/* loop thread: runtime programs at work, and boxes that wait for a place */
	unsigned int oci_running;
	struct sbx_list oci_queue;

	/* see disk.c */
	struct sbx_timer disk_timer;
	bool disk_timer_on;    /* guarded by lock */
	unsigned int active;   /* guarded by lock: programs that are not gone */
	uint64_t disk_seen_ms; /* guarded by lock: when disk_low was found */
	bool disk_low;	       /* written under lock; read anywhere */
	uint64_t disk_base_ms; /* loop thread: when the boxes' baselines were taken, 0 = none */
	uint64_t disk_inodes;  /* loop thread: free when the baselines were taken */
};

/* what the processes of a box have done so far; see disk.c */
struct sbx_disk_use {
	uint64_t written_bytes, cpu_ticks;
};

/* the init's socket; counted, because exec_start uses it on any thread */
struct conn {
	int fd;
	unsigned int refs; /* guarded by box->lock */
};

enum box_have {
	HAVE_NONE,     /* no container, nothing of one */
	HAVE_STARTING, /* the runtime is at it, or the init has not said hello */
	HAVE_UP,
	HAVE_PAUSED,
	HAVE_DYING, /* killed, not dead */
	HAVE_DEAD,  /* dead; the runtime still has to clean up */
};

enum box_want { WANT_DOWN, WANT_UP, WANT_PAUSED, WANT_DELETED };

struct sbx_pbox {
	struct sbx_provider *provider;
	struct sbx_list link; /* provider->boxes; guarded by provider->lock */
	struct sbx_record record; /* limits: guarded by lock, the rest is fixed */
	char container[64];
	struct sbx_lock save_lock; /* one change of what is stored of it, or of its volume, at a time; before lock */
	bool trashed;		   /* guarded by save_lock: its folder has left its name */
	atomic_int workspace_fd;   /* -1: its volume was not needed yet */
	const struct sbx_box_events *events;
	void *data;

	struct sbx_lock lock;
	unsigned int refs;	 /* guarded by lock */
	bool put;		 /* guarded by lock: no more events */
	bool listed;		 /* guarded by provider->lock */
	bool sweeping;		 /* guarded by provider->lock: only its files are left */
	enum box_have have;	 /* guarded by lock */
	enum box_want want;	 /* guarded by lock */
	struct conn *conn;	 /* guarded by lock */
	struct sbx_list changes; /* guarded by lock: limits that shall change, see limits.c */
	struct sbx_list pending; /* guarded by lock: execs whose message did not fit into the socket */
	bool pending_armed;	 /* guarded by lock: pending_timer is set and holds a reference */
	struct sbx_timer pending_timer;
	uint32_t next_run;	 /* guarded by lock */
	unsigned int active;	 /* guarded by lock: execs that are not gone */
	struct sbx_cgroup cgroup; /* guarded by lock: its descriptors */
	struct sbx_err why;	 /* guarded by lock: why it died, or failed */
	bool disk_stopped;	 /* guarded by lock: the disk watcher did it */

	/* loop thread only */
	struct sbx_fill *fill; /* the copy of its template's files, at work; see fill.h */
	bool limits_singly;   /* changes of limits go to the runtime one by one: several at once have failed */
	bool unfilled;	      /* they are not all there; before the loop knows the box: whoever makes it */
	struct sbx_task task; /* step; holds a reference while queued */
	bool task_posted;     /* guarded by lock */
	bool oci_busy;	      /* a runtime program works on it */
	bool oci_waits;	      /* it is in provider->oci_queue, which has a reference */
	struct sbx_list oci_link;
	bool hello;
	bool failed; /* the start failed: FAILED is the state at the end, not STOPPED */
	bool unasked; /* it died by itself */
	enum sbx_box_state told;
	bool told_any;
	int pidfd;
	struct sbx_watch conn_watch, pid_watch;
	struct sbx_timer hello_timer;
	uint64_t oom_base; /* oom kills when it came up */
	pid_t init_pid;	   /* on the host, 0 = none */
	struct sbx_net *net; /* of `network: nat`, from the first start; network.c */
	struct sbx_disk_use disk_base, disk_now; /* disk.c */
};

/* ---- local.c ---- */
struct sbx_pbox *sbx_pbox_new(struct sbx_provider *p, const struct sbx_record *record, int workspace_fd,
			      const struct sbx_box_events *events, void *data);
/* sbx_pbox_unlist - take it out of provider->boxes and drop that reference */
void sbx_pbox_unlist(struct sbx_pbox *box);

/* ---- container.c ---- */
/* sbx_container_want - set the goal and let the loop work on it.  Any thread. */
void sbx_container_want(struct sbx_pbox *box, enum box_want want);
/* sbx_container_kick - look again what is to be done.  Any thread. */
void sbx_container_kick(struct sbx_pbox *box);
/* sbx_container_tell - an event, if somebody listens and it is news; loop thread */
void sbx_container_tell(struct sbx_pbox *box, enum sbx_box_state state, const struct sbx_err *why);
/* sbx_container_progress - a line for .sbxfs/events, if somebody listens; loop thread */
void sbx_container_progress(struct sbx_pbox *box, const char *text);
/* sbx_container_fail - it cannot be started, and has no container: FAILED; loop thread */
void sbx_container_fail(struct sbx_pbox *box, const struct sbx_err *why);
/* sbx_container_sweep - it has no container any more: delete its files, then GONE (sweep.c); loop thread */
void sbx_container_sweep(struct sbx_pbox *box);
/* sbx_trash_sweep - delete trash/@name, which is no box's any more; any thread */
void sbx_trash_sweep(struct sbx_provider *p, const char *name);
/* sbx_local_discard_rest - delete what a mount before us had still to delete in the volume of @box */
void sbx_local_discard_rest(struct sbx_pbox *box, int workspace_fd);
void sbx_container_set_have(struct sbx_pbox *box, enum box_have have);
/* sbx_container_give_up - the goal is not reachable, or somebody else ended it: do not try again by ourselves; loop thread */
void sbx_container_give_up(struct sbx_pbox *box);

/* ---- init_conn.c; loop thread ---- */
/* sbx_conn_event - the watch's function of the init's socket */
void sbx_conn_event(struct sbx_watch *watch, uint32_t events);
/* sbx_conn_drop - close our end: the init ends, with everything in the box */
void sbx_conn_drop(struct sbx_pbox *box);
/* sbx_conn_put_locked - one reference to the socket; under box->lock, any thread */
void sbx_conn_put_locked(struct sbx_pbox *box, struct conn *conn);
/* sbx_container_dying - after a kill, or when the init has gone: wait until every process of the box is dead */
void sbx_container_dying(struct sbx_pbox *box);
/* sbx_container_start_failed - FAILED, with the reason, when what there is of it has been removed */
void sbx_container_start_failed(struct sbx_pbox *box, const struct sbx_err *err);
/* sbx_container_check - has the init gone without our having seen it? Loop thread.  True: the box is dead. */
bool sbx_container_check(struct sbx_pbox *box);
/* sbx_container_stop_for - stop it at once for a reason of ours; loop thread */
void sbx_container_stop_for(struct sbx_pbox *box, const struct sbx_err *why);
/* sbx_container_net - its network is there (@why NULL), or is not and why; see network.h.  Loop thread. */
void sbx_container_net(struct sbx_pbox *box, const struct sbx_err *why);

/* sbx_container_step - take the next step from what it is to what it shall be; loop thread */
void sbx_container_step(struct sbx_pbox *box);

/* ---- oci.c ---- */
/* sbx_oci_slot - may one more runtime program run?  Else @box is kicked when one has ended.  Loop thread. */
bool sbx_oci_slot(struct sbx_pbox *box);
/*
 * sbx_oci_command - let the runtime do something to @box; oci_busy until @done, after which the box is stepped.
 * @more: the words, NULL at the end   @fd: -1, or what becomes descriptor SBX_INIT_FD.  Loop thread.
 */
int sbx_oci_command(struct sbx_pbox *box, const char *const *more, int fd,
		    void (*done)(struct sbx_pbox *box, const struct sbx_spawn_result *result),
		    struct sbx_err *err);

/* ---- limits.c ---- */
int sbx_local_limit_set(struct sbx_pbox *box, enum sbx_limit which, uint64_t value, struct sbx_later *later,
			struct sbx_err *err);
/* sbx_limits_step - change what is to be changed, if now is a time for it.  True: the runtime is at it.  Loop thread. */
bool sbx_limits_step(struct sbx_pbox *box);
/* sbx_limits_drop - all that still wait get -ECANCELED */
void sbx_limits_drop(struct sbx_pbox *box);
/* sbx_limits_memory - what the kernel makes of a memory limit: whole pages */
uint64_t sbx_limits_memory(uint64_t bytes);
/* sbx_limits_missing - is a limit that was asked for not in force here? Then -EOPNOTSUPP with what is missing and why, else 0 */
int sbx_limits_missing(struct sbx_pbox *box, struct sbx_err *err);

/* ---- exec.c ---- */
int sbx_local_exec_start(struct sbx_pbox *box, const struct sbx_exec_spec *spec,
			 const struct sbx_exec_events *events, void *data, struct sbx_exec **ret,
			 struct sbx_err *err);
int sbx_local_exec_signal(struct sbx_exec *exec, int sig, struct sbx_err *err);
void sbx_local_exec_put(struct sbx_exec *exec);
/* sbx_exec_flush - send what is pending; loop thread, when the init's socket has room or is gone */
void sbx_exec_flush(struct sbx_pbox *box);

/* ---- disk.c ---- */
/* sbx_disk_active - one program more (+1) or less (-1) in @box.  Any thread. */
void sbx_disk_active(struct sbx_pbox *box, int n);
/* sbx_disk_done - no more looks; at close, after the last program, loop thread may run */
void sbx_disk_done(struct sbx_provider *p);

#endif
