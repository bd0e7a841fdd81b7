/* Entries of queues. Neighbouring small copies become one through a staging buffer: a copy costs a device more than
 * the host needs to gather its parts. */
#include <string.h>

#include "device/entry.h"

enum { PACKED_BYTES = 64 << 10 };

/* -- copies of what commands point to */

static int64_t values_bytes(const struct sol_launch *l)
{
    int64_t n = 0;
    for (int i = 0; i < l->narg; i++)
        if (l->arg[i].kind == SOL_ARG_VALUE) n += (l->arg[i].bytes + 15) / 16 * 16;
    return n;
}

static bool copy_launch(struct sol_ctx *ctx, struct entry *e, const struct sol_launch *l)
{
    const size_t args = ((size_t)l->narg * sizeof *l->arg + 15) / 16 * 16;
    char *memory = ctx_try(ctx, args + (size_t)values_bytes(l));
    if (!memory) return false;
    e->arrays = memory;
    struct sol_arg *arg = memcpy(memory, l->arg, (size_t)l->narg * sizeof *l->arg);
    char *at = memory + args;
    for (int i = 0; i < l->narg; i++)
        if (arg[i].kind == SOL_ARG_VALUE) {
            arg[i].value = memcpy(at, l->arg[i].value, (size_t)arg[i].bytes);
            at += (arg[i].bytes + 15) / 16 * 16;
        }
    e->launch = *l;
    e->launch.arg = arg;
    e->c.launch = &e->launch;
    return true;
}

static bool copy_run(struct sol_ctx *ctx, struct entry *e, const struct sol_run *r)
{
    const size_t bases = (size_t)r->nbase * sizeof *r->base, seeds = (size_t)r->nseed * sizeof *r->seeds;
    const size_t sizes = (size_t)r->nsize * sizeof *r->sizes, end = (size_t)(r->first + r->count);
    const size_t times = r->step_ns ? end * sizeof *r->step_ns : 0, steps = r->only ? end : 0;
    char *memory = ctx_try(ctx, bases + seeds + sizes + times + steps), *at = memory;
    if (!memory) return false;
    e->arrays = memory;
    e->run = *r;
    e->out_step_ns = r->step_ns;
    if (bases) e->run.base = memcpy(at, r->base, bases);
    at += bases;
    if (seeds) e->run.seeds = memcpy(at, r->seeds, seeds);
    at += seeds;
    if (sizes) e->run.sizes = memcpy(at, r->sizes, sizes);
    at += sizes;
    if (times) e->run.step_ns = memset(at, 0, times);
    at += times;
    if (steps) e->run.only = memcpy(at, r->only, steps);
    e->c.run = &e->run;
    return true;
}

/* What kernels reported is read to the entry, because nobody need wait for it. */
static bool read_report(struct entry *e, const struct sol_run *r)
{
    e->run = *r;
    e->c.run = &e->run;
    e->c.host = e->reported;
    return true;
}

struct entry *entry_make(struct sol_ctx *ctx, const struct sol_command *c)
{
    struct entry *e = ctx_try(ctx, sizeof *e);
    if (!e) return NULL;
    *e = (struct entry){.c = *c, .out_ns = c->ns};
    if (c->ns) e->c.ns = &e->ns;
    const bool copied = c->kind == SOL_COMMAND_LAUNCH ? copy_launch(ctx, e, c->launch)
                        : c->kind == SOL_COMMAND_RUN  ? copy_run(ctx, e, c->run)
                        : c->run                      ? read_report(e, c->run)
                                                      : true;
    if (copied && c->event) event_keep(c->event);
    if (copied) return e;
    ctx_free(ctx, e);
    return NULL;
}

struct entry *entry_make_write(struct sol_ctx *ctx, const struct sol_command *c)
{
    struct entry *e = entry_make(ctx, c);
    char *data = e ? ctx_try(ctx, (size_t)c->bytes) : NULL;
    if (data) {
        e->c.data = e->arrays = memcpy(data, c->data, (size_t)c->bytes);
        return e;
    }
    ctx_free(ctx, e);
    return NULL;
}

/* -- packing */

static int64_t room_of(const struct sol_command *c)
{
    return MAX(c->room, c->bytes);
}

static bool is_copy(const struct sol_command *c)
{
    return c->kind == SOL_COMMAND_WRITE || c->kind == SOL_COMMAND_READ;
}

static sol_ptr place_of(const struct sol_command *c)
{
    return c->kind == SOL_COMMAND_WRITE ? c->to : c->from;
}

/* Joins the entries from `first` on that are its neighbours. */
static void pack_from(struct sol_ctx *ctx, struct entry *first, bool all)
{
    int64_t total = room_of(&first->c);
    struct entry *end = first->next;
    for (; end && end->c.kind == first->c.kind && place_of(&end->c) == place_of(&first->c) + (sol_ptr)total &&
           total + room_of(&end->c) <= PACKED_BYTES;
         end = end->next)
        total += room_of(&end->c);
    char *staging = end == first->next && !all ? NULL : ctx_try(ctx, (size_t)total);
    if (!staging) return;
    int64_t at = 0;
    memset(staging, 0, (size_t)total);
    struct entry *last = first;
    for (struct entry *e = first; e != end; last = e, e = e->next) {
        if (e->c.kind == SOL_COMMAND_WRITE) memcpy(staging + at, e->c.data, (size_t)e->c.bytes);
        at += room_of(&e->c);
    }
    first->packed = end == first->next ? NULL : first->next;
    first->staging = staging;
    last->next = NULL;
    first->next = end;
}

void entry_pack(struct sol_ctx *ctx, struct entry *list, bool all)
{
    for (struct entry *e = list; e; e = e->next)
        if (is_copy(&e->c)) pack_from(ctx, e, all);
}

static int64_t packed_bytes(const struct entry *e)
{
    int64_t bytes = room_of(&e->c), before = 0;
    for (const struct entry *p = e->packed; p; p = p->next) {
        before += bytes;
        bytes = p->next ? room_of(&p->c) : p->c.bytes;
    }
    return before + bytes;
}

/* -- addresses */

static sol_status resolve_launch(struct dev *dev, struct entry *e, struct sol_failure *out_why)
{
    struct sol_arg *arg = e->arrays;
    for (int i = 0; i < e->launch.narg; i++)
        if (arg[i].kind == SOL_ARG_POINTER) TRY(memory_resolve(dev, arg[i].pointer, 0, &arg[i].pointer, out_why));
    return SOL_OK;
}

static sol_status resolve_run(struct dev *dev, struct entry *e, struct sol_failure *out_why)
{
    sol_ptr *base = e->arrays;
    for (int i = 0; i < e->run.nbase; i++) TRY(memory_resolve(dev, base[i], 0, &base[i], out_why));
    return memory_resolve(dev, e->run.scratch, 0, &e->run.scratch, out_why);
}

sol_status entry_resolve(struct dev *dev, struct entry *e, struct sol_command *out_c, struct sol_failure *out_why)
{
    const int64_t bytes = e->packed ? packed_bytes(e) : e->c.bytes;
    *out_c = e->c;
    out_c->bytes = out_c->room = bytes;
    if (e->staging) {
        out_c->data = e->staging;
        out_c->host = e->staging;
    }
    if (e->c.kind == SOL_COMMAND_LAUNCH) return resolve_launch(dev, e, out_why);
    if (e->c.kind == SOL_COMMAND_RUN) return resolve_run(dev, e, out_why);
    TRY(memory_resolve(dev, e->c.to, bytes, &out_c->to, out_why));
    return memory_resolve(dev, e->c.from, bytes, &out_c->from, out_why);
}

/* -- the end */

void entry_drop(struct entry *e)
{
    for (struct entry *p = e; p; p = p == e ? e->packed : p->next) p->c.kind = SOL_COMMAND_FREE; /* reads nothing */
}

static void deliver_times(const struct entry *e)
{
    if (e->out_ns) *e->out_ns = e->ns;
    if (e->c.kind != SOL_COMMAND_RUN || !e->out_step_ns) return;
    const size_t first = (size_t)e->run.first, n = (size_t)e->run.count;
    memcpy(e->out_step_ns + first, e->run.step_ns + first, n * sizeof *e->out_step_ns);
}

void entry_deliver(const struct entry *e)
{
    int64_t at = 0;
    deliver_times(e);
    if (!e->staging || e->c.kind != SOL_COMMAND_READ) return;
    for (const struct entry *p = e; p; p = p == e ? e->packed : p->next) {
        memcpy(p->c.host, e->staging + at, (size_t)p->c.bytes);
        at += room_of(&p->c);
    }
}

int64_t entry_finish(struct sol_ctx *ctx, struct entry *e)
{
    int64_t n = 1;
    for (struct entry *p = e->packed, *next; p; p = next, n++) {
        next = p->next;
        ctx_free(ctx, p->arrays);
        ctx_free(ctx, p);
    }
    sol_event_free(e->c.event);
    ctx_free(ctx, e->staging);
    ctx_free(ctx, e->arrays);
    ctx_free(ctx, e);
    return n;
}
