/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: box.json.  Pure functions; any thread. */
#ifndef SBX_LOCAL_RECORD_H
#define SBX_LOCAL_RECORD_H

struct sbx_buf;
struct sbx_err;
struct sbx_record;

/* sbx_record_format - append the JSON text */
int sbx_record_format(const struct sbx_record *rec, struct sbx_buf *out, struct sbx_err *err);
/* sbx_record_parse - @ret is filled but for its name.  -EINVAL: damaged, reason names the key. */
int sbx_record_parse(const char *json, struct sbx_record *ret, struct sbx_err *err);

#endif
