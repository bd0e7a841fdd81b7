/* Heaps: memory of a device for a framework whose tensors lie there, and one queue, in which everything that happens to
 * this memory happens in order, whichever thread asks for it. Only reading waits. */
#include <string.h>

#include "device/inside.h"
#include "rt/rt.h"

/* What may be under way before the host waits: bytes of copies of its data, bytes of memory whose free is to come where
 * the queue has a thread (otherwise the next commands have that memory at once), and commands. So loops that never read
 * need a bounded amount of memory. */
#define MOST_BYTES (INT64_C(256) << 20)
enum { MOST_COMMANDS = 1 << 16, MOST_ENDINGS = 64 };

struct sol_heap {
    struct dev *dev;
    struct queue *q;
    struct lock turn;            /* of threads whose streams the queue follows, each for a part of its commands */
    struct lock lock;            /* for all below, and for the queue */
    int64_t staged, freed;       /* since the last wait */
    int64_t failures;            /* reported so far */
    struct heap_ending *endings; /* oldest first */
};

/* -- its life */

sol_status dev_heap(struct dev *dev, struct sol_heap **out_h)
{
    sol_status status = SOL_OK;
    *out_h = NULL;
    TRY(dev_check_process(dev));
    lock_take(&dev->opening, NULL, NULL);
    struct sol_heap *h = dev->heap;
    if (!h) {
        h = ctx_try(dev->ctx, sizeof *h);
        status = h ? SOL_OK : ctx_fail(dev->ctx, SOL_ERR_NOMEM, "device %s: out of memory: a heap", dev->name);
        if (h) *h = (struct sol_heap){.dev = dev};
        if (!status) status = queue_take(dev, &h->q);
        if (status) {
            ctx_free(dev->ctx, h);
        } else {
            lock_init(&h->turn);
            lock_init(&h->lock);
            lock_take(&dev->lock, NULL, NULL);
            dev->heap = h;
            lock_give(&dev->lock);
        }
    }
    lock_give(&dev->opening);
    if (!status) *out_h = h;
    return status;
}

void heap_end(struct dev *dev)
{
    struct sol_heap *h = dev->heap;
    if (!h || !h->q) return;
    if (h->endings) heap_wait(h, "the end of the context", NULL);
    queue_follow(h->q, NULL);
    queue_give(h->q);
    h->q = NULL;
}

void heap_free(struct dev *dev)
{
    struct sol_heap *h = dev->heap;
    if (h) lock_destroy(&h->turn), lock_destroy(&h->lock);
    ctx_free(dev->ctx, h);
}

sol_status sol_heap_open(struct sol_ctx *ctx, const char *device, struct sol_heap **out_heap)
{
    const struct sol_device_type *type;
    struct dev *dev;
    int index;
    *out_heap = NULL;
    TRY(devices_named(ctx, device, &type, &index));
    TRY(dev_get(ctx, type, index, &dev));
    return dev_heap(dev, out_heap);
}

/* -- its queue */

static struct queue *heap_enter(struct sol_heap *h)
{
    lock_take(&h->lock, NULL, NULL);
    return h->q;
}

void heap_mend(struct dev *dev)
{
    lock_take(&dev->lock, NULL, NULL);
    struct sol_heap *h = dev->heap;
    lock_give(&dev->lock);
    if (!h || !h->q || !queue_hangs(h->q)) return;
    queue_mend(heap_enter(h));
    lock_give(&h->lock);
}

/* Ends what nothing under way uses any more. An end frees memory of the heap, so the caller does not hold the lock. */
static void end_some(struct sol_heap *h)
{
    struct queue *q = heap_enter(h);
    struct heap_ending *list = h->endings, **behind = &list;
    while (*behind && queue_reached(q, (*behind)->mark)) behind = &(*behind)->next;
    h->endings = *behind;
    *behind = NULL;
    lock_give(&h->lock);
    for (struct heap_ending *e = list, *next; e; e = next) {
        next = e->next;
        e->end(e);
    }
}

/* After a failure the queue reports it here, and goes on. `what`: what to wait for; NULL: nothing. */
static sol_status heap_give(struct sol_heap *h, sol_status status, const char *what, struct sol_failure *out_failure)
{
    if (status) what = "a failure";
    if (!what && queue_under_way(h->q) > MOST_COMMANDS) what = "many commands";
    if (what) {
        const sol_status waited = queue_wait_for(h->q, what, out_failure);
        if (!status) status = waited;
        h->staged = h->freed = 0;
        h->failures += status != SOL_OK;
    } else {
        queue_flush(h->q);
        queue_retire(h->q);
    }
    const bool ends = what && h->endings;
    lock_give(&h->lock);
    if (ends) end_some(h);
    return status;
}

static sol_status heap_leave(struct sol_heap *h, sol_status status, const char *what)
{
    return heap_give(h, status, what, NULL);
}

bool heap_end_later(struct sol_heap *h, struct heap_ending *e)
{
    if (h->dev->forks != rt_forks()) return false; /* the parent's commands use the parent's memory */
    int n = 1;
    struct queue *q = heap_enter(h);
    struct heap_ending **last = &h->endings;
    for (; *last; last = &(*last)->next) n++;
    e->next = NULL;
    e->mark = queue_mark(q);
    const bool later = !queue_reached(q, e->mark);
    if (later) *last = e;
    lock_give(&h->lock);
    if (n > MOST_ENDINGS)
        heap_wait(h, "the end of many networks", NULL);
    else
        end_some(h);
    return later;
}

static sol_status add(struct sol_heap *h, const struct sol_command *c, const char *what)
{
    if (!c->bytes) return SOL_OK;
    TRY(dev_check_process(h->dev));
    struct queue *q = heap_enter(h);
    return heap_leave(h, queue_add(q, c), what);
}

sol_status heap_wait(struct sol_heap *h, const char *what, struct sol_failure *out_failure)
{
    TRY(dev_check_process(h->dev));
    heap_enter(h);
    return heap_give(h, SOL_OK, what, out_failure);
}

sol_status sol_heap_wait(struct sol_heap *h)
{
    return heap_wait(h, "all that was asked for", NULL);
}

sol_status heap_add(struct sol_heap *h, const struct sol_command *c)
{
    TRY(dev_check_process(h->dev));
    struct queue *q = heap_enter(h);
    const sol_status status = c->kind == SOL_COMMAND_WRITE ? queue_add_copied(q, c) : queue_add(q, c);
    if (status) return heap_leave(h, status, NULL);
    lock_give(&h->lock); /* heap_flush lets the device begin */
    return SOL_OK;
}

int64_t heap_failures(struct sol_heap *h)
{
    heap_enter(h);
    const int64_t failures = h->failures;
    lock_give(&h->lock);
    return failures;
}

void heap_flush(struct sol_heap *h)
{
    struct queue *q = heap_enter(h);
    queue_flush(q);
    queue_retire(q);
    lock_give(&h->lock);
}

sol_status sol_heap_follow(struct sol_heap *h, void *stream)
{
    TRY(dev_check_process(h->dev));
    if (stream && h->dev->driver.type->features & SOL_DEVICE_SYNCHRONOUS)
        return ctx_fail(h->dev->ctx, SOL_ERR_UNSUPPORTED, "device %s: it has no streams that a framework could give",
                        h->dev->name);
    struct queue *q = heap_enter(h);
    const sol_status status = queue_follow(q, stream);
    h->failures += status != SOL_OK;
    lock_give(&h->lock);
    return status;
}

sol_status sol_heap_enter(struct sol_heap *h, void *stream)
{
    TRY(dev_check_process(h->dev)); /* nobody would give the parent's lock */
    lock_take(&h->turn, NULL, NULL);
    const sol_status status = sol_heap_follow(h, stream);
    if (status) lock_give(&h->turn);
    return status;
}

void sol_heap_leave(struct sol_heap *h)
{
    lock_give(&h->turn);
}

/* -- memory */

/* What new memory should wait for, if so much is about to be freed, or the device hangs, which the heap's queue may
 * have to report. NULL: nothing. */
static const char *needed(struct sol_heap *h)
{
    const bool later = h->dev->driver.type->features & SOL_DEVICE_SYNCHRONOUS;
    struct queue *q = heap_enter(h);
    const char *what = later && h->freed > MOST_BYTES       ? "memory that is to be freed"
                       : queue_under_way(q) > MOST_COMMANDS ? "many commands"
                                                            : NULL;
    lock_give(&h->lock);
    return what || !dev_hangs(h->dev) ? what : "a device that hangs";
}

sol_status sol_heap_alloc(struct sol_heap *h, int64_t bytes, uint64_t *out_p)
{
    *out_p = 0;
    TRY(dev_check_process(h->dev));
    const char *what = needed(h);
    if (what) TRY(heap_wait(h, what, NULL));
    sol_status status = memory_alloc(h->dev, queue_pool(h->q), bytes, out_p);
    if (status == SOL_ERR_NOMEM) { /* memory whose free is still to come, or that is in the queue's pool */
        TRY(heap_wait(h, "memory, because there was none", NULL));
        status = memory_alloc(h->dev, queue_pool(h->q), bytes, out_p);
    }
    if (status) return status;
    struct entry *e = queue_entry_free(h->dev, *out_p);
    if (!e) {
        dev_free(h->dev, *out_p);
        *out_p = 0;
        return ctx_fail(h->dev->ctx, SOL_ERR_NOMEM, "device %s: out of memory: a command", h->dev->name);
    }
    memory_keep_free(h->dev, *out_p, e);
    return SOL_OK;
}

sol_status sol_heap_place(struct sol_heap *h, uint64_t address, uint64_t *out_p)
{
    *out_p = SOL_PTR_FOREIGN | address;
    if (h->dev->driver.type->features & SOL_DEVICE_ADDRESSES) return SOL_OK;
    return ctx_fail(
        h->dev->ctx, SOL_ERR_UNSUPPORTED,
        "device %s: memory of a framework has no place here: this device's addresses are known to SOL alone",
        h->dev->name);
}

void sol_heap_free(struct sol_heap *h, uint64_t p)
{
    if (!p || p & SOL_PTR_FOREIGN || h->dev->forks != rt_forks()) return;
    struct queue *q = heap_enter(h);
    h->freed += memory_bytes(h->dev, p);
    queue_free(q, p);
    queue_flush(q);
    lock_give(&h->lock);
}

int sol_heap_idle(struct sol_heap *h)
{
    struct queue *q = heap_enter(h);
    const bool idle = queue_reached(q, queue_mark(q));
    lock_give(&h->lock);
    return idle;
}

sol_status sol_heap_trim(struct sol_heap *h)
{
    TRY(heap_wait(h, "memory to give back", NULL));
    memory_empty_pool(h->dev);
    return SOL_OK;
}

sol_status sol_heap_memory(struct sol_heap *h, int reset, struct sol_heap_memory *out_memory)
{
    struct sol_device_info info;
    TRY(dev_info(h->dev, &info));
    lock_take(&h->dev->lock, NULL, NULL);
    if (reset) h->dev->most_reserved = h->dev->reserved;
    *out_memory = (struct sol_heap_memory){
        .reserved = h->dev->reserved, .most_reserved = h->dev->most_reserved, .total = info.memory};
    lock_give(&h->dev->lock);
    return SOL_OK;
}

/* -- commands */

sol_status sol_heap_write(struct sol_heap *h, uint64_t to, const void *data, int64_t bytes)
{
    const struct sol_command c = {.kind = SOL_COMMAND_WRITE, .label = "tensor", .to = to, .data = data, .bytes = bytes};
    if (!bytes) return SOL_OK;
    TRY(dev_check_process(h->dev));
    struct queue *q = heap_enter(h);
    h->staged += bytes;
    const bool full = h->staged > MOST_BYTES;
    return heap_leave(h, full ? queue_add(q, &c) : queue_add_copied(q, &c), full ? "much data of the host" : NULL);
}

sol_status sol_heap_read(struct sol_heap *h, void *host, uint64_t from, int64_t bytes)
{
    return add(
        h,
        &(struct sol_command){.kind = SOL_COMMAND_READ, .label = "tensor", .from = from, .host = host, .bytes = bytes},
        "a value");
}

sol_status sol_heap_copy(struct sol_heap *h, uint64_t to, uint64_t from, int64_t bytes)
{
    return add(
        h, &(struct sol_command){.kind = SOL_COMMAND_COPY, .label = "tensor", .to = to, .from = from, .bytes = bytes},
        NULL);
}

sol_status sol_heap_fill(struct sol_heap *h, uint64_t to, int value, int64_t bytes)
{
    return add(h,
               &(struct sol_command){
                   .kind = SOL_COMMAND_FILL, .label = "tensor", .to = to, .value = (uint8_t)value, .bytes = bytes},
               NULL);
}

/* -- events */

sol_status sol_heap_record(struct sol_heap *h, struct sol_event **out_event)
{
    *out_event = NULL;
    TRY(dev_check_process(h->dev));
    struct sol_event *e = event_make(h->dev);
    if (!e) return ctx_fail(h->dev->ctx, SOL_ERR_NOMEM, "device %s: out of memory: an event", h->dev->name);
    struct queue *q = heap_enter(h);
    const sol_status status =
        heap_leave(h, queue_add(q, &(struct sol_command){.kind = SOL_COMMAND_SIGNAL, .event = e}), NULL);
    if (status)
        sol_event_free(e);
    else
        *out_event = e;
    return status;
}

sol_status sol_heap_after(struct sol_heap *h, struct sol_event *e)
{
    const struct sol_command c = {.kind = SOL_COMMAND_WAIT, .label = "event", .event = e};
    TRY(dev_check_process(h->dev));
    if (event_dev(e) == h->dev) return SOL_OK; /* in order */
    struct queue *q = heap_enter(h);
    return heap_leave(h, queue_add(q, &c), NULL);
}

void sol_heap_counts(struct sol_heap *h, struct sol_heap_counts *out_counts)
{
    const struct dev_counts n = dev_counts(h->dev);
    *out_counts = (struct sol_heap_counts){.waits = n.waits,
                                           .last_wait = n.last_wait,
                                           .writes = n.commands[SOL_COMMAND_WRITE],
                                           .reads = n.commands[SOL_COMMAND_READ],
                                           .copies = n.commands[SOL_COMMAND_COPY],
                                           .runs = n.commands[SOL_COMMAND_RUN] + n.commands[SOL_COMMAND_LAUNCH],
                                           .bytes = dev_bytes(h->dev)};
}
