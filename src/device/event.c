/* Events between queues of a device. */
#include <errno.h>

#include "device/entry.h"

struct dev_event {
    struct dev *dev;
    struct lock lock; /* for all below */
    bool happened, failed;
};

struct dev_event *event_make(struct dev *dev)
{
    struct dev_event *e = ctx_try(dev->ctx, sizeof *e);
    if (!e) return NULL;
    *e = (struct dev_event){.dev = dev};
    lock_init(&e->lock);
    return e;
}

void event_free(struct dev_event *e)
{
    if (!e) return;
    lock_destroy(&e->lock);
    ctx_free(e->dev->ctx, e);
}

void event_signal(struct dev_event *e, bool failed)
{
    lock_take(&e->lock, NULL, NULL);
    e->happened = true;
    e->failed = failed;
    pthread_cond_broadcast(&e->lock.changed);
    lock_give(&e->lock);
}

/* The caller holds the lock. false: nothing was done for so long. */
static bool wait_within(struct dev_event *e, int64_t limit_ns)
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

sol_status event_wait(struct dev_event *e, int64_t limit_ns, struct sol_failure *out_why)
{
    lock_take(&e->lock, NULL, NULL);
    while (!e->happened && !limit_ns) pthread_cond_wait(&e->lock.changed, &e->lock.mutex);
    const bool happened = wait_within(e, limit_ns), failed = e->failed;
    lock_give(&e->lock);
    if (!happened)
        return failure_set(out_why, SOL_ERR_RUN,
                           "the event has not happened, and the device has done nothing for %lld s (key "
                           "device::timeout)",
                           (long long)(limit_ns / 1000000000));
    return failed ? failure_set(out_why, SOL_ERR_RUN, "the queue that it waits for has failed") : SOL_OK;
}
