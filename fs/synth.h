/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: control files and folders, as data: each folder is a table of lines (name, mode, read, write), and this module does the
 * rest: lookup, attributes, reading a snapshot, taking a value, listing.  What is special in a folder (names that come and go, files that wait)
 * hangs in the table too.  Any thread.
 */
#ifndef SBX_FS_SYNTH_H
#define SBX_FS_SYNTH_H

#include "node.h"

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct sbx_box;
struct sbx_later;
struct sbx_run;
struct sbx_slot;
struct sbx_folder;
struct sbx_template;

/* what a node speaks about; all counted but the template, or NULL */
struct sbx_ref {
	struct sbx_box *box;
	struct sbx_slot *slot;
	struct sbx_run *run;
	const struct sbx_template *template; /* of the configuration */
	uint64_t arg; /* a number that the file knows the meaning of */
};

enum sbx_file_flags {
	SBX_FILE_LINES = 1,   /* text of several lines: takes effect at FLUSH, not in each write */
	SBX_FILE_LOG = 2,     /* grows at the end: read goes to the file, not to a snapshot (see read_at) */
	SBX_FILE_LINK = 4,    /* a symlink: read gives its target */
	SBX_FILE_HIDDEN = 8,  /* found by name, not listed */
};

/* one line of a folder's table */
struct sbx_file {
	const char *name;
	unsigned int index; /* of the inode number in the block of its object: never used twice there */
	mode_t mode;	    /* permission bits; the type follows from the other fields */
	unsigned int flags;
	uint64_t arg; /* handed on in ref->arg */

	/* read - the whole text; what it appends is a snapshot for one open.  NULL: cannot be read */
	int (*read)(const struct sbx_ref *ref, struct sbx_buf *out, struct sbx_err *err);
	/* write - take a value.  NULL: cannot be written (EACCES) */
	int (*write)(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_err *err);
	/* write_later - the same where it may take a while: -EINPROGRESS, and @later gets the answer.  Not with SBX_FILE_LINES */
	int (*write_later)(const struct sbx_ref *ref, const char *text, size_t len, struct sbx_later *later,
			   struct sbx_err *err);
	/* reset - unlink of a setting: back to the default.  NULL: unlink answers 0 and changes nothing */
	void (*reset)(const struct sbx_ref *ref);
	/*
	 * SBX_FILE_LOG.  read_at: bytes at *@off; what is older than all that is kept is left out, and *@off set to where that
	 * begins.  length: all bytes that ever came.
	 */
	size_t (*read_at)(const struct sbx_ref *ref, uint64_t *off, char *buf, size_t size);
	uint64_t (*length)(const struct sbx_ref *ref);

	/* vtable of its node, a struct sbx_synth; NULL = a text file or folder as here.  What it reads is its size, too */
	const struct sbx_node_ops *ops;
	const struct sbx_folder *folder; /* it is a folder */
	/* made - a kind of its own: a new node with ops of its own (one lookup counted), and its attributes. 0 or -errno */
	int (*node)(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
		    struct stat *attr);
};

struct sbx_names; /* what a listing is made of */

struct sbx_folder {
	const struct sbx_file *files;
	size_t n;
	mode_t mode; /* permission bits of the folder itself */
	/*
	 * What is not in the table.  lookup: a node (one lookup counted) and its attributes, -ENOENT.  list: sbx_names_add
	 * for each.  Any may be NULL.
	 */
	int (*lookup)(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr);
	int (*list)(const struct sbx_ref *ref, struct sbx_names *names);
	int (*mkdir)(const struct sbx_ref *ref, const char *name, struct sbx_node **ret, struct stat *attr,
		     struct sbx_err *err);
	/* rmdir of a name that is not in the table */
	int (*rmdir)(const struct sbx_ref *ref, const char *name, struct sbx_err *err);
	/* vtable of the folder's node, where it takes more (run/: create, rename, ...); NULL = sbx_folder_ops */
	const struct sbx_node_ops *ops;
	/* the object that @ref speaks about is gone: -ESTALE, else 0.  NULL: never */
	int (*alive)(const struct sbx_ref *ref);
	nlink_t links; /* shown; 0 = 2 */
	/* a folder that `lookup` finds goes only by rmdir() through this mount (or late: then all of it answers ESTALE) */
	bool steady;
};

/* the node of a control file or folder */
struct sbx_synth {
	struct sbx_node node;
	struct sbx_ref ref;
	const struct sbx_file *file;	 /* NULL for the root */
	const struct sbx_folder *folder; /* of a folder */
	const struct sbx_folder *parent; /* the table it stands in */
};

extern const struct sbx_node_ops sbx_folder_ops;
extern const struct sbx_node_ops sbx_text_ops;

/* references */
struct sbx_ref sbx_ref_get(const struct sbx_ref *ref);
void sbx_ref_put(struct sbx_ref *ref);

/*
 * sbx_synth_node - the node of a line of a table about @ref, one lookup counted, and its attributes.
 * @ino: its inode number (SBX_INO_CONTROL).  -ENOMEM, or what the file's read gives.
 */
int sbx_synth_node(const struct sbx_ref *ref, const struct sbx_folder *parent, const struct sbx_file *file,
		   const struct sbx_folder *folder, uint64_t ino, struct sbx_node **ret, struct stat *attr);
/* sbx_synth_of - the struct behind a node of this module */
static inline struct sbx_synth *sbx_synth_of(struct sbx_node *node)
{
	return (struct sbx_synth *)node;
}
/* sbx_synth_box - the slot `box` of all vtables for nodes of this module */
struct sbx_box *sbx_synth_box(const struct sbx_node *node);
/* sbx_ref_ino - number of line @index about @ref: in the block of its run, slot or box, or of the mount */
uint64_t sbx_ref_ino(const struct sbx_ref *ref, unsigned int index);
/* sbx_folder_find - the line of @name, NULL: not in the table */
const struct sbx_file *sbx_folder_find(const struct sbx_folder *folder, const char *name);
/* sbx_folder_lookup - a name of the table or not: its node (one lookup counted) and attributes.  -ENOENT ... */
int sbx_folder_lookup(struct sbx_synth *dir, const char *name, struct sbx_node **ret, struct stat *attr);
/* the slots of sbx_folder_ops that an own vtable uses too */
void sbx_folder_op_lookup(fuse_req_t req, struct sbx_node *dir, const char *name);
void sbx_folder_op_getattr(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void sbx_folder_op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			   struct fuse_file_info *fi);
void sbx_folder_op_mkdir(fuse_req_t req, struct sbx_node *dir, const char *name, mode_t mode);
void sbx_folder_op_rmdir(fuse_req_t req, struct sbx_node *dir, const char *name);
void sbx_folder_op_unlink(fuse_req_t req, struct sbx_node *dir, const char *name);
void sbx_folder_op_opendir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
void sbx_folder_op_readdir(fuse_req_t req, struct sbx_node *node, size_t size, off_t off,
			   struct fuse_file_info *fi, bool plus);
void sbx_folder_op_releasedir(fuse_req_t req, struct sbx_node *node, struct fuse_file_info *fi);
/* the same of a text file: what takes nothing cannot be cut */
void sbx_text_op_setattr(fuse_req_t req, struct sbx_node *node, struct stat *attr, int to_set,
			 struct fuse_file_info *fi);
void sbx_synth_done(struct sbx_node *node);

/* sbx_names_add - one name of a listing.  @type: S_IFMT bits.  0 or -ENOMEM */
int sbx_names_add(struct sbx_names *names, const char *name, uint64_t ino, mode_t type);

/* sbx_attr_init - attributes that all control nodes share: owner, times, block size */
void sbx_attr_init(struct stat *attr, uint64_t ino, mode_t mode, uint64_t size);

/* the folders, one file each */
extern const struct sbx_folder sbx_root_folder;	   /* tree_root.c */
extern const struct sbx_folder sbx_control_folder; /* tree_control.c: .sbxfs */
extern const struct sbx_folder sbx_templates_folder; /* tree_templates.c */
extern const struct sbx_folder sbx_box_folder;	   /* tree_box.c */
extern const struct sbx_folder sbx_run_folder;	   /* tree_run.c */
extern const struct sbx_folder sbx_slot_folder;	   /* tree_run.c */
extern const struct sbx_folder sbx_limits_folder;	   /* tree_limits.c */
extern const struct sbx_folder sbx_monitor_folder;   /* tree_monitor.c */
extern const struct sbx_folder sbx_processes_folder; /* tree_processes.c */

#endif
