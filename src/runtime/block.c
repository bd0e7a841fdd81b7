/* Memory of running calls. A slot is kept after its call, so that the next call reuses mapped pages. Blocks use huge
 * pages. If huge pages are slow to get, because the machine's host must first provide memory for each, a large block
 * starts with small pages, and the system merges them while the block is in use. */
#include "runtime/inside.h"

#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, SLOW_NS = 2000000, PATIENCE = 3 };
enum { HUGE_FROM = 4 << 20, FRESH = 32 << 20, LARGE = 64 << 20 }; /* bytes */

static void want_huge(char *at, int64_t bytes)
{
#if defined MADV_HUGEPAGE
    madvise(at, (size_t)bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

/* Touches the huge pages of a large block. Stops and returns true if they are slow; the rest are then small pages. */
static bool touch_huge(char *at, int64_t bytes)
{
    int slow = 0;
    for (int64_t i = 0; i + HUGE_PAGE <= bytes; i += HUGE_PAGE) {
        const int64_t start = clock_ns();
        want_huge(at + i, HUGE_PAGE);
        ((volatile char *)at)[i] = 0;
        slow += clock_ns() - start > SLOW_NS;
        if (slow == PATIENCE) return true;
    }
    return false;
}

static void drop(struct sol_ctx *ctx, struct block *b)
{
    ctx_free(ctx, b->raw);
}

sol_status block_here(struct sol_net *net, int64_t bytes, const char *what, struct block *out_b)
{
    struct sol_ctx *ctx = net->ctx;
    const size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : LINE;
    void *raw = ctx_try(ctx, (size_t)bytes + align);
    if (!raw) return ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: %s needs %lld bytes", what, (long long)bytes);
    char *at = (char *)(((uintptr_t)raw + align - 1) / align * align);
    *out_b = (struct block){.at = at, .raw = raw, .bytes = bytes, .drop = drop};
    if (bytes >= LARGE)
        out_b->small = touch_huge(at, bytes);
    else if (align == HUGE_PAGE)
        want_huge(at, bytes);
    return SOL_OK;
}

sol_status block_make(struct sol_net *net, int64_t bytes, const char *what, const int64_t *sizes, struct block *out_b)
{
    char text[SIZES_TEXT];
    struct sol_memory m;
    *out_b = (struct block){0};
    const sol_status status = bytes ? net->runner->make(net, bytes, what, out_b) : SOL_OK;
    if (!status) return SOL_OK;
    sizes_text(net, sizes, text);
    if (status != SOL_ERR_NOMEM) return ctx_where(net->ctx, status, "network '%s'%s: ", net->parts.name, text);
    if (sizes)
        TRY(sol_net_memory_at(net, sizes, &m));
    else
        sol_net_memory(net, &m);
    return ctx_where(net->ctx, status, "network '%s'%s, whose peak is %lld bytes: ", net->parts.name, text,
                     (long long)m.peak);
}

void block_fresh(char *at, int64_t bytes)
{
    const int64_t skip = (int64_t)(-(uintptr_t)at % HUGE_PAGE);
    if (bytes >= FRESH) want_huge(at + skip, bytes - skip);
}

void block_keep(struct block *b)
{
    if (b->small) want_huge(b->at, b->bytes);
    b->small = false;
}

void block_free(struct sol_ctx *ctx, struct block *b)
{
    if (b->drop) b->drop(ctx, b);
    *b = (struct block){0};
}

sol_status block_need(struct sol_net *net, int64_t bytes, const char *what, const int64_t *sizes, struct block *b)
{
    if (b->bytes >= bytes) return SOL_OK;
    if (sizes) bytes = MAX(bytes, b->bytes + b->bytes / 8);
    block_free(net->ctx, b);
    return block_make(net, bytes, what, sizes, b);
}

static struct slot *slot_make(struct sol_net *net)
{
    const struct sol_module *m = net->module;
    const size_t places = (size_t)MAX(MAX(m->forward.nplace, m->backward.nplace), m->prepare.nplace);
    const size_t steps = (size_t)MAX(m->forward.nstep, m->backward.nstep), buffers = (size_t)m->nbuffer;
    const size_t io = (size_t)m->ninput + (size_t)m->noutput;
    const size_t bytes = sizeof(struct slot) + (places + buffers + io) * sizeof(char *) +
                         (steps + buffers) * sizeof(int64_t) + sizes_bytes(net);
    struct slot *s = ctx_try(net->ctx, bytes);
    if (!s) return NULL;
    memset(s, 0, bytes);
    s->base = (char **)(s + 1);
    s->operands = s->base + buffers;
    s->io_at = (void **)(s->operands + places);
    s->step_ns = (int64_t *)(s->io_at + io);
    s->bases = (sol_ptr *)(s->step_ns + steps);
    s->own = (int64_t *)(s->bases + buffers);
    s->known = s->own + m->nsize;
    return s;
}

void slot_free(struct sol_net *net, struct slot *s)
{
    block_free(net->ctx, &s->workspace);
    block_free(net->ctx, &s->scratch);
    block_free(net->ctx, &s->state);
    block_free(net->ctx, &s->io);
    ctx_free(net->ctx, s);
}

void slot_give(struct sol_net *net, struct slot *s)
{
    net_lock(net);
    s->next = net->idle;
    net->idle = s;
    net_unlock(net);
}

static sol_status slot_fit(struct sol_net *net, const struct slot_use *use, struct slot *s)
{
    const int64_t workspace = rt_quantity(use->program->workspace_bytes, s->sizes),
                  scratch = rt_scratch_bytes(use->program, s->sizes) * (net->launches ? 1 : use->threads);
    TRY(block_need(net, workspace, "the workspace", s->sizes, &s->workspace));
    return block_need(net, scratch, "the scratch memory of the threads", s->sizes, &s->scratch);
}

sol_status slot_take(struct sol_net *net, const struct slot_use *use, struct slot **out_s)
{
    net_lock(net);
    struct slot *s = net->idle;
    if (s) net->idle = s->next;
    net_unlock(net);
    *out_s = NULL;
    if (!s) s = slot_make(net);
    if (!s) return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: a call of '%s'", net->parts.name);
    sol_status status = sizes_find(net, s, use->dims);
    if (status) {
        slot_give(net, s);
        return status;
    }
    status = slot_fit(net, use, s);
    if (status)
        slot_free(net, s);
    else
        *out_s = s;
    return status;
}
