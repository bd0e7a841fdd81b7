/* Normalisation. */
#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

sol_status op_batch_norm(struct node *n)
{
    tensor x = in(n, 0), scale = in(n, 1), b = in(n, 2), mean = in(n, 3), var = in(n, 4), out[3];
    double e = attr_real(n, "epsilon", 1e-5f), momentum = attr_real(n, "momentum", 0.9f);
    if (attr_int(n, "spatial", 1) != 1) return refuse(n, "spatial=0 is not supported");
    if (!attr_int(n, "training_mode", 0)) {
        give(n, 0, make(n, "BatchNorm", IN(x, scale, b, mean, var), WITH(REAL("e", e))));
        return n->status;
    }
    enum sol_dtype t = type_of(mean);
    make_all(n, "BatchNormTrain", IN(x, scale, b), WITH(REAL("e", e)), 3, out);
    give(n, 0, out[0]);
    for (int i = 1; i < 3; i++) {
        tensor old = fn2(n, "mul", i == 1 ? mean : var, number(n, t, momentum));
        give(n, i, fn2(n, "add", old, fn2(n, "mul", cast(n, out[i], t), number(n, t, 1 - momentum))));
    }
    return n->status;
}

sol_status op_instance_norm(struct node *n)
{
    double e = attr_real(n, "epsilon", 1e-5f);
    give(n, 0, make(n, "InstanceNorm", IN(in(n, 0), in(n, 1), in(n, 2)), WITH(REAL("e", e))));
    return n->status;
}

/* Scale and bias may be broadcast to the dimensions that are normalised. NULL stays NULL. */
static tensor fit(struct node *n, tensor w, tensor x, int axis)
{
    int64_t shape[MOST];
    int r = shape_of(x, shape);
    return w && rank(w) <= r - axis ? expand(n, w, r - axis, shape + axis) : w;
}

static void layer_stats(struct node *n, tensor x, int axis, double e)
{
    int64_t axes[MOST];
    for (int i = axis; i < rank(x); i++) axes[i - axis] = i;
    int count = rank(x) - axis;
    if (wants(n, 1)) give(n, 1, reduce(n, "Mean", x, count, axes, true));
    if (!wants(n, 2)) return;
    tensor var = make(n, "Var", IN(x), WITH(INTS("axes", count, axes), INT("keep", 1), INT("correction", 0)));
    give(n, 2, fn1(n, "rsqrt", fn2(n, "add", var, number(n, type_of(x), e))));
}

sol_status op_layer_norm(struct node *n)
{
    tensor x = in(n, 0), w = in(n, 1), b = in(n, 2);
    int axis = axis_of(n, attr_int(n, "axis", -1), rank(x));
    double e = attr_real(n, "epsilon", 1e-5f);
    int64_t stash = attr_int(n, "stash_type", 1);
    if (n->status) return n->status;
    if (type_of(x) == SOL_F64 && stash == 1 && (wants(n, 1) || wants(n, 2)))
        return refuse(n, "stash_type=1 for type double is not supported where the statistics are outputs");
    bool inside = rank(w) <= rank(x) - axis && rank(b) <= rank(x) - axis;
    tensor y = make(n, "LayerNorm", inside ? 3 : 1, (tensor[]){x, fit(n, w, x, axis), fit(n, b, x, axis)},
                    WITH(INT("n", rank(x) - axis), REAL("e", e)));
    if (!inside) y = fn2(n, "mul", y, w);
    if (!inside && b) y = fn2(n, "add", y, b);
    give(n, 0, y);
    layer_stats(n, x, axis, e);
    return n->status;
}

sol_status op_rms_norm(struct node *n)
{
    tensor x = in(n, 0), w = in(n, 1);
    int axis = axis_of(n, attr_int(n, "axis", -1), rank(x));
    double e = attr_real(n, "epsilon", 1e-5f);
    attr_skip(n, "stash_type"); /* how exactly the square is summed: at least as SOL does for float */
    if (n->status) return n->status;
    bool inside = rank(w) <= rank(x) - axis;
    tensor y = make(n, "RMSNorm", inside ? 2 : 1, (tensor[]){x, fit(n, w, x, axis)},
                    WITH(INT("n", rank(x) - axis), REAL("e", e)));
    give(n, 0, inside ? y : fn2(n, "mul", y, w));
    return n->status;
}

/* Before opset 21 scale and bias are given for each group. */
sol_status op_group_norm(struct node *n)
{
    tensor x = in(n, 0), w[2] = {in(n, 1), in(n, 2)};
    int64_t groups = attr_int(n, "num_groups", 0), channels = size(x, 1);
    double e = attr_real(n, "epsilon", 1e-5f);
    attr_skip(n, "stash_type");
    if (n->status) return n->status;
    if (rank(x) < 2 || groups < 1 || channels % groups)
        return invalid(n, "%lld groups do not divide %lld channels", (long long)groups, (long long)channels);
    for (int i = 0; i < 2 && n->version < 21; i++)
        w[i] = make(n, "RepeatInterleave", IN(w[i]), WITH(INT("axis", 0), INT("n", channels / groups)));
    give(n, 0, make(n, "GroupNorm", IN(x, w[0], w[1]), WITH(INT("g", groups), REAL("e", e))));
    return n->status;
}

sol_status op_lrn(struct node *n)
{
    int64_t count = attr_int(n, "size", 0);
    double alpha = attr_real(n, "alpha", 1e-4f), beta = attr_real(n, "beta", 0.75), bias = attr_real(n, "bias", 1);
    if (count < 1 || count > INT32_MAX) return invalid(n, "size: expected 1 or more, got %lld", (long long)count);
    give(n, 0,
         make(n, "LRN", IN(in(n, 0)),
              WITH(INT("n", count), REAL("alpha", alpha), REAL("beta", beta), REAL("bias", bias))));
    return n->status;
}

sol_status op_mean_variance_norm(struct node *n)
{
    int64_t axes[MOST] = {0, 2, 3};
    tensor x = in(n, 0);
    int count = attr_ints(n, "axes", MOST, axes);
    if (count < 0) count = 3;
    for (int i = 0; i < count; i++) axes[i] = axis_of(n, axes[i], rank(x));
    enum sol_dtype t = type_of(x);
    tensor centred = fn2(n, "sub", x, reduce(n, "Mean", x, count, axes, true));
    tensor var = make(n, "Var", IN(x), WITH(INTS("axes", count, axes), INT("keep", 1), INT("correction", 0)));
    give(n, 0, fn2(n, "div", centred, fn2(n, "add", fn1(n, "sqrt", var), number(n, t, 1e-9))));
    return n->status;
}

/* Where the norm is 0, so is the result. */
sol_status op_lp_norm(struct node *n)
{
    tensor x = in(n, 0);
    int64_t axis = axis_of(n, attr_int(n, "axis", -1), rank(x)), p = attr_int(n, "p", 2);
    enum sol_dtype t = type_of(x);
    if (p != 1 && p != 2) return invalid(n, "p: expected 1 or 2, got %lld", (long long)p);
    tensor norm = reduce(n, p == 1 ? "L1" : "L2", x, 1, &axis, true);
    tensor safe = fn3(n, "where", fn2(n, "eq", norm, number(n, t, 0)), number(n, t, 1), norm);
    give(n, 0, fn2(n, "div", x, safe));
    return n->status;
}
