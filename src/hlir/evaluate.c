/* The reference evaluation of graphs: computes each layer in order, with the interpreter of loops or the reference
 * operator of its kind. */
#include <string.h>

#include "hlir/graph.h"

sol_status layer_interpret(struct sol_ctx *ctx, const struct sol_layer *l, const void *const *in, void *const *out,
                           bool sizes)
{
    if (l->def->flags & LAYER_OPAQUE) return l->out[0]->graph->kinds->run(ctx, l, NULL, in, out);
    void **data = ctx_realloc(ctx, NULL, (size_t)(l->loops->tensors.n + 1) * sizeof *data);
    if (!data) return ctx_fail(ctx, SOL_ERR_NOMEM, "interpreter: no memory for %d tensors", l->loops->tensors.n);
    memset(data, 0, (size_t)(l->loops->tensors.n + 1) * sizeof *data);
    int k = 0;
    for (int i = 0; i < l->nin; i++)
        if (l->in[i]) data[k++] = (void *)(uintptr_t)in[i];
    for (int o = 0; o < l->nout; o++) data[k++] = out[o];
    sol_status status = (sizes ? loops_interpret_sizes : loops_interpret)(ctx, l->loops, data);
    ctx_free(ctx, data);
    return status ? ctx_where(ctx, status, "layer '%s' (%s): ", l->name, l->def->name) : SOL_OK;
}

/* The layer for given sizes, as it is: nothing is bound again. It is no part of the graph. */
static const struct sol_layer *layer_at(struct arena *a, const struct sol_layer *from, const int64_t *dim)
{
    struct sol_layer *l = arena_memdup(a, from, sizeof *l);
    if (!dim) return from;
    l->in = NEW_ARRAY(a, struct sol_tensor *, l->nin);
    l->out = NEW_ARRAY(a, struct sol_tensor *, l->nout);
    for (int i = 0; i < l->nin + l->nout; i++) {
        const struct sol_tensor *t = i < l->nin ? from->in[i] : from->out[i - l->nin];
        struct sol_tensor *made = t ? arena_memdup(a, t, sizeof *t) : NULL;
        for (int d = 0; t && d < t->ndim; d++) made->dim[d].size = size_at(t->dim[d].size, dim);
        *(i < l->nin ? &l->in[i] : &l->out[i - l->nin]) = made;
    }
    l->attrs = attrs_at(a, &from->attrs, dim);
    l->loops = loops_at(a, from->loops, dim);
    return l;
}

static sol_status interpret_layer(struct arena *a, const struct sol_layer *from, int64_t *dim, const void **data)
{
    const struct sol_layer *l = layer_at(a, from, dim);
    const void **in = NEW_ARRAY(a, const void *, l->nin);
    void **out = NEW_ARRAY(a, void *, l->nout);
    for (int i = 0; i < l->nin; i++) in[i] = l->in[i] ? data[l->in[i]->id] : NULL;
    for (int o = 0; o < l->nout; o++) data[l->out[o]->id] = out[o] = arena_alloc(a, (size_t)tensor_bytes(l->out[o]));
    TRY(ctx_check(arena_ctx(a)));
    if (from->def->flags & LAYER_OPAQUE) return from->out[0]->graph->kinds->run(arena_ctx(a), from, dim, in, out);
    return layer_interpret(arena_ctx(a), l, in, out, false);
}

/* Dimensions that layers set begin with the most. */
static int64_t *dims_begin(const struct sol_graph *g, struct arena *a, const int64_t *from)
{
    int64_t *dim = NEW_ARRAY(a, int64_t, SIZE_MOST_DIMS);
    memcpy(dim, from, (size_t)g->dims.n * sizeof *dim);
    for (int i = 0; i < g->dims.n; i++)
        if (g->dims.at[i].most >= 0) dim[i] = size_at(g->dims.at[i].most, from);
    return dim;
}

static sol_status interpret(struct sol_graph *g, struct arena *a, const int64_t *from, const struct graph_data *given)
{
    int64_t *dim = from ? dims_begin(g, a, from) : NULL;
    const void **data = NEW_ARRAY(a, const void *, g->ntensors);
    for (int i = 0; i < g->inputs.n; i++) data[g->inputs.at[i]->id] = given->inputs[i];
    for (int i = 0; i < g->params.n; i++) data[g->params.at[i]->id] = given->params[i];
    for (int i = 0; i < g->tensors.n; i++)
        if (g->tensors.at[i]->role == TENSOR_CONST) data[g->tensors.at[i]->id] = g->tensors.at[i]->data;
    TRY(ctx_check(g->ctx));
    for (const struct sol_layer *l = g->first; l; l = l->next) TRY(interpret_layer(a, l, dim, data));
    for (int i = 0; i < g->outputs.n; i++) {
        const struct sol_tensor *t = g->outputs.at[i].t;
        const int64_t bytes = dim ? size_at(tensor_bytes(t), dim) : tensor_bytes(t);
        if (bytes) memcpy(given->outputs[i], data[t->id], (size_t)bytes);
    }
    if (given->dims && dim) memcpy(given->dims, dim, (size_t)g->dims.n * sizeof *dim);
    return SOL_OK;
}

sol_status graph_interpret_at(struct sol_graph *g, const int64_t *dim, const struct graph_data *data)
{
    struct arena *a = arena_create(g->ctx);
    if (!a) return ctx_fail(g->ctx, SOL_ERR_NOMEM, "graph '%s': no memory to interpret it", g->name);
    sol_status status = interpret(g, a, dim, data);
    arena_destroy(a);
    return status;
}

sol_status graph_interpret(struct sol_graph *g, const void *const *inputs, const void *const *params,
                           void *const *outputs)
{
    return graph_interpret_at(g, NULL, &(struct graph_data){.inputs = inputs, .params = params, .outputs = outputs});
}
