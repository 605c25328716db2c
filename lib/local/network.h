/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: `network: nat` of a box: a program of the host (pasta or slirp4netns) that carries what the box sends and
 * gets, the routes that keep the host itself out of reach, and what the box is told of names (resolv.conf).
 */
#ifndef SBX_LOCAL_NETWORK_H
#define SBX_LOCAL_NETWORK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct sbx_err;
struct sbx_net;
struct sbx_pbox;

/*
 * sbx_net_tool - the program for `network: nat`.  Any thread.
 * @wanted: `network_tool` of the configuration, NULL = the first of pasta, slirp4netns that is there
 * -EOPNOTSUPP: there is none, or it could not work here; the reason says what to install or to change.
 */
int sbx_net_tool(const char *wanted, char ret[PATH_MAX], struct sbx_err *err);
/*
 * sbx_net_resolv - the resolv.conf of a box whose network @tool carries.
 * @host: text of the host's, NULL = none: its search list and options are kept, its servers are reached through @tool
 * Returns its length, cut at @size - 1.
 */
size_t sbx_net_resolv(const char *tool, const char *host, char *ret, size_t size);

/* The rest on the loop thread.  A box has one sbx_net from its first start with `nat`; see struct sbx_pbox. */

/* sbx_net_prepare - choose the tool for the start that begins; *ret_tool lives as long as @box */
int sbx_net_prepare(struct sbx_pbox *box, const char **ret_tool, struct sbx_err *err);
/*
 * sbx_net_start - bring the network of the box up whose first process is @pid.  sbx_container_net() is called
 * when it is there, or cannot be made; -errno: it cannot even begin, nothing is called.
 */
int sbx_net_start(struct sbx_pbox *box, pid_t pid, struct sbx_err *err);
/* sbx_net_stop - end it; the box is stepped when nothing of it is left.  @box without one is fine. */
void sbx_net_stop(struct sbx_pbox *box);
/* sbx_net_busy - is a program of it still there? */
bool sbx_net_busy(const struct sbx_pbox *box);
/* sbx_net_free - with its box */
void sbx_net_free(struct sbx_net *net);

/*
 * sbx_net_recover - end the tool that a dead daemon left for a box, if its own tie failed.
 * @dir_fd: folder of the box's bundle
 */
void sbx_net_recover(int dir_fd);

#endif
