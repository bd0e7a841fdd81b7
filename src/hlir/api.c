/* The functions of sol.h that describe a network. They check the caller's arguments and then call graph.c. */
#include <string.h>

#include "hlir/graph.h"

sol_status graph_create(struct sol_ctx *ctx, const struct layer_kinds *kinds, const char *name,
                        struct sol_graph **out_g)
{
    struct arena *a = arena_create(ctx), *scratch = arena_create(ctx);
    if (!a || !scratch) {
        arena_destroy(a);
        arena_destroy(scratch);
        return ctx_fail(ctx, SOL_ERR_NOMEM, "graph: no memory");
    }
    struct sol_graph *g = NEW(a, struct sol_graph);
    g->ctx = ctx;
    g->kinds = kinds;
    g->arena = a;
    g->scratch = scratch;
    g->name = arena_strdup(a, name ? name : "");
    *out_g = g;
    return SOL_OK;
}

void sol_graph_destroy(struct sol_graph *g)
{
    if (!g) return;
    arena_destroy(g->scratch);
    arena_destroy(g->arena);
}

/* -- tensors */

static sol_status make_tensor(struct sol_graph *g, enum tensor_role role, const struct sol_io *as,
                              struct sol_tensor **out_t)
{
    static const char *const words[] = {"value", "input", "param", "constant"};
    const char *what = words[role], *name = as->name ? as->name : "";
    if ((int)as->dtype < 0 || as->dtype >= SOL_DTYPES)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s '%s': type: expected one of enum sol_dtype, got %d", what, name,
                        (int)as->dtype);
    if (as->ndim < 0 || as->ndim > SOL_MAX_DIMS)
        return ctx_fail(g->ctx, SOL_ERR_UNSUPPORTED, "%s '%s': expected at most %d dimensions, got %d", what, name,
                        SOL_MAX_DIMS, as->ndim);
    int64_t elements;
    sol_status status = shape_elements(g->ctx, as->ndim, as->shape, &elements);
    if (status) return ctx_where(g->ctx, status, "%s '%s': ", what, name);
    for (int d = 0; d < as->ndim && role != TENSOR_INPUT; d++)
        if (size_varies(as->shape[d]))
            return ctx_fail(g->ctx, SOL_ERR_INVALID,
                            "%s '%s': dimension %d is %lld: expected a number, only inputs may have sizes that vary",
                            what, name, d, (long long)as->shape[d]);
    for (int d = 0; d < as->ndim; d++)
        if (size_dims(as->shape[d]) & graph_data_dims(g))
            return ctx_fail(g->ctx, SOL_ERR_INVALID,
                            "%s '%s': dimension %d is %lld, which a layer sets while the network runs: expected a size "
                            "that the caller tells (sol_graph_dim)",
                            what, name, d, (long long)as->shape[d]);
    *out_t = graph_tensor(g, role, name, as->dtype, as->ndim, as->shape);
    return ctx_check(g->ctx);
}

sol_status sol_graph_input(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t)
{
    return make_tensor(g, TENSOR_INPUT, &(struct sol_io){name, dtype, ndim, shape}, out_t);
}

sol_status sol_graph_param(struct sol_graph *g, const char *name, enum sol_dtype dtype, int ndim, const int64_t *shape,
                           struct sol_tensor **out_t)
{
    return make_tensor(g, TENSOR_PARAM, &(struct sol_io){name, dtype, ndim, shape}, out_t);
}

sol_status sol_graph_const(struct sol_graph *g, enum sol_dtype dtype, int ndim, const int64_t *shape, const void *data,
                           struct sol_tensor **out_t)
{
    TRY(make_tensor(g, TENSOR_CONST, &(struct sol_io){NULL, dtype, ndim, shape}, out_t));
    size_t bytes = (size_t)tensor_elements(*out_t) * dtype_def(dtype)->bytes;
    if (bytes && !data) return ctx_fail(g->ctx, SOL_ERR_INVALID, "constant: no data for %zu bytes", bytes);
    void *copy = arena_try(g->arena, bytes);
    if (!copy) return ctx_fail(g->ctx, SOL_ERR_NOMEM, "constant: no memory for %zu bytes", bytes);
    if (bytes) memcpy(copy, data, bytes);
    (*out_t)->data = copy;
    return SOL_OK;
}

sol_status sol_graph_output(struct sol_graph *g, const char *name, struct sol_tensor *t)
{
    if (!t || t->graph != g)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "output '%s': expected a tensor of this graph", name ? name : "");
    graph_output(g, name, t);
    return ctx_check(g->ctx);
}

sol_status sol_graph_resident(struct sol_graph *g, const char *device)
{
    g->resident = arena_strdup(g->arena, device);
    return ctx_check(g->ctx);
}

enum sol_dtype sol_tensor_dtype(const struct sol_tensor *t)
{
    return (enum sol_dtype)t->dtype;
}

int sol_tensor_ndim(const struct sol_tensor *t)
{
    return t->ndim;
}

int64_t sol_tensor_size(const struct sol_tensor *t, int dim)
{
    return t->dim[dim < 0 ? dim + t->ndim : dim].size;
}

/* -- layers */

void sol_graph_work(const struct sol_graph *g, double *out_flops, double *out_bytes)
{
    graph_work(g, out_flops, out_bytes);
}

static sol_status copy_attr(struct sol_graph *g, const char *kind, const struct sol_attr *from, struct opdef_attr *to)
{
    size_t n = from->n < 0 ? 1 : (size_t)from->n;
    if (!from->name) return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: an attribute has no name", kind);
    *to = (struct opdef_attr){.name = arena_strdup(g->arena, from->name), .n = from->n};
    switch (from->kind) {
    case SOL_ATTR_INT:
        to->kind = ATTR_INT;
        to->ints = NEW_ARRAY(g->arena, int64_t, n);
        if (n) memcpy(to->ints, from->ints, n * sizeof *to->ints);
        return SOL_OK;
    case SOL_ATTR_REAL:
        to->kind = ATTR_REAL;
        to->reals = NEW_ARRAY(g->arena, double, n);
        if (n) memcpy(to->reals, from->reals, n * sizeof *to->reals);
        return SOL_OK;
    case SOL_ATTR_TEXT:
        to->kind = ATTR_TEXT;
        to->n = -1;
        to->text = arena_strdup(g->arena, from->text);
        if (to->text) return SOL_OK;
    }
    return ctx_fail(g->ctx, SOL_ERR_INVALID, "%s: attribute '%s' has no value", kind, to->name);
}

sol_status graph_layer(struct sol_graph *g, struct sol_layer *before, const struct sol_new_layer *n, int nout,
                       struct sol_tensor **out)
{
    struct attrs list = {n->nattr, NEW_ARRAY(g->arena, struct opdef_attr, n->nattr)};
    for (int i = 0; i < n->nattr; i++) TRY(copy_attr(g, n->kind, &n->attrs[i], &list.at[i]));
    struct sol_layer *l;
    TRY(graph_add(g, before, &(struct new_layer){n->kind, n->nin, n->in, &list, n->name, n->where}, &l));
    if (nout > l->nout)
        return ctx_fail(g->ctx, SOL_ERR_INVALID, "layer '%s' (%s): it has %d outputs, %d were asked for", l->name,
                        n->kind, l->nout, nout);
    for (int i = 0; i < nout; i++) out[i] = l->out[i];
    return ctx_check(g->ctx);
}

sol_status sol_graph_layer(struct sol_graph *g, const struct sol_new_layer *n, int nout, struct sol_tensor **out)
{
    return graph_layer(g, NULL, n, nout, out);
}

/* -- values known before running */

static const void *value_of(const struct sol_tensor *t)
{
    return t->role == TENSOR_CONST ? t->data : t->known;
}

/* The first size that varies in the data of t; 0: there is none. */
static int64_t size_in(const struct sol_tensor *t)
{
    const int64_t *v = value_of(t), n = t->dtype == SOL_I64 ? tensor_elements(t) : 0;
    for (int64_t i = 0; i < n; i++)
        if (size_varies(v[i])) return v[i];
    return 0;
}

static int64_t varying_size(const struct sol_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (size_varies(t->dim[d].size)) return t->dim[d].size;
    return 0;
}

/* Can the outputs be known, although sizes vary? *out_sizes: there are sizes that vary among the numbers. */
static sol_status knowable(const struct sol_layer *l, bool *out_sizes)
{
    struct sol_ctx *ctx = l->out[0]->graph->ctx;
    int64_t data = 0, shape = 0;
    for (int i = 0; i < l->nin; i++) {
        if (l->in[i] && !data) data = size_in(l->in[i]);
        if (l->in[i] && !shape) shape = varying_size(l->in[i]);
    }
    for (int o = 0; o < l->nout && !shape; o++) shape = varying_size(l->out[o]);
    *out_sizes = data || loops_vary(l->loops);
    if (data && (l->def->flags & LAYER_OPAQUE)) shape = data;
    if (!shape) return SOL_OK;
    return ctx_unequal(ctx, shape, -1,
                       ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "layer '%s' (%s): its value depends on the size %lld",
                                l->name, l->def->name, (long long)shape));
}

/* Computes the outputs of a layer whose inputs are all known. */
static sol_status evaluate(struct sol_layer *l)
{
    bool sizes;
    TRY(knowable(l, &sizes));
    struct arena *a = l->out[0]->graph->arena;
    const void **in = NEW_ARRAY(a, const void *, l->nin);
    void **out = NEW_ARRAY(a, void *, l->nout);
    for (int i = 0; i < l->nin; i++) in[i] = l->in[i] ? value_of(l->in[i]) : NULL;
    for (int o = 0; o < l->nout; o++)
        out[o] =
            arena_alloc(a, (size_t)tensor_elements(l->out[o]) * dtype_def((enum sol_dtype)l->out[o]->dtype)->bytes);
    TRY(ctx_check(arena_ctx(a)));
    TRY(layer_interpret(arena_ctx(a), l, in, out, sizes));
    for (int o = 0; o < l->nout; o++) l->out[o]->known = out[o];
    return SOL_OK;
}

/* Finds the next input of l that must be computed first; NULL: there is none. False: one of them can never be known. */
static bool next_unknown(const struct sol_layer *l, struct sol_layer **out_next)
{
    *out_next = NULL;
    for (int i = 0; i < l->nin; i++) {
        const struct sol_tensor *t = l->in[i];
        if (!t || value_of(t)) continue;
        if (t->role != TENSOR_VALUE) return false;
        *out_next = t->from;
    }
    return true;
}

const void *sol_tensor_known(struct sol_tensor *t)
{
    if (value_of(t) || t->role != TENSOR_VALUE) return value_of(t);
    struct arena *a = t->graph->arena;
    VECTOR(struct sol_layer *) stack = {0};
    PUSH(a, stack, t->from);
    while (stack.n) {
        struct sol_layer *l = stack.at[stack.n - 1], *first;
        if (!next_unknown(l, &first)) return NULL;
        if (first)
            PUSH(a, stack, first);
        else if (evaluate(l))
            return NULL;
        else
            stack.n--;
    }
    return t->known;
}
