/* A mutex with a condition that survives fork(): a child process resets it, because its holder does not exist there. It
 * is part of libsol only, not of deployed libraries. */
#ifndef SOL_RT_LOCK_H
#define SOL_RT_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct lock {
    atomic_int forks; /* the process in which it is valid */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

void lock_init(struct lock *l);
void lock_destroy(struct lock *l);
/* `mend` repairs `of`, which the lock guards, in a child process, where calls of the parent's other threads never end.
 * NULL: nothing to repair. */
void lock_take(struct lock *l, void (*mend)(void *of), void *of);
void lock_give(struct lock *l);
struct timespec lock_until(int64_t ns); /* the time in so many nanoseconds, for pthread_cond_timedwait on `changed` */

#endif
