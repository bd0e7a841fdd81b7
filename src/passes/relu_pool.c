/* max(0, maxpool(x)) and maxpool(max(0, x)) are one layer: a pool whose least value is 0. Padding then is 0 as well, which
 * lies around the tensor in memory, so that the kernel needs no border. */
#include "passes/passes.h"

static bool pads_less_than_window(const struct sol_layer *pool)
{
    for (int i = 0; i < pool->in[0]->ndim - 2; i++) {
        int64_t k = attrs_int(&pool->attrs, "k", i, 1);
        if (attrs_int(&pool->attrs, "p", i, 0) >= k || attrs_int(&pool->attrs, "q", i, 0) >= k) return false;
    }
    return true;
}

sol_status pass_relu_pool(struct sol_graph *g)
{
    graph_count_uses(g);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        bool pool = is_kind(l, "MaxPool"), relu = is_kind(l, "relu");
        if (!pool && !relu) continue;
        struct sol_layer *maker = only_maker(l->in[0], pool ? "relu" : "MaxPool");
        if (!maker || !dtype_def(l->in[0]->dtype)->is_float) continue;
        struct sol_layer *p = pool ? l : maker;
        if (!pads_less_than_window(p)) continue;
        struct sol_tensor *y;
        TRY(pass_add(g, l, "MaxPoolRelu", p, 1, maker->in, &p->attrs, &y));
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
        graph_remove(g, maker);
    }
    return SOL_OK;
}
