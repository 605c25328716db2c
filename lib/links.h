/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: what a symbolic link of a workspace looks like from the host.  Pure; any thread.
 *
 * Code in a box writes the link, the host's kernel follows it.  So a text is shown only if following it cannot leave
 * workspace/, wherever its names lead: `(../)*name(/name)*` with at most as many `../` as the link's folder is
 * deep.  A `..` behind a name is refused, because the name may be a link or a folder by the time it is walked.
 */
#ifndef SBX_LINKS_H
#define SBX_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#define SBX_LINK_MAX 4096	    /* room for any text shown, with the NUL; FUSE takes 4095 bytes */
#define SBX_LINK_OUTSIDE ".outside" /* never exists in a workspace: fs/ and the names below it see to that */

/*
 * sbx_link_show - the text to show for a link.
 * @raw: as stored    @depth: how many folders deep in workspace/ the link lies (0: in workspace/ itself)
 * @workspace: absolute path of workspace/ inside the box; a link to it or below it is made relative
 * @ret: the text.  "./a", "a//b", "a/" become "a", "a/b", "a": they lead to the same place.
 * Returns true: leads inside.  false: it does not, and @ret is `.outside/<its names>` (cut at SBX_LINK_MAX).
 * Relative links of nothing but "." and ".." have no name, so they count as outside, as the rule says; only the
 * absolute path of the workspace itself becomes "." or "../..", which ends at workspace/ exactly.
 */
bool sbx_link_show(const char *raw, unsigned int depth, const char *workspace,
		   char ret[SBX_LINK_MAX]);

#endif
