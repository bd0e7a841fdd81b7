/* Attention and what stands around it. */
#include <math.h>

#include "onnx/ops.h"

#define MOST SOL_MAX_DIMS

struct attention {
    tensor q, k, v; /* [B heads T D], past included */
    int64_t past;   /* keys in front of the first query's own */
    double scale, softcap;
    bool causal, flat;   /* flat: 3-D inputs and output */
    int64_t left, right; /* window, -1: open */
    int64_t mode;        /* what output 3 is */
};

/* [B T heads*D] to [B heads T D]; 4-D stays. */
static tensor by_heads(struct node *n, tensor x, int64_t heads)
{
    if (nd_rank(x) == 4) return x;
    if (!nd_fixed(n, nd_size(x, 2), "the hidden size")) return NULL;
    if (nd_rank(x) != 3 || heads < 1 || nd_size(x, 2) % heads) {
        nd_invalid(n, "a hidden size of %lld does not split into %lld heads", (long long)nd_size(x, -1),
                   (long long)heads);
        return NULL;
    }
    return nd_swap(n, nd_reshape(n, x, 4, (int64_t[]){nd_size(x, 0), nd_size(x, 1), heads, nd_size(x, 2) / heads}), 1,
                   2);
}

static tensor from_heads(struct node *n, tensor x)
{
    tensor t = nd_swap(n, x, 1, 2);
    return nd_reshape(n, t, 3, (int64_t[]){nd_size(t, 0), nd_size(t, 1), size_mul(nd_size(t, 2), nd_size(t, 3))});
}

static void read_attention(struct node *n, struct attention *a)
{
    tensor q = nd_in(n, 0), k = nd_in(n, 1), v = nd_in(n, 2), past_k = nd_in(n, 4), past_v = nd_in(n, 5);
    int64_t q_heads = attr_int(n, "q_num_heads", 0), kv_heads = attr_int(n, "kv_num_heads", 0);
    a->flat = nd_rank(q) == 3;
    if (nd_rank(k) != nd_rank(q) || nd_rank(v) != nd_rank(q) || !past_k != !past_v)
        nd_invalid(n, "Q, K, V and their past do not fit");
    a->q = by_heads(n, q, q_heads);
    a->k = by_heads(n, k, kv_heads);
    a->v = by_heads(n, v, kv_heads);
    if (past_k) {
        a->past = nd_size(past_k, 2);
        a->k = nd_concat(n, 2, IN(past_k, a->k));
        a->v = nd_concat(n, 2, IN(past_v, a->v));
    }
    nd_fixed(n, nd_size(a->q, 3), "the size of a head");
    nd_fixed(n, nd_size(a->q, 1), "the number of heads");
    nd_fixed(n, nd_size(a->k, 1), "the number of heads");
    a->scale = attr_real(n, "scale", 1 / sqrt((double)MAX(1, nd_size(a->q, 3))));
    a->softcap = attr_real(n, "softcap", 0);
    a->causal = attr_flag(n, "is_causal", 0);
    a->left = attr_int(n, "left_window_size", -1);
    a->right = attr_int(n, "right_window_size", -1);
    a->mode = attr_int(n, "qk_matmul_output_mode", 0);
    if (!n->status && (nd_size(a->q, 1) % MAX(1, nd_size(a->k, 1)) || a->mode < 0 || a->mode > 3))
        nd_invalid(n, "heads or mode do not fit");
}

/* A bool tensor of the keys that each query may attend to by position; NULL: all. `lengths` is [B] or NULL. */
static tensor visible(struct node *n, const struct attention *a, tensor lengths)
{
    int64_t queries = nd_size(a->q, 2), keys = nd_size(a->k, 2);
    tensor i = nd_reshape(n, nd_make(n, "Range", 0, NULL, WITH(INT("n", queries), INT("start", a->past))), 2,
                          (int64_t[]){queries, 1});
    tensor j = nd_make(n, "Range", 0, NULL, WITH(INT("n", keys))), seen = NULL;
    if (lengths) { /* a cache: the queries are the last of the keys that count */
        lengths = nd_reshape(n, nd_cast(n, lengths, SOL_I64), 4, (int64_t[]){nd_elements(lengths), 1, 1, 1});
        if (!nd_has(n, 4)) i = nd_fn2(n, "sub", nd_fn2(n, "add", i, lengths), nd_a_size(n, SOL_I64, queries));
        seen = nd_fn2(n, "lt", j, lengths);
    }
    tensor tests[3] = {0};
    if (a->causal) tests[0] = nd_fn2(n, "le", j, i);
    if (a->left >= 0) tests[1] = nd_fn2(n, "le", nd_fn2(n, "sub", i, j), nd_number(n, SOL_I64, (double)a->left));
    if (a->right >= 0) tests[2] = nd_fn2(n, "le", nd_fn2(n, "sub", j, i), nd_number(n, SOL_I64, (double)a->right));
    for (int k = 0; k < 3; k++)
        if (tests[k]) seen = seen ? nd_fn2(n, "logical_and", seen, tests[k]) : tests[k];
    return seen;
}

/* A mask may have fewer keys; the remaining keys are masked. */
static tensor read_mask(struct node *n, const struct attention *a)
{
    int64_t p[MOST] = {0}, q[MOST] = {0}, keys = nd_size(a->k, 2);
    tensor mask = nd_in(n, 3);
    bool is_bool = nd_type_of(mask) == SOL_BOOL;
    if (mask && !nd_rank(mask)) nd_invalid(n, "the mask has no dimensions");
    if (!mask || n->status || nd_size(mask, -1) == keys || (nd_size(mask, -1) == 1 && n->version < 24)) return mask;
    q[nd_rank(mask) - 1] = size_sub(keys, nd_size(mask, -1));
    if (q[nd_rank(mask) - 1] < 0) nd_invalid(n, "the mask is wider than there are keys");
    return nd_make(n, "Pad", IN(mask),
                   WITH(INTS("p", nd_rank(mask), p), INTS("q", nd_rank(mask), q), REAL("v", is_bool ? 0 : -HUGE_VAL)));
}

static tensor mask_as_number(struct node *n, tensor mask, enum sol_dtype t)
{
    if (!mask || nd_type_of(mask) != SOL_BOOL) return mask;
    return nd_fn3(n, "where", mask, nd_number(n, t, 0), nd_number(n, t, -HUGE_VAL));
}

/* Explicit steps, for scores as an output, capped scores, or rows that may be masked completely (their result is 0, not
 * NaN). */
static tensor long_way(struct node *n, const struct attention *a, tensor seen, tensor mask)
{
    enum sol_dtype t = nd_type_of(a->q), soft = t;
    tensor k = a->k, v = a->v;
    int64_t share = nd_size(a->q, 1) / MAX(1, nd_size(k, 1)), precision = attr_int(n, "softmax_precision", 0);
    if (precision && dtype_read(n->r->ctx, precision, "softmax_precision", &soft))
        return n->status = SOL_ERR_UNSUPPORTED, NULL;
    if (share > 1) {
        k = nd_make(n, "RepeatInterleave", IN(k), WITH(INT("axis", 1), INT("n", share)));
        v = nd_make(n, "RepeatInterleave", IN(v), WITH(INT("axis", 1), INT("n", share)));
    }
    tensor scores =
               nd_fn2(n, "mul", nd_make(n, "MatMul", IN(a->q, nd_swap(n, k, 2, 3)), PLAIN), nd_number(n, t, a->scale)),
           shown = scores;
    if (a->softcap > 0) {
        tensor cap = nd_number(n, t, a->softcap);
        scores = nd_fn2(n, "mul", nd_fn1(n, "tanh", nd_fn2(n, "div", scores, cap)), cap);
    }
    if (a->mode == 1) shown = scores;
    tensor bias = mask_as_number(n, mask, t), by_place = mask_as_number(n, seen, t);
    if (bias && by_place)
        bias = nd_fn2(n, "add", bias, by_place);
    else if (by_place)
        bias = by_place;
    if (bias) scores = nd_fn2(n, "add", scores, bias);
    if (a->mode == 2) shown = scores;
    tensor share_of = nd_make(n, "Softmax", IN(nd_cast(n, scores, soft)), WITH(INT("axis", 3)));
    if (bias) {
        tensor none = nd_fn2(n, "eq", nd_reduce(n, "Max", bias, 1, (int64_t[]){nd_rank(bias) - 1}, true),
                             nd_number(n, t, -HUGE_VAL));
        share_of = nd_fn3(n, "where", none, nd_number(n, soft, 0), share_of);
    }
    share_of = nd_cast(n, share_of, t);
    nd_give(n, 3, a->mode == 3 ? share_of : shown);
    return nd_make(n, "MatMul", IN(share_of, v), PLAIN);
}

sol_status op_attention(struct node *n)
{
    struct attention a = {0};
    read_attention(n, &a);
    if (n->status) return n->status;
    tensor lengths = nd_in(n, 6), mask = read_mask(n, &a);
    int64_t precision = attr_int(n, "softmax_precision", 0);
    bool usual = !mask && !lengths && a.softcap <= 0 && a.left < 0 && a.right < 0 && !nd_wants(n, 3) && precision != 11;
    tensor y, seen = lengths || a.left >= 0 || a.right >= 0 || (a.causal && (a.past || !usual))
                         ? visible(n, &a, lengths)
                         : NULL;
    if (usual)
        y = nd_make(n, "Attention", seen ? 4 : 3, (tensor[]){a.q, a.k, a.v, seen},
                    WITH(REAL("scale", a.scale), INT("causal", a.causal && !seen)));
    else
        y = long_way(n, &a, seen, mask);
    nd_give(n, 0, a.flat ? from_heads(n, y) : y);
    nd_give(n, 1, a.k);
    nd_give(n, 2, a.v);
    return n->status;
}

/* Rotates pairs of elements (halves, or neighbours) by the angle of their position. */
static tensor rotate(struct node *n, tensor x, tensor cosines, tensor sines, bool neighbours)
{
    nd_fixed(n, nd_size(x, -1), "the last dimension");
    int64_t shape[MOST], half = nd_size(x, -1) / 2;
    int r = nd_shape_of(x, shape), pair = neighbours ? r : r - 1;
    if (n->status) return NULL;
    shape[r - 1] = neighbours ? half : 2;
    shape[r] = neighbours ? 2 : half;
    tensor both = nd_reshape(n, x, r + 1, shape);
    tensor a = nd_make(n, "Select", IN(both), WITH(INT("axis", pair), INT("index", 0)));
    tensor b = nd_make(n, "Select", IN(both), WITH(INT("axis", pair), INT("index", 1)));
    tensor re = nd_fn2(n, "sub", nd_fn2(n, "mul", a, cosines), nd_fn2(n, "mul", b, sines));
    tensor im = nd_fn2(n, "add", nd_fn2(n, "mul", a, sines), nd_fn2(n, "mul", b, cosines));
    shape[r - 1] = 2 * half;
    return nd_reshape(n, nd_make(n, "Stack", IN(re, im), WITH(INT("axis", pair))), r, shape);
}

sol_status op_rotary(struct node *n)
{
    tensor x = nd_in(n, 0), c = nd_in(n, 1), s = nd_in(n, 2), at = nd_in(n, 3);
    int64_t heads = attr_int(n, "num_heads", 0), part = attr_int(n, "rotary_embedding_dim", 0);
    bool flat = nd_rank(x) == 3, neighbours = attr_flag(n, "interleaved", 0);
    x = by_heads(n, x, heads);
    if (n->status) return n->status;
    int64_t whole = nd_size(x, 3);
    nd_fixed(n, whole, "the size of a head");
    if (!part) part = whole;
    if (part < 0 || part > whole || part % 2 || nd_rank(x) != 4)
        return nd_invalid(n, "rotary_embedding_dim does not fit");
    if (at) {
        c = nd_make(n, "Gather", IN(c, at), WITH(INT("axis", 0)));
        s = nd_make(n, "Gather", IN(s, at), WITH(INT("axis", 0)));
    }
    if (n->status) return n->status;
    if (nd_rank(c) != 3 || nd_size(c, 2) != part / 2 || nd_rank(s) != 3 || nd_size(s, 2) != part / 2)
        return nd_invalid(n, "the caches do not fit");
    tensor turned = rotate(n, nd_slice(n, x, 3, 0, part), nd_unsqueeze(n, c, 1), nd_unsqueeze(n, s, 1), neighbours);
    if (part < whole) turned = nd_concat(n, 3, IN(turned, nd_slice(n, x, 3, part, whole)));
    nd_give(n, 0, flat ? from_heads(n, turned) : turned);
    return n->status;
}

/* A causal depthwise convolution, which also returns its last inputs. */
sol_status op_causal_conv(struct node *n)
{
    tensor x = nd_in(n, 0), w = nd_in(n, 1), b = nd_in(n, 2), past = nd_in(n, 3);
    const char *function = attr_text(n, "activation", "none");
    bool swish = !strcmp(function, "silu") || !strcmp(function, "swish");
    nd_fixed(n, nd_size(w, 2), "the size of the window");
    int64_t k = nd_size(w, 2), p[3] = {0, 0, k - 1}, q[3] = {0};
    if (n->status) return n->status;
    if (nd_rank(x) != 3 || nd_rank(w) != 3 || nd_size(w, 1) != 1)
        return nd_invalid(n, "expected [N, C, length] and weights [C, 1, k]");
    if (!swish && strcmp(function, "none")) return nd_reject(n, "activation '%.40s' is not supported", function);
    tensor all = past ? nd_concat(n, 2, IN(past, x)) : nd_make(n, "Pad", IN(x), WITH(INTS("p", 3, p), INTS("q", 3, q)));
    tensor y = nd_make(n, "Conv", b ? 3 : 2, (tensor[]){all, w, b}, WITH(INT("g", nd_size(x, 1))));
    nd_give(n, 0, swish ? nd_fn1(n, "silu", y) : y);
    nd_give(n, 1, nd_slice(n, all, 2, size_sub(nd_size(all, 2), k - 1), nd_size(all, 2)));
    return n->status;
}
