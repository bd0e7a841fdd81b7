/* Calls of a device's functions that may not come back: what opens it, allocates, frees, loads code, opens streams and
 * submits to a driver's own queue. With a limit (key device::timeout) another thread makes the call, and its caller
 * waits no longer than that. The device then hangs: it accepts no work until the call comes back. Nobody waits for what
 * it brings, so that thread gives it back. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "device/inside.h"
#include "rt/rt.h"

struct request { /* arguments and results */
    struct sol_device *device;
    int64_t bytes;
    sol_ptr raw;
    struct sol_blob blob;
    struct sol_code *code;
    const char *function;
    void *kernel, *foreign;
    struct sol_stream *stream;
    int n;
    const struct sol_command *command;
    bool late; /* it has not come back in time */
};
struct function {
    const char *what; /* for messages */
    sol_status (*call)(struct dev *dev, struct request *r, struct sol_failure *out_why);
    void (*undo)(struct dev *dev, struct request *r); /* NULL: its result is no object */
};

static sol_status call_open(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    return dev->type->open(dev->type, dev->host, dev->index, &r->device, out_why);
}

static void undo_open(struct dev *dev, struct request *r)
{
    dev->type->close(r->device);
}

static sol_status call_close(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    dev->type->close(r->device);
    return SOL_OK;
}

static sol_status call_alloc(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    return dev->type->alloc(dev->device, r->bytes, &r->raw, out_why);
}

static void undo_alloc(struct dev *dev, struct request *r)
{
    dev->type->free(dev->device, r->raw);
}

static sol_status call_free(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    dev->type->free(dev->device, r->raw);
    return SOL_OK;
}

static sol_status call_load(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    return dev->type->load(dev->device, &r->blob, &r->code, out_why);
}

static void undo_load(struct dev *dev, struct request *r)
{
    dev->type->unload(r->code);
}

static sol_status call_unload(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    dev->type->unload(r->code);
    return SOL_OK;
}

static sol_status call_find(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    return dev->type->find(r->code, r->function, &r->kernel, out_why);
}

static sol_status call_queue(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    return dev->type->queue(dev->device, r->foreign, &r->stream, out_why);
}

static void undo_queue(struct dev *dev, struct request *r)
{
    dev->type->unqueue(r->stream);
}

static sol_status call_unqueue(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    dev->type->unqueue(r->stream);
    return SOL_OK;
}

static sol_status call_submit(struct dev *dev, struct request *r, struct sol_failure *out_why)
{
    int64_t ticket;
    return dev->type->submit(r->stream, r->n, r->command, &ticket, out_why);
}

/* -- another thread makes the call */

struct watched { /* of its caller, or, if that has given up, of the thread */
    struct dev *dev;
    const struct function *f;
    struct request r;
    void *copied; /* what the request points to */
    sol_status status;
    struct sol_failure why;
    struct lock lock; /* for */
    bool done, given_up;
};

static void watched_free(struct watched *w)
{
    struct sol_ctx *ctx = w->dev->ctx;
    lock_destroy(&w->lock);
    ctx_free(ctx, w->copied);
    ctx_free(ctx, w);
}

static void *work(void *arg)
{
    struct watched *w = arg;
    struct dev *dev = w->dev;
    w->status = w->f->call(dev, &w->r, &w->why);
    lock_take(&w->lock, NULL, NULL);
    w->done = true;
    const bool late = w->given_up;
    pthread_cond_broadcast(&w->lock.changed);
    lock_give(&w->lock);
    if (!late) return NULL; /* the caller has all, and may have freed it */
    if (!w->status && w->f->undo) w->f->undo(dev, &w->r);
    watched_free(w);
    lock_take(&dev->lock, NULL, NULL);
    dev->nstuck--;
    lock_give(&dev->lock);
    return NULL;
}

/* What the request points to must last as long as the call. Queues keep what commands point to. */
static bool copy_request(struct watched *w, const struct request *r)
{
    const size_t text = r->function ? strlen(r->function) + 1 : 0, name = r->blob.name ? strlen(r->blob.name) + 1 : 0;
    const size_t commands = (size_t)r->n * sizeof *r->command;
    char *at = ctx_try(w->dev->ctx, commands + r->blob.bytes + text + name + 1);
    if (!at) return false;
    w->r = *r;
    w->copied = at;
    if (commands) w->r.command = memcpy(at, r->command, commands);
    at += commands;
    if (r->blob.data) w->r.blob.data = memcpy(at, r->blob.data, r->blob.bytes);
    at += r->blob.bytes;
    if (text) w->r.function = memcpy(at, r->function, text);
    if (name) w->r.blob.name = memcpy(at + text, r->blob.name, name);
    return true;
}

/* Signals are for the threads of the application. */
static bool start_thread(struct watched *w)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = !pthread_create(&thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(thread);
    return started;
}

/* NULL: there is no memory, or no thread. */
static struct watched *start(struct dev *dev, const struct function *f, const struct request *r)
{
    struct watched *w = ctx_try(dev->ctx, sizeof *w);
    if (!w) return NULL;
    *w = (struct watched){.dev = dev, .f = f, .why = failure_new()};
    lock_init(&w->lock);
    if (copy_request(w, r) && start_thread(w)) return w;
    watched_free(w);
    return NULL;
}

/* false: the call has not come back in time, and is not waited for any more. */
static bool wait_for(struct watched *w, int64_t limit_ns)
{
    const struct timespec end = lock_until(limit_ns);
    struct dev *dev = w->dev;
    lock_take(&w->lock, NULL, NULL);
    for (int error = 0; !w->done && error != ETIMEDOUT;)
        error = pthread_cond_timedwait(&w->lock.changed, &w->lock.mutex, &end);
    const bool done = w->done;
    w->given_up = !done;
    if (!done) {
        lock_take(&dev->lock, NULL, NULL);
        if (!dev->nstuck++) dev->stuck = w->f->what;
        lock_give(&dev->lock);
    }
    lock_give(&w->lock);
    return done;
}

static sol_status make(struct dev *dev, const struct function *f, struct request *r, struct sol_failure *out_why)
{
    const int64_t limit_ns = dev_limit(dev);
    struct watched *w = limit_ns ? start(dev, f, r) : NULL;
    if (!w) return f->call(dev, r, out_why);
    r->late = !wait_for(w, limit_ns);
    if (r->late) return failure_hangs(out_why, "it", limit_ns);
    const sol_status status = w->status;
    r->device = w->r.device;
    r->raw = w->r.raw;
    r->code = w->r.code;
    r->kernel = w->r.kernel;
    r->stream = w->r.stream;
    if (status) *out_why = w->why;
    watched_free(w);
    return status;
}

/* What ends an object returns nothing, and nobody needs its end: while the device hangs, it is not waited for. */
static void make_end(struct dev *dev, const struct function *f, struct request *r)
{
    struct watched *w = dev_hangs(dev) ? start(dev, f, r) : NULL;
    struct sol_failure ignored = failure_new();
    if (!w)
        make(dev, f, r, &ignored);
    else if (wait_for(w, 0))
        watched_free(w);
}

/* -- the functions */

sol_status driver_open(struct dev *dev, struct sol_device **out_device, struct sol_failure *out_why)
{
    static const struct function f = {"its opening", call_open, undo_open};
    struct request r = {0};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_device = status ? NULL : r.device;
    return status;
}

void driver_close(struct dev *dev, struct sol_device *device)
{
    static const struct function f = {"its end", call_close, NULL};
    make_end(dev, &f, &(struct request){.device = device});
}

sol_status driver_alloc(struct dev *dev, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    static const struct function f = {"an allocation", call_alloc, undo_alloc};
    struct request r = {.bytes = bytes};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_raw = r.raw;
    return status;
}

void driver_free(struct dev *dev, sol_ptr raw)
{
    static const struct function f = {"a free", call_free, NULL};
    make_end(dev, &f, &(struct request){.raw = raw});
}

sol_status driver_load(struct dev *dev, const struct sol_blob *blob, struct sol_code **out_code,
                       struct sol_failure *out_why)
{
    static const struct function f = {"the loading of code", call_load, undo_load};
    struct request r = {.blob = *blob};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_code = r.code;
    return status;
}

void driver_unload(struct dev *dev, struct sol_code *code)
{
    static const struct function f = {"the unloading of code", call_unload, NULL};
    make_end(dev, &f, &(struct request){.code = code});
}

sol_status driver_find(struct dev *dev, struct sol_code *code, const char *function, void **out_kernel,
                       struct sol_failure *out_why)
{
    static const struct function f = {"the search for a kernel", call_find, NULL};
    struct request r = {.code = code, .function = function};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_kernel = r.kernel;
    return status;
}

sol_status driver_queue(struct dev *dev, void *foreign, struct sol_stream **out_stream, struct sol_failure *out_why)
{
    static const struct function f = {"the opening of a queue", call_queue, undo_queue};
    struct request r = {.foreign = foreign};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_stream = status ? NULL : r.stream;
    return status;
}

void driver_unqueue(struct dev *dev, struct sol_stream *stream)
{
    static const struct function f = {"the end of a queue", call_unqueue, NULL};
    make_end(dev, &f, &(struct request){.stream = stream});
}

sol_status driver_submit(struct dev *dev, struct sol_stream *stream, int n, const struct sol_command *command,
                         bool *out_late, struct sol_failure *out_why)
{
    static const struct function f = {"the acceptance of a command", call_submit, NULL};
    struct request r = {.stream = stream, .n = n, .command = command};
    const sol_status status = make(dev, &f, &r, out_why);
    *out_late = r.late;
    return status;
}
