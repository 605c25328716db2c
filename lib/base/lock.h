/* SPDX-License-Identifier: Apache-2.0 */
/* Owns: the mutex with clang's thread-safety annotations.  Order of locks: docs/ARCHITECTURE.md. */
#ifndef SBX_BASE_LOCK_H
#define SBX_BASE_LOCK_H

#include <pthread.h>

#if defined(__clang__)
#define SBX_TSA(x) __attribute__((x))
#else
#define SBX_TSA(x)
#endif
#define SBX_GUARDED_BY(l) SBX_TSA(guarded_by(l))
#define SBX_REQUIRES(l) SBX_TSA(requires_capability(l))
#define SBX_ACQUIRE(l) SBX_TSA(acquire_capability(l))
#define SBX_RELEASE(l) SBX_TSA(release_capability(l))
#define SBX_NO_TSA SBX_TSA(no_thread_safety_analysis)

struct SBX_TSA(capability("mutex")) sbx_lock {
	pthread_mutex_t mutex;
};

#define SBX_LOCK_INIT                                                                              \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER                                                          \
	}

static inline void sbx_lock_init(struct sbx_lock *l)
{
	pthread_mutex_init(&l->mutex, NULL);
}

static inline void sbx_lock_done(struct sbx_lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void sbx_lock(struct sbx_lock *l) SBX_ACQUIRE(*l) SBX_NO_TSA
{
	pthread_mutex_lock(&l->mutex);
}

static inline void sbx_unlock(struct sbx_lock *l) SBX_RELEASE(*l) SBX_NO_TSA
{
	pthread_mutex_unlock(&l->mutex);
}

#endif
