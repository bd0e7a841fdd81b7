/* Finds softmax and log-softmax that a model writes out, with d = x - max x: exp(d) / sum exp(d), and d - log(sum
 * exp(d)). Each becomes one layer, which reads x once less and which the attention pass knows. Its gradient is the
 * same: what goes through the maximum cancels. */
#include "passes/passes.h"

#include <math.h>

/* A tensor that has one element for each row of x along an axis. */
struct rows {
    const struct sol_layer *reduce; /* the layer that made it */
    int axis, logs;                 /* logs: how many logarithms were taken */
};

/* The operand of a layer whose result has the same elements in order; NULL: they differ. `fixed`: the gradient does not
 * matter, so it may end here. */
static struct sol_tensor *same_elements(const struct sol_layer *l, bool fixed)
{
    double v;
    if (is_kind(l, "Reshape") || (fixed && is_kind(l, "stop"))) return l->in[0];
    for (int i = 0; i < 2 && fixed && is_kind(l, "max"); i++)
        if (known_scalar(l->in[i], &v) && v == -INFINITY && same_shape(l->in[1 - i], l->out[0])) return l->in[1 - i];
    return NULL;
}

/* Is t, against which x is broadcast, of x's shape with one element along the axis? */
static bool is_row_of(const struct sol_tensor *t, const struct sol_tensor *x, int axis)
{
    if (t->ndim > x->ndim) return false;
    for (int d = 0; d < x->ndim; d++) {
        const int at = d - (x->ndim - t->ndim);
        if ((at < 0 ? 1 : t->dim[at].size) != (d == axis ? 1 : x->dim[d].size)) return false;
    }
    return true;
}

/* Is t a reduction ("Max", "Sum") along one axis of a tensor of y's shape, broadcast against y? */
static bool reduces(struct sol_tensor *t, const char *kind, const struct sol_tensor *y, struct rows *out)
{
    const struct sol_tensor *row = t; /* before it is broadcast; all in front of it has the same elements in order */
    const bool fixed = *kind == 'M';
    struct sol_layer *l;
    *out = (struct rows){0};
    for (bool broadcast = true;;) {
        l = t->role == TENSOR_VALUE ? t->from : NULL;
        if (!l || is_kind(l, kind)) break;
        struct sol_tensor *from = same_elements(l, fixed);
        if (is_kind(l, "Reshape")) broadcast = false;
        if (broadcast && is_kind(l, "Expand")) row = from = l->in[0];
        if (is_kind(l, "log")) out->logs++, from = l->in[0];
        if (!from) return false;
        t = from;
    }
    if (!l || !same_shape(l->in[0], y)) return false;
    const struct opdef_attr *axes = attrs_find(&l->attrs, "axes");
    const int n = axes ? (axes->n < 0 ? 1 : axes->n) : 0;
    if (n != 1 && (n || y->ndim != 1)) return false; /* no axes: all */
    out->axis = (int)attrs_int(&l->attrs, "axes", 0, 0);
    out->axis += out->axis < 0 ? y->ndim : 0;
    out->reduce = l;
    return is_row_of(row, y, out->axis);
}

/* The operand of the layer of this kind that makes t, if `uses` layers read t. */
static struct sol_tensor *operand(const struct sol_tensor *t, const char *kind, int uses)
{
    const bool is = t->role == TENSOR_VALUE && is_kind(t->from, kind) && tensor_uses(t) == uses;
    return is && same_shape(t->from->in[0], t) ? t->from->in[0] : NULL;
}

/* x, of which l is the softmax or its logarithm; NULL: of nothing. */
static struct sol_tensor *softmax_of(const struct sol_layer *l, bool *out_log, int *out_axis)
{
    const bool log = *out_log = is_kind(l, "sub");
    struct rows sum, max;
    if (!log && !is_kind(l, "div")) return NULL;
    if (!reduces(l->in[1], "Sum", l->out[0], &sum) || sum.logs != log) return NULL;
    struct sol_tensor *e = sum.reduce->in[0], *d = operand(e, "exp", log ? 1 : 2), *x;
    if (l->in[0] != (log ? d : e) || !d || !(x = operand(d, "sub", log ? 2 : 1))) return NULL;
    if (!reduces(d->from->in[1], "Max", x, &max) || max.logs || max.reduce->in[0] != x) return NULL;
    *out_axis = sum.axis;
    return max.axis == sum.axis && (x->dtype == SOL_F32 || x->dtype == SOL_F64) ? x : NULL;
}

sol_status softmax_join(struct sol_graph *g)
{
    bool joined = false;
    graph_count_uses(g);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        bool log;
        int axis;
        struct sol_tensor *x = softmax_of(l, &log, &axis), *y;
        if (!x) continue;
        int64_t *at = arena_memdup(g->arena, &(int64_t){axis}, sizeof *at);
        struct opdef_attr a = {.name = "axis", .kind = ATTR_INT, .n = -1, .ints = at};
        const struct new_layer n = {
            .kind = log ? "LogSoftmax" : "Softmax", .nin = 1, .in = &x, .attrs = &(struct attrs){1, &a}};
        TRY(pass_add(g, l, l, &n, &y));
        for (int d = 0; d < y->ndim; d++) y->dim[d].purpose = l->out[0]->dim[d].purpose;
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
        joined = true;
    }
    if (joined) TRY(pass_dead(g)); /* what was joined is no reader of x any more */
    return ctx_check(g->ctx);
}

sol_status pass_softmax(struct sol_graph *g)
{
    return softmax_join(g);
}
