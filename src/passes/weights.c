/* Folds scales and shifts into weights: y = conv(x, w, b) * s + t, with s and t by output channel and computed from
 * parameters alone, is a convolution with the weights w*s and the bias b*s + t, which `prepare` computes. The same
 * holds for linear layers and transposed convolutions, and for division and subtraction. Results that are not finite
 * may differ where a scale is 0, infinite or NaN. */
#include "passes/passes.h"

/* The dimensions of the output and of the weights that are the output channels. */
static bool channels_of(const struct sol_layer *l, int *out_dim, int *out_wdim)
{
    if (is_kind(l, "Conv")) {
        *out_dim = 1;
        *out_wdim = 0;
        return true;
    }
    if (is_kind(l, "Linear")) {
        *out_dim = l->out[0]->ndim - 1;
        *out_wdim = 0;
        return true;
    }
    if (is_kind(l, "ConvT") && attrs_int(&l->attrs, "g", 0, 1) == 1) {
        *out_dim = 1;
        *out_wdim = 1;
        return true;
    }
    return false;
}

/* Is t constant along all dimensions but `dim`? out_v then has one element, or as many as that dimension. */
static bool by_channel(struct sol_tensor *t, int dim, struct sol_tensor **out_v)
{
    int ndim = t->ndim;
    struct sol_tensor *v = t->role == TENSOR_VALUE && is_kind(t->from, "Expand") ? t->from->in[0] : t;
    for (int d = 0; d < v->ndim; d++)
        if (v->dim[d].size != 1 && d + ndim - v->ndim != dim) return false;
    *out_v = v;
    return true;
}

static sol_status reshaped(struct sol_graph *g, struct sol_layer *at, struct sol_tensor *v, int ndim, int dim,
                           struct sol_tensor **out_t)
{
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < ndim; d++) shape[d] = d == dim ? tensor_elements(v) : 1;
    struct opdef_attr a = {.name = "shape", .kind = ATTR_INT, .n = ndim, .ints = shape};
    struct attrs attrs = {1, &a};
    return pass_add(g, at, at, &(struct new_layer){.kind = "Reshape", .nin = 1, .in = &v, .attrs = &attrs}, out_t);
}

/* A scalar bias or shift is written out by channel. */
static sol_status spread(struct sol_graph *g, struct sol_layer *at, struct sol_tensor *v, int64_t n,
                         struct sol_tensor **out_t)
{
    struct sol_tensor *t;
    TRY(reshaped(g, at, v, 1, 0, &t));
    *out_t = t;
    if (t->dim[0].size == n) return SOL_OK;
    struct opdef_attr a = {.name = "shape", .kind = ATTR_INT, .n = 1, .ints = &n};
    struct attrs attrs = {1, &a};
    return pass_add(g, at, at, &(struct new_layer){.kind = "Expand", .nin = 1, .in = &t, .attrs = &attrs}, out_t);
}

/* op(y, v): y comes from a layer with weights, v is by channel, which is dimension `dim` of y and `wdim` of the
 * weights.
 */
struct found {
    struct sol_layer *conv;
    struct sol_tensor *v;
    int dim, wdim;
};

static sol_status into_weights(struct sol_graph *g, struct sol_layer *op, const struct found *f)
{
    struct sol_layer *conv = f->conv;
    struct sol_tensor *v = f->v, *w = conv->in[1], *b = conv->nin > 2 ? conv->in[2] : NULL, *s = v, *t, *y;
    int64_t n = conv->out[0]->dim[f->dim].size;
    bool scale = is_kind(op, "mul") || is_kind(op, "div");
    if (scale) {
        TRY(reshaped(g, op, v, w->ndim, f->wdim, &s));
        TRY(pass_op(g, op, op->def->name, w, s, &w));
    }
    if (scale && b) {
        TRY(reshaped(g, op, v, 1, 0, &t));
        TRY(pass_op(g, op, op->def->name, b, t, &b));
    } else if (!scale) {
        TRY(spread(g, op, v, n, &t));
        if (b)
            TRY(pass_op(g, op, op->def->name, b, t, &b));
        else if (is_kind(op, "sub"))
            TRY(pass_op(g, op, "neg", t, NULL, &b));
        else
            b = t;
    }
    struct sol_layer *l;
    TRY(graph_add(g, op,
                  &(struct new_layer){conv->def->name, 3, (struct sol_tensor *[]){conv->in[0], w, b}, &conv->attrs,
                                      conv->name, conv->where},
                  &l));
    y = l->out[0];
    graph_replace(g, op->out[0], y);
    graph_remove(g, op);
    graph_remove(g, conv);
    return SOL_OK;
}

/* Which input of op comes from a layer with weights and has no other reader, while the other input is by channel? */
static bool match(const struct sol_layer *op, const bool *prepared, int ntensors, int side, struct found *out)
{
    struct sol_tensor *y = op->in[side], *other = op->in[1 - side];
    if (y->role != TENSOR_VALUE || !channels_of(y->from, &out->dim, &out->wdim)) return false;
    struct sol_layer *conv = y->from;
    if (!dtype_def(y->dtype)->is_float) return false;
    for (int i = 1; i < conv->nin; i++) {
        const struct sol_tensor *t = conv->in[i];
        if (t && (t->id >= ntensors || !prepared[t->id] || t->dtype != y->dtype)) return false;
    }
    if (!by_channel(other, out->dim, &out->v) || out->v->id >= ntensors || !prepared[out->v->id]) return false;
    if (op->out[0]->ndim != y->ndim) return false;
    for (int d = 0; d < y->ndim; d++)
        if (op->out[0]->dim[d].size != y->dim[d].size) return false;
    out->conv = conv;
    return true;
}

static sol_status sweep(struct sol_graph *g, bool *out_changed)
{
    int n = g->ntensors;
    bool *prepared = NEW_ARRAY(g->arena, bool, n + 1);
    mark_prepared(g, prepared);
    graph_count_uses(g);
    *out_changed = false;
    for (struct sol_layer *op = g->first, *next; op; op = next) {
        next = op->next;
        bool either = is_kind(op, "mul") || is_kind(op, "add"), left = is_kind(op, "sub") || is_kind(op, "div");
        if (!either && !left) continue;
        struct found f;
        for (int side = 0; side < (either ? 2 : 1); side++) {
            if (op->in[side]->id >= n || tensor_uses(op->in[side]) != 1) continue;
            if (!match(op, prepared, n, side, &f)) continue;
            TRY(into_weights(g, op, &f));
            *out_changed = true;
            break;
        }
    }
    return SOL_OK;
}

/* Each sweep folds one operation behind a layer; a batch-norm consists of two. */
sol_status pass_weights(struct sol_graph *g)
{
    bool changed = true;
    for (int i = 0; i < 8 && changed; i++) TRY(sweep(g, &changed));
    return SOL_OK;
}
