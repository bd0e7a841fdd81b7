/* Executes the commands of queues: `queue_drain` goes through them in order. It allocates and frees, packs small
 * copies, resolves addresses, and submits the rest to the device, in the thread of the queue or in that of its caller.
 */
#include <errno.h>
#include <time.h>

#include "device/queue.h"

enum { MOST_SUBMITTED = 512 };

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

bool queue_failed(struct queue *q)
{
    lock_take(&q->lock, NULL, NULL);
    const bool failed = q->failed;
    lock_give(&q->lock);
    return failed;
}

/* -- devices that hang. What their commands may still use stays as it is: memory of the host by going through memory of
 * the queue, memory of the device and code because nobody takes a queue, allocates or unloads until they have ended. */

/* `what`: that of the entry which has not ended. The caller holds the lock. */
static void hang(struct queue *q, const struct entry *e, const char *what)
{
    struct sol_failure why = failure_new();
    fail_locked(q, e, failure_hangs(&why, what, q->limit_ns), &why);
    q->hung = true;
    q->told = false;
    lock_take(&q->dev->lock, NULL, NULL);
    q->dev->nhanging++;
    lock_give(&q->dev->lock);
}

/* An event and memory are waited for with a limit of their own. */
static bool is_limited(const struct entry *e)
{
    return e && (e->c.kind == SOL_COMMAND_WAIT || e->c.kind == SOL_COMMAND_ALLOC || e->c.kind == SOL_COMMAND_FREE);
}

/* The caller holds the lock. */
void queue_wait_for_thread(struct queue *q)
{
    while (q->done < q->added && !q->hung) {
        const int64_t before = q->done;
        const struct timespec end = lock_until(q->limit_ns);
        int error = 0;
        while (q->done == before && error != ETIMEDOUT)
            error = q->limit_ns ? pthread_cond_timedwait(&q->lock.changed, &q->lock.mutex, &end)
                                : pthread_cond_wait(&q->lock.changed, &q->lock.mutex);
        if (q->done == before && !is_limited(q->now)) hang(q, q->now, "it");
    }
}

/* Waits until the device has done what was submitted. SOL_OK and q->hung: it takes too long. */
static sol_status poll_sent(struct queue *q, struct sol_failure *out_why)
{
    const struct sol_device_type *type = q->dev->driver.type;
    int done = 0;
    if (!q->limit_ns) return type->poll(q->stream, q->ticket, 1, &done, out_why);
    const struct entry *e = q->sent;
    for (int64_t start = clock_ns(); e;) {
        TRY(type->poll(q->stream, e->ticket, 0, &done, out_why));
        const int64_t ns = clock_ns() - start;
        if (done) {
            e = e->next;
            start = clock_ns();
        } else if (ns > q->limit_ns) {
            lock_take(&q->lock, NULL, NULL);
            hang(q, e, "it");
            lock_give(&q->lock);
            return SOL_OK;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = MIN(1000 + ns / 16, 1000000)}, NULL);
        }
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

/* The caller holds the lock. */
static void check_report(struct queue *q, const struct entry *e)
{
    struct sol_failure why = failure_new();
    if (e->c.kind != SOL_COMMAND_READ || !e->c.run || !e->reported[0]) return;
    why.kernel = e->reported[0];
    why.step = e->reported[1];
    fail_locked(q, e, SOL_ERR_RUN, &why);
}

static void complete(struct queue *q, struct entry *e)
{
    lock_take(&q->lock, NULL, NULL);
    if (!q->hung) { /* otherwise its caller does not wait any more */
        entry_deliver(e);
        check_report(q, e);
    }
    lock_give(&q->lock);
    const int64_t n = entry_finish(q->dev->ctx, e);
    lock_take(&q->lock, NULL, NULL);
    q->done += n;
    atomic_fetch_add(&q->dev->done, n);
    pthread_cond_broadcast(&q->lock.changed);
    lock_give(&q->lock);
}

/* Everything that was submitted is done, or will not be. */
void queue_complete_sent(struct queue *q)
{
    for (struct entry *e; (e = q->sent);) {
        q->sent = e->next;
        complete(q, e);
    }
    q->sent_last = &q->sent;
    memory_join(q->dev, &q->pool);
}

static const struct entry *sent_with(const struct queue *q, int64_t ticket)
{
    const struct entry *e = q->sent;
    while (e && e->ticket != ticket) e = e->next;
    return e;
}

/* Asked once a flush, about what an earlier one submitted: that has often ended by now, and the answer costs a query.
 */
void queue_retire(struct queue *q)
{
    struct sol_failure why = failure_new();
    sol_status status = SOL_OK;
    int done = 1;
    if (q->threaded || !q->sent || q->hung) return;
    if (q->asked) status = q->dev->driver.type->poll(q->stream, q->asked, 0, &done, &why);
    if (status) fail(q, sent_with(q, why.ticket), status, &why);
    if (status || !done) return;
    while (q->sent && q->sent->ticket <= q->asked) {
        struct entry *e = q->sent;
        q->sent = e->next;
        complete(q, e);
    }
    if (!q->sent) q->sent_last = &q->sent;
    q->asked = q->ticket;
}

/* Waits until the device has done what was submitted. */
void queue_finish(struct queue *q)
{
    struct sol_failure why = failure_new();
    if (!q->threaded && q->sent && !q->hung) {
        const sol_status status = poll_sent(q, &why);
        if (status) fail(q, sent_with(q, why.ticket), status, &why);
    }
    if (q->threaded || !q->hung) queue_complete_sent(q);
}

static void submit(struct queue *q, int n, const struct sol_command *c, struct entry *const *of)
{
    struct sol_failure why = failure_new();
    int64_t ticket = 0;
    bool late = false;
    for (int i = 0; i < n; i++) {
        of[i]->ticket = q->ticket + i + 1;
        of[i]->next = NULL;
        *q->sent_last = of[i];
        q->sent_last = &of[i]->next;
    }
    count(q, n, c);
    begin_waiting(q, of[0]);
    const sol_status status = q->threaded ? q->dev->driver.type->submit(q->stream, n, c, &ticket, &why)
                                          : driver_submit(q->dev, q->stream, n, c, &late, &why);
    end_waiting(q);
    q->ticket += n;
    if (late) {
        lock_take(&q->lock, NULL, NULL);
        hang(q, of[0], n == 1 ? "its submission" : "its submission, with commands behind it,");
        lock_give(&q->lock);
        return;
    }
    if (status) fail(q, sent_with(q, why.ticket), status, &why);
    if (status || q->threaded) queue_finish(q);
}

/* Resolves and submits a list of entries for the device, until one cannot be resolved. */
static void submit_list(struct queue *q, struct entry *list)
{
    struct sol_command c[MOST_SUBMITTED];
    struct entry *of[MOST_SUBMITTED], *next;
    const int most = q->threaded && q->limit_ns ? 1 : MOST_SUBMITTED; /* each may take so long */
    for (; list && !queue_failed(q);) {
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
    if (e->c.kind == SOL_COMMAND_HOST || e->c.kind == SOL_COMMAND_SIGNAL) queue_finish(q);
    const bool failed = queue_failed(q), limited = is_limited(e);
    if (limited) begin_waiting(q, e);
    switch ((enum sol_command_kind)e->c.kind) {
    case SOL_COMMAND_ALLOC:
        if (!failed) status = memory_back(q->dev, e->c.to, &q->pool, &why);
        if (status == SOL_ERR_NOMEM && q->sent) { /* what is freed in front of it */
            queue_finish(q);
            why = failure_new();
            status = queue_failed(q) ? SOL_OK : memory_back(q->dev, e->c.to, NULL, &why);
        }
        break;
    case SOL_COMMAND_FREE: memory_drop(q->dev, e->c.to, q->sent ? &q->pool : NULL); break;
    case SOL_COMMAND_HOST:
        if (!failed) e->c.call(e->c.user);
        break;
    case SOL_COMMAND_SIGNAL: event_signal(e->c.event, failed); break;
    case SOL_COMMAND_WAIT:
        if (!failed) status = event_wait(e->c.event, q->limit_ns, &why);
        break;
    default: break;
    }
    if (limited) end_waiting(q);
    if (status) fail(q, e, status, &why);
    complete(q, e);
}

static bool is_for_device(const struct entry *e)
{
    return e->c.kind >= SOL_COMMAND_WRITE && e->c.kind <= SOL_COMMAND_RUN;
}

void queue_drain(struct queue *q, struct entry *list)
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
        if (!queue_failed(q)) entry_pack(q->dev->ctx, first, q->limit_ns);
        submit_list(q, first);
        list = rest;
    }
}

struct entry *queue_take_list(struct queue *q)
{
    struct entry *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    return list;
}

void *queue_work(void *arg)
{
    struct queue *q = arg;
    lock_take(&q->lock, NULL, NULL);
    while (!q->stop) {
        struct entry *list = q->flushed ? queue_take_list(q) : NULL;
        q->flushed = false;
        if (!list) {
            pthread_cond_wait(&q->lock.changed, &q->lock.mutex);
            continue;
        }
        lock_give(&q->lock);
        queue_drain(q, list);
        lock_take(&q->lock, NULL, NULL);
    }
    lock_give(&q->lock);
    return NULL;
}
