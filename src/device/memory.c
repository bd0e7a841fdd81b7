/* Memory of a device by virtual pointers: a reference and an offset. A reference is given out at once; the command that
 * allocates comes later, and other commands find the memory when they are submitted. Freed memory stays in a pool,
 * which is emptied when the device has no memory left. What commands of a queue may still use is in a pool of that
 * queue: its own later commands can have it at once, because they come behind. */
#include <string.h>

#include "device/inside.h"
#include "rt/rt.h"

enum { FIRST_ROOM = 64 };
#define OFFSET_MASK ((UINT64_C(1) << SOL_PTR_OFFSET_BITS) - 1)
#define ORIGIN (INT64_C(1) << (SOL_PTR_OFFSET_BITS - 1)) /* where memory begins among the offsets of its reference */
#define MOST_REFERENCES (1 << 22)

static int reference_of(sol_ptr p)
{
    return (int)(p >> SOL_PTR_OFFSET_BITS);
}

/* The caller holds the lock. */
static bool grow(struct dev *dev)
{
    const int room = dev->room ? dev->room * 2 : FIRST_ROOM;
    if (room > MOST_REFERENCES) return false;
    struct allocation *memory = ctx_try(dev->ctx, (size_t)room * sizeof *memory);
    int *idle = ctx_try(dev->ctx, (size_t)room * sizeof *idle);
    if (!memory || !idle) {
        ctx_free(dev->ctx, memory);
        ctx_free(dev->ctx, idle);
        return false;
    }
    memset(memory, 0, (size_t)room * sizeof *memory);
    if (dev->room) memcpy(memory, dev->memory, (size_t)dev->room * sizeof *memory);
    for (int i = 0; i < dev->idle_n; i++) idle[i] = dev->idle[(dev->idle_first + i) % dev->room];
    ctx_free(dev->ctx, dev->memory);
    ctx_free(dev->ctx, dev->idle);
    dev->memory = memory;
    dev->idle = idle;
    dev->idle_first = 0;
    for (int i = MAX(dev->room, 1); i < room; i++) dev->idle[dev->idle_n++] = i;
    dev->room = room;
    return true;
}

sol_status memory_take(struct dev *dev, int64_t bytes, sol_ptr *out_p)
{
    lock_take(&dev->lock, NULL, NULL);
    const bool found = dev->idle_n || grow(dev);
    if (found) {
        const int i = dev->idle[dev->idle_first];
        dev->idle_first = (dev->idle_first + 1) % dev->room;
        dev->idle_n--;
        dev->memory[i] = (struct allocation){.bytes = bytes, .used = true};
        *out_p = (sol_ptr)i << SOL_PTR_OFFSET_BITS | ORIGIN;
    }
    lock_give(&dev->lock);
    return found ? SOL_OK : ctx_fail(dev->ctx, SOL_ERR_NOMEM, "device %s: out of memory for references", dev->name);
}

/* Sizes of a class differ by less than a quarter. */
static int class_of(int64_t bytes)
{
    const uint64_t n = (uint64_t)MAX(bytes, 4);
    const int log2 = 63 - __builtin_clzll(n);
    return 4 * log2 + (int)(n >> (log2 - 2) & 3);
}

/* Takes memory out of a pool that is not much larger. */
static struct spare *from_pool(struct dev *dev, struct pool *pool, int64_t bytes)
{
    const int64_t most = bytes + bytes / 4;
    struct spare *found = NULL;
    lock_take(&dev->lock, NULL, NULL);
    for (int k = class_of(bytes); k <= class_of(most) && !found; k++)
        for (struct spare **s = &pool->list[k]; *s; s = &(*s)->next)
            if ((*s)->bytes >= bytes && (*s)->bytes <= most) {
                found = *s;
                *s = found->next;
                break;
            }
    lock_give(&dev->lock);
    return found;
}

static void to_device(struct dev *dev, sol_ptr raw, int64_t bytes)
{
    driver_free(dev, raw);
    lock_take(&dev->lock, NULL, NULL);
    dev->reserved -= bytes;
    lock_give(&dev->lock);
}

void memory_empty_pool(struct dev *dev)
{
    for (int k = 0; k < POOL_CLASSES; k++) {
        lock_take(&dev->lock, NULL, NULL);
        struct spare *list = dev->pool.list[k];
        dev->pool.list[k] = NULL;
        lock_give(&dev->lock);
        for (struct spare *s = list, *next; s; s = next) {
            next = s->next;
            to_device(dev, s->raw, s->bytes);
            ctx_free(dev->ctx, s);
        }
    }
}

static sol_status from_device(struct dev *dev, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    sol_status status = driver_alloc(dev, bytes, out_raw, out_why);
    if (status == SOL_ERR_NOMEM) {
        memory_empty_pool(dev);
        status = driver_alloc(dev, bytes, out_raw, out_why);
    }
    lock_take(&dev->lock, NULL, NULL);
    dev->counts.commands[SOL_COMMAND_ALLOC]++;
    if (!status) dev->reserved += bytes;
    dev->most_reserved = MAX(dev->most_reserved, dev->reserved);
    lock_give(&dev->lock);
    return status;
}

int64_t memory_bytes(struct dev *dev, sol_ptr p)
{
    lock_take(&dev->lock, NULL, NULL);
    const int64_t bytes = reference_of(p) < dev->room ? dev->memory[reference_of(p)].bytes : 0;
    lock_give(&dev->lock);
    return bytes;
}

sol_status memory_back(struct dev *dev, sol_ptr p, struct pool *pool, struct sol_failure *out_why)
{
    sol_ptr raw = 0;
    int64_t bytes = memory_bytes(dev, p);
    struct spare *spare = pool ? from_pool(dev, pool, bytes) : NULL;
    if (!spare) spare = from_pool(dev, &dev->pool, bytes);
    if (spare) {
        raw = spare->raw;
        bytes = spare->bytes;
        ctx_free(dev->ctx, spare);
    } else {
        const sol_status status = from_device(dev, bytes, &raw, out_why);
        if (status) return status;
    }
    lock_take(&dev->lock, NULL, NULL);
    struct allocation *m = &dev->memory[reference_of(p)];
    m->raw = raw;
    m->bytes = bytes;
    dev->bytes += bytes;
    lock_give(&dev->lock);
    return SOL_OK;
}

void memory_keep_free(struct dev *dev, sol_ptr p, struct entry *e)
{
    lock_take(&dev->lock, NULL, NULL);
    dev->memory[reference_of(p)].free = e;
    lock_give(&dev->lock);
}

struct entry *memory_take_free(struct dev *dev, sol_ptr p)
{
    struct entry *e = NULL;
    lock_take(&dev->lock, NULL, NULL);
    if (reference_of(p) < dev->room) {
        e = dev->memory[reference_of(p)].free;
        dev->memory[reference_of(p)].free = NULL;
    }
    lock_give(&dev->lock);
    return e;
}

void memory_join(struct dev *dev, struct pool *pool)
{
    lock_take(&dev->lock, NULL, NULL);
    for (int k = 0; k < POOL_CLASSES; k++)
        for (struct spare *s; (s = pool->list[k]);) {
            pool->list[k] = s->next;
            s->next = dev->pool.list[k];
            dev->pool.list[k] = s;
        }
    lock_give(&dev->lock);
}

void memory_drop(struct dev *dev, sol_ptr p, struct pool *pool)
{
    struct spare *spare = ctx_try(dev->ctx, sizeof *spare);
    lock_take(&dev->lock, NULL, NULL);
    const int i = reference_of(p);
    const struct allocation m = dev->memory[i];
    dev->memory[i] = (struct allocation){0};
    dev->idle[(dev->idle_first + dev->idle_n++) % dev->room] = i;
    if (m.raw) dev->bytes -= m.bytes;
    if (m.raw && spare) {
        struct spare **list = &(pool ? pool : &dev->pool)->list[class_of(m.bytes)];
        *spare = (struct spare){*list, m.raw, m.bytes};
        *list = spare;
    }
    lock_give(&dev->lock);
    if (!m.raw) ctx_free(dev->ctx, spare);
    if (m.raw && !spare) to_device(dev, m.raw, m.bytes);
}

sol_status memory_alloc(struct dev *dev, struct pool *pool, int64_t bytes, sol_ptr *out_p)
{
    struct sol_failure why = failure_new();
    sol_ptr p;
    *out_p = 0;
    TRY(dev_check_process(dev));
    TRY(queue_check_hanging(dev));
    TRY(memory_take(dev, bytes, &p));
    const sol_status status = memory_back(dev, p, pool, &why);
    if (!status) {
        *out_p = p;
        return SOL_OK;
    }
    memory_drop(dev, p, NULL);
    failure_report(dev->ctx, status, &why);
    return ctx_where(dev->ctx, status, "device %s: %s", dev->name, status == SOL_ERR_NOMEM ? "" : "allocation: ");
}

sol_status dev_alloc(struct dev *dev, int64_t bytes, sol_ptr *out_p)
{
    return memory_alloc(dev, NULL, bytes, out_p);
}

void dev_free(struct dev *dev, sol_ptr p)
{
    if (p && dev->forks == rt_forks()) memory_drop(dev, p, NULL);
}

sol_status memory_resolve(struct dev *dev, sol_ptr p, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    *out_raw = p & ~SOL_PTR_FOREIGN;
    if (!p || p & SOL_PTR_FOREIGN) return SOL_OK;
    *out_raw = 0;
    const int i = reference_of(p);
    const int64_t offset = (int64_t)(p & OFFSET_MASK) - ORIGIN;
    lock_take(&dev->lock, NULL, NULL);
    const struct allocation m = i < dev->room ? dev->memory[i] : (struct allocation){0};
    lock_give(&dev->lock);
    if (!m.raw)
        return failure_set(out_why, SOL_ERR_INVALID, "it uses memory that %s",
                           m.used ? "could not be allocated" : "was freed");
    if (bytes && (offset < 0 || offset > m.bytes - bytes))
        return failure_set(out_why, SOL_ERR_INVALID, "it uses %lld bytes at %lld of memory of %lld bytes",
                           (long long)bytes, (long long)offset, (long long)m.bytes);
    *out_raw = m.raw + (sol_ptr)offset;
    return SOL_OK;
}

void memory_free_all(struct dev *dev)
{
    memory_empty_pool(dev);
    for (int i = 1; i < dev->room; i++) {
        if (dev->memory[i].raw) driver_free(dev, dev->memory[i].raw);
        ctx_free(dev->ctx, dev->memory[i].free);
    }
    ctx_free(dev->ctx, dev->memory);
    ctx_free(dev->ctx, dev->idle);
}
