/* Finds softmax and log-softmax that a model writes out, with d = x - max x: exp(d) / sum exp(d), and d - log(sum
 * exp(d)). Each becomes one layer, which reads x once less and which the attention pass knows. Its gradient is the
 * same: what goes through the maximum cancels. Where x was transposed, the maximum may be that of x before it, with
 * transposed rows, as vmap of JAX leaves it. */
#include "passes/passes.h"

#include <math.h>

/* A tensor that has one element for each row of x along an axis. */
struct rows {
    const struct sol_layer *reduce; /* the layer that made it */
    int axis, logs;                 /* logs: how many logarithms were taken */
    const struct sol_layer *move;   /* a Permute behind that layer; NULL: there is none */
    bool reshaped;                  /* more than dimensions of size 1 came or went */
    const struct sol_tensor *t;     /* before it is broadcast */
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

/* The dimensions of t that are not of size 1, but for dimension `but`. Returns their number. */
static int wide_dims(const struct sol_tensor *t, int but, int *out)
{
    int n = 0;
    for (int d = 0; d < t->ndim; d++)
        if (d != but && t->dim[d].size != 1) out[n++] = d;
    return n;
}

static bool same_wide_dims(const struct sol_tensor *a, const struct sol_tensor *b)
{
    int of_a[SOL_MAX_DIMS], of_b[SOL_MAX_DIMS];
    const int n = wide_dims(a, -1, of_a);
    bool same = wide_dims(b, -1, of_b) == n;
    for (int i = 0; i < n && same; i++) same = a->dim[of_a[i]].size == b->dim[of_b[i]].size;
    return same;
}

/* For each wide dimension of the result of Permute l, its number among those of the operand. `but`: a dimension of the
 * result that does not count; -1: all do. */
static int wide_order(const struct sol_layer *l, int but, int *out)
{
    int of_x[SOL_MAX_DIMS], of_y[SOL_MAX_DIMS];
    const int moved = but < 0 ? -1 : (int)attrs_int(&l->attrs, "perm", but, 0);
    const int nx = wide_dims(l->in[0], moved, of_x), ny = wide_dims(l->out[0], but, of_y);
    for (int i = 0; i < ny; i++)
        for (int k = 0; k < nx; k++)
            if (of_x[k] == attrs_int(&l->attrs, "perm", of_y[i], 0)) out[i] = k;
    return ny;
}

/* Are these rows of x along the axis, where what they were reduced from is x, or becomes x by a Permute? */
static bool are_rows(const struct rows *r, const struct sol_tensor *x, int axis)
{
    int of_x[SOL_MAX_DIMS], of_rows[SOL_MAX_DIMS];
    if (r->reduce->in[0] == x) return r->axis == axis && !r->move && is_row_of(r->t, x, axis);
    const struct sol_layer *l = x->role == TENSOR_VALUE && is_kind(x->from, "Permute") ? x->from : NULL;
    if (!l || l->in[0] != r->reduce->in[0] || r->reshaped) return false;
    const int n = wide_order(l, axis, of_x);
    for (int i = 0; i < n; i++) of_rows[i] = i;
    bool same = attrs_int(&l->attrs, "perm", axis, 0) == r->axis && (!r->move || wide_order(r->move, -1, of_rows) == n);
    for (int i = 0; i < n && same; i++) same = of_x[i] == of_rows[i];
    return same && is_row_of(r->t, x, axis);
}

/* Is t, which may be broadcast, a reduction ("Max", "Sum") along one axis? */
static bool reduces(struct sol_tensor *t, const char *kind, struct rows *out)
{
    const bool fixed = *kind == 'M';
    struct sol_layer *l;
    *out = (struct rows){.t = t};
    for (bool broadcast = true;;) {
        l = t->role == TENSOR_VALUE ? t->from : NULL;
        if (!l || is_kind(l, kind)) break;
        struct sol_tensor *from = same_elements(l, fixed);
        if (is_kind(l, "Reshape")) broadcast = false, out->reshaped |= !same_wide_dims(l->in[0], t);
        if (broadcast && is_kind(l, "Expand")) out->t = from = l->in[0];
        if (is_kind(l, "log")) out->logs++, from = l->in[0];
        if (is_kind(l, "Permute") && fixed && !out->move) out->move = l, from = l->in[0], broadcast = false;
        if (!from) return false;
        t = from;
    }
    if (!l) return false;
    const int n = l->in[0]->ndim;
    const struct opdef_attr *axes = attrs_find(&l->attrs, "axes");
    const int naxes = axes ? (axes->n < 0 ? 1 : axes->n) : 0;
    if (naxes != 1 && (naxes || n != 1)) return false; /* no axes: all */
    out->axis = (int)attrs_int(&l->attrs, "axes", 0, 0);
    out->axis += out->axis < 0 ? n : 0;
    out->reduce = l;
    return true;
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
    if (!reduces(l->in[1], "Sum", &sum) || sum.logs != log) return NULL;
    struct sol_tensor *e = sum.reduce->in[0], *d = operand(e, "exp", log ? 1 : 2), *x;
    *out_axis = sum.axis;
    if (!same_shape(e, l->out[0]) || !are_rows(&sum, e, sum.axis)) return NULL;
    if (l->in[0] != (log ? d : e) || !d || !(x = operand(d, "sub", log ? 2 : 1))) return NULL;
    if (!reduces(d->from->in[1], "Max", &max) || max.logs || !are_rows(&max, x, sum.axis)) return NULL;
    return x->dtype == SOL_F32 || x->dtype == SOL_F64 ? x : NULL;
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
