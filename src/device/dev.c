/* Open devices of a context. A child process after fork() has none: the threads of a device's queues are not there, and
 * drivers do not survive it either. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"
#include "rt/rt.h"

struct opened { /* of a context */
    struct lock lock;
    struct dev *devs;
};

static void *make_opened(struct sol_ctx *ctx)
{
    struct opened *o = ctx_try(ctx, sizeof *o);
    if (!o) return NULL;
    *o = (struct opened){0};
    lock_init(&o->lock);
    return o;
}

static void free_all(struct sol_ctx *ctx, void *part)
{
    struct opened *o = part;
    for (struct dev *dev = o->devs, *next; dev; dev = next) {
        next = dev->next;
        heap_free(dev);
        lock_destroy(&dev->lock);
        lock_destroy(&dev->opening);
        ctx_free(ctx, dev);
    }
    lock_destroy(&o->lock);
    ctx_free(ctx, o);
}

/* false: it hangs, and may use what it goes on with. */
static bool close_dev(struct dev *dev)
{
    heap_end(dev);
    if (!queue_check_hanging(dev)) {
        for (struct queue *q; (q = dev->queues);) {
            dev->queues = queue_next(q);
            queue_destroy(q);
        }
        memory_free_all(dev);
        if (dev->device && !dev_hangs(dev)) driver_close(dev, dev->device);
    }
    for (struct queue *q = dev->hanging, *next; q; q = next) {
        next = queue_next(q);
        queue_abandon(q);
    }
    return !dev_hangs(dev);
}

static bool close_all(struct sol_ctx *ctx, void *part)
{
    const struct opened *o = part;
    bool closed = true;
    for (struct dev *dev = o->devs; dev; dev = dev->next) {
        if (dev->forks != rt_forks() || close_dev(dev)) continue;
        closed = false;
        LOG(ctx, LOG_WARN, "run", "device %s hangs: the memory of its context is kept", dev->name);
    }
    return closed;
}

static struct dev *make_dev(struct devices *d, const struct sol_device_type *type, int index)
{
    struct sol_ctx *ctx = host_ctx(devices_host(d));
    struct dev *dev = ctx_try(ctx, sizeof *dev);
    if (!dev) return NULL;
    *dev = (struct dev){.ctx = ctx, .driver = devices_driver(d, type), .index = index, .forks = rt_forks()};
    snprintf(dev->name, sizeof dev->name, "%.64s:%d", type->name, index);
    lock_init(&dev->lock);
    lock_init(&dev->opening);
    return dev;
}

static sol_status open_dev(struct dev *dev)
{
    struct sol_failure why = failure_new();
    TRY(queue_check_hanging(dev)); /* an earlier attempt may not have come back */
    const sol_status status = driver_open(dev, &dev->device, &why);
    if (!status) return SOL_OK;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: %s", dev->name, dev_stuck(dev) ? "opening it: " : "");
}

sol_status dev_get(struct sol_ctx *ctx, const struct sol_device_type *type, int index, struct dev **out_dev)
{
    static const struct ctx_part kind = {make_opened, free_all, close_all};
    struct devices *d;
    struct dev *dev;
    *out_dev = NULL;
    if (sizeof(void *) < sizeof(sol_ptr)) /* the runtime keeps virtual pointers where it keeps those of the host */
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "device %s:%d: a process of 64 bits is needed", type->name, index);
    TRY(devices_of(ctx, &d)); /* made before, and so destroyed after */
    struct opened *o = ctx_part(ctx, &kind);
    if (!o) return ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: device %s:%d", type->name, index);
    lock_take(&o->lock, NULL, NULL);
    for (dev = o->devs; dev && (dev->driver.type != type || dev->index != index || dev->forks != rt_forks());)
        dev = dev->next;
    if (!dev && (dev = make_dev(d, type, index))) {
        dev->next = o->devs;
        o->devs = dev;
    }
    const sol_status status = !dev ? ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: device %s:%d", type->name, index)
                              : dev->device ? SOL_OK
                                            : open_dev(dev);
    lock_give(&o->lock);
    if (!status) *out_dev = dev;
    return status;
}

const struct sol_device_type *dev_type(const struct dev *dev)
{
    return dev->driver.type;
}

int64_t dev_limit(const struct dev *dev)
{
    return devices_limit(dev->ctx);
}

const char *dev_name(const struct dev *dev)
{
    return dev->name;
}

sol_status dev_check_process(const struct dev *dev)
{
    if (dev->forks == rt_forks()) return SOL_OK;
    return ctx_fail(dev->ctx, SOL_ERR_INVALID,
                    "device %s: the parent process opened it, and a child process after fork() cannot use what "
                    "it has there: start processes with spawn instead of fork, or compile networks again in the child",
                    dev->name);
}

sol_status dev_load(struct dev *dev, const struct sol_blob *blob, struct sol_code **out_code)
{
    struct sol_failure why = failure_new();
    *out_code = NULL;
    TRY(dev_check_process(dev));
    const sol_status status = driver_load(dev, blob, out_code, &why);
    if (!status) return SOL_OK;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: code of '%s': ", dev->name, blob->name);
}

sol_status dev_info(struct dev *dev, struct sol_device_info *out_info)
{
    struct sol_failure why = failure_new();
    *out_info = (struct sol_device_info){.size = sizeof *out_info, .type = dev->driver.type->name, .index = dev->index};
    const sol_status status = driver_info(&dev->driver, dev_limit(dev), dev->index, out_info, &why);
    if (!status) return SOL_OK;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: ", dev->name);
}

sol_status device_compile(const struct sol_device_type *type, const struct sol_host *host, struct arena *a,
                          const struct sol_code_text *text, const void **out_data, size_t *out_bytes)
{
    struct sol_ctx *ctx = arena_ctx(a);
    struct sol_failure why = failure_new();
    struct sol_blob blob = {.size = sizeof blob, .name = text->name};
    const sol_status status = type->compile(type, host, text, &blob, &why);
    const bool said = status == SOL_ERR_COMPILER && blob.data;
    *out_bytes = status ? 0 : blob.bytes;
    *out_data = !status ? arena_memdup(a, blob.data, blob.bytes)
                : said  ? arena_printf(a, "%.*s", (int)blob.bytes, (const char *)blob.data)
                        : NULL;
    if (!status || said) type->blob_free(type, host, &blob);
    if (!status) return ctx_check(ctx);
    failure_report(ctx, status, &why);
    return ctx_where(ctx, status, "device %s: code of '%s': ", type->name, text->name);
}

sol_status dev_compile(struct dev *dev, struct arena *a, const struct sol_code_text *text, const void **out_data,
                       size_t *out_bytes)
{
    return device_compile(dev->driver.type, dev->driver.host, a, text, out_data, out_bytes);
}

sol_status dev_find(struct dev *dev, struct sol_code *code, const char *function, void **out_kernel)
{
    struct sol_failure why = failure_new();
    const sol_status status = driver_find(dev, code, function, out_kernel, &why);
    if (!status) return SOL_OK;
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: ", dev->name);
}

void dev_unload(struct dev *dev, struct sol_code *code)
{
    if (code && dev->forks == rt_forks()) driver_unload(dev, code);
}

struct dev_counts dev_counts(struct dev *dev)
{
    lock_take(&dev->lock, NULL, NULL);
    const struct dev_counts counts = dev->counts;
    lock_give(&dev->lock);
    return counts;
}

const char *dev_stuck(struct dev *dev)
{
    return helpers_stuck(dev->driver.helpers, &dev->driver.stuck);
}

bool dev_hangs(struct dev *dev)
{
    lock_take(&dev->lock, NULL, NULL);
    const bool hangs = dev->nhanging;
    lock_give(&dev->lock);
    return hangs || dev_stuck(dev);
}

int64_t dev_bytes(struct dev *dev)
{
    lock_take(&dev->lock, NULL, NULL);
    const int64_t bytes = dev->bytes;
    lock_give(&dev->lock);
    return bytes;
}
