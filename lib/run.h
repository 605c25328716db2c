/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: one run: the code and settings it was started with, its output so far, how it ended, and who waits for more.
 * Any thread unless said.
 */
#ifndef SBX_RUN_H
#define SBX_RUN_H

#include "base/err.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/spool.h"
#include "base/text.h"
#include "gate.h"
#include "loop.h"
#include "provider.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct sbx_box;
struct sbx_buf;
struct sbx_slot;

enum sbx_run_state {
	SBX_RUN_NONE,	  /* nothing ran here yet, or an empty save cleared it: all results are empty */
	SBX_RUN_COMING,	  /* the object that the next run of a slot will use; nothing is known of it */
	SBX_RUN_PENDING,  /* waits for its box */
	SBX_RUN_RUNNING,
	SBX_RUN_EXITED,
	SBX_RUN_SIGNALED,
	SBX_RUN_TIMEOUT,
	SBX_RUN_LOST,	 /* how it ended is not known */
	SBX_RUN_REFUSED, /* by policy, or it could not be started */
};

/* a chunk of logs that does not grow any more: where it ends in logs, and in its own stream */
struct sbx_chunk {
	uint64_t end, own_end; /* bytes */
	uint64_t which;	       /* enum sbx_stream */
};

struct sbx_run {
	atomic_uint refs;
	struct sbx_box *box;	/* not counted: whoever holds a run from outside holds its box too */
	struct sbx_gate gate;	/* output, state */

	struct sbx_list link;	   /* guarded by box->lock: box->runs */
	struct sbx_list wait_link; /* guarded by box->lock: box->waiting */
	bool listed;		   /* guarded by box->lock */
	bool waiting;		   /* guarded by box->lock: wait_link is in box->waiting, not in somebody's list of what to start */
	atomic_uint shown;	   /* slots whose newest this is: kept while > 0 */

	/* fixed before it is submitted */
	char *name;	  /* the file written, "code.py"; NULL for a background process */
	char *label;	  /* of a background process: its own name under processes/, NULL = only its ID */
	bool background;  /* started under processes/: a command line, no timeout, output is read without waiting */
	char *code;	  /* dropped at its end; a background process's is its command line, and kept */
	size_t code_len;
	char *setting;	  /* language setting */
	char **args;	  /* NULL-terminated */
	char **env;	  /* of the slot */
	char **box_env;	  /* of the box */
	char *cwd;	  /* below the workspace, "" = itself */
	char *stdin_text; /* NULL = /dev/null */
	size_t stdin_len;
	uint64_t timeout_ms, output_bytes;

	struct sbx_lock lock;
	uint64_t ino_base;	       /* guarded by lock: see sbx_slot_coming_release */
	uint64_t id;		       /* guarded by lock: 0 until submitted */
	enum sbx_run_state state;      /* guarded by lock */
	int code_or_signal;	       /* guarded by lock: exit code, or signal number */
	bool truncated, oom, timed_out; /* guarded by lock */
	bool active;		       /* guarded by lock: counted in box->active */
	int64_t pid;		       /* guarded by lock: in the box, 0 = not started */
	char *language;		       /* guarded by lock: NULL = not known yet */
	struct timespec started;       /* guarded by lock: wall clock of exec, 0 = not started */
	uint64_t started_ms, ended_ms; /* guarded by lock: monotonic */
	struct timespec ended;	       /* guarded by lock */
	struct sbx_err why;	       /* guarded by lock: reason of LOST, REFUSED, 126, 127, "" = none */
	struct sbx_exec *exec;	       /* guarded by lock: until `gone` */
	bool again;		       /* guarded by lock: its box had gone when it was to start, and it waits for the next */
	bool end_missed;	       /* guarded by lock: sbx_run_end came while it was being started */
	uint64_t dropped[2];	       /* guarded by lock: bytes beyond the limit */
	struct sbx_utf8 utf8[2];       /* guarded by lock */
	enum sbx_stream last_stream;   /* guarded by lock: of the newest chunk in logs, which still grows */
	uint64_t log_len;	       /* guarded by lock: bytes that logs has */
	uint64_t stream_len[2];	       /* guarded by lock: of them, of each stream */
	bool logs_cut;		       /* guarded by lock: the table of chunks could not be kept */

	struct sbx_spool spool[2]; /* stdout, stderr; own locks */
	struct sbx_spool chunks; /* struct sbx_chunk: logs = both streams as they came */

	struct sbx_timer timer;	  /* loop: timeout, then kill */
	int kill_step;		  /* loop: 0 nothing sent, 1 TERM, 2 KILL */
	bool over;		  /* loop: `ended` came */
	struct sbx_task end_task; /* see sbx_run_end */
	atomic_bool ending;	  /* end_task was posted */
	struct sbx_spool *json;	  /* guarded by lock: result.json, made at the first read */
};

/* sbx_run_new - state @state, COMING or NONE; a counted reference.  NULL: no memory */
struct sbx_run *sbx_run_new(struct sbx_box *box, enum sbx_run_state state);
/* sbx_run_adopt - move name, code and settings from @from, which was never submitted, to @run */
void sbx_run_adopt(struct sbx_run *run, struct sbx_run *from);
struct sbx_run *sbx_run_get(struct sbx_run *run);
void sbx_run_put(struct sbx_run *run);

/*
 * sbx_run_command - what `new` and NAME/command take: start @text by sh -c in @run (background, NONE).  Blanks and newlines at the
 * ends are cut.  -EINVAL (empty, a NUL, too long), -EBUSY (was started already), errors of sbx_box_submit; with a reason.
 */
int sbx_run_command(struct sbx_run *run, const char *text, size_t len, struct sbx_err *err);

/*
 * sbx_run_start - box.c: the box runs now.  Failures end the run with a reason.
 * -EAGAIN: the box is not running after all; the run is PENDING again.  That is said once per run.
 */
int sbx_run_start(struct sbx_run *run);
/* sbx_run_refuse - it will not run: REFUSED or LOST with @why.  Wakes all who wait. */
void sbx_run_refuse(struct sbx_run *run, enum sbx_run_state state, const struct sbx_err *why);
/* sbx_run_kill - end it with all its descendants now (box deleted, unmount); one without a command yet is over */
void sbx_run_kill(struct sbx_run *run);
/* sbx_run_end - TERM to it and all its descendants, KILL 2 s later to what is left; what was not started never is */
void sbx_run_end(struct sbx_run *run);
/* sbx_run_write_signal - what `signal` takes: TERM, SIGTERM, 15.  -EINVAL, -ESRCH; with a reason */
int sbx_run_write_signal(struct sbx_run *run, const char *text, size_t len, struct sbx_err *err);
/* sbx_run_signal - to the group and all descendants.  -ESRCH: not running */
int sbx_run_signal(struct sbx_run *run, int sig, struct sbx_err *err);

/* sbx_run_over - nothing of its results will change any more (also NONE) */
bool sbx_run_over(struct sbx_run *run);
enum sbx_run_state sbx_run_state(struct sbx_run *run);
uint64_t sbx_run_id(struct sbx_run *run);
/* sbx_run_ino - inode number of the @index-th file of this run */
uint64_t sbx_run_ino(struct sbx_run *run, unsigned int index);
/* sbx_run_time - wall clock of its end; of its start while it goes on; 0 if neither */
struct timespec sbx_run_time(struct sbx_run *run);

/* Text forms, each with a newline at the end (docs/tree.md).  0 or -ENOMEM */
int sbx_run_status_text(struct sbx_run *run, struct sbx_buf *out); /* "exited 0 truncated" */
/* sbx_run_exit_text - "0"; empty for NONE and while it goes on; -EIO with a reason if there is no number */
int sbx_run_exit_text(struct sbx_run *run, struct sbx_buf *out, struct sbx_err *err);
int sbx_run_error_text(struct sbx_run *run, struct sbx_buf *out);

/*
 * sbx_run_read - copy output that has already arrived.
 * @off_bytes: counted from the start of the stream    @size: room in @buf, bytes
 * Returns bytes copied; 0 = nothing there yet, or the end (see sbx_run_over).  Never waits.
 */
ssize_t sbx_run_read(struct sbx_run *run, enum sbx_stream which, uint64_t off_bytes, char *buf,
		     size_t size);
uint64_t sbx_run_len(struct sbx_run *run, enum sbx_stream which);
/* sbx_run_logs_read, sbx_run_logs_len - the same for both streams as they came */
ssize_t sbx_run_logs_read(struct sbx_run *run, uint64_t off_bytes, char *buf, size_t size);
uint64_t sbx_run_logs_len(struct sbx_run *run);

/*
 * result.json: its size is known as soon as the run is over, its text is made at the first read.
 * For a run that is not over, both give 0.
 */
uint64_t sbx_run_json_len(struct sbx_run *run);
ssize_t sbx_run_json_read(struct sbx_run *run, uint64_t off_bytes, char *buf, size_t size);

/* sbx_strv - helpers for NULL-terminated vectors */
void sbx_strv_free(char **v);
char **sbx_strv_dup(char *const *v);
size_t sbx_strv_len(char *const *v);

#endif
