/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: one thread and its queue.  Threads: post any; run() is the worker. */
#include "local/worker.h"

#include "base/err.h"
#include "base/lock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

struct sbx_worker {
	const char *name;
	pthread_t thread;
	struct sbx_lock lock;
	pthread_cond_t more;
	struct sbx_list jobs; /* guarded by lock */
	bool started;	      /* guarded by lock */
	atomic_bool stop;     /* written under lock */
};

struct sbx_worker *sbx_worker_new(const char *name)
{
	struct sbx_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->name = name;
	sbx_lock_init(&w->lock);
	pthread_cond_init(&w->more, NULL);
	sbx_list_init(&w->jobs);
	return w;
}

static void *run(void *data)
{
	struct sbx_worker *w = data;

	pthread_setname_np(pthread_self(), w->name);
	sbx_lock(&w->lock);
	for (;;) {
		struct sbx_job *job;

		if (sbx_list_empty(&w->jobs)) {
			if (w->stop)
				break;
			pthread_cond_wait(&w->more, &w->lock.mutex);
			continue;
		}
		job = sbx_list_first(&w->jobs, struct sbx_job, link);
		sbx_list_remove(&job->link);
		sbx_unlock(&w->lock);
		job->fn(job, &w->stop);
		sbx_lock(&w->lock);
	}
	sbx_unlock(&w->lock);
	return NULL;
}

int sbx_worker_post(struct sbx_worker *w, struct sbx_job *job, struct sbx_err *err)
{
	sigset_t all, old;
	int r = 0;

	sbx_lock(&w->lock);
	if (w->stop) {
		sbx_unlock(&w->lock);
		return sbx_err_set(err, ESHUTDOWN, "the provider is being closed");
	}
	if (!w->started) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		r = pthread_create(&w->thread, NULL, run, w);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		w->started = r == 0;
	}
	if (r == 0) {
		sbx_list_append(&w->jobs, &job->link);
		pthread_cond_signal(&w->more);
	}
	sbx_unlock(&w->lock);
	return r ? sbx_err_sys(err, r, "cannot start a thread") : 0;
}

void sbx_worker_stop(struct sbx_worker *w)
{
	bool started;

	sbx_lock(&w->lock);
	w->stop = true;
	started = w->started;
	w->started = false;
	pthread_cond_signal(&w->more);
	sbx_unlock(&w->lock);
	if (started)
		pthread_join(w->thread, NULL);
}

void sbx_worker_free(struct sbx_worker *w)
{
	if (!w)
		return;
	sbx_worker_stop(w);
	pthread_cond_destroy(&w->more);
	sbx_lock_done(&w->lock);
	free(w);
}
