/* Functions of a device type, within the key device::timeout: a driver may not come back. With a limit a helper makes
 * the call, and its caller waits no longer than that. The device, or what lists it, then hangs: it is asked for nothing
 * until the call comes back. Nobody waits for what it brings, so the helper gives it back. */
#include <string.h>

#include "device/inside.h"

struct request { /* arguments and results */
    struct sol_device *device;
    int index, n;
    struct sol_device_info info;
    int64_t bytes;
    sol_ptr raw;
    struct sol_blob blob;
    struct sol_code *code;
    const char *function;
    void *kernel, *foreign;
    struct sol_stream *stream;
    const struct sol_command *command;
    bool late; /* it has not come back in time */
};
struct function {
    const char *what; /* for messages */
    sol_status (*call)(struct driver *d, struct request *r, struct sol_failure *out_why);
    void (*undo)(struct driver *d, struct request *r); /* NULL: its result is no object */
};

static sol_status call_count(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->count(d->type, d->host, &r->n, out_why);
}

static sol_status call_info(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->info(d->type, d->host, r->index, &r->info, out_why);
}

static sol_status call_open(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->open(d->type, d->host, r->index, &r->device, out_why);
}

static void undo_open(struct driver *d, struct request *r)
{
    d->type->close(r->device);
}

static sol_status call_close(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    d->type->close(r->device);
    return SOL_OK;
}

static sol_status call_alloc(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->alloc(r->device, r->bytes, &r->raw, out_why);
}

static void undo_alloc(struct driver *d, struct request *r)
{
    d->type->free(r->device, r->raw);
}

static sol_status call_free(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    d->type->free(r->device, r->raw);
    return SOL_OK;
}

static sol_status call_load(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->load(r->device, &r->blob, &r->code, out_why);
}

static void undo_load(struct driver *d, struct request *r)
{
    d->type->unload(r->code);
}

static sol_status call_unload(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    d->type->unload(r->code);
    return SOL_OK;
}

static sol_status call_find(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->find(r->code, r->function, &r->kernel, out_why);
}

static sol_status call_queue(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    return d->type->queue(r->device, r->foreign, &r->stream, out_why);
}

static void undo_queue(struct driver *d, struct request *r)
{
    d->type->unqueue(r->stream);
}

static sol_status call_unqueue(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    (void)out_why;
    d->type->unqueue(r->stream);
    return SOL_OK;
}

static sol_status call_submit(struct driver *d, struct request *r, struct sol_failure *out_why)
{
    int64_t ticket;
    return d->type->submit(r->stream, r->n, r->command, &ticket, out_why);
}

/* -- a helper makes the call */

struct watched { /* of its caller, or, if that has given up, of the helper; what the request points to is behind it */
    struct driver *d;
    const struct function *f;
    struct request r;
    sol_status status;
    struct sol_failure why;
};

static void make_watched(void *watched)
{
    struct watched *w = watched;
    w->status = w->f->call(w->d, &w->r, &w->why);
}

static void come_late(void *watched)
{
    struct watched *w = watched;
    if (!w->status && w->f->undo) w->f->undo(w->d, &w->r);
    ctx_free(host_ctx(w->d->host), w);
}

/* What the request points to must last as long as the call. Queues keep what commands point to. NULL: out of memory. */
static struct watched *watch(struct driver *d, const struct function *f, const struct request *r)
{
    const size_t text = r->function ? strlen(r->function) + 1 : 0, name = r->blob.name ? strlen(r->blob.name) + 1 : 0;
    const size_t commands = r->command ? (size_t)r->n * sizeof *r->command : 0;
    struct watched *w = ctx_try(host_ctx(d->host), sizeof *w + commands + r->blob.bytes + text + name);
    if (!w) return NULL;
    *w = (struct watched){.d = d, .f = f, .r = *r, .why = failure_new()};
    char *at = (char *)(w + 1);
    if (commands) w->r.command = memcpy(at, r->command, commands);
    at += commands;
    if (r->blob.data) w->r.blob.data = memcpy(at, r->blob.data, r->blob.bytes);
    at += r->blob.bytes;
    if (text) w->r.function = memcpy(at, r->function, text);
    if (name) w->r.blob.name = memcpy(at + text, r->blob.name, name);
    return w;
}

/* HELPED: the request has its results. HELPED_NOT: there is no memory, or no thread. */
static enum helped make_helped(struct driver *d, int64_t limit_ns, const struct function *f, struct request *r,
                               sol_status *out_status, struct sol_failure *out_why)
{
    struct watched *w = watch(d, f, r);
    const struct helper_call call = {f->what, make_watched, come_late, w};
    const enum helped helped = w ? helper_make(d->helpers, limit_ns, &call, &d->stuck) : HELPED_NOT;
    if (helped == HELPED) {
        *out_status = w->status;
        *out_why = w->why; /* count says why there are none, which is no error */
        *r = w->r;         /* for its results; its arguments are not used again */
    }
    if (helped != HELPED_LATE) ctx_free(host_ctx(d->host), w);
    return helped;
}

/* limit_ns 0: it may take any time. */
static sol_status make(struct driver *d, int64_t limit_ns, const struct function *f, struct request *r,
                       struct sol_failure *out_why)
{
    sol_status status = SOL_OK;
    const enum helped helped = limit_ns ? make_helped(d, limit_ns, f, r, &status, out_why) : HELPED_NOT;
    r->late = helped == HELPED_LATE;
    return r->late ? failure_hangs(out_why, "it", limit_ns) : helped == HELPED_NOT ? f->call(d, r, out_why) : status;
}

/* What ends an object returns nothing, and nobody needs its end: while the device hangs, it is not waited for. */
static void make_end(struct dev *dev, const struct function *f, struct request *r)
{
    sol_status ignored;
    struct sol_failure why = failure_new();
    if (!dev_hangs(dev) || make_helped(&dev->driver, 0, f, r, &ignored, &why) == HELPED_NOT)
        make(&dev->driver, dev_limit(dev), f, r, &why);
}

/* -- the functions */

static sol_status refuse(const char *stuck, struct sol_failure *out_why)
{
    return failure_set(out_why, SOL_ERR_RUN, "its driver hangs: %s has not ended yet (key device::timeout)", stuck);
}

sol_status driver_count(struct driver *d, int64_t limit_ns, int *out_n, struct sol_failure *out_why)
{
    static const struct function f = {"the count of its devices", call_count, NULL};
    struct request r = {0};
    const char *stuck = helpers_stuck(d->helpers, &d->stuck);
    *out_n = 0;
    if (stuck) return refuse(stuck, out_why);
    const sol_status status = make(d, limit_ns, &f, &r, out_why);
    *out_n = r.n;
    return r.late ? failure_hangs(out_why, f.what, limit_ns) : status;
}

sol_status driver_info(struct driver *d, int64_t limit_ns, int index, struct sol_device_info *out_info,
                       struct sol_failure *out_why)
{
    static const struct function f = {"the query of its facts", call_info, NULL};
    struct request r = {.index = index, .info = *out_info};
    const char *stuck = helpers_stuck(d->helpers, &d->stuck);
    if (stuck) return refuse(stuck, out_why);
    const sol_status status = make(d, limit_ns, &f, &r, out_why);
    if (r.late) return failure_hangs(out_why, f.what, limit_ns);
    *out_info = r.info;
    return status;
}

sol_status driver_open(struct dev *dev, struct sol_device **out_device, struct sol_failure *out_why)
{
    static const struct function f = {"its opening", call_open, undo_open};
    struct request r = {.index = dev->index};
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
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
    struct request r = {.device = dev->device, .bytes = bytes};
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
    *out_raw = r.raw;
    return status;
}

void driver_free(struct dev *dev, sol_ptr raw)
{
    static const struct function f = {"a free", call_free, NULL};
    make_end(dev, &f, &(struct request){.device = dev->device, .raw = raw});
}

sol_status driver_load(struct dev *dev, const struct sol_blob *blob, struct sol_code **out_code,
                       struct sol_failure *out_why)
{
    static const struct function f = {"the loading of code", call_load, undo_load};
    struct request r = {.device = dev->device, .blob = *blob};
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
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
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
    *out_kernel = r.kernel;
    return status;
}

sol_status driver_queue(struct dev *dev, void *foreign, struct sol_stream **out_stream, struct sol_failure *out_why)
{
    static const struct function f = {"the opening of a queue", call_queue, undo_queue};
    struct request r = {.device = dev->device, .foreign = foreign};
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
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
    const sol_status status = make(&dev->driver, dev_limit(dev), &f, &r, out_why);
    *out_late = r.late;
    return status;
}
