/* Swaps an average pool with a 1x1 convolution: avgpool(conv1x1(x)) = conv1x1(avgpool(x)), because both are linear and
 * a mean keeps the bias. The convolution then computes fewer pixels: a quarter in DenseNet's transitions. */
#include "passes/passes.h"

static bool is_pointwise(const struct sol_layer *conv)
{
    const struct sol_tensor *w = conv->in[1], *x = conv->in[0];
    for (int d = 0; d < x->ndim - 2; d++) {
        if (w->dim[d + 2].size != 1 || attrs_int(&conv->attrs, "s", d, 1) != 1) return false;
        if (attrs_int(&conv->attrs, "p", d, 0) || attrs_int(&conv->attrs, "q", d, 0)) return false;
    }
    return true;
}

/* Is every window's mean over real pixels only? Padding that counts would change the bias. */
static bool is_mean(const struct sol_layer *pool)
{
    if (attrs_int(&pool->attrs, "div", 0, 0)) return false;
    for (int d = 0; d < pool->in[0]->ndim - 2; d++) {
        bool padded = attrs_int(&pool->attrs, "p", d, 0) || attrs_int(&pool->attrs, "q", d, 0) ||
                      attrs_int(&pool->attrs, "c", d, 0);
        if (padded && attrs_int(&pool->attrs, "pads", 0, 1)) return false;
    }
    return true;
}

/* Multiplications before and after, including the pool's additions. */
static bool pays(const struct sol_layer *conv, const struct sol_layer *pool)
{
    double in = (double)conv->in[0]->dim[1].size, out = (double)conv->out[0]->dim[1].size;
    double before = 1, behind = 1, groups = (double)attrs_int(&conv->attrs, "g", 0, 1);
    for (int d = 2; d < conv->in[0]->ndim; d++) {
        before *= (double)size_hint(conv->out[0]->dim[d].size);
        behind *= (double)size_hint(pool->out[0]->dim[d].size);
    }
    return behind * in * out / groups + before * in < before * in * out / groups + before * out;
}

sol_status pass_linear_pool(struct sol_graph *g)
{
    graph_count_uses(g);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        if (!is_kind(l, "AvgPool") || !is_mean(l) || !dtype_def(l->in[0]->dtype)->is_float) continue;
        struct sol_layer *conv = only_maker(l->in[0], "Conv");
        if (!conv || !is_pointwise(conv) || !pays(conv, l)) continue;
        struct sol_tensor *y;
        struct sol_layer *moved;
        TRY(pass_add(g, l, l, &(struct new_layer){.kind = "AvgPool", .nin = 1, .in = conv->in, .attrs = &l->attrs},
                     &y));
        struct sol_tensor *in[3] = {y, conv->in[1], conv->nin > 2 ? conv->in[2] : NULL};
        TRY(graph_add(g, l, &(struct new_layer){"Conv", conv->nin, in, &conv->attrs, conv->name, conv->where}, &moved));
        graph_replace(g, l->out[0], moved->out[0]);
        graph_remove(g, l);
        graph_remove(g, conv);
    }
    return SOL_OK;
}
