/* Element-wise operators, casts and matrix products. */
#include <math.h>
#include <string.h>

#include "onnx/ops.h"

sol_status op_map(struct node *n)
{
    tensor in3[3] = {nd_in(n, 0), nd_in(n, 1), nd_in(n, 2)};
    nd_give(n, 0, nd_make(n, n->op->kind, n->nin, in3, PLAIN));
    return n->status;
}

/* The divisor y, the second input. An integer 0 is an error of the call, as in ONNX Runtime: the result adds to y an
 * element of a small table of zeros, and y == 0 reads outside of it. */
static tensor divisor(struct node *n, tensor y)
{
    if (n->status || nd_is_float(y)) return y;
    struct data d;
    if (known_data(n, n->in[1], &d)) {
        for (int64_t i = 0; i < d.elements; i++)
            if (!data_int(&d, i)) nd_reject(n, "an integer divided by 0");
        return y;
    }
    const char *label = n->label;
    n->label = arena_printf(n->r->arena, "%s: no divisor may be 0", label);
    tensor places = nd_cast(n, nd_fn2(n, "eq", y, nd_number(n, nd_type_of(y), 0)), SOL_I64);
    tensor first = nd_cast(n, nd_constant(n, SOL_I64, 1, (const int64_t[]){2}, (const int64_t[]){0, 1}), nd_type_of(y));
    tensor zero = nd_make(n, "Embedding", IN(first, nd_fn2(n, "mul", places, nd_number(n, SOL_I64, 2))), PLAIN);
    n->label = label;
    return nd_fn2(n, "add", y, zero);
}

static tensor quotient(struct node *n, tensor x, tensor y)
{
    return nd_fn2(n, nd_is_float(x) ? "div" : "truncdiv", x, divisor(n, y));
}

/* Opset 6: the second input is broadcast only if the node says so, and `axis` determines its dimensions. */
sol_status op_map_axis(struct node *n)
{
    int64_t shape[SOL_MAX_DIMS], wide[SOL_MAX_DIMS];
    tensor x = nd_in(n, 0), y = nd_in(n, 1);
    int r = nd_rank(x), own = nd_shape_of(y, shape);
    bool broadcast = attr_flag(n, "broadcast", 0);
    int64_t axis = attr_int(n, "axis", r - own);
    if (n->status) return n->status;
    if (axis < 0) axis += r;
    if ((!broadcast && own != r) || axis < 0 || axis + own > r) return nd_invalid(n, "the second input does not fit");
    for (int i = 0; i < r; i++) wide[i] = i >= axis && i < axis + own ? shape[i - axis] : 1;
    y = nd_reshape(n, y, r, wide);
    nd_give(n, 0, strcmp(n->op->kind, "div") ? nd_fn2(n, n->op->kind, x, y) : quotient(n, x, y));
    return n->status;
}

/* Sum, Max, Min: of any number of inputs, from the left. */
sol_status op_fold(struct node *n)
{
    tensor y = nd_in(n, 0);
    for (int i = 1; i < n->nin; i++) {
        if (!nd_has(n, i)) return nd_invalid(n, "input %d is missing", i);
        y = nd_fn2(n, n->op->kind, y, nd_in(n, i));
    }
    nd_give(n, 0, y);
    return n->status;
}

sol_status op_mean(struct node *n)
{
    op_fold(n);
    if (n->status) return n->status;
    tensor y = n->out[0].t;
    nd_give(n, 0, n->nin > 1 ? nd_fn2(n, "div", y, nd_number(n, nd_type_of(y), n->nin)) : y);
    return n->status;
}

sol_status op_div(struct node *n)
{
    nd_give(n, 0, quotient(n, nd_in(n, 0), nd_in(n, 1)));
    return n->status;
}

sol_status op_mod(struct node *n)
{
    bool truncated = attr_flag(n, "fmod", 0);
    if (nd_is_float(nd_in(n, 0)) && !truncated && n->version < 28)
        return nd_invalid(n, "fmod must be 1 for type float");
    nd_give(n, 0, nd_fn2(n, truncated ? "fmod" : "remainder", nd_in(n, 0), divisor(n, nd_in(n, 1))));
    return n->status;
}

/* The result has the type of the base. */
sol_status op_pow(struct node *n)
{
    tensor x = nd_in(n, 0), y = nd_in(n, 1);
    enum sol_dtype t = nd_type_of(x), common = nd_is_float(y) && !nd_is_float(x) ? nd_type_of(y) : t;
    nd_give(n, 0, nd_cast(n, nd_fn2(n, "pow", nd_cast(n, x, common), nd_cast(n, y, common)), t));
    return n->status;
}

sol_status op_shift(struct node *n)
{
    bool left = attr_is(n, "direction", "", "LEFT");
    if (!left && !attr_is(n, "direction", "", "RIGHT")) return nd_invalid(n, "direction: expected LEFT or RIGHT");
    nd_give(n, 0, nd_fn2(n, left ? "shift_left" : "shift_right", nd_in(n, 0), nd_in(n, 1)));
    return n->status;
}

sol_status op_is_inf(struct node *n)
{
    bool below = attr_flag(n, "detect_negative", 1), above = attr_flag(n, "detect_positive", 1);
    tensor x = nd_in(n, 0);
    int64_t shape[SOL_MAX_DIMS];
    if (!below && !above)
        nd_give(n, 0, nd_fill(n, SOL_BOOL, nd_shape_of(x, shape), shape, 0));
    else
        nd_give(n, 0, nd_fn1(n, below && above ? "isinf" : below ? "isneginf" : "isposinf", x));
    return n->status;
}

/* -- activations */

/* Those of x and attributes: the row's kind is a function of x and the attribute alpha. */
static double alpha_default(const char *name)
{
    static const struct {
        const char *name;
        double v;
    } defaults[] = {{"leaky_relu", 0.01f}, {"elu", 1}, {"celu", 1}};
    for (int i = 0; i < COUNT_OF(defaults); i++)
        if (!strcmp(defaults[i].name, name)) return defaults[i].v;
    return 0;
}

sol_status op_alpha(struct node *n)
{
    tensor x = nd_in(n, 0);
    double alpha = attr_real(n, "alpha", alpha_default(n->op->kind));
    nd_give(n, 0, nd_fn2(n, n->op->kind, x, nd_number(n, nd_type_of(x), alpha)));
    return n->status;
}

sol_status op_selu(struct node *n)
{
    tensor x = nd_in(n, 0);
    enum sol_dtype t = nd_type_of(x);
    double alpha = attr_real(n, "alpha", 1.67326319217681884765625),
           gamma = attr_real(n, "gamma", 1.05070102214813232421875);
    nd_give(n, 0, nd_fn2(n, "mul", nd_fn2(n, "elu", x, nd_number(n, t, alpha)), nd_number(n, t, gamma)));
    return n->status;
}

sol_status op_prelu(struct node *n)
{
    tensor x = nd_in(n, 0), slope = nd_in(n, 1);
    int64_t shape[SOL_MAX_DIMS];
    if (n->version < 7 && nd_rank(slope) == 1 && nd_rank(x) > 1 && nd_size(slope, 0) != 1) { /* one for each channel */
        for (int i = 0; i < nd_rank(x); i++) shape[i] = i == 1 ? nd_size(slope, 0) : 1;
        slope = nd_reshape(n, slope, nd_rank(x), shape);
    }
    if (!nd_is_float(x)) { /* integers: the row is for real numbers */
        tensor scaled = nd_fn2(n, "mul", x, slope);
        nd_give(n, 0, nd_fn3(n, "where", nd_fn2(n, "gt", x, nd_number(n, nd_type_of(x), 0)), x, scaled));
        return n->status;
    }
    nd_give(n, 0, nd_fn2(n, "prelu", x, nd_expand(n, slope, nd_shape_of(x, shape), shape)));
    return n->status;
}

sol_status op_hard_sigmoid(struct node *n)
{
    tensor x = nd_in(n, 0);
    enum sol_dtype t = nd_type_of(x);
    double alpha = attr_real(n, "alpha", 0.2f), beta = attr_real(n, "beta", 0.5);
    tensor line = nd_fn2(n, "add", nd_fn2(n, "mul", x, nd_number(n, t, alpha)), nd_number(n, t, beta));
    nd_give(n, 0, nd_fn3(n, "clamp", line, nd_number(n, t, 0), nd_number(n, t, 1)));
    return n->status;
}

/* f32 cannot tell log(1 + exp(x)) from x behind 20, nor f64 behind 40, and exp(40) does not overflow. */
static tensor softplus(struct node *n, tensor x)
{
    enum sol_dtype t = nd_type_of(x);
    return nd_make(n, "softplus", IN(x, nd_number(n, t, 1), nd_number(n, t, 40)), PLAIN);
}

sol_status op_softplus(struct node *n)
{
    nd_give(n, 0, softplus(n, nd_in(n, 0)));
    return n->status;
}

sol_status op_gelu(struct node *n)
{
    bool none = attr_is(n, "approximate", "none", "none");
    if (!none && !attr_is(n, "approximate", "none", "tanh")) return nd_invalid(n, "approximate: expected none or tanh");
    nd_give(n, 0, nd_fn1(n, none ? "gelu" : "gelu_tanh", nd_in(n, 0)));
    return n->status;
}

static tensor swish(struct node *n, tensor x, double alpha)
{
    if (alpha == 1) return nd_fn1(n, "silu", x);
    return nd_fn2(n, "mul", x, nd_fn1(n, "sigmoid", nd_fn2(n, "mul", x, nd_number(n, nd_type_of(x), alpha))));
}

sol_status op_swish(struct node *n)
{
    tensor y = swish(n, nd_in(n, 0), attr_real(n, "alpha", 1));
    nd_give(n, 0, nd_has(n, 1) ? nd_fn2(n, "mul", y, nd_in(n, 1)) : y);
    return n->status;
}

sol_status op_thresholded_relu(struct node *n)
{
    tensor x = nd_in(n, 0);
    double alpha = attr_real(n, "alpha", 1);
    nd_give(n, 0, nd_fn3(n, "threshold", x, nd_number(n, nd_type_of(x), alpha), nd_number(n, nd_type_of(x), 0)));
    return n->status;
}

sol_status op_shrink(struct node *n)
{
    tensor x = nd_in(n, 0);
    enum sol_dtype t = nd_type_of(x);
    double edge = attr_real(n, "lambd", 0.5), bias = attr_real(n, "bias", 0);
    enum sol_dtype work = nd_is_float(x) ? t : SOL_F64;
    tensor v = nd_cast(n, x, work), none = nd_number(n, work, 0);
    tensor above = nd_fn3(n, "where", nd_fn2(n, "gt", v, nd_number(n, work, edge)),
                          nd_fn2(n, "sub", v, nd_number(n, work, bias)), none);
    tensor y = nd_fn3(n, "where", nd_fn2(n, "lt", v, nd_number(n, work, -edge)),
                      nd_fn2(n, "add", v, nd_number(n, work, bias)), above);
    nd_give(n, 0, nd_cast(n, y, t));
    return n->status;
}

sol_status op_clip_attributes(struct node *n)
{
    tensor x = nd_in(n, 0);
    double low = attr_real(n, "min", -HUGE_VAL), high = attr_real(n, "max", HUGE_VAL);
    if (attr_given(n, "min")) x = nd_fn2(n, "max", x, nd_number(n, nd_type_of(x), low));
    if (attr_given(n, "max")) x = nd_fn2(n, "min", x, nd_number(n, nd_type_of(x), high));
    nd_give(n, 0, x);
    return n->status;
}

sol_status op_clip(struct node *n)
{
    tensor x = nd_in(n, 0);
    for (int i = 1; i < 3; i++)
        if (nd_has(n, i) && nd_elements(nd_in(n, i)) != 1) return nd_invalid(n, "input %d: expected one value", i);
    tensor low = nd_has(n, 1) ? nd_reshape(n, nd_in(n, 1), 0, NULL) : NULL,
           high = nd_has(n, 2) ? nd_reshape(n, nd_in(n, 2), 0, NULL) : NULL;
    if (low && high)
        x = nd_fn3(n, "clamp", x, low, high);
    else if (low)
        x = nd_fn2(n, "max", x, low);
    else if (high)
        x = nd_fn2(n, "min", x, high);
    nd_give(n, 0, x);
    return n->status;
}

/* -- types */

sol_status op_cast(struct node *n)
{
    enum sol_dtype t;
    attr_skip(n, "saturate"); /* only for types of 8 bits and fewer, which are rejected */
    attr_skip(n, "round_mode");
    int64_t to = attr_int(n, "to", 0);
    if (n->status) return n->status;
    TRY(dtype_read(n->r->ctx, to, "to", &t));
    nd_give(n, 0, nd_cast(n, nd_in(n, 0), t));
    return n->status;
}

sol_status op_cast_like(struct node *n)
{
    attr_skip(n, "saturate");
    attr_skip(n, "round_mode");
    tensor x = nd_in(n, 0), like = nd_in(n, 1);
    nd_give(n, 0, nd_cast(n, x, nd_type_of(like)));
    return n->status;
}

sol_status op_identity(struct node *n)
{
    nd_give_value(n, 0, n->in[0]);
    return n->status;
}

/* Inference: the output is the input, and the mask is true everywhere. */
sol_status op_dropout(struct node *n)
{
    int64_t shape[SOL_MAX_DIMS];
    tensor x = nd_in(n, 0);
    attr_skip(n, "ratio");
    attr_skip(n, "seed");
    if (n->version < 7 && !attr_flag(n, "is_test", 0)) return nd_reject(n, "is_test=0 is not supported");
    if (nd_has(n, 2) && known_int(n, 2, "training_mode", 0)) {
        double ratio = nd_has(n, 1) ? known_real(n, 1, "ratio", 0.5) : 0.5;
        if (n->status) return n->status;
        if (ratio != 0) return nd_reject(n, "training_mode=1 is not supported");
    }
    nd_give(n, 0, x);
    if (nd_wants(n, 1))
        nd_give(n, 1, nd_fill(n, n->version < 10 ? nd_type_of(x) : SOL_BOOL, nd_shape_of(x, shape), shape, 1));
    return n->status;
}

/* -- products */

sol_status op_matmul(struct node *n)
{
    if (!nd_rank(nd_in(n, 0)) || !nd_rank(nd_in(n, 1)))
        return nd_invalid(n, "expected operands with a dimension or more");
    nd_give(n, 0, nd_make(n, "MatMul", IN(nd_in(n, 0), nd_in(n, 1)), PLAIN));
    return n->status;
}

/* alpha * A B + beta * C. The factors are applied to B and C, which are usually weights. */
sol_status op_gemm(struct node *n)
{
    double alpha = attr_real(n, "alpha", 1), beta = attr_real(n, "beta", 1);
    tensor a = nd_in(n, 0), b = nd_in(n, 1), c = nd_has(n, 2) && beta != 0 ? nd_in(n, 2) : NULL;
    attr_skip(n, "broadcast");
    if (nd_rank(a) != 2 || nd_rank(b) != 2) return n->status ? n->status : nd_invalid(n, "expected two matrices");
    enum sol_dtype t = nd_type_of(a);
    if (!nd_is_float(a) && (alpha != floor(alpha) || beta != floor(beta)))
        return nd_reject(n, "alpha and beta with a fraction for integers are not supported");
    if (attr_flag(n, "transA", 0)) a = nd_swap(n, a, 0, 1);
    if (!attr_flag(n, "transB", 0)) b = nd_swap(n, b, 0, 1);
    if (alpha != 1) b = nd_fn2(n, "mul", b, nd_number(n, t, alpha));
    if (c && beta != 1) c = nd_fn2(n, "mul", c, nd_number(n, t, beta));
    int64_t outputs = nd_size(b, 0);
    bool bias = c && nd_elements(c) == outputs && nd_size(c, -1) == outputs && nd_rank(c) > 0;
    if (bias) c = nd_reshape(n, c, 1, &outputs);
    tensor y = nd_make(n, "Linear", bias ? 3 : 2, (tensor[]){a, b, c}, PLAIN);
    if (c && !bias) {
        int64_t shape[SOL_MAX_DIMS];
        if (nd_rank(c) > 2) return nd_invalid(n, "C: expected at most 2 dimensions, got %d", nd_rank(c));
        y = nd_fn2(n, "add", y, nd_expand(n, c, nd_shape_of(y, shape), shape));
    }
    nd_give(n, 0, y);
    return n->status;
}

sol_status op_einsum(struct node *n)
{
    tensor inputs[64];
    const char *equation = attr_text(n, "equation", "");
    if (n->nin > COUNT_OF(inputs)) return nd_reject(n, "expected at most %d inputs, got %d", COUNT_OF(inputs), n->nin);
    for (int i = 0; i < n->nin; i++)
        if (!(inputs[i] = nd_in(n, i))) return n->status ? n->status : nd_invalid(n, "input %d is missing", i);
    nd_give(n, 0, nd_make(n, "Einsum", n->nin, inputs, WITH(TEXT("eq", equation))));
    return n->status;
}
