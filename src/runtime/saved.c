/* The blocks of tensors that forward saves for backward. They move between caller and network, so that a training step
 * reuses mapped pages. The network keeps as many idle blocks as were recently in use at the same time. */
#include "runtime/inside.h"

#include <string.h>

enum { LATELY = 32 /* calls of forward */, LINE = 64 };

/* Under the lock. */
static void count_out(struct sol_net *net)
{
    net->saved_out++;
    if (++net->saved_calls >= LATELY) {
        net->saved_calls = 0;
        net->saved_most[1] = net->saved_most[0];
        net->saved_most[0] = 0;
    }
    net->saved_most[0] = MAX(net->saved_most[0], net->saved_out);
}

/* The caller holds the lock. NULL: no block is idle. */
static struct sol_saved *pop(struct sol_net *net)
{
    struct sol_saved *s = net->saved_idle;
    if (!s) return NULL;
    net->saved_idle = s->next;
    net->saved_nidle--;
    s->next = NULL;
    return s;
}

static void free_saved(struct sol_ctx *ctx, struct sol_saved *s)
{
    if (!s) return;
    block_free(ctx, &s->block);
    ctx_free(ctx, s);
}

void saved_free_idle(struct sol_net *net)
{
    for (struct sol_saved *s; (s = pop(net));) free_saved(net->ctx, s);
}

/* An object without memory. NULL: out of memory. */
static struct sol_saved *make(struct sol_net *net)
{
    const size_t bytes = sizeof(struct sol_saved) + (size_t)net->module->ndim * sizeof(int64_t);
    struct sol_saved *s = ctx_try(net->ctx, bytes);
    if (!s) return NULL;
    memset(s, 0, bytes);
    s->net = net;
    return s;
}

static sol_status no_memory(const struct sol_net *net)
{
    return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: a call of '%s'", net->parts.name);
}

sol_status saved_need(struct sol_saved *s, int64_t bytes)
{
    struct sol_net *net = s->net;
    TRY(block_need(net, bytes, "what forward saves for backward", net->module->nsize ? s->dims : NULL, &s->block));
    s->bytes = bytes;
    return SOL_OK;
}

sol_status saved_take(struct sol_net *net, const int64_t *dims, struct sol_saved **out_s)
{
    net_lock(net);
    struct sol_saved *s = pop(net), *spare = NULL;
    count_out(net);
    if (net->saved_out + net->saved_nidle > MAX(net->saved_most[0], net->saved_most[1])) spare = pop(net);
    net_unlock(net);
    free_saved(net->ctx, spare);
    if (!s) s = make(net);
    *out_s = s;
    if (s) {
        atomic_store(&s->used, false);
        if (dims) memcpy(s->dims, dims, (size_t)net->module->ndim * sizeof *dims);
        return SOL_OK;
    }
    net_lock(net);
    net->saved_out--;
    net_unlock(net);
    return no_memory(net);
}

sol_status sol_saved_in(struct sol_net *net, const int64_t *dims, void *memory, struct sol_saved **out_saved)
{
    struct sol_memory m;
    *out_saved = NULL;
    if (net->runner != &runner_here)
        return ctx_fail(net->ctx, SOL_ERR_UNSUPPORTED,
                        "network '%s': what forward saves lies on the device, not in memory of the caller",
                        net->parts.name);
    if ((uintptr_t)memory % LINE)
        return ctx_fail(net->ctx, SOL_ERR_INVALID,
                        "network '%s': memory for what forward saves: expected 64-byte alignment", net->parts.name);
    if (dims)
        TRY(sol_net_memory_at(net, dims, &m));
    else
        sol_net_memory(net, &m);
    struct sol_saved *s = make(net);
    if (!s) return no_memory(net);
    if (net->module->ndim) memcpy(s->dims, dims ? dims : net->example, (size_t)net->module->ndim * sizeof *dims);
    s->block = (struct block){.at = memory, .bytes = m.saved};
    s->bytes = m.saved;
    s->borrowed = true;
    net_lock(net);
    net->saved_out++;
    net_unlock(net);
    *out_saved = s;
    return SOL_OK;
}

void saved_give(struct sol_saved *s)
{
    struct sol_net *net = s->net;
    struct sol_ctx *ctx = net->ctx;
    net_lock(net);
    const int out = --net->saved_out, most = MAX(net->saved_most[0], net->saved_most[1]);
    const bool destroyed = net->destroyed, keep = !destroyed && !s->borrowed && net->saved_nidle + out < most;
    if (keep) {
        block_keep(&s->block);
        s->next = net->saved_idle;
        net->saved_idle = s;
        net->saved_nidle++;
    }
    net_unlock(net);
    if (!keep) free_saved(ctx, s);
    if (destroyed && !out) net_free(net); /* otherwise another call may have freed it by now */
}

void sol_saved_destroy(struct sol_saved *saved)
{
    if (saved) saved_give(saved);
}
