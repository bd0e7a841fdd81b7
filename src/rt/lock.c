/* A lock that survives fork(). In a child process, a thread of the parent that does not exist there may hold it. The
 * first thread of the child that takes the lock therefore resets it. */
#include <sched.h>
#include <time.h>

#include "rt/lock.h"
#include "rt/rt.h"

/* Timed waits end by the clock of clock_ns, which nobody sets. */
static void make(struct lock *l)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void lock_init(struct lock *l)
{
    make(l);
    atomic_init(&l->forks, rt_forks());
}

void lock_destroy(struct lock *l)
{
    pthread_mutex_destroy(&l->mutex);
    pthread_cond_destroy(&l->changed);
}

static void mend_after_fork(struct lock *l, int now, void (*mend)(void *), void *of)
{
    enum { MENDING = -1 };
    int before = atomic_load(&l->forks);
    if (before == now) return;
    if (before == MENDING || !atomic_compare_exchange_strong(&l->forks, &before, MENDING)) {
        while (atomic_load(&l->forks) != now) sched_yield();
        return;
    }
    make(l);
    if (mend) mend(of);
    atomic_store(&l->forks, now);
}

void lock_take(struct lock *l, void (*mend)(void *), void *of)
{
    const int now = rt_forks();
    if (atomic_load_explicit(&l->forks, memory_order_acquire) != now) mend_after_fork(l, now, mend, of);
    pthread_mutex_lock(&l->mutex);
}

void lock_give(struct lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

struct timespec lock_until(int64_t ns)
{
    enum { SECOND = 1000000000 };
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += t.tv_nsec;
    t.tv_sec += (time_t)(ns / SECOND);
    t.tv_nsec = ns % SECOND;
    return t;
}
