/* The network object: creation, inputs and outputs, memory. params.c has parameter sets; run.c and prepare.c run it. */
#include "base/size.h"
#include "runtime/inside.h"

#include <string.h>

int64_t io_bytes(const struct sol_io *io, const int64_t *dims)
{
    int64_t n = dtype_def(io->dtype)->bytes;
    for (int d = 0; d < io->ndim; d++) n = size_mul(n, size_at(io->shape[d], dims));
    return n;
}

int64_t output_bytes(const struct sol_net *net, int i, const int64_t *dims)
{
    return size_mul(sol_net_output_room(net, i, dims), dtype_def(net->parts.outputs[i].dtype)->bytes);
}

static int64_t sum(int n, const struct sol_io *io, const int64_t *dims)
{
    int64_t total = 0;
    for (int i = 0; i < n; i++) total += io_bytes(&io[i], dims);
    return total;
}

static void mark_prepares(struct sol_net *net)
{
    const struct sol_program *p = &net->module->prepare;
    for (int i = 0; i < p->nstep; i++)
        for (int k = 0; k < p->step[i].depends; k++)
            net->prepares[net->module->depends[p->step[i].depends0 + k]] = true;
}

/* -- what rt runs: kernels, teams and functions of the host, on memory of the host */

/* code: a device has code of its own for the steps */
static const char *rejected(const struct sol_step *s, bool code)
{
    switch (s->kind) {
    case SOL_STEP_KERNEL:
    case SOL_STEP_TEAM: return s->run || code ? NULL : "it has no function";
    case SOL_STEP_HOST:
    case SOL_STEP_SET: return NULL;
    case SOL_STEP_LAUNCH: return code ? NULL : "a device is to run it, and there is none";
    case SOL_STEP_COPY: return "it copies to or from a device, and there is none";
    default: return "it is of a kind that is not known";
    }
}

static sol_status check_program(struct sol_ctx *ctx, const struct net_parts *parts, const struct sol_program *p)
{
    const char *name = parts->name;
    for (int i = 0; i < p->nstep; i++) {
        const char *why = rejected(&p->step[i], parts->ncode);
        if (why)
            return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "module of '%s': step %d (%s) cannot run: %s", name, i,
                            p->step[i].label, why);
    }
    return SOL_OK;
}

static sol_status check_module(struct sol_ctx *ctx, const struct net_parts *parts)
{
    const struct sol_module *m = parts->module;
    const char *name = parts->name;
    if (m->nsize && !m->sizes)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                        "module of '%s': %d sizes are known only while running, and it has no function that computes "
                        "them",
                        name, m->nsize);
    for (int i = 0; i < m->nbuffer; i++)
        if (m->buffer[i].space != SOL_SPACE_HOST)
            return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                            "module of '%s': buffer %d is a device's memory, and there is no device", name, i);
    TRY(check_program(ctx, parts, &m->prepare));
    TRY(check_program(ctx, parts, &m->forward));
    return check_program(ctx, parts, &m->backward);
}

sol_status net_create(struct sol_ctx *ctx, struct arena *a, const struct net_parts *parts, struct sol_net **out_net)
{
    const struct sol_module *m = parts->module;
    struct sol_net *net = NEW(a, struct sol_net);
    *out_net = NULL;
    TRY(check_module(ctx, parts));
    net->ctx = ctx;
    net->arena = a;
    net->parts = *parts;
    net->most = parts->most;
    net->module = m;
    net->param_bytes = NEW_ARRAY(a, int64_t, m->nparam);
    for (int i = 0; i < m->nparam; i++) net->param_bytes[i] = io_bytes(&parts->params[i], NULL);
    net->param_at = NEW_ARRAY(a, int64_t, m->nparam);
    net->prepares = NEW_ARRAY(a, bool, m->nparam);
    net->runner = parts->dev ? &runner_queued : &runner_here;
    TRY(sizes_begin(net));
    TRY(ctx_check(ctx));
    mark_prepares(net);
    net->team = rt_team_openmp();
    net->debug = ctx_debugs(ctx);
    TRY(net->runner->begin(net));
    lock_init(&net->lock);
    *out_net = net;
    return SOL_OK;
}

static void destroy(struct sol_net *net)
{
    if (net->parts.dev && dev_hangs(net->parts.dev)) {
        LOG(net->ctx, LOG_WARN, "run", "%s: its memory is kept, because device %s hangs and may use it",
            net->parts.name, dev_name(net->parts.dev));
        return;
    }
    for (struct slot *s = net->idle, *next; s; s = next) {
        next = s->next;
        slot_free(net, s);
    }
    ctx_free(net->ctx, net->forward_profile.ns);
    ctx_free(net->ctx, net->backward_profile.ns);
    net->runner->end(net);
    if (net->parts.close) net->parts.close(net->parts.handle);
    net_lock(net);
    saved_free_idle(net);
    net->destroyed = true;
    const bool held = net->saved_out > 0;
    net_unlock(net);
    if (!held) net_free(net);
}

static void destroy_later(struct heap_ending *e)
{
    destroy((struct sol_net *)((char *)e - offsetof(struct sol_net, ending)));
}

void sol_net_destroy(struct sol_net *net)
{
    if (!net) return;
    net->ending.end = destroy_later;
    if (!net->heap || !heap_end_later(net->heap, &net->ending)) destroy(net); /* otherwise runs use it */
}

void net_free(struct sol_net *net)
{
    lock_destroy(&net->lock);
    arena_destroy(net->arena);
}

void net_lock(struct sol_net *net)
{
    lock_take(&net->lock, NULL, NULL);
}

void net_unlock(struct sol_net *net)
{
    lock_give(&net->lock);
}

/* -- inputs and outputs */

int sol_net_inputs(const struct sol_net *net)
{
    return net->module->ninput;
}

int sol_net_host_steps(const struct sol_net *net)
{
    const struct sol_module *m = net->module;
    const struct sol_program *all[] = {&m->prepare, &m->forward, &m->backward};
    int n = 0;
    for (int k = 0; net->parts.dev && k < COUNT_OF(all); k++)
        for (int i = 0; i < all[k]->nstep; i++) n += all[k]->step[i].kind == SOL_STEP_HOST;
    return n;
}

int sol_net_outputs(const struct sol_net *net)
{
    return net->module->noutput;
}

int sol_net_params(const struct sol_net *net)
{
    return net->module->nparam;
}

static struct sol_io io_at(const struct sol_io *io, int n, int i)
{
    return i >= 0 && i < n ? io[i] : (struct sol_io){0};
}

struct sol_io sol_net_input(const struct sol_net *net, int i)
{
    return io_at(net->parts.inputs, net->module->ninput, i);
}

struct sol_io sol_net_output(const struct sol_net *net, int i)
{
    return io_at(net->parts.outputs, net->module->noutput, i);
}

struct sol_io sol_net_param_io(const struct sol_net *net, int i)
{
    return io_at(net->parts.params, net->module->nparam, i);
}

/* -- memory */

void net_memory(const struct sol_net *net, const int64_t *sizes, struct sol_memory *out_m)
{
    const struct sol_module *m = net->module;
    const struct sol_program *f = &m->forward, *b = &m->backward, *q = &m->prepare;
    const int64_t threads = net->launches ? 1 : rt_processors();
    int64_t constants = 0, outputs = 0;
    for (int i = 0; i < m->noutput; i++) outputs += output_bytes(net, i, sizes);
    for (int i = 0; i < m->nbuffer; i++)
        if (m->buffer[i].kind == SOL_BUFFER_CONST) constants += m->buffer[i].bytes;
    /* a slot serves both: each block has the larger of the two sizes */
    const int64_t running = MAX(rt_quantity(f->workspace_bytes, sizes), rt_quantity(b->workspace_bytes, sizes)) +
                            MAX(rt_scratch_bytes(f, sizes), rt_scratch_bytes(b, sizes)) * threads;
    const int64_t preparing = q->workspace_bytes + rt_scratch_bytes(q, NULL) * threads;
    *out_m = (struct sol_memory){.params = sum(m->nparam, net->parts.params, NULL),
                                 .prepared = m->prepared_bytes,
                                 .inputs = sum(m->ninput, net->parts.inputs, sizes),
                                 .outputs = outputs,
                                 .saved = rt_quantity(m->saved_bytes, sizes),
                                 .workspace = running,
                                 .if_fast = net->parts.if_fast,
                                 .if_balanced = net->parts.if_balanced,
                                 .if_small = net->parts.if_small};
    out_m->peak = out_m->params + out_m->prepared + constants +
                  MAX(running + out_m->saved + out_m->inputs + out_m->outputs, preparing);
}

void sol_net_memory(const struct sol_net *net, struct sol_memory *out_m)
{
    net_memory(net, net->example, out_m);
}
