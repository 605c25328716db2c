/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the files that show what a run gave: stdout, stderr, exit, result.json (open waits until the run is over), logs
 * (never waits), stream (read waits for more).  In run/, in slots and in processes/ID.  Any thread.
 */
#ifndef SBX_FS_RESULTS_H
#define SBX_FS_RESULTS_H

#include "node.h"
#include "synth.h"

/* also the index of the inode number in the run's block, so that run/stdout and processes/ID/stdout are one file */
enum sbx_result { SBX_RESULT_STDOUT, SBX_RESULT_STDERR, SBX_RESULT_EXIT, SBX_RESULT_JSON, SBX_RESULT_LOGS, SBX_RESULT_STREAM };

/*
 * sbx_result_node - struct sbx_file.node of all of them; the file's index says which.  With @ref->run it is that run's; with
 * @ref->slot that of the newest run, or of the one that is about to start.
 */
int sbx_result_node(const struct sbx_ref *ref, const struct sbx_file *file, struct sbx_node **ret,
		    struct stat *attr);

#endif
