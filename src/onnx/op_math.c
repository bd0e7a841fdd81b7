/* Element-wise operators, casts and matrix products. */
#include <math.h>
#include <string.h>

#include "onnx/ops.h"

sol_status op_map(struct node *n)
{
    tensor in3[3] = {in(n, 0), in(n, 1), in(n, 2)};
    give(n, 0, make(n, n->op->kind, n->nin, in3, PLAIN));
    return n->status;
}

/* Sum, Max, Min: of any number of inputs, from the left. */
sol_status op_fold(struct node *n)
{
    tensor y = in(n, 0);
    for (int i = 1; i < n->nin; i++) {
        if (!has(n, i)) return invalid(n, "input %d is missing", i);
        y = fn2(n, n->op->kind, y, in(n, i));
    }
    give(n, 0, y);
    return n->status;
}

sol_status op_mean(struct node *n)
{
    op_fold(n);
    if (n->status) return n->status;
    tensor y = n->out[0].t;
    give(n, 0, n->nin > 1 ? fn2(n, "div", y, number(n, type_of(y), n->nin)) : y);
    return n->status;
}

sol_status op_div(struct node *n)
{
    give(n, 0, fn2(n, is_float(in(n, 0)) ? "div" : "truncdiv", in(n, 0), in(n, 1)));
    return n->status;
}

sol_status op_mod(struct node *n)
{
    bool truncated = attr_int(n, "fmod", 0);
    if (is_float(in(n, 0)) && !truncated && n->version < 28) return invalid(n, "fmod must be 1 for type float");
    give(n, 0, fn2(n, truncated ? "fmod" : "remainder", in(n, 0), in(n, 1)));
    return n->status;
}

/* The result has the type of the base. */
sol_status op_pow(struct node *n)
{
    tensor x = in(n, 0), y = in(n, 1);
    enum sol_dtype t = type_of(x), common = is_float(y) && !is_float(x) ? type_of(y) : t;
    give(n, 0, cast(n, fn2(n, "pow", cast(n, x, common), cast(n, y, common)), t));
    return n->status;
}

sol_status op_shift(struct node *n)
{
    bool left = attr_is(n, "direction", "", "LEFT");
    if (!left && !attr_is(n, "direction", "", "RIGHT")) return invalid(n, "direction: expected LEFT or RIGHT");
    give(n, 0, fn2(n, left ? "shift_left" : "shift_right", in(n, 0), in(n, 1)));
    return n->status;
}

sol_status op_is_inf(struct node *n)
{
    bool below = attr_int(n, "detect_negative", 1), above = attr_int(n, "detect_positive", 1);
    tensor x = in(n, 0);
    int64_t shape[SOL_MAX_DIMS];
    if (!below && !above)
        give(n, 0, fill(n, SOL_BOOL, shape_of(x, shape), shape, 0));
    else
        give(n, 0, fn1(n, below && above ? "isinf" : below ? "isneginf" : "isposinf", x));
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
    tensor x = in(n, 0);
    double alpha = attr_real(n, "alpha", alpha_default(n->op->kind));
    give(n, 0, fn2(n, n->op->kind, x, number(n, type_of(x), alpha)));
    return n->status;
}

sol_status op_selu(struct node *n)
{
    tensor x = in(n, 0);
    enum sol_dtype t = type_of(x);
    double alpha = attr_real(n, "alpha", 1.67326319217681884765625),
           gamma = attr_real(n, "gamma", 1.05070102214813232421875);
    give(n, 0, fn2(n, "mul", fn2(n, "elu", x, number(n, t, alpha)), number(n, t, gamma)));
    return n->status;
}

sol_status op_prelu(struct node *n)
{
    tensor x = in(n, 0), slope = in(n, 1);
    int64_t shape[SOL_MAX_DIMS];
    if (!is_float(x)) { /* integers: the row is for real numbers */
        tensor scaled = fn2(n, "mul", x, slope);
        give(n, 0, fn3(n, "where", fn2(n, "gt", x, number(n, type_of(x), 0)), x, scaled));
        return n->status;
    }
    give(n, 0, fn2(n, "prelu", x, expand(n, slope, shape_of(x, shape), shape)));
    return n->status;
}

sol_status op_hard_sigmoid(struct node *n)
{
    tensor x = in(n, 0);
    enum sol_dtype t = type_of(x);
    double alpha = attr_real(n, "alpha", 0.2f), beta = attr_real(n, "beta", 0.5);
    tensor line = fn2(n, "add", fn2(n, "mul", x, number(n, t, alpha)), number(n, t, beta));
    give(n, 0, fn3(n, "clamp", line, number(n, t, 0), number(n, t, 1)));
    return n->status;
}

/* f32 cannot tell log(1 + exp(x)) from x behind 20, nor f64 behind 40, and exp(40) does not overflow. */
static tensor softplus(struct node *n, tensor x)
{
    enum sol_dtype t = type_of(x);
    return make(n, "softplus", IN(x, number(n, t, 1), number(n, t, 40)), PLAIN);
}

sol_status op_softplus(struct node *n)
{
    give(n, 0, softplus(n, in(n, 0)));
    return n->status;
}

sol_status op_gelu(struct node *n)
{
    bool none = attr_is(n, "approximate", "none", "none");
    if (!none && !attr_is(n, "approximate", "none", "tanh")) return invalid(n, "approximate: expected none or tanh");
    give(n, 0, fn1(n, none ? "gelu" : "gelu_tanh", in(n, 0)));
    return n->status;
}

static tensor swish(struct node *n, tensor x, double alpha)
{
    if (alpha == 1) return fn1(n, "silu", x);
    return fn2(n, "mul", x, fn1(n, "sigmoid", fn2(n, "mul", x, number(n, type_of(x), alpha))));
}

sol_status op_swish(struct node *n)
{
    tensor y = swish(n, in(n, 0), attr_real(n, "alpha", 1));
    give(n, 0, has(n, 1) ? fn2(n, "mul", y, in(n, 1)) : y);
    return n->status;
}

sol_status op_thresholded_relu(struct node *n)
{
    tensor x = in(n, 0);
    double alpha = attr_real(n, "alpha", 1);
    give(n, 0, fn3(n, "threshold", x, number(n, type_of(x), alpha), number(n, type_of(x), 0)));
    return n->status;
}

sol_status op_shrink(struct node *n)
{
    tensor x = in(n, 0);
    enum sol_dtype t = type_of(x);
    double edge = attr_real(n, "lambd", 0.5), bias = attr_real(n, "bias", 0);
    enum sol_dtype work = is_float(x) ? t : SOL_F64;
    tensor v = cast(n, x, work), none = number(n, work, 0);
    tensor above =
        fn3(n, "where", fn2(n, "gt", v, number(n, work, edge)), fn2(n, "sub", v, number(n, work, bias)), none);
    tensor y = fn3(n, "where", fn2(n, "lt", v, number(n, work, -edge)), fn2(n, "add", v, number(n, work, bias)), above);
    give(n, 0, cast(n, y, t));
    return n->status;
}

sol_status op_clip_attributes(struct node *n)
{
    tensor x = in(n, 0);
    double low = attr_real(n, "min", -HUGE_VAL), high = attr_real(n, "max", HUGE_VAL);
    if (attr_given(n, "min")) x = fn2(n, "max", x, number(n, type_of(x), low));
    if (attr_given(n, "max")) x = fn2(n, "min", x, number(n, type_of(x), high));
    give(n, 0, x);
    return n->status;
}

sol_status op_clip(struct node *n)
{
    tensor x = in(n, 0);
    for (int i = 1; i < 3; i++)
        if (has(n, i) && elements(in(n, i)) != 1) return invalid(n, "input %d: expected one value", i);
    tensor low = has(n, 1) ? reshape(n, in(n, 1), 0, NULL) : NULL,
           high = has(n, 2) ? reshape(n, in(n, 2), 0, NULL) : NULL;
    if (low && high)
        x = fn3(n, "clamp", x, low, high);
    else if (low)
        x = fn2(n, "max", x, low);
    else if (high)
        x = fn2(n, "min", x, high);
    give(n, 0, x);
    return n->status;
}

/* -- types */

sol_status op_cast(struct node *n)
{
    enum sol_dtype t;
    attr_skip(n, "saturate"); /* only for types of 8 bits and fewer, which are refused */
    attr_skip(n, "round_mode");
    int64_t to = attr_int(n, "to", 0);
    if (n->status) return n->status;
    TRY(dtype_read(n->r->ctx, to, "to", &t));
    give(n, 0, cast(n, in(n, 0), t));
    return n->status;
}

sol_status op_cast_like(struct node *n)
{
    attr_skip(n, "saturate");
    attr_skip(n, "round_mode");
    tensor x = in(n, 0), like = in(n, 1);
    give(n, 0, cast(n, x, type_of(like)));
    return n->status;
}

sol_status op_identity(struct node *n)
{
    if (has(n, 0) && n->in[0]->data && !n->in[0]->t)
        n->out[0].data = n->in[0]->data;
    else
        give(n, 0, in(n, 0));
    return n->status;
}

/* In inference the output is the input and the mask is true everywhere. */
sol_status op_dropout(struct node *n)
{
    int64_t shape[SOL_MAX_DIMS];
    tensor x = in(n, 0);
    attr_skip(n, "ratio");
    attr_skip(n, "seed");
    if (has(n, 2) && known_int(n, 2, "training_mode", 0)) {
        double ratio = has(n, 1) ? known_real(n, 1, "ratio", 0.5) : 0.5;
        if (n->status) return n->status;
        if (ratio != 0) return refuse(n, "training_mode=1 is not supported");
    }
    give(n, 0, x);
    if (wants(n, 1)) give(n, 1, fill(n, n->version < 10 ? type_of(x) : SOL_BOOL, shape_of(x, shape), shape, 1));
    return n->status;
}

/* -- products */

sol_status op_matmul(struct node *n)
{
    if (!rank(in(n, 0)) || !rank(in(n, 1))) return invalid(n, "expected operands with a dimension or more");
    give(n, 0, make(n, "MatMul", IN(in(n, 0), in(n, 1)), PLAIN));
    return n->status;
}

/* alpha * A B + beta * C. Factors go to B and C, which are weights as a rule. */
sol_status op_gemm(struct node *n)
{
    double alpha = attr_real(n, "alpha", 1), beta = attr_real(n, "beta", 1);
    tensor a = in(n, 0), b = in(n, 1), c = has(n, 2) && beta != 0 ? in(n, 2) : NULL;
    attr_skip(n, "broadcast");
    if (rank(a) != 2 || rank(b) != 2) return n->status ? n->status : invalid(n, "expected two matrices");
    enum sol_dtype t = type_of(a);
    if (!is_float(a) && (alpha != floor(alpha) || beta != floor(beta)))
        return refuse(n, "alpha and beta with a fraction for integers are not supported");
    if (attr_int(n, "transA", 0)) a = swap(n, a, 0, 1);
    if (!attr_int(n, "transB", 0)) b = swap(n, b, 0, 1);
    if (alpha != 1) b = fn2(n, "mul", b, number(n, t, alpha));
    if (c && beta != 1) c = fn2(n, "mul", c, number(n, t, beta));
    int64_t outputs = size(b, 0);
    bool bias = c && elements(c) == outputs && size(c, -1) == outputs && rank(c) > 0;
    if (bias) c = reshape(n, c, 1, &outputs);
    tensor y = make(n, "Linear", bias ? 3 : 2, (tensor[]){a, b, c}, PLAIN);
    if (c && !bias) {
        int64_t shape[SOL_MAX_DIMS];
        if (rank(c) > 2) return invalid(n, "C: expected at most 2 dimensions, got %d", rank(c));
        y = fn2(n, "add", y, expand(n, c, shape_of(y, shape), shape));
    }
    give(n, 0, y);
    return n->status;
}

sol_status op_einsum(struct node *n)
{
    tensor inputs[64];
    const char *equation = attr_text(n, "equation", "");
    if (n->nin > COUNT_OF(inputs)) return refuse(n, "expected at most %d inputs, got %d", COUNT_OF(inputs), n->nin);
    for (int i = 0; i < n->nin; i++)
        if (!(inputs[i] = in(n, i))) return n->status ? n->status : invalid(n, "input %d is missing", i);
    give(n, 0, make(n, "Einsum", n->nin, inputs, WITH(TEXT("eq", equation))));
    return n->status;
}
