/* Parameter sets belong to the caller: pointers to the owner's data, and the packed and folded parameters. Several sets
 * may use one network, alternately or at the same time. */
#include <string.h>

#include "runtime/inside.h"

sol_status sol_params_create(struct sol_net *net, struct sol_params **out_params)
{
    const size_t n = (size_t)net->module->nparam;
    const size_t bytes = sizeof(struct sol_params) + n * (2 * sizeof(void *) + sizeof(bool));
    struct sol_params *p = ctx_try(net->ctx, bytes);
    *out_params = NULL;
    if (!p) return ctx_fail(net->ctx, SOL_ERR_NOMEM, "out of memory: parameters of '%s'", net->parts.name);
    memset(p, 0, bytes);
    p->net = net;
    p->param = (const void **)(p + 1);
    p->at = net->mirror_bytes ? p->param + n : p->param;
    p->dirty = (bool *)(p->param + 2 * n);
    p->any_dirty = p->fresh = true;
    lock_init(&p->lock);
    *out_params = p;
    return SOL_OK;
}

void sol_params_destroy(struct sol_params *params)
{
    if (!params) return;
    block_free(params->net->ctx, &params->prepared);
    block_free(params->net->ctx, &params->mirror);
    lock_destroy(&params->lock);
    ctx_free(params->net->ctx, params);
}

/* In a child process: calls of other threads no longer exist, and their unfinished work of `prepare` is repeated. */
static void mend(void *of)
{
    struct sol_params *p = of;
    p->running = 0;
    if (p->preparing) p->any_dirty = p->fresh = true;
    p->preparing = false;
}

void params_lock(struct sol_params *params)
{
    lock_take(&params->lock, mend, params);
}

void params_unlock(struct sol_params *params)
{
    lock_give(&params->lock);
}

sol_status sol_params_set(struct sol_params *params, int i, const void *data)
{
    const struct sol_net *net = params->net;
    if (i < 0 || i >= net->module->nparam)
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': there is no parameter %d, it has %d", net->parts.name,
                        i, net->module->nparam);
    if (!data && net->param_bytes[i] > 0)
        return ctx_fail(net->ctx, SOL_ERR_INVALID, "network '%s': parameter %d, '%s', is NULL, expected %lld bytes",
                        net->parts.name, i, net->parts.params[i].name, (long long)net->param_bytes[i]);
    params_lock(params);
    params->param[i] = data;
    if (net->prepares[i]) params->dirty[i] = params->any_dirty = true;
    params_unlock(params);
    return SOL_OK;
}
