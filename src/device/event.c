/* Events between queues of a device. */
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

sol_status event_wait(struct dev_event *e, struct sol_failure *out_why)
{
    lock_take(&e->lock, NULL, NULL);
    while (!e->happened) pthread_cond_wait(&e->lock.changed, &e->lock.mutex);
    const bool failed = e->failed;
    lock_give(&e->lock);
    return failed ? failure_set(out_why, SOL_ERR_RUN, "the queue that it waits for has failed") : SOL_OK;
}
