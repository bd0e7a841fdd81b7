/* Events of queues: when everything in front of a SIGNAL is done. Another queue, also of another device, waits for one
 * with WAIT, and the host with sol_event_wait. Commands and their caller share an event; the last one frees it. */
#include <errno.h>
#include <stdatomic.h>

#include "device/entry.h"

struct sol_event {
    struct dev *dev; /* of the queue that signals it */
    atomic_int users;
    struct lock lock; /* for all below */
    bool happened, failed;
    int64_t ns; /* when, by clock_ns */
};

struct sol_event *event_make(struct dev *dev)
{
    struct sol_event *e = ctx_try(dev->ctx, sizeof *e);
    if (!e) return NULL;
    *e = (struct sol_event){.dev = dev};
    atomic_init(&e->users, 1);
    lock_init(&e->lock);
    return e;
}

void event_keep(struct sol_event *e)
{
    atomic_fetch_add(&e->users, 1);
}

void sol_event_free(struct sol_event *e)
{
    if (!e || atomic_fetch_sub(&e->users, 1) > 1) return;
    lock_destroy(&e->lock);
    ctx_free(e->dev->ctx, e);
}

struct dev *event_dev(const struct sol_event *e)
{
    return e->dev;
}

void event_signal(struct sol_event *e, bool failed)
{
    lock_take(&e->lock, NULL, NULL);
    e->happened = true;
    e->failed = failed;
    e->ns = clock_ns();
    pthread_cond_broadcast(&e->lock.changed);
    lock_give(&e->lock);
}

/* The caller holds the lock. false: nothing was done for so long. */
static bool wait_within(struct sol_event *e, int64_t limit_ns)
{
    int64_t done = -1;
    while (!e->happened && done != atomic_load(&e->dev->done)) {
        const struct timespec end = lock_until(limit_ns);
        int error = 0;
        done = atomic_load(&e->dev->done);
        while (!e->happened && error != ETIMEDOUT)
            error = pthread_cond_timedwait(&e->lock.changed, &e->lock.mutex, &end);
    }
    return e->happened;
}

sol_status event_wait(struct sol_event *e, int64_t limit_ns, struct sol_failure *out_why)
{
    lock_take(&e->lock, NULL, NULL);
    while (!e->happened && !limit_ns) pthread_cond_wait(&e->lock.changed, &e->lock.mutex);
    const bool happened = wait_within(e, limit_ns), failed = e->failed;
    lock_give(&e->lock);
    if (!happened)
        return failure_set(out_why, SOL_ERR_RUN,
                           "the event has not happened, and device %s has done nothing for %lld s (key "
                           "device::timeout)",
                           e->dev->name, (long long)(limit_ns / NS_PER_SECOND));
    return failed ? failure_set(out_why, SOL_ERR_RUN, "what it waits for on device %s has failed", e->dev->name)
                  : SOL_OK;
}

/* -- for frontends, of heaps */

int sol_event_happened(struct sol_event *e)
{
    lock_take(&e->lock, NULL, NULL);
    const bool happened = e->happened;
    lock_give(&e->lock);
    return happened;
}

sol_status sol_event_wait(struct sol_event *e)
{
    struct sol_failure why = failure_new();
    TRY(dev_check_process(e->dev));
    const sol_status status = event_wait(e, dev_limit(e->dev), &why);
    if (!status) return SOL_OK;
    TRY(sol_heap_wait(e->dev->heap)); /* it knows what failed, unless somebody was told */
    return ctx_fail(e->dev->ctx, status, "an event: %s", why.text);
}

int64_t sol_event_between(struct sol_event *from, struct sol_event *to)
{
    return to->ns - from->ns;
}
