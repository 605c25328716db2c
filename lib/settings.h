/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: the stored form of a box's settings and slots, which outlive the mount.
 * Form: records "SLOT SETTING LENGTH\n" + LENGTH bytes + "\n"; SLOT "-" is run/ itself, "=" the box (its env, when it was used), SETTING "-" only says that the slot exists.
 */
#ifndef SBX_SETTINGS_H
#define SBX_SETTINGS_H

struct sbx_box;
struct sbx_err;

/* sbx_settings_save - stores all of @box; a failure is told in its `error`.  Any thread; one save at a time per box. */
void sbx_settings_save(struct sbx_box *box);
/* sbx_settings_load - at mount, before the box is listed.  Records that are not understood are left out and told. */
void sbx_settings_load(struct sbx_box *box);

#endif
