/* Queues of commands on virtual pointers. A queue of a device whose `submit` is synchronous has a thread, which
 * executes what was appended; otherwise the appending thread hands commands to the device's own queue. In both cases
 * `drain` goes through them: it allocates and frees, packs small copies, resolves addresses, and submits the rest. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/entry.h"
#include "rt/rt.h"

enum { MOST_SUBMITTED = 64 };

struct queue {
    struct dev *dev;
    struct queue *next; /* while idle */
    bool threaded;
    pthread_t thread;

    int64_t waited; /* what was appended at the last wait; of the thread that has taken the queue */

    struct lock lock;            /* for all below */
    struct entry *first, **last; /* appended, and not taken by drain yet */
    int64_t added, done;         /* entries */
    bool stop, failed;
    struct sol_failure failure; /* if failed: the first one, as people read it */
    bool hung;                  /* failed because the device has not ended a command, and it still has not */
    bool told;                  /* a wait has reported that */
    bool abandoned;             /* the context has ended: its thread ends, and frees nothing */
    const struct entry *now;    /* what the thread waits for */

    /* Of the thread that drains alone: */
    struct sol_stream *stream;
    int64_t ticket;                  /* of the command that was submitted last */
    struct entry *sent, **sent_last; /* submitted, not known to be done; oldest first */
    struct entry *later;             /* frees of memory that those may use */
};

/* -- failures */

/* The first failure counts. The caller holds the lock. */
static void fail_locked(struct queue *q, const struct entry *e, sol_status status, const struct sol_failure *why)
{
    if (q->failed) return;
    q->failure = *why;
    q->failure.status = status;
    failure_place(&q->failure, q->dev->name, e ? &e->c : NULL);
    q->failed = true;
}

static void fail(struct queue *q, const struct entry *e, sol_status status, const struct sol_failure *why)
{
    lock_take(&q->lock, NULL, NULL);
    fail_locked(q, e, status, why);
    lock_give(&q->lock);
}

static bool has_failed(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const bool failed = q->failed;
    lock_give(&q->lock);
    return failed;
}

/* -- devices that hang. What their commands may still use stays as it is: memory of the host by going through memory of
 * the queue, memory of the device and code because nobody takes a queue, allocates or unloads until they have ended. */

/* The caller holds the lock. */
static void hang(struct queue *q, const struct entry *e)
{
    struct sol_failure why = failure_new();
    failure_set(&why, SOL_ERR_RUN,
                "it has not ended after %lld s (key device::timeout); until it ends, the device accepts no more work",
                (long long)(q->dev->limit_ns / 1000000000));
    fail_locked(q, e, SOL_ERR_RUN, &why);
    q->hung = true;
    q->told = false;
    lock_take(&q->dev->lock, NULL, NULL);
    q->dev->nhanging++;
    lock_give(&q->dev->lock);
}

/* The caller holds the lock. */
static void wait_for_thread(struct queue *q)
{
    while (q->done < q->added && !q->hung) {
        struct timespec end;
        const int64_t before = q->done;
        int error = 0;
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_sec += (time_t)(q->dev->limit_ns / 1000000000);
        while (q->done == before && error != ETIMEDOUT)
            error = q->dev->limit_ns ? pthread_cond_timedwait(&q->lock.changed, &q->lock.mutex, &end)
                                     : pthread_cond_wait(&q->lock.changed, &q->lock.mutex);
        if (q->done == before) hang(q, q->now);
    }
}

/* Waits until the device has done what was submitted. SOL_OK and q->hung: it takes too long. */
static sol_status poll_sent(struct queue *q, struct sol_failure *out_why)
{
    const struct sol_device_type *type = q->dev->type;
    int done = 0;
    if (!q->dev->limit_ns) return type->poll(q->stream, q->ticket, 1, &done, out_why);
    for (const struct entry *e = q->sent; e; e = e->next) {
        const int64_t start = clock_ns();
        for (int64_t ns = 0; !done || ns; ns = clock_ns() - start) {
            TRY(type->poll(q->stream, e->ticket, 0, &done, out_why));
            if (done) break;
            if (ns > q->dev->limit_ns) {
                lock_take(&q->lock, NULL, NULL);
                hang(q, e);
                lock_give(&q->lock);
                return SOL_OK;
            }
            nanosleep(&(struct timespec){.tv_nsec = MIN(1000 + ns / 16, 1000000)}, NULL);
        }
        done = 0;
    }
    return SOL_OK;
}

/* Around what the thread may have to wait for. */
static void begin_waiting(struct queue *q, const struct entry *e)
{
    lock_take(&q->lock, NULL, NULL);
    q->now = e;
    lock_give(&q->lock);
}

static void end_waiting(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    q->now = NULL;
    const bool abandoned = q->abandoned;
    lock_give(&q->lock);
    if (abandoned) pthread_exit(NULL);
}

/* -- submitting */

static void count(struct queue *q, int n, const struct sol_command *c)
{
    lock_take(&q->dev->lock, NULL, NULL);
    for (int i = 0; i < n; i++) q->dev->counts.commands[c[i].kind]++;
    lock_give(&q->dev->lock);
}

static void complete(struct queue *q, struct entry *e)
{
    lock_take(&q->lock, NULL, NULL);
    if (!q->hung) entry_deliver(e); /* otherwise its caller does not wait any more */
    lock_give(&q->lock);
    const int64_t n = entry_finish(q->dev->ctx, e);
    lock_take(&q->lock, NULL, NULL);
    q->done += n;
    pthread_cond_broadcast(&q->lock.changed);
    lock_give(&q->lock);
}

/* Everything that was submitted is done, or will not be. */
static void complete_sent(struct queue *q)
{
    for (struct entry *e; (e = q->sent);) {
        q->sent = e->next;
        complete(q, e);
    }
    q->sent_last = &q->sent;
    for (struct entry *e; (e = q->later);) {
        q->later = e->next;
        memory_drop(q->dev, e->c.to);
        complete(q, e);
    }
}

static const struct entry *sent_with(const struct queue *q, int64_t ticket)
{
    const struct entry *e = q->sent;
    while (e && e->ticket != ticket) e = e->next;
    return e;
}

/* Waits until the device has done what was submitted. */
static void finish(struct queue *q)
{
    struct sol_failure why = failure_new();
    if (!q->threaded && q->sent && !q->hung) {
        const sol_status status = poll_sent(q, &why);
        if (status) fail(q, sent_with(q, why.ticket), status, &why);
    }
    if (q->threaded || !q->hung) complete_sent(q);
}

static void submit(struct queue *q, int n, const struct sol_command *c, struct entry *const *of)
{
    struct sol_failure why = failure_new();
    int64_t ticket = 0;
    for (int i = 0; i < n; i++) {
        of[i]->ticket = q->ticket + i + 1;
        of[i]->next = NULL;
        *q->sent_last = of[i];
        q->sent_last = &of[i]->next;
    }
    count(q, n, c);
    begin_waiting(q, of[0]);
    const sol_status status = q->dev->type->submit(q->stream, n, c, &ticket, &why);
    end_waiting(q);
    q->ticket += n;
    if (status) fail(q, sent_with(q, why.ticket), status, &why);
    if (status || q->threaded) finish(q);
}

/* Resolves and submits a list of entries for the device, until one cannot be resolved. */
static void submit_list(struct queue *q, struct entry *list)
{
    struct sol_command c[MOST_SUBMITTED];
    struct entry *of[MOST_SUBMITTED], *next;
    const int most = q->threaded && q->dev->limit_ns ? 1 : MOST_SUBMITTED; /* each may take so long */
    for (; list && !has_failed(q);) {
        int n = 0;
        struct sol_failure why = failure_new();
        sol_status status = SOL_OK;
        for (struct entry *e = list; e && n < most && !status; e = next) {
            next = e->next;
            status = entry_resolve(q->dev, e, &c[n], &why);
            if (status) {
                fail(q, e, status, &why);
                break;
            }
            of[n++] = e;
            list = next;
        }
        if (n) submit(q, n, c, of);
    }
    for (struct entry *e = list; e; e = next) {
        next = e->next;
        entry_drop(e);
        complete(q, e);
    }
}

/* -- what SOL does itself */

static void execute(struct queue *q, struct entry *e)
{
    struct sol_failure why = failure_new();
    sol_status status = SOL_OK;
    if (e->c.kind == SOL_COMMAND_FREE && q->sent) {
        e->next = q->later;
        q->later = e;
        return;
    }
    if (e->c.kind == SOL_COMMAND_HOST || e->c.kind == SOL_COMMAND_SIGNAL) finish(q);
    const bool failed = has_failed(q);
    switch ((enum sol_command_kind)e->c.kind) {
    case SOL_COMMAND_ALLOC:
        if (!failed) status = memory_back(q->dev, e->c.to, &why);
        break;
    case SOL_COMMAND_FREE: memory_drop(q->dev, e->c.to); break;
    case SOL_COMMAND_HOST:
        if (!failed) e->c.call(e->c.user);
        break;
    case SOL_COMMAND_SIGNAL: event_signal(e->c.event, failed); break;
    case SOL_COMMAND_WAIT:
        begin_waiting(q, e);
        if (!failed) status = event_wait(e->c.event, &why);
        end_waiting(q);
        break;
    default: break;
    }
    if (status) fail(q, e, status, &why);
    complete(q, e);
}

static bool is_for_device(const struct entry *e)
{
    return e->c.kind >= SOL_COMMAND_WRITE && e->c.kind <= SOL_COMMAND_RUN;
}

static void drain(struct queue *q, struct entry *list)
{
    while (list) {
        struct entry *first = list, **end = &list;
        if (!is_for_device(list)) {
            list = list->next;
            execute(q, first);
            continue;
        }
        while (*end && is_for_device(*end)) end = &(*end)->next;
        struct entry *rest = *end;
        *end = NULL;
        if (!has_failed(q)) entry_pack(q->dev->ctx, first, q->dev->limit_ns);
        submit_list(q, first);
        list = rest;
    }
}

static struct entry *take_list(struct queue *q)
{
    struct entry *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    return list;
}

static void *work(void *arg)
{
    struct queue *q = arg;
    lock_take(&q->lock, NULL, NULL);
    while (!q->stop) {
        struct entry *list = take_list(q);
        if (!list) {
            pthread_cond_wait(&q->lock.changed, &q->lock.mutex);
            continue;
        }
        lock_give(&q->lock);
        drain(q, list);
        lock_take(&q->lock, NULL, NULL);
    }
    lock_give(&q->lock);
    return NULL;
}

/* -- queues */

static sol_status open_stream(struct queue *q)
{
    struct sol_failure why = failure_new();
    struct dev *dev = q->dev;
    q->ticket = 0;
    const sol_status status = dev->type->queue(dev->device, NULL, &q->stream, &why);
    if (!status) return SOL_OK;
    q->stream = NULL;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: a queue: ", dev->name);
}

/* Signals are for the threads of the application. */
static bool start_thread(struct queue *q)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = !pthread_create(&q->thread, NULL, work, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static sol_status queue_make(struct dev *dev, struct queue **out_q)
{
    struct queue *q = ctx_try(dev->ctx, sizeof *q);
    if (!q) return ctx_fail(dev->ctx, SOL_ERR_NOMEM, "out of memory: a queue of device %s", dev->name);
    *q = (struct queue){.dev = dev, .threaded = dev->type->features & SOL_DEVICE_SYNCHRONOUS};
    q->last = &q->first;
    q->sent_last = &q->sent;
    const sol_status status = open_stream(q);
    if (status) {
        ctx_free(dev->ctx, q);
        return status;
    }
    lock_init(&q->lock);
    if (q->threaded && !start_thread(q)) {
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
    if (q->stream) q->dev->type->unqueue(q->stream);
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
    *out_q = q;
    return q ? SOL_OK : queue_make(dev, out_q);
}

void queue_give(struct queue *q)
{
    struct dev *dev = q->dev;
    if (dev->forks != rt_forks()) return;                           /* it is the parent's */
    if (q->waited < q->added || has_failed(q)) queue_wait(q, NULL); /* otherwise nothing is under way */
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
    if (has_failed(q)) return ctx_fail(q->dev->ctx, q->failure.status, "%s", q->failure.text);
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
    memory_drop(dev, p);
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
    struct entry *list = q->threaded ? NULL : take_list(q);
    if (q->threaded) pthread_cond_broadcast(&q->lock.changed);
    lock_give(&q->lock);
    if (list) drain(q, list);
}

/* Behind a failure the device's stream is in an unknown state. If there is no new one, the queue stays failed. Nothing
 * is under way. */
static void reopen(struct queue *q)
{
    if (q->stream) q->dev->type->unqueue(q->stream);
    const bool failed = open_stream(q) != SOL_OK;
    lock_take(&q->lock, NULL, NULL);
    q->failed = failed;
    lock_give(&q->lock);
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
    if (!q->threaded && q->sent && (q->dev->type->poll(q->stream, q->ticket, 0, &done, &why) || done)) complete_sent(q);
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
    if (!hangs) return SOL_OK;
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
    return ctx_fail(dev->ctx, SOL_ERR_RUN, "device %s: a command of another thread hangs (key device::timeout)",
                    dev->name);
}

sol_status queue_wait(struct queue *q, struct sol_failure *out_failure)
{
    TRY(dev_check_process(q->dev));
    queue_mend(q);
    queue_flush(q);
    if (!q->threaded) finish(q);
    lock_take(&q->lock, NULL, NULL);
    wait_for_thread(q);
    const bool failed = q->failed, hung = q->hung;
    q->told = hung;
    q->waited = q->added;
    lock_give(&q->lock);
    if (hung && out_failure) *out_failure = q->failure;
    if (hung) return ctx_fail(q->dev->ctx, q->failure.status, "%s", q->failure.text);
    lock_take(&q->dev->lock, NULL, NULL);
    q->dev->counts.waits++;
    lock_give(&q->dev->lock);
    return failed ? take_failure(q, out_failure) : SOL_OK;
}
