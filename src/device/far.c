/* Far: this processor behind closed memory, to test what other devices need, and the skeleton of a device. What it
 * calls addresses is memory that nobody can access; the memory itself lies elsewhere, and only this file knows where,
 * so an access from outside of a command ends the process. Allocations lie at random places between inaccessible pages,
 * new memory is full of NaN, commands take random time, and everything may fail. Options:
 *
 * far.devices=N (1), far.memory=64MB (4GB), far.delay=N (0): most microseconds that a command waits,
 * far.fail=N (0): one operation of N fails, far.fail_at=N (0): operation N fails, far.hang_at=N (0): operation N takes
 * far.hang_ms=N (3600000) milliseconds, far.seed=N (1) */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/inside.h"
#include "rt/rt.h"

enum { PLACES_TRIED = 32, SPARSE = 16, SMALL = 1 << 20 }; /* SPARSE: addresses for each byte */
#define MEMORY_DEFAULT INT64_C(4000000000)

struct range { /* of closed addresses */
    struct range *next;
    char *begin;
    size_t bytes;
};
struct sol_device {
    struct here here;
    int64_t limit, delay_us, fail_one_of, fail_at, hang_at, hang_ms;
    char *closed;
    size_t span; /* bytes of closed addresses; the memory of address p is at p + span */

    pthread_mutex_t lock; /* for all below */
    uint64_t random;
    int64_t operations, used;
    struct range *ranges; /* by address */
};
struct sol_stream {
    struct sol_device *device;
    int64_t ticket;
};

static int64_t option(const struct sol_host *host, const char *name, int64_t otherwise)
{
    char text[32];
    host->option(host->user, name, text, sizeof text);
    const int64_t n = *text ? text_bytes(text) : -1;
    return n < 0 ? otherwise : n;
}

/* -- what there is */

static sol_status far_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                            struct sol_failure *out_why)
{
    (void)type;
    *out_n = (int)option(host, "far.devices", 1);
    if (!*out_n) failure_set(out_why, SOL_OK, "the key device::options has far.devices=0");
    return SOL_OK;
}

static sol_status far_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                           struct sol_device_info *out_info, struct sol_failure *out_why)
{
    TRY(processor_facts(host, out_info, out_why));
    (void)index;
    snprintf(out_info->name, sizeof out_info->name, "this processor behind closed memory, for tests (%s)", type->name);
    out_info->memory = option(host, "far.memory", MEMORY_DEFAULT);
    return SOL_OK;
}

static char *open_memory(void *user, sol_ptr p)
{
    const struct sol_device *device = user;
    return (char *)(uintptr_t)p + device->span;
}

static sol_status far_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                           struct sol_device **out_device, struct sol_failure *out_why)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct sol_device *d = calloc(1, sizeof *d);
    (void)type;
    *out_device = NULL;
    if (!d) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    *d = (struct sol_device){.here = {.host = host, .at = open_memory, .user = d},
                             .limit = option(host, "far.memory", MEMORY_DEFAULT),
                             .delay_us = option(host, "far.delay", 0),
                             .fail_one_of = option(host, "far.fail", 0),
                             .fail_at = option(host, "far.fail_at", 0),
                             .hang_at = option(host, "far.hang_at", 0),
                             .hang_ms = option(host, "far.hang_ms", 3600000),
                             .random = (uint64_t)option(host, "far.seed", 1) * 2 + 1 + (uint64_t)index};
    d->span = ((size_t)d->limit * SPARSE / page + 1024) * page;
    d->closed = mmap(NULL, 2 * d->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (d->closed == MAP_FAILED) {
        failure_set(out_why, SOL_ERR_NOMEM, "the system has no %zu bytes of addresses", 2 * d->span);
        free(d);
        return SOL_ERR_NOMEM;
    }
    pthread_mutex_init(&d->lock, NULL);
    *out_device = d;
    return SOL_OK;
}

static void far_close(struct sol_device *device)
{
    munmap(device->closed, 2 * device->span);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* -- chance */

/* The caller holds the lock. */
static uint64_t draw(struct sol_device *d, uint64_t below)
{
    d->random ^= d->random << 13;
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random % below;
}

/* Before each operation: takes random time, and fails if it is its turn. */
static sol_status operate(struct sol_device *d, struct sol_failure *out_why)
{
    pthread_mutex_lock(&d->lock);
    const int64_t n = ++d->operations;
    const bool fails = n == d->fail_at || (d->fail_one_of > 0 && !draw(d, (uint64_t)d->fail_one_of));
    const int64_t us = n == d->hang_at   ? d->hang_ms * 1000
                       : d->delay_us > 0 ? (int64_t)draw(d, (uint64_t)d->delay_us + 1)
                                         : 0;
    pthread_mutex_unlock(&d->lock);
    if (us) nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    return fails ? failure_set(out_why, SOL_ERR_RUN, "operation %lld fails by far.fail", (long long)n) : SOL_OK;
}

/* -- memory */

/* Links a new range behind the last one that begins in front of it, if there is an inaccessible page between it and
 * both neighbours. The caller holds the lock. */
static bool insert(struct sol_device *d, struct range *r, size_t page)
{
    struct range **at = &d->ranges, *before = NULL;
    for (; *at && (*at)->begin < r->begin; at = &(*at)->next) before = *at;
    if (before && before->begin + before->bytes + page > r->begin) return false;
    if (*at && r->begin + r->bytes + page > (*at)->begin) return false;
    r->next = *at;
    *at = r;
    return true;
}

/* In the first gap of the upper half that is large enough. The caller holds the lock. */
static bool place_above(struct sol_device *d, struct range *r, size_t page)
{
    char *const half = d->closed + d->span / 2 / page * page;
    r->begin = half;
    if (insert(d, r, page)) return true;
    for (const struct range *other = d->ranges; other; other = other->next) {
        r->begin = other->begin + other->bytes + page;
        if (r->begin >= half && r->begin + r->bytes + page <= d->closed + d->span && insert(d, r, page)) return true;
    }
    return false;
}

/* Small ranges at random places of the lower half, so that they leave gaps for large ones above. The caller holds the
 * lock. */
static bool place(struct sol_device *d, struct range *r, size_t page)
{
    for (int i = 0; r->bytes <= SMALL && i < PLACES_TRIED; i++) {
        r->begin = d->closed + (1 + draw(d, (d->span / 2 - r->bytes) / page - 2)) * page;
        if (insert(d, r, page)) return true;
    }
    return place_above(d, r, page);
}

static void far_free(struct sol_device *d, sol_ptr raw)
{
    pthread_mutex_lock(&d->lock);
    struct range **at = &d->ranges, *r;
    while (*at && (sol_ptr)(uintptr_t)(*at)->begin != raw) at = &(*at)->next;
    if ((r = *at)) {
        *at = r->next;
        d->used -= (int64_t)r->bytes;
        mmap(r->begin + d->span, r->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    pthread_mutex_unlock(&d->lock);
    free(r);
}

static sol_status far_alloc(struct sol_device *d, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *out_raw = 0;
    TRY(operate(d, out_why));
    struct range *r = malloc(sizeof *r);
    if (!r) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    r->bytes = ((size_t)bytes + page - 1) / page * page;
    pthread_mutex_lock(&d->lock);
    const int64_t left = d->limit - d->used;
    const bool placed = (int64_t)r->bytes <= left && place(d, r, page);
    if (placed) d->used += (int64_t)r->bytes;
    pthread_mutex_unlock(&d->lock);
    if (placed && !mprotect(r->begin + d->span, r->bytes, PROT_READ | PROT_WRITE)) {
        memset(r->begin + d->span, 0xff, r->bytes);
        *out_raw = (sol_ptr)(uintptr_t)r->begin;
        return SOL_OK;
    }
    if (placed)
        far_free(d, (sol_ptr)(uintptr_t)r->begin);
    else
        free(r);
    return failure_set(out_why, SOL_ERR_NOMEM,
                       "out of device memory: %lld bytes are wanted, in pages of %zu; %lld of %lld are free",
                       (long long)bytes, page, (long long)left, (long long)d->limit);
}

/* -- code and commands */

static sol_status far_load(struct sol_device *d, const struct sol_blob *blob, struct sol_code **out_code,
                           struct sol_failure *out_why)
{
    *out_code = NULL;
    TRY(operate(d, out_why));
    return here_type.load(d, blob, out_code, out_why);
}

static sol_status far_queue(struct sol_device *d, void *foreign, struct sol_stream **out_stream,
                            struct sol_failure *out_why)
{
    *out_stream = NULL;
    if (foreign) return failure_set(out_why, SOL_ERR_UNSUPPORTED, "it has no streams of frameworks");
    struct sol_stream *s = malloc(sizeof *s);
    if (!s) return failure_set(out_why, SOL_ERR_NOMEM, "out of memory");
    *s = (struct sol_stream){d, 0};
    *out_stream = s;
    return SOL_OK;
}

static void far_unqueue(struct sol_stream *stream)
{
    free(stream);
}

/* A program that fails does so at any of its steps, behind those in front of it. */
static void run_until_failure(struct sol_device *d, const struct sol_run *r, struct sol_failure *out_why)
{
    struct sol_failure ignored = failure_new();
    struct sol_run part = *r;
    pthread_mutex_lock(&d->lock);
    part.count = (int32_t)draw(d, (uint64_t)r->count);
    pthread_mutex_unlock(&d->lock);
    here_submit(&d->here, 1, &(struct sol_command){.kind = SOL_COMMAND_RUN, .run = &part}, &ignored);
    out_why->step = r->first + part.count;
}

static sol_status far_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                             struct sol_failure *out_why)
{
    sol_status status = SOL_OK;
    for (int i = 0; i < n && !status; i++) {
        out_why->ticket = ++s->ticket;
        status = operate(s->device, out_why);
        if (status && command[i].kind == SOL_COMMAND_RUN) run_until_failure(s->device, command[i].run, out_why);
        if (!status) status = here_submit(&s->device->here, 1, &command[i], out_why);
        out_why->ticket = s->ticket;
    }
    *out_ticket = s->ticket;
    return status;
}

const struct sol_device_type far_type = {
    .size = sizeof far_type,
    .version = SOL_DEVICE_VERSION,
    .name = "far",
    .flavour = "c",
    .features = SOL_DEVICE_IN_PROCESS | SOL_DEVICE_PROGRAMS | SOL_DEVICE_SYNCHRONOUS,
    .count = far_count,
    .info = far_info,
    .open = far_open,
    .close = far_close,
    .alloc = far_alloc,
    .free = far_free,
    .load = far_load,
    .unload = here_unload,
    .queue = far_queue,
    .unqueue = far_unqueue,
    .submit = far_submit,
};
