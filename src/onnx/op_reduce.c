/* Reductions, running sums, arg max, sorting. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

/* The maximum of no elements is the smallest value of the type, and vice versa. */
static tensor of_nothing(struct node *n, bool largest, tensor x, int count, const int64_t *axes, bool keep)
{
    int64_t shape[MOST], to[MOST];
    int r = nd_shape_of(x, shape), k = 0;
    enum sol_dtype t = nd_type_of(x);
    double v = largest ? -HUGE_VAL : HUGE_VAL;
    int bits = 8 * dtype_def(t)->bytes - dtype_def(t)->is_signed;
    if (bits > 53) nd_reject(n, "the %s of nothing is not supported for type %s", n->op->kind, dtype_name(t));
    if (t == SOL_BOOL)
        v = !largest;
    else if (!nd_is_float(x))
        v = largest ? -(double)dtype_def(t)->is_signed * ldexp(1, bits) : ldexp(1, bits) - 1;
    for (int i = 0; i < r; i++) {
        bool gone = false;
        for (int a = 0; a < count; a++) gone |= axes[a] == i;
        if (!gone || keep) to[k++] = gone ? 1 : shape[i];
    }
    return nd_fill(n, t, k, to, v);
}

/* An integer type is wide enough for sums in its own type alone; a mean is rounded towards zero, as a division would
 * be. */
static tensor reduce_typed(struct node *n, const char *kind, tensor x, int count, const int64_t *axes, bool keep)
{
    enum sol_dtype t = nd_type_of(x);
    bool largest = !strcmp(kind, "Max");
    if (!n->status && !nd_elements(x) && (largest || !strcmp(kind, "Min")))
        return of_nothing(n, largest, x, count, axes, keep);
    if (t == SOL_BOOL) return nd_reduce(n, largest ? "Any" : "All", x, count, axes, keep);
    bool fraction =
        !strcmp(kind, "Mean") || !strcmp(kind, "L2") || !strcmp(kind, "LogSum") || !strcmp(kind, "LogSumExp");
    if (nd_is_float(x) || !fraction) return nd_reduce(n, kind, x, count, axes, keep);
    return nd_cast(n, nd_reduce(n, kind, nd_cast(n, x, SOL_F64), count, axes, keep), t);
}

static sol_status reduce_by(struct node *n, int count, int64_t *axes)
{
    tensor x = nd_in(n, 0);
    bool keep = attr_flag(n, "keepdims", 1), nothing = attr_flag(n, "noop_with_empty_axes", 0);
    if (n->status) return n->status;
    if (count <= 0 && nothing) { /* each element is a set of its own */
        int64_t shape[MOST + 1];
        int r = nd_shape_of(x, shape);
        if (r == MOST) return nd_reject(n, "expected at most %d dimensions, got %d", MOST - 1, r);
        nd_give(n, 0, reduce_typed(n, n->op->kind, nd_unsqueeze(n, x, r), 1, (int64_t[]){r}, false));
        return n->status;
    }
    if (count <= 0) {
        count = nd_rank(x);
        for (int i = 0; i < count; i++) axes[i] = i;
    }
    for (int i = 0; i < count; i++) axes[i] = nd_axis_of(n, axes[i], nd_rank(x));
    nd_give(n, 0,
            count ? reduce_typed(n, n->op->kind, x, count, axes, keep)
                  : nd_squeeze(n, reduce_typed(n, n->op->kind, nd_unsqueeze(n, x, 0), 1, (int64_t[]){0}, true), 0));
    return n->status;
}

sol_status op_reduce_attributes(struct node *n)
{
    int64_t axes[MOST];
    return reduce_by(n, attr_ints(n, "axes", MOST, axes), axes);
}

sol_status op_reduce(struct node *n)
{
    int64_t axes[MOST];
    return reduce_by(n, nd_has(n, 1) ? known_ints(n, 1, "axes", MOST, axes) : -1, axes);
}

sol_status op_arg(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", 0), nd_rank(x));
    bool keep = attr_flag(n, "keepdims", 1), last = attr_flag(n, "select_last_index", 0);
    nd_give(n, 0, nd_make(n, n->op->kind, IN(x), WITH(INT("axis", axis), INT("keep", keep), INT("last", last))));
    return n->status;
}

sol_status op_scan(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, known_int(n, 1, "axis", 0), nd_rank(x));
    bool exclusive = attr_flag(n, "exclusive", 0), reverse = attr_flag(n, "reverse", 0);
    nd_give(
        n, 0,
        nd_make(n, n->op->kind, IN(x), WITH(INT("axis", axis), INT("exclusive", exclusive), INT("reverse", reverse))));
    return n->status;
}

sol_status op_top_k(struct node *n)
{
    tensor x = nd_in(n, 0), out[2];
    int axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(x));
    int64_t k = n->version < 10 ? attr_int(n, "k", 0) : known_size(n, 1, "k", 0);
    bool largest = attr_flag(n, "largest", 1);
    attr_skip(n, "sorted"); /* sorted=0 leaves the order open */
    if (n->version < 10 && n->nin > 1) return nd_invalid(n, "expected one input");
    if (n->status) return n->status;
    if (k < 0 || (nd_above(k, nd_size(x, axis)) && !size_varies(nd_size(x, axis))))
        return nd_invalid(n, "k: expected 0 to %lld, got %lld", (long long)nd_size(x, axis), (long long)k);
    nd_make_all(n, &(struct nd_layer){"TopK", IN(x), WITH(INT("k", k), INT("axis", axis), INT("largest", largest))}, 2,
                out);
    nd_give(n, 0, out[0]);
    nd_give(n, 1, out[1]);
    return n->status;
}

sol_status op_det(struct node *n)
{
    tensor out[3]; /* and its LU factors */
    nd_make_all(n, &(struct nd_layer){"Det", IN(nd_in(n, 0)), PLAIN}, COUNT_OF(out), out);
    nd_give(n, 0, out[0]);
    return n->status;
}

/* -- softmax: opsets before 13 take everything from the axis on as one dimension */

static tensor softmax(struct node *n, tensor x, int axis)
{
    if (strcmp(n->op->kind, "Hardmax")) return nd_make(n, n->op->kind, IN(x), WITH(INT("axis", axis)));
    tensor at = nd_make(n, "ArgMax", IN(x), WITH(INT("axis", axis)));
    tensor y =
        nd_make(n, "OneHot", IN(at), WITH(INT("n", nd_size(x, axis)), TEXT("to", dtype_def(nd_type_of(x))->name)));
    return nd_move_axis(n, y, -1, axis);
}

sol_status op_softmax(struct node *n)
{
    tensor x = nd_in(n, 0);
    int axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(x));
    nd_give(n, 0, softmax(n, x, axis));
    return n->status;
}

sol_status op_softmax_flat(struct node *n)
{
    int64_t shape[MOST];
    tensor x = nd_in(n, 0);
    int r = nd_shape_of(x, shape), axis = nd_axis_of(n, attr_int(n, "axis", 1), r);
    if (n->status) return n->status;
    tensor flat = nd_reshape(n, x, 2, (int64_t[]){nd_product(shape, 0, axis), nd_product(shape, axis, r)});
    nd_give(n, 0, nd_reshape(n, softmax(n, flat, 1), r, shape));
    return n->status;
}
