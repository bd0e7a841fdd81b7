/* Fuses ReLU and max-pool: max(0, maxpool(x)) and maxpool(max(0, x)) become a pool whose initial value is 0. Padding is
 * then 0 as well; it is stored around the tensor, so the kernel needs no border cases. (-0.0 may become 0.) */
#include "passes/passes.h"

/* Does every window contain an element of x? A window of padding alone gives -inf, not the initial value. */
static bool no_empty_window(const struct sol_layer *pool)
{
    for (int i = 0; i < pool->in[0]->ndim - 2; i++) {
        int64_t k = attrs_int(&pool->attrs, "k", i, 1), s = attrs_int(&pool->attrs, "s", i, 1);
        int64_t p = attrs_int(&pool->attrs, "p", i, 0), d = attrs_int(&pool->attrs, "d", i, 1);
        const int64_t n = pool->in[0]->dim[i + 2].size, outputs = pool->out[0]->dim[i + 2].size;
        if (size_varies(k)) return false;
        for (int64_t o = 0; o * s < p && !size_le(outputs, o); o++) { /* windows that begin in the padding */
            int64_t at = o * s - p, skip = (-at + d - 1) / d;         /* the first element that is not padding */
            if (skip >= k || !size_lt(at + skip * d, n)) return false;
        }
        const int64_t last = size_sub(size_mul(size_sub(outputs, 1), s), p);
        if (!size_lt(last, 0) && !size_lt(last, n)) return false;
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
        if (pool && !no_empty_window(p)) continue;
        struct sol_tensor *y;
        TRY(pass_add(g, l, p, &(struct new_layer){.kind = "MaxPoolRelu", .nin = 1, .in = maker->in, .attrs = &p->attrs},
                     &y));
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
        graph_remove(g, maker);
    }
    return SOL_OK;
}
