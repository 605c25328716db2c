/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what the local provider keeps on disk, in one state directory:
 *   lock          held by the one daemon that uses the directory
 *   id            8 hex digits, part of the names of our containers
 *   init-HASH     the in-sandbox program
 *   boxes/NAME/   unfilled (see fill.h), box.json (struct sbx_record) and workspace/
 *   trash/ID/     boxes that were deleted, until they are swept;  new-ID: being made
 * and, apart, what does not outlive a container: the run directory (root: /run/sbxfs/ID, because the user
 * namespace's root must be able to walk to it; else STATE/run) with oci/ (the runtime's own) and ID/ (bundles).
 */
#ifndef SBX_LOCAL_STATE_H
#define SBX_LOCAL_STATE_H

#include "base/lock.h"
#include "config.h"
#include "provider.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sbx_err;

/* host ids of boxes, as root: this range unless /etc/subuid and /etc/subgid have one for "sbxfs" */
#define SBX_IDS_DEFAULT_BASE 0x70000000u
#define SBX_IDS_DEFAULT_COUNT 0x0fff0000u
#define SBX_STATE_UNFILLED "unfilled"
#define SBX_STATE_RUN_ROOT "/run/sbxfs" /* run directories of root's daemons */
#define SBX_IDS_PER_BOX 65536u
#define SBX_IDS_SLOTS_MAX 32768u

struct sbx_local_state {
	char dir[PATH_MAX];
	char run_dir[PATH_MAX];
	char init_path[PATH_MAX];
	char id[9];
	bool root; /* the daemon is root: boxes get subordinate ids */
	int dir_fd, boxes_fd, trash_fd, lock_fd;
	int run_fd; /* the run directory, locked shared: somebody lives here */
	uint32_t ids_base, ids_count;
	struct sbx_lock lock;
	uint8_t ids_used[SBX_IDS_SLOTS_MAX / 8]; /* guarded by lock: ranges of boxes that exist */
};

/* one box on disk */
struct sbx_record {
	char name[64];
	char id[9]; /* 8 hex digits, never used twice */
	char template[128];
	char *rootfs; /* malloc'ed, NULL = the host's */
	char *runtime; /* malloc'ed, what `runtime` shows, NULL = after rootfs */
	enum sbx_network network;
	bool volume; /* its workspace lies in a volume of its own, see volume.h */
	struct sbx_limits limits;
	uint32_t id_base; /* host id of the box's id 0; 0 for an ordinary user */
	struct timespec created;
	bool unfilled; /* files of its template are still to be copied: SBX_STATE_UNFILLED lies in its folder */
};

void sbx_record_done(struct sbx_record *rec);

/*
 * sbx_state_open - make what is missing, lock, write the init, remove half-made boxes.
 * -EBUSY: another live daemon has it, reason names its pid.
 */
int sbx_state_open(const char *dir, struct sbx_local_state **ret, struct sbx_err *err);
/* sbx_state_open_shared - for a look beside a daemon that may be alive: no lock, nothing is cleaned up */
int sbx_state_open_shared(const char *dir, struct sbx_local_state **ret, struct sbx_err *err);
/* sbx_state_close - unlock, free; removes the run directory if it is empty.  NULL is fine. */
void sbx_state_close(struct sbx_local_state *s);

/* sbx_state_create - a new box folder; fills id, id_base, created, volume of @rec.  -EEXIST.  @ret_fd: its workspace. */
int sbx_state_create(struct sbx_local_state *s, struct sbx_record *rec, int *ret_fd,
		     struct sbx_err *err);
/* sbx_state_load - box @name as it was made.  -ENOENT.  @ret_fd: its workspace, -1 if it has a volume (sbx_state_volume) */
int sbx_state_load(struct sbx_local_state *s, const char *name, struct sbx_record *ret, int *ret_fd,
		   struct sbx_err *err);
/* sbx_state_volume - mount the volume of a box; a descriptor of its workspace, or -errno */
int sbx_state_volume(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err);
/* sbx_state_volume_limit - change how large it is, see sbx_volume_limit */
int sbx_state_volume_limit(struct sbx_local_state *s, const struct sbx_record *rec, uint64_t limit_bytes,
			   struct sbx_err *err);
/* sbx_state_save - write box.json of a box anew, whole or not at all; never after sbx_state_trash */
int sbx_state_save(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err);
/* sbx_state_trash - take the box's folder away from its name, into the trash */
int sbx_state_trash(struct sbx_local_state *s, const struct sbx_record *rec, struct sbx_err *err);
/* a tree that is being deleted: zeroed but for @stop */
struct sbx_removal {
	const atomic_bool *stop;      /* leave the rest; NULL = never */
	atomic_uint_fast64_t removed; /* names so far; any thread reads it */
};
/*
 * sbx_state_sweep - delete trash/@id; on a worker thread.  0, -ECANCELED when *removal->stop, or what went wrong.
 * @id_base: its range is free after it; 0 = none
 */
int sbx_state_sweep(struct sbx_local_state *s, const char *id, uint32_t id_base,
		    struct sbx_removal *removal, struct sbx_err *err);
/* sbx_state_list_dir - names in one of our folders, sorted; free with sbx_state_names_free */
int sbx_state_list_dir(int dir_fd, char ***ret, size_t *ret_n, struct sbx_err *err);
void sbx_state_names_free(char **names, size_t n);

/* ---- tree.c ---- */
/*
 * sbx_tree_remove - delete @name in @dir_fd with all below it.  Never follows a link, never leaves the
 * file system, copes with folders that have no permissions (as their owner or root).  0, -ECANCELED, -errno.
 * @removal: NULL = to the end, and nobody wants to know how far it is
 */
int sbx_tree_remove(int dir_fd, const char *name, struct sbx_removal *removal);

#endif
