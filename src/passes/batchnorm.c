/* Rewrites batch-norm with given statistics to x*s + t. s = w / sqrt(v+e) and t = b - m*s depend on parameters alone,
 * so `prepare` computes them, and the weights pass may fold them into a convolution. */
#include "passes/passes.h"

static sol_status scalar(struct sol_graph *g, enum sol_dtype type, double v, struct sol_tensor **out_t)
{
    struct sol_tensor *t = graph_tensor(g, TENSOR_CONST, NULL, type, 0, NULL);
    double d = v;
    float f = (float)v;
    t->data = type == SOL_F32 ? arena_memdup(g->arena, &f, sizeof f) : arena_memdup(g->arena, &d, sizeof d);
    *out_t = t;
    return SOL_OK;
}

/* A vector over channels as a tensor that broadcasts to x. */
static sol_status by_channel(struct sol_graph *g, struct sol_layer *l, struct sol_tensor *v, struct sol_tensor **out_t)
{
    int64_t shape[SOL_MAX_DIMS];
    int n = l->in[0]->ndim - 1;
    for (int d = 0; d < n; d++) shape[d] = d ? 1 : v->dim[0].size;
    struct opdef_attr a = {.name = "shape", .kind = ATTR_INT, .n = n, .ints = shape};
    struct attrs attrs = {1, &a};
    return pass_add(g, l, l, &(struct new_layer){.kind = "Reshape", .nin = 1, .in = &v, .attrs = &attrs}, out_t);
}

static sol_status split(struct sol_graph *g, struct sol_layer *l)
{
    struct sol_tensor *x = l->in[0], *w = l->in[1], *b = l->in[2], *m = l->in[3], *v = l->in[4], *e, *s, *t, *y;
    TRY(scalar(g, v->dtype, attrs_real(&l->attrs, "e", 1e-5), &e));
    TRY(pass_op(g, l, "add", v, e, &s));
    TRY(pass_op(g, l, "rsqrt", s, NULL, &s));
    if (w) TRY(pass_op(g, l, "mul", s, w, &s));
    TRY(pass_op(g, l, "mul", m, s, &t));
    if (b)
        TRY(pass_op(g, l, "sub", b, t, &t));
    else
        TRY(pass_op(g, l, "neg", t, NULL, &t));
    TRY(by_channel(g, l, s, &s));
    TRY(by_channel(g, l, t, &t));
    TRY(pass_op(g, l, "mul", x, s, &y));
    TRY(pass_op(g, l, "add", y, t, &y));
    graph_replace(g, l->out[0], y);
    graph_remove(g, l);
    return SOL_OK;
}

/* Constants exist in these types only, and element-wise layers need operands of one type. */
static bool one_type(const struct sol_layer *l)
{
    int type = l->in[0]->dtype;
    for (int i = 1; i < l->nin; i++)
        if (l->in[i] && l->in[i]->dtype != type) return false;
    return type == SOL_F32 || type == SOL_F64;
}

sol_status pass_batchnorm(struct sol_graph *g)
{
    bool *prepared = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    mark_prepared(g, prepared);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        if (!is_kind(l, "BatchNorm")) continue;
        bool all = true;
        for (int i = 1; i < l->nin; i++) all &= !l->in[i] || prepared[l->in[i]->id];
        if (all && one_type(l)) TRY(split(g, l));
    }
    return SOL_OK;
}
