/* Reductions, running sums, the largest and the sorted. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

/* An integer type is wide enough for sums in its own type alone; a mean is rounded towards zero, as a division would
 * be. */
static tensor reduce_typed(struct node *n, const char *kind, tensor x, int count, const int64_t *axes, bool keep)
{
    enum sol_dtype t = type_of(x);
    if (t == SOL_BOOL) return reduce(n, !strcmp(kind, "Max") ? "Any" : "All", x, count, axes, keep);
    bool fraction =
        !strcmp(kind, "Mean") || !strcmp(kind, "L2") || !strcmp(kind, "LogSum") || !strcmp(kind, "LogSumExp");
    if (is_float(x) || !fraction) return reduce(n, kind, x, count, axes, keep);
    return cast(n, reduce(n, kind, cast(n, x, SOL_F64), count, axes, keep), t);
}

static sol_status reduce_by(struct node *n, int count, int64_t *axes)
{
    tensor x = in(n, 0);
    bool keep = attr_int(n, "keepdims", 1), nothing = attr_int(n, "noop_with_empty_axes", 0);
    if (n->status) return n->status;
    if (count <= 0 && nothing) { /* each element is a set of its own */
        int64_t shape[MOST + 1];
        int r = shape_of(x, shape);
        if (r == MOST) return refuse(n, "expected at most %d dimensions, got %d", MOST - 1, r);
        give(n, 0, reduce_typed(n, n->op->kind, unsqueeze(n, x, r), 1, (int64_t[]){r}, false));
        return n->status;
    }
    if (count <= 0) {
        count = rank(x);
        for (int i = 0; i < count; i++) axes[i] = i;
    }
    for (int i = 0; i < count; i++) axes[i] = axis_of(n, axes[i], rank(x));
    give(n, 0,
         count ? reduce_typed(n, n->op->kind, x, count, axes, keep)
               : squeeze(n, reduce_typed(n, n->op->kind, unsqueeze(n, x, 0), 1, (int64_t[]){0}, true), 0));
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
    return reduce_by(n, has(n, 1) ? known_ints(n, 1, "axes", MOST, axes) : -1, axes);
}

sol_status op_arg(struct node *n)
{
    tensor x = in(n, 0);
    int axis = axis_of(n, attr_int(n, "axis", 0), rank(x));
    bool keep = attr_int(n, "keepdims", 1), last = attr_int(n, "select_last_index", 0);
    give(n, 0, make(n, n->op->kind, IN(x), WITH(INT("axis", axis), INT("keep", keep), INT("last", last))));
    return n->status;
}

sol_status op_scan(struct node *n)
{
    tensor x = in(n, 0);
    int axis = axis_of(n, known_int(n, 1, "axis", 0), rank(x));
    bool exclusive = attr_int(n, "exclusive", 0), reverse = attr_int(n, "reverse", 0);
    give(n, 0,
         make(n, n->op->kind, IN(x), WITH(INT("axis", axis), INT("exclusive", exclusive), INT("reverse", reverse))));
    return n->status;
}

sol_status op_top_k(struct node *n)
{
    tensor x = in(n, 0), out[2];
    int axis = axis_of(n, attr_int(n, "axis", -1), rank(x));
    int64_t k = n->version < 10 ? attr_int(n, "k", 0) : known_int(n, 1, "k", 0);
    bool largest = attr_int(n, "largest", 1);
    attr_skip(n, "sorted"); /* sorted=0 leaves the order open */
    if (n->version < 10 && n->nin > 1) return invalid(n, "expected one input");
    if (n->status) return n->status;
    if (k < 0 || k > size(x, axis))
        return invalid(n, "k: expected 0 to %lld, got %lld", (long long)size(x, axis), (long long)k);
    make_all(n, "TopK", IN(x), WITH(INT("k", k), INT("axis", axis), INT("largest", largest)), 2, out);
    give(n, 0, out[0]);
    give(n, 1, out[1]);
    return n->status;
}

/* -- softmax: opsets before 13 take everything from the axis on as one dimension */

static tensor softmax(struct node *n, tensor x, int axis)
{
    if (strcmp(n->op->kind, "Hardmax")) return make(n, n->op->kind, IN(x), WITH(INT("axis", axis)));
    tensor at = make(n, "ArgMax", IN(x), WITH(INT("axis", axis)));
    tensor y = make(n, "OneHot", IN(at), WITH(INT("n", size(x, axis)), TEXT("to", dtype_def(type_of(x))->name)));
    return move_axis(n, y, -1, axis);
}

sol_status op_softmax(struct node *n)
{
    tensor x = in(n, 0);
    int axis = axis_of(n, attr_int(n, "axis", -1), rank(x));
    give(n, 0, softmax(n, x, axis));
    return n->status;
}

sol_status op_softmax_flat(struct node *n)
{
    int64_t shape[MOST];
    tensor x = in(n, 0);
    int r = shape_of(x, shape), axis = axis_of(n, attr_int(n, "axis", 1), r);
    if (n->status) return n->status;
    tensor flat = reshape(n, x, 2, (int64_t[]){product(shape, 0, axis), product(shape, axis, r)});
    give(n, 0, reshape(n, softmax(n, flat, 1), r, shape));
    return n->status;
}
