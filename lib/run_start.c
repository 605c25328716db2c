/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: how a run becomes a program: environment, input, interpreter, the provider's exec_start.  Knows language.h.
 * Threads: sbx_run_start runs on the loop or on whoever submits; sbx_run_command on any.
 */
#include "run_own.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "box.h"
#include "catalog.h"
#include "config.h"
#include "language.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMMAND_MAX (128u * 1024) /* what the kernel takes as one argument */

static const char *env_value(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; env && *env; env++) {
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	}
	return NULL;
}

/* NAME=value into @v, over an earlier one of the same name; @v has room */
static int env_put(char **v, const char *item)
{
	size_t n = strcspn(item, "=") + 1, i;
	char *copy = strdup(item);

	if (!copy)
		return -ENOMEM;
	for (i = 0; v[i]; i++) {
		if (strncmp(v[i], item, n) == 0)
			break;
	}
	free(v[i]);
	v[i] = copy;
	return 0;
}

/* defaults, then template, then the slot's, then what the language needs */
static char **build_env(struct sbx_run *run, const struct sbx_launch *launch, const char *workspace)
{
	struct sbx_buf item = SBX_BUF_INIT;
	char *const *lists[3];
	char **v, *const *p;
	const struct sbx_template *template = run->box->template;
	size_t i, n = 8;
	int r = 0;

	lists[0] = template ? template->env : NULL;
	lists[1] = run->box_env;
	lists[2] = run->env;
	for (i = 0; i < 3; i++)
		n += sbx_strv_len(lists[i]);
	n += sbx_strv_len(launch->env);
	v = calloc(n + 1, sizeof(*v));
	if (!v)
		return NULL;
	sbx_buf_printf(&item, "HOME=%s", workspace);
	r |= item.failed ? -ENOMEM : env_put(v, item.data);
	sbx_buf_done(&item);
	r |= env_put(v, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	r |= env_put(v, "LANG=C.UTF-8");
	r |= env_put(v, "PYTHONUNBUFFERED=1");
	for (i = 0; i < 3; i++) {
		for (p = lists[i]; p && *p; p++)
			r |= env_put(v, *p);
	}
	for (p = launch->env; p && *p; p++) {
		const char *own = NULL;

		for (i = 0; i < 3; i++) {
			const char *set = env_value((char **)lists[i], "PYTHONPATH");

			own = set ? set : own;
		}
		if (own && own[0] && strncmp(*p, "PYTHONPATH=", 11) == 0) {
			sbx_buf_printf(&item, "%s:%s", *p, own);
			r |= item.failed ? -ENOMEM : env_put(v, item.data);
			sbx_buf_done(&item);
		} else {
			r |= env_put(v, *p);
		}
	}
	if (r < 0) {
		sbx_strv_free(v);
		return NULL;
	}
	return v;
}

static int stdin_of(struct sbx_run *run, int *ret, struct sbx_err *err)
{
	SBX_CLEANUP(sbx_closep) int fd = -1;
	size_t off = 0;

	if (!run->stdin_text)
		return 0;
	fd = memfd_create("stdin", MFD_CLOEXEC);
	if (fd < 0)
		return sbx_err_sys(err, errno, "no descriptor for stdin");
	while (off < run->stdin_len) {
		ssize_t n = write(fd, run->stdin_text + off, run->stdin_len - off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return sbx_err_sys(err, n < 0 ? errno : EIO, "stdin could not be stored");
		off += (size_t)n;
	}
	lseek(fd, 0, SEEK_SET);
	*ret = sbx_take_fd(fd);
	return 0;
}

/* sh -c COMMAND */
static int launch_command(struct sbx_run *run, struct sbx_launch *ret, struct sbx_err *err)
{
	const char *const words[] = { "sh", "-c", run->code };
	size_t i;

	ret->code_arg = -1;
	ret->language = strdup("sh");
	ret->argv = calloc(4, sizeof(*ret->argv));
	for (i = 0; ret->argv && i < 3; i++)
		ret->argv[i] = strdup(words[i]);
	if (!ret->language || !ret->argv || !ret->argv[0] || !ret->argv[1] || !ret->argv[2]) {
		sbx_launch_done(ret);
		return sbx_err_set(err, ENOMEM, "no memory to start the command");
	}
	return 0;
}

/* starts the program; a failure that a shell would give a number for is that number in *ret_code */
static int launch_run(struct sbx_run *run, int *ret_code, struct sbx_err *err)
{
	const struct sbx_provider_ops *ops = sbx_box_ops(run->box);
	struct sbx_pbox *pbox = sbx_box_pbox(run->box);
	struct sbx_launch launch = { .code_arg = -1 };
	SBX_CLEANUP(sbx_closep) int stdin_fd = -1;
	struct sbx_buf cwd = SBX_BUF_INIT;
	struct sbx_exec_spec spec = { 0 };
	struct sbx_pbox_info info;
	struct sbx_exec *exec = NULL;
	char **env = NULL;
	bool missed;
	int r;

	ops->box_info(pbox, &info);
	sbx_buf_printf(&cwd, run->cwd[0] ? "%s/%s" : "%s%s", info.workspace, run->cwd);
	if (cwd.failed)
		return sbx_err_set(err, ENOMEM, "no memory to start the run");
	r = run->background ? launch_command(run, &launch, err)
			    : sbx_language_launch(sbx_box_languages(run->box), run->name, run->setting, run->code,
						  run->code_len, run->args, cwd.data, ops->interpreter, pbox,
						  &launch, err);
	sbx_buf_done(&cwd);
	if (r < 0) {
		*ret_code = r == -ENOENT ? 127 : r == -ENOEXEC ? 126 : -1;
		return r;
	}
	sbx_lock(&run->lock);
	free(run->language);
	run->language = sbx_take(launch.language);
	sbx_unlock(&run->lock);
	r = stdin_of(run, &stdin_fd, err);
	if (r == 0) {
		env = build_env(run, &launch, info.workspace);
		if (!env)
			r = sbx_err_set(err, ENOMEM, "no memory for the environment");
	}
	if (r == 0) {
		spec.argv = (const char *const *)launch.argv;
		spec.env = (const char *const *)env;
		spec.cwd = run->cwd;
		spec.stdin_fd = stdin_fd;
		spec.code_name = launch.code_name;
		spec.code = launch.code_name ? run->code : NULL;
		spec.code_len = launch.code_name ? run->code_len : 0;
		spec.code_arg = launch.code_arg;
		/* the events hold the run and its box until `gone`; they may come before this returns */
		sbx_run_get(run);
		sbx_box_get(run->box);
		atomic_fetch_add(&run->box->catalog->programs, 1);
		sbx_lock(&run->lock); /* events of the loop wait here until exec is stored */
		r = ops->exec_start(pbox, &spec, &sbx_run_events, run, &exec, err);
		if (r == 0)
			run->exec = exec;
		missed = r == 0 && run->end_missed;
		sbx_unlock(&run->lock);
		if (missed)
			sbx_run_post_end(run);
		if (r < 0) {
			atomic_fetch_sub(&run->box->catalog->programs, 1);
			sbx_run_put(run);
			sbx_box_put(run->box);
		}
	}
	sbx_strv_free(env);
	sbx_launch_done(&launch);
	return r;
}

int sbx_run_start(struct sbx_run *run)
{
	struct sbx_err err = SBX_ERR_INIT;
	bool again = false, starved;
	int code = -1, r;

	sbx_lock(&run->lock);
	if (run->state != SBX_RUN_PENDING) {
		sbx_unlock(&run->lock);
		return 0;
	}
	run->state = SBX_RUN_RUNNING;
	sbx_unlock(&run->lock);
	r = launch_run(run, &code, &err);
	if (r == 0)
		return 0;
	starved = (r == -EMFILE || r == -ENFILE) && atomic_load(&run->box->catalog->programs) > 0;
	if ((r == -EAGAIN || starved) && code < 0) {
		sbx_lock(&run->lock);
		again = (starved || !run->again) && !run->end_missed && run->state == SBX_RUN_RUNNING;
		run->again = run->again || !starved;
		if (again)
			run->state = SBX_RUN_PENDING;
		sbx_unlock(&run->lock);
	}
	if (again)
		return starved ? -EMFILE : r;
	if (code >= 0) {
		sbx_run_say(run, err.text);
		sbx_run_finish(run, SBX_RUN_EXITED, code, &err);
	} else {
		sbx_err_wrap(&err, r, "the run could not be started");
		sbx_run_finish(run, SBX_RUN_LOST, 0, &err);
	}
	return 0;
}

int sbx_run_command(struct sbx_run *run, const char *text, size_t len, struct sbx_err *err)
{
	char *command;
	int r = 0;

	text = sbx_text_trim(text, &len);
	if (len == 0)
		return sbx_err_set(err, EINVAL, "write a command line");
	if (memchr(text, '\0', len))
		return sbx_err_set(err, EINVAL, "a command line cannot hold a NUL byte");
	if (len >= COMMAND_MAX)
		return sbx_err_set(err, EINVAL, "a command line has at most %u bytes; put the rest into a file of workspace/",
				   COMMAND_MAX);
	command = strndup(text, len);
	if (!command)
		return sbx_err_set(err, ENOMEM, "no memory for the command");
	sbx_lock(&run->lock);
	if (run->state != SBX_RUN_NONE || run->code)
		r = -EBUSY;
	else {
		run->state = SBX_RUN_PENDING;
		run->code = command;
		run->code_len = len;
	}
	sbx_unlock(&run->lock);
	if (r < 0) {
		free(command);
		return sbx_err_set(err, EBUSY, "this process was started already: rmdir it, or make another");
	}
	r = sbx_box_submit(run->box, run, err);
	if (r < 0)
		sbx_run_refuse(run, SBX_RUN_REFUSED, err);
	return r;
}
