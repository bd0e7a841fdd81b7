/* Prepare computes everything that depends on parameters only (packing, folding). It runs before the first call, and
 * after a change of parameters before the next call, for the steps that depend on them. It waits for running calls, and
 * new calls wait for it. */
#include "runtime/inside.h"

#include <string.h>

static bool depends_on_dirty(const struct sol_net *net, const struct sol_step *s, const bool *dirty)
{
    for (int i = 0; i < s->depends; i++)
        if (dirty[net->module->depends[s->depends0 + i]]) return true;
    return false;
}

/* Marks the steps that depend on a changed parameter, and the steps whose results those read from the workspace, where
 * earlier results no longer exist. */
static void mark_steps(const struct sol_net *net, const bool *dirty, bool all, bool *needed, unsigned char *out_only)
{
    const struct sol_program *p = &net->module->prepare;
    for (int i = p->nstep - 1; i >= 0; i--) {
        const struct sol_step *s = &p->step[i];
        const struct sol_operand *place = p->place + s->place0;
        bool runs = all || depends_on_dirty(net, s, dirty);
        for (int k = 0; k < s->places; k++) runs |= needed[place[k].buffer];
        out_only[i] = runs;
        for (int k = 0; k < s->places && runs; k++)
            needed[place[k].buffer] = net->module->buffer[place[k].buffer].kind == SOL_BUFFER_WORKSPACE;
    }
}

static sol_status run_steps(struct sol_params *params, const unsigned char *only, const bool *changed, int threads)
{
    struct slot *s;
    struct sol_net *net = params->net;
    const struct sol_program *p = &net->module->prepare;
    TRY(slot_take(net, &(struct slot_use){.program = p, .threads = threads}, &s));
    const struct call c = {.program = p, .params = params, .only = only, .changed = changed, .threads = threads};
    const sol_status status = net->runner->run(net, &c, s);
    const struct sol_module *m = net->module;
    const int64_t *sizes = net->example;
    const bool large = s->workspace.bytes > MAX(rt_quantity(m->forward.workspace_bytes, sizes),
                                                rt_quantity(m->backward.workspace_bytes, sizes));
    if (large)
        slot_free(net, s);
    else
        slot_give(net, s);
    return status;
}

static sol_status prepare(struct sol_params *params, const bool *dirty, bool all, int threads)
{
    const struct sol_net *net = params->net;
    const struct sol_module *m = net->module;
    if (!params->prepared.at)
        TRY(block_make(params->net, m->prepared_bytes, "the prepared parameters", NULL, &params->prepared));
    unsigned char *only = ctx_try(net->ctx, (size_t)(m->prepare.nstep + m->nbuffer));
    if (!only) return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: preparing '%s'", net->parts.name);
    bool *needed = (bool *)only + m->prepare.nstep;
    memset(needed, 0, (size_t)m->nbuffer * sizeof *needed);
    mark_steps(net, dirty, all, needed, only);
    const sol_status status = run_steps(params, only, all ? NULL : dirty, threads);
    ctx_free(net->ctx, only);
    return status;
}

/* Checks that every parameter has data. The caller holds the lock. */
static sol_status check_params(const struct sol_params *params)
{
    const struct sol_net *net = params->net;
    for (int i = 0; i < net->module->nparam; i++)
        if (!params->param[i] && net->param_bytes[i] > 0)
            return ctx_fail(net->ctx, SOL_ERR_INVALID,
                            "network '%s': parameter %d, '%s', has no data: hand it over with sol_params_set",
                            net->parts.name, i, net->parts.params[i].name);
    return SOL_OK;
}

/* The caller holds the lock, which is released while steps run. */
static sol_status prepare_now(struct sol_params *params, int threads)
{
    struct sol_ctx *ctx = params->net->ctx;
    const char *name = params->net->parts.name;
    const size_t n = (size_t)params->net->module->nparam;
    bool *dirty = ctx_try(ctx, n * sizeof *dirty);
    if (!dirty) return ctx_fail(ctx, SOL_ERR_NOMEM, "out of memory: preparing '%s'", name);
    const bool all = params->fresh;
    memcpy(dirty, params->dirty, n * sizeof *dirty);
    memset(params->dirty, 0, n * sizeof *dirty);
    params->any_dirty = params->fresh = false;
    params->preparing = true;
    if (params->net->heap) params->failures = heap_failures(params->net->heap);
    params_unlock(params);
    const int64_t start = clock_ns();
    const sol_status status = prepare(params, dirty, all, threads);
    LOG(ctx, LOG_DEBUG, "run", "%s: prepared in %.1f ms", name, (double)(clock_ns() - start) * 1e-6);
    params_lock(params);
    params->preparing = false;
    if (status) {
        for (size_t i = 0; i < n; i++) params->dirty[i] |= dirty[i];
        params->any_dirty = true;
        params->fresh |= all;
    }
    pthread_cond_broadcast(&params->lock.changed);
    ctx_free(ctx, dirty);
    return status;
}

sol_status prepare_enter(struct sol_params *params, int threads)
{
    sol_status status = SOL_OK;
    params_lock(params);
    if (params->net->heap && heap_failures(params->net->heap) != params->failures)
        params->any_dirty = params->fresh = true; /* a failure may have dropped what `prepare` appended */
    while (!status && (params->any_dirty || params->preparing)) {
        if (params->preparing || params->running)
            pthread_cond_wait(&params->lock.changed, &params->lock.mutex);
        else if (!(status = check_params(params)))
            status = prepare_now(params, threads);
    }
    if (!status) params->running++;
    params_unlock(params);
    return status;
}

void prepare_leave(struct sol_params *params)
{
    params_lock(params);
    params->running--;
    if (!params->running && params->any_dirty) pthread_cond_broadcast(&params->lock.changed);
    params_unlock(params);
}
