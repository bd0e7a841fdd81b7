/* Threads of a context that make calls which may not come back. They live on, because starting one takes longer than
 * most calls. A caller and its thread wait for each other by the thread's lock. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "device/inside.h"

struct helper {
    struct helpers *all;
    struct helper *next; /* while idle */
    pthread_t thread;

    struct lock lock;        /* for all below */
    struct helper_call call; /* make NULL: it has nothing to do */
    struct stuck *stuck;     /* NULL: its caller waits */
    bool stop;
};
struct helpers {
    struct sol_ctx *ctx;
    struct lock lock; /* for all below, and every struct stuck */
    struct helper *idle;
    int busy;
};

/* A child process after fork() has none of its parent's threads. */
static void forget(void *helpers)
{
    struct helpers *all = helpers;
    all->idle = NULL;
    all->busy = 0;
}

struct helpers *helpers_create(struct sol_ctx *ctx)
{
    struct helpers *all = ctx_try(ctx, sizeof *all);
    if (!all) return NULL;
    *all = (struct helpers){.ctx = ctx};
    lock_init(&all->lock);
    return all;
}

void helpers_destroy(struct helpers *all)
{
    lock_destroy(&all->lock);
    ctx_free(all->ctx, all);
}

static void free_helper(struct helper *h)
{
    lock_destroy(&h->lock);
    ctx_free(h->all->ctx, h);
}

/* stuck: where its call was counted; NULL: it came in time. */
static void rest(struct helper *h, struct stuck *stuck)
{
    struct helpers *all = h->all;
    lock_take(&all->lock, forget, all);
    h->next = all->idle;
    all->idle = h;
    all->busy--;
    if (stuck) stuck->n--;
    lock_give(&all->lock);
}

/* The thread has made its call. The caller holds the lock. */
static void end_call(struct helper *h)
{
    const struct helper_call call = h->call;
    struct stuck *stuck = h->stuck;
    h->call.make = NULL;
    h->stuck = NULL;
    if (!stuck) {
        pthread_cond_broadcast(&h->lock.changed);
        return;
    }
    lock_give(&h->lock);
    call.late(call.arguments);
    rest(h, stuck);
    lock_take(&h->lock, NULL, NULL);
}

static void *work(void *helper)
{
    struct helper *h = helper;
    lock_take(&h->lock, NULL, NULL);
    while (!h->stop)
        if (h->call.make) {
            lock_give(&h->lock);
            h->call.make(h->call.arguments);
            lock_take(&h->lock, NULL, NULL);
            end_call(h);
        } else
            pthread_cond_wait(&h->lock.changed, &h->lock.mutex);
    lock_give(&h->lock);
    return NULL;
}

bool thread_start(pthread_t *out_thread, void *(*run)(void *), void *of)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = !pthread_create(out_thread, NULL, run, of);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* NULL: there is no memory, or no thread. */
static struct helper *take(struct helpers *all)
{
    lock_take(&all->lock, forget, all);
    struct helper *h = all->idle;
    if (h) all->idle = h->next;
    all->busy++;
    lock_give(&all->lock);
    if (h) return h;
    h = ctx_try(all->ctx, sizeof *h);
    if (h) {
        *h = (struct helper){.all = all};
        lock_init(&h->lock);
        if (thread_start(&h->thread, work, h)) return h;
        free_helper(h);
    }
    lock_take(&all->lock, forget, all);
    all->busy--;
    lock_give(&all->lock);
    return NULL;
}

static void give_up(struct helper *h, struct stuck *stuck)
{
    lock_take(&h->all->lock, forget, h->all);
    if (!stuck->n++) stuck->what = h->call.what;
    lock_give(&h->all->lock);
    h->stuck = stuck;
}

enum helped helper_make(struct helpers *all, int64_t limit_ns, const struct helper_call *call, struct stuck *stuck)
{
    const struct timespec end = lock_until(limit_ns);
    struct helper *h = take(all);
    if (!h) return HELPED_NOT;
    lock_take(&h->lock, NULL, NULL);
    h->call = *call;
    pthread_cond_broadcast(&h->lock.changed);
    for (int error = 0; h->call.make && error != ETIMEDOUT;)
        error = pthread_cond_timedwait(&h->lock.changed, &h->lock.mutex, &end);
    const bool late = h->call.make;
    if (late) give_up(h, stuck);
    lock_give(&h->lock);
    if (!late) rest(h, NULL);
    return late ? HELPED_LATE : HELPED;
}

const char *helpers_stuck(struct helpers *all, const struct stuck *stuck)
{
    lock_take(&all->lock, forget, all);
    const char *what = stuck->n ? stuck->what : NULL;
    lock_give(&all->lock);
    return what;
}

bool helpers_end(struct helpers *all)
{
    lock_take(&all->lock, forget, all);
    struct helper *list = all->idle, *next;
    const bool busy = all->busy;
    all->idle = NULL;
    lock_give(&all->lock);
    for (struct helper *h = list; h; h = next) {
        next = h->next;
        lock_take(&h->lock, NULL, NULL);
        h->stop = true;
        pthread_cond_broadcast(&h->lock.changed);
        lock_give(&h->lock);
        pthread_join(h->thread, NULL);
        free_helper(h);
    }
    return !busy;
}
