/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: writing the spec of a program. */
#include "local/spec.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "init/protocol.h"
#include "local/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static uint32_t add_list(struct sbx_buf *b, const char *const *list)
{
	uint32_t n = 0;

	for (; list && list[n]; n++)
		sbx_buf_append(b, list[n], strlen(list[n]) + 1);
	return n;
}

static int write_all(int fd, struct iovec *iov, int n)
{
	while (n > 0) {
		ssize_t done = writev(fd, iov, n);

		if (done < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		for (; n > 0 && (size_t)done >= iov->iov_len; iov++, n--)
			done -= (ssize_t)iov->iov_len;
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return 0;
}

int sbx_spec_make(struct sbx_pbox *box, const struct sbx_exec_spec *spec, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_buf_done) struct sbx_buf text = SBX_BUF_INIT;
	SBX_CLEANUP(sbx_closep) int fd = -1;
	struct sbx_spec head = { .magic = SBX_SPEC_MAGIC, .code_arg = spec->code_arg };
	uint64_t pids;
	struct iovec iov[3];
	int r;

	head.flags = box->provider->state->root ? SBX_SPEC_DROP : 0;
	sbx_lock(&box->lock);
	pids = box->record.limits.pids;
	sbx_unlock(&box->lock);
	head.nproc = pids < UINT32_MAX ? (uint32_t)pids : 0;
	head.argc = add_list(&text, spec->argv);
	head.envc = add_list(&text, spec->env);
	sbx_buf_append(&text, spec->cwd ? spec->cwd : "", strlen(spec->cwd ? spec->cwd : "") + 1);
	if (spec->code_name) {
		head.has_code = 1;
		head.code_len = spec->code_len;
		sbx_buf_append(&text, spec->code_name, strlen(spec->code_name) + 1);
	} else {
		head.code_arg = -1;
	}
	if (text.failed)
		return sbx_err_set(err, ENOMEM, "no memory to start the program");
	if (text.len > SBX_SPEC_STRINGS_MAX)
		return sbx_err_set(err, E2BIG, "arguments and environment are larger than %u bytes",
				   SBX_SPEC_STRINGS_MAX);
	head.strings_len = (uint32_t)text.len;
	fd = memfd_create("sbxfs-spec", MFD_CLOEXEC);
	if (fd < 0)
		return sbx_err_sys(err, errno, "cannot start the program");
	iov[0] = (struct iovec){ &head, sizeof(head) };
	iov[1] = (struct iovec){ text.data, text.len };
	iov[2] = (struct iovec){ (void *)(uintptr_t)spec->code, head.code_len };
	r = write_all(fd, iov, 3);
	if (r < 0)
		return sbx_err_sys(err, -r, "cannot start the program");
	return sbx_take_fd(fd);
}
