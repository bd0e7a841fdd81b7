/* Normalisation. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

sol_status op_batch_norm(struct node *n)
{
    tensor x = nd_in(n, 0), scale = nd_in(n, 1), b = nd_in(n, 2), mean = nd_in(n, 3), var = nd_in(n, 4), out[3];
    double e = attr_real(n, "epsilon", 1e-5f), momentum = attr_real(n, "momentum", 0.9f);
    if (n->version < 7 && !attr_flag(n, "is_test", 0)) return nd_reject(n, "is_test=0 is not supported");
    if (!attr_flag(n, "spatial", 1)) return nd_reject(n, "spatial=0 is not supported");
    if (!attr_flag(n, "training_mode", 0)) {
        nd_give(n, 0, nd_make(n, "BatchNorm", IN(x, scale, b, mean, var), WITH(REAL("e", e))));
        return n->status;
    }
    enum sol_dtype t = nd_type_of(mean);
    nd_make_all(n, &(struct nd_layer){"BatchNormTrain", IN(x, scale, b), WITH(REAL("e", e))}, 3, out);
    nd_give(n, 0, out[0]);
    for (int i = 1; i < 3; i++) {
        tensor old = nd_fn2(n, "mul", i == 1 ? mean : var, nd_number(n, t, momentum));
        nd_give(n, i, nd_fn2(n, "add", old, nd_fn2(n, "mul", nd_cast(n, out[i], t), nd_number(n, t, 1 - momentum))));
    }
    return n->status;
}

sol_status op_instance_norm(struct node *n)
{
    double e = attr_real(n, "epsilon", 1e-5f);
    nd_give(n, 0, nd_make(n, "InstanceNorm", IN(nd_in(n, 0), nd_in(n, 1), nd_in(n, 2)), WITH(REAL("e", e))));
    return n->status;
}

/* Scale and bias may be broadcast to the dimensions that are normalised. NULL stays NULL. */
static tensor fit(struct node *n, tensor w, tensor x, int axis)
{
    int64_t shape[MOST];
    int r = nd_shape_of(x, shape);
    return w && nd_rank(w) <= r - axis ? nd_expand(n, w, r - axis, shape + axis) : w;
}

static void layer_stats(struct node *n, tensor x, int axis, double e)
{
    int64_t axes[MOST];
    for (int i = axis; i < nd_rank(x); i++) axes[i - axis] = i;
    int count = nd_rank(x) - axis;
    if (nd_wants(n, 1)) nd_give(n, 1, nd_reduce(n, "Mean", x, count, axes, true));
    if (!nd_wants(n, 2)) return;
    tensor var = nd_make(n, "Var", IN(x), WITH(INTS("axes", count, axes), INT("keep", 1), INT("correction", 0)));
    nd_give(n, 2, nd_fn1(n, "rsqrt", nd_fn2(n, "add", var, nd_number(n, nd_type_of(x), e))));
}

sol_status op_layer_norm(struct node *n)
{
    tensor x = nd_in(n, 0), w = nd_in(n, 1), b = nd_in(n, 2);
    int axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(x));
    double e = attr_real(n, "epsilon", 1e-5f);
    int64_t stash = attr_int(n, "stash_type", 1);
    if (n->status) return n->status;
    if (nd_type_of(x) == SOL_F64 && stash == 1 && (nd_wants(n, 1) || nd_wants(n, 2)))
        return nd_reject(n, "stash_type=1 for type double is not supported where the statistics are outputs");
    bool inside = nd_rank(w) <= nd_rank(x) - axis && nd_rank(b) <= nd_rank(x) - axis;
    tensor y = nd_make(n, "LayerNorm", inside ? 3 : 1, (tensor[]){x, fit(n, w, x, axis), fit(n, b, x, axis)},
                       WITH(INT("n", nd_rank(x) - axis), REAL("e", e)));
    if (!inside) y = nd_fn2(n, "mul", y, w);
    if (!inside && b) y = nd_fn2(n, "add", y, b);
    nd_give(n, 0, y);
    layer_stats(n, x, axis, e);
    return n->status;
}

sol_status op_rms_norm(struct node *n)
{
    tensor x = nd_in(n, 0), w = nd_in(n, 1);
    int axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(x));
    double e = attr_real(n, "epsilon", 1e-5f);
    attr_skip(n, "stash_type"); /* how exactly the square is summed: at least as SOL does for float */
    if (n->status) return n->status;
    bool inside = nd_rank(w) <= nd_rank(x) - axis;
    tensor y = nd_make(n, "RMSNorm", inside ? 2 : 1, (tensor[]){x, fit(n, w, x, axis)},
                       WITH(INT("n", nd_rank(x) - axis), REAL("e", e)));
    nd_give(n, 0, inside ? y : nd_fn2(n, "mul", y, w));
    return n->status;
}

/* Before opset 21 scale and bias are given for each group. */
sol_status op_group_norm(struct node *n)
{
    tensor x = nd_in(n, 0), w[2] = {nd_in(n, 1), nd_in(n, 2)};
    int64_t groups = attr_int(n, "num_groups", 0), channels = nd_size(x, 1);
    double e = attr_real(n, "epsilon", 1e-5f);
    attr_skip(n, "stash_type");
    if (n->status) return n->status;
    if (nd_rank(x) < 2 || groups < 1 || channels % groups)
        return nd_invalid(n, "%lld groups do not divide %lld channels", (long long)groups, (long long)channels);
    for (int i = 0; i < 2 && n->version < 21; i++)
        w[i] = nd_make(n, "RepeatInterleave", IN(w[i]), WITH(INT("axis", 0), INT("n", channels / groups)));
    nd_give(n, 0, nd_make(n, "GroupNorm", IN(x, w[0], w[1]), WITH(INT("g", groups), REAL("e", e))));
    return n->status;
}

sol_status op_lrn(struct node *n)
{
    int64_t count = attr_int(n, "size", 0);
    double alpha = attr_real(n, "alpha", 1e-4f), beta = attr_real(n, "beta", 0.75), bias = attr_real(n, "bias", 1);
    if (count < 1 || count > INT32_MAX) return nd_invalid(n, "size: expected 1 or more, got %lld", (long long)count);
    nd_give(n, 0,
            nd_make(n, "LRN", IN(nd_in(n, 0)),
                    WITH(INT("n", count), REAL("alpha", alpha), REAL("beta", beta), REAL("bias", bias))));
    return n->status;
}

sol_status op_mean_variance_norm(struct node *n)
{
    int64_t axes[MOST] = {0, 2, 3};
    tensor x = nd_in(n, 0);
    int count = attr_ints(n, "axes", MOST, axes);
    if (count < 0) count = 3;
    for (int i = 0; i < count; i++) axes[i] = nd_axis_of(n, axes[i], nd_rank(x));
    enum sol_dtype t = nd_type_of(x);
    tensor centred = nd_fn2(n, "sub", x, nd_reduce(n, "Mean", x, count, axes, true));
    tensor var = nd_make(n, "Var", IN(x), WITH(INTS("axes", count, axes), INT("keep", 1), INT("correction", 0)));
    nd_give(n, 0, nd_fn2(n, "div", centred, nd_fn2(n, "add", nd_fn1(n, "sqrt", var), nd_number(n, t, 1e-9))));
    return n->status;
}

/* Where the norm is 0, so is the result. */
sol_status op_lp_norm(struct node *n)
{
    tensor x = nd_in(n, 0);
    int64_t axis = nd_axis_of(n, attr_int(n, "axis", -1), nd_rank(x)), p = attr_int(n, "p", 2);
    enum sol_dtype t = nd_type_of(x);
    if (p != 1 && p != 2) return nd_invalid(n, "p: expected 1 or 2, got %lld", (long long)p);
    tensor norm = nd_reduce(n, p == 1 ? "L1" : "L2", x, 1, &axis, true);
    tensor safe = nd_fn3(n, "where", nd_fn2(n, "eq", norm, nd_number(n, t, 0)), nd_number(n, t, 1), norm);
    nd_give(n, 0, nd_fn2(n, "div", x, safe));
    return n->status;
}
