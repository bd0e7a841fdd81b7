/* Queues of commands on virtual pointers: who takes one appends commands and waits. A queue of a device whose `submit`
 * is synchronous has a thread, which executes what was appended; otherwise the appending thread hands commands to the
 * device's own queue. What executing means is in drain.c. */
#include <pthread.h>

#include "device/queue.h"
#include "rt/rt.h"

/* -- queues */

static sol_status open_stream(struct queue *q)
{
    struct sol_failure why = failure_new();
    struct dev *dev = q->dev;
    q->ticket = q->asked = 0;
    const sol_status status = driver_queue(dev, q->foreign, &q->stream, &why);
    if (!status) return SOL_OK;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: a queue: ", dev->name);
}

/* The key may change between calls. Nothing is under way. */
static void renew_limit(struct queue *q)
{
    const int64_t limit_ns = dev_limit(q->dev);
    lock_take(&q->lock, NULL, NULL);
    q->limit_ns = limit_ns;
    lock_give(&q->lock);
}

static sol_status queue_make(struct dev *dev, struct queue **out_q)
{
    struct queue *q = ctx_try(dev->ctx, sizeof *q);
    if (!q) return ctx_fail(dev->ctx, SOL_ERR_NOMEM, "out of memory: a queue of device %s", dev->name);
    *q = (struct queue){.dev = dev, .threaded = dev->driver.type->features & SOL_DEVICE_SYNCHRONOUS};
    q->last = &q->first;
    q->sent_last = &q->sent;
    const sol_status status = open_stream(q);
    if (status) {
        ctx_free(dev->ctx, q);
        return status;
    }
    lock_init(&q->lock);
    if (q->threaded && !thread_start(&q->thread, queue_work, q)) {
        q->threaded = false; /* there is no thread to end */
        queue_destroy(q);
        return ctx_fail(dev->ctx, SOL_ERR_NOMEM, "device %s: the system has no thread for a queue", dev->name);
    }
    *out_q = q;
    return SOL_OK;
}

void queue_destroy(struct queue *q)
{
    if (q->threaded) {
        lock_take(&q->lock, NULL, NULL);
        q->stop = true;
        pthread_cond_broadcast(&q->lock.changed);
        lock_give(&q->lock);
        pthread_join(q->thread, NULL);
    }
    if (q->stream) driver_unqueue(q->dev, q->stream);
    memory_join(q->dev, &q->pool);
    lock_destroy(&q->lock);
    ctx_free(q->dev->ctx, q);
}

sol_status queue_take(struct dev *dev, struct queue **out_q)
{
    *out_q = NULL;
    TRY(dev_check_process(dev));
    TRY(queue_check_hanging(dev));
    lock_take(&dev->lock, NULL, NULL);
    struct queue *q = dev->queues;
    if (q) dev->queues = q->next;
    lock_give(&dev->lock);
    if (!q) TRY(queue_make(dev, &q));
    renew_limit(q);
    *out_q = q;
    return SOL_OK;
}

void queue_give(struct queue *q)
{
    struct dev *dev = q->dev;
    if (dev->forks != rt_forks()) return;                             /* it is the parent's */
    if (q->waited < q->added || queue_failed(q)) queue_wait(q, NULL); /* otherwise nothing is under way */
    struct queue **list = queue_hangs(q) ? &dev->hanging : &dev->queues;
    lock_take(&dev->lock, NULL, NULL);
    q->next = *list;
    *list = q;
    lock_give(&dev->lock);
}

void queue_abandon(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    q->abandoned = true;
    lock_give(&q->lock);
    if (q->threaded) pthread_detach(q->thread);
}

struct queue *queue_next(struct queue *q)
{
    return q->next;
}

/* -- appending */

static void append(struct queue *q, struct entry *e)
{
    lock_take(&q->lock, NULL, NULL);
    *q->last = e;
    q->last = &e->next;
    q->added++;
    lock_give(&q->lock);
}

static sol_status add(struct queue *q, const struct sol_command *c,
                      struct entry *(*make)(struct sol_ctx *ctx, const struct sol_command *c))
{
    TRY(dev_check_process(q->dev));
    queue_mend(q);
    if (queue_failed(q)) return ctx_fail(q->dev->ctx, q->failure.status, "%s", q->failure.text);
    struct entry *e = make(q->dev->ctx, c);
    if (!e) return ctx_fail(q->dev->ctx, SOL_ERR_NOMEM, "out of memory: a command for device %s", q->dev->name);
    append(q, e);
    return SOL_OK;
}

sol_status queue_add(struct queue *q, const struct sol_command *c)
{
    return add(q, c, entry_make);
}

sol_status queue_add_copied(struct queue *q, const struct sol_command *c)
{
    return add(q, c, entry_make_write);
}

struct entry *queue_entry_free(struct dev *dev, sol_ptr p)
{
    return entry_make(dev->ctx, &(struct sol_command){.kind = SOL_COMMAND_FREE, .to = p});
}

sol_status queue_alloc(struct queue *q, int64_t bytes, const char *label, sol_ptr *out_p)
{
    struct dev *dev = q->dev;
    sol_ptr p;
    *out_p = 0;
    TRY(dev_check_process(dev));
    TRY(memory_take(dev, bytes, &p));
    /* its free needs memory, too, and must not fail */
    struct entry *e = queue_entry_free(dev, p);
    const struct sol_command c = {.kind = SOL_COMMAND_ALLOC, .to = p, .bytes = bytes, .label = label};
    const sol_status status =
        e ? queue_add(q, &c) : ctx_fail(dev->ctx, SOL_ERR_NOMEM, "out of memory: a command for device %s", dev->name);
    if (!status) {
        memory_keep_free(dev, p, e);
        *out_p = p;
        return SOL_OK;
    }
    ctx_free(dev->ctx, e);
    memory_drop(dev, p, NULL);
    return status;
}

void queue_free(struct queue *q, sol_ptr p)
{
    if (!p || q->dev->forks != rt_forks()) return;
    struct entry *e = memory_take_free(q->dev, p);
    if (e) append(q, e);
}

void queue_flush(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    struct entry *list = q->threaded ? NULL : queue_take_list(q);
    if (q->threaded) {
        q->flushed = true;
        pthread_cond_broadcast(&q->lock.changed);
    }
    lock_give(&q->lock);
    if (list) queue_drain(q, list);
}

/* Behind a failure the device's stream is in an unknown state. If there is no new one, the queue stays failed. Nothing
 * is under way. */
static void reopen(struct queue *q)
{
    if (q->stream) driver_unqueue(q->dev, q->stream);
    const bool failed = open_stream(q) != SOL_OK;
    lock_take(&q->lock, NULL, NULL);
    q->failed = failed;
    lock_give(&q->lock);
}

/* In the stream of before there is everything that was appended so far. */
static sol_status follow(struct queue *q, void *foreign)
{
    struct sol_failure why = failure_new();
    if (q->foreign != foreign) queue_flush(q);
    const sol_status status = q->dev->driver.type->follow(q->stream, foreign, &why);
    if (!status) {
        q->foreign = foreign;
        return SOL_OK;
    }
    failure_report(q->dev->ctx, status, &why);
    return ctx_where(q->dev->ctx, status, "device %s: ", q->dev->name);
}

sol_status queue_follow(struct queue *q, void *foreign)
{
    TRY(dev_check_process(q->dev));
    queue_mend(q);
    if (q->dev->driver.type->follow && q->stream && !queue_failed(q)) return follow(q, foreign);
    if (q->foreign == foreign && !queue_failed(q)) return SOL_OK;
    TRY(queue_wait_for(q, "another stream", NULL));
    void *const before = q->foreign;
    q->foreign = foreign;
    if (q->stream) driver_unqueue(q->dev, q->stream);
    const sol_status status = open_stream(q);
    if (!status) return SOL_OK;
    q->foreign = before; /* it goes on as it was */
    return open_stream(q) ? SOL_ERR_INTERNAL : status;
}

/* Reports the failure of a queue that has one. */
static sol_status take_failure(struct queue *q, struct sol_failure *out_failure)
{
    const struct sol_failure failure = q->failure;
    if (out_failure) *out_failure = failure;
    reopen(q);
    return ctx_fail(q->dev->ctx, failure.status, "%s", failure.text);
}

/* Has the device ended what hung? The queue hangs. */
static bool has_ended(struct queue *q)
{
    struct sol_failure why = failure_new();
    int done = 0;
    const bool asks = !q->threaded && q->sent && !dev_stuck(q->dev); /* one thread at a time uses a stream */
    if (asks && (q->dev->driver.type->poll(q->stream, q->ticket, 0, &done, &why) || done)) queue_complete_sent(q);
    lock_take(&q->lock, NULL, NULL);
    const bool ended = q->done == q->added;
    q->hung = !ended;
    lock_give(&q->lock);
    if (!ended) return false;
    lock_take(&q->dev->lock, NULL, NULL);
    q->dev->nhanging--;
    lock_give(&q->dev->lock);
    return true;
}

bool queue_hangs(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const bool hung = q->hung;
    lock_give(&q->lock);
    return hung;
}

int64_t queue_mark(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const int64_t mark = q->added;
    lock_give(&q->lock);
    return mark;
}

struct pool *queue_pool(struct queue *q)
{
    return &q->pool;
}

int64_t queue_under_way(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const int64_t n = q->added - q->done;
    lock_give(&q->lock);
    return n;
}

bool queue_reached(struct queue *q, int64_t mark)
{
    lock_take(&q->lock, NULL, NULL);
    const bool reached = q->done >= mark;
    lock_give(&q->lock);
    return reached;
}

void queue_mend(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const bool told = q->hung && q->told;
    lock_give(&q->lock);
    if (told && has_ended(q)) reopen(q);
}

sol_status queue_check_hanging(struct dev *dev)
{
    lock_take(&dev->lock, NULL, NULL);
    struct queue *list = dev->hanging;
    const bool hangs = dev->nhanging;
    dev->hanging = NULL;
    lock_give(&dev->lock);
    const char *stuck = dev_stuck(dev);
    if (!hangs && !stuck) return SOL_OK;
    heap_mend(dev);
    sol_status status = SOL_OK;
    for (struct queue *q = list, *next; q; q = next) {
        next = q->next;
        if (!has_ended(q))
            status = ctx_fail(dev->ctx, q->failure.status, "%s", q->failure.text);
        else
            reopen(q); /* its call has reported the failure */
        queue_give(q);
    }
    if (status || !dev_hangs(dev)) return status;
    return ctx_fail(dev->ctx, SOL_ERR_RUN, "device %s: %s has not ended yet (key device::timeout)", dev->name,
                    stuck ? stuck : "a command of another thread");
}

sol_status queue_wait_for(struct queue *q, const char *what, struct sol_failure *out_failure)
{
    TRY(dev_check_process(q->dev));
    queue_mend(q);
    queue_flush(q);
    if (!q->threaded) queue_finish(q);
    lock_take(&q->lock, NULL, NULL);
    queue_wait_for_thread(q);
    const bool failed = q->failed, hung = q->hung;
    q->told = hung;
    q->waited = q->added;
    lock_give(&q->lock);
    if (hung && out_failure) *out_failure = q->failure;
    if (hung) return ctx_fail(q->dev->ctx, q->failure.status, "%s", q->failure.text);
    lock_take(&q->dev->lock, NULL, NULL);
    q->dev->counts.waits++;
    q->dev->counts.last_wait = what;
    lock_give(&q->dev->lock);
    renew_limit(q);
    return failed ? take_failure(q, out_failure) : SOL_OK;
}

sol_status queue_wait(struct queue *q, struct sol_failure *out_failure)
{
    return queue_wait_for(q, "the end of a call", out_failure);
}
