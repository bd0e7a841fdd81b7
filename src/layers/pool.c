/* Definitions of average pools, whose divisor depends on the instance, and of adaptive pools. Index variables are
 * groups, so one text serves any number of pixel dimensions. */
#include <string.h>

#include "layers/build.h"

/* Do all windows of the instance contain k elements that count? False: it is not proven. */
static bool windows_full(const struct opdef_input *in, const struct attrs *attrs, int64_t *out_k)
{
    bool full = true;
    *out_k = 1;
    for (int i = 0; i < in->ndim - 2; i++) {
        int64_t n = in->shape[i + 2], k = attrs_int(attrs, "k", i, 1), s = MAX(attrs_int(attrs, "s", i, 1), 1);
        int64_t p = attrs_int(attrs, "p", i, 0), q = attrs_int(attrs, "q", i, 0), d = attrs_int(attrs, "d", i, 1);
        const int64_t span = size_mul(d, size_sub(k, 1)), padded = size_add(n, size_add(p, q));
        const bool pads = attrs_int(attrs, "pads", 0, 1) != 0, up = attrs_int(attrs, "c", 0, 0) != 0;
        int64_t last = size_floor_div(size_add(size_sub(padded, span), up ? s - 2 : -1), s);
        if (up) last = size_min(last, size_floor_div(size_add(n, size_sub(p, 1)), s));
        const int64_t end = pads ? padded : size_add(n, p);
        full &= size_lt(size_add(size_mul(last, s), span), end) && (pads || p == 0);
        *out_k = size_mul(*out_k, k);
    }
    return full;
}

BUILDER(build_avg_pool)
{
    static const char *const lists[] = {"k", "s", "p", "q", "d"};
    int64_t k, div = attrs_int(attrs, "div", 0, 0);
    (void)nin;
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, false));
    for (int i = 0; i < COUNT_OF(lists); i++) TRY(length_attr(arena_ctx(a), def, attrs, lists[i], in->ndim - 2));
    bool full = windows_full(in, attrs, &k);
    text_put(out, "x[N C Q..] -> y[N C P..] | #K=k+0*#Q; #W=#Q+p+q-d*(#K-1)-1+c*(s-1); "
                  "#P=min(#W//s, (#Q+p-1)//s+(1-c)*q)+1 |");
    if (!full && !div)
        text_put(out, " v[P] = 1/max(min(#K, (#Q+pads*q+p-s*P+d-1)//d) - max(0, ((1-pads)*p-s*P+d-1)//d), 1)");
    text_put(out, " | y[N C P] = (sum[K] x[N C s*P+d*K-p]:0)");
    if (full || div)
        text_put(out, " / %lld", (long long)(div ? div : k));
    else
        text_put(out, " * v[P]");
    return SOL_OK;
}

/* -- adaptive: window P covers P*#Q//#P .. ((P+1)*#Q+#P-1)//#P */

static sol_status adaptive(const struct layer_def *def, const struct opdef_input *in, const struct attrs *attrs,
                           bool *out_even, struct text *out_needs)
{
    struct sol_ctx *ctx = arena_ctx(out_needs->arena);
    *out_even = true;
    TRY(rank_of(ctx, def, in, 0, 3, false));
    TRY(length_attr(ctx, def, attrs, "o", in->ndim - 2));
    for (int i = 0; i < in->ndim - 2; i++) {
        const int64_t o = attrs_int(attrs, "o", i, 1);
        put_need(out_needs, size_sub(in->shape[i + 2], 1));
        if (o < 1 || in->shape[i + 2] < 1)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: %lld windows over %lld make no sense", def->name,
                            i + 2, (long long)o, (long long)in->shape[i + 2]);
        *out_even &= size_exact_div(in->shape[i + 2], o) != SIZE_BAD;
    }
    return SOL_OK;
}

#define SIZES_EVEN "#P=o+0*#Q; #K=#Q//#P"
/* (Q+P-1)//P elements, and one more where P does not divide Q */
#define SIZES_ODD "#P=o+0*#Q; #K=2*((#Q+#P-1)//#P)-#Q//#P"
#define LENGTH "((P+1)*#Q+#P-1)//#P-P*#Q//#P"

BUILDER(build_adaptive_avg_pool)
{
    bool even;
    struct text needs = text_new(a);
    (void)nin;
    TRY(adaptive(def, in, attrs, &even, &needs));
    text_put(out, "x[N C Q..] -> y[N C P..] |%s ", needs.at);
    if (even)
        text_put(out, SIZES_EVEN " | | y[N C P] = (sum[K] x[N C #K*P+K]) / prod(#K)");
    else
        text_put(out, SIZES_ODD " | l[P] = " LENGTH "; v[P] = 1/(" LENGTH ")"
                                " | y[N C P] = (sum[K | K<l[P]] x[N C P*#Q//#P+K]) * v[P]");
    return SOL_OK;
}

BUILDER(build_adaptive_max_pool)
{
    bool even, at = !strcmp(def->name, "AdaptiveMaxPoolAt");
    struct text needs = text_new(a);
    (void)nin;
    TRY(adaptive(def, in, attrs, &even, &needs));
    text_put(out, "x[N C Q..] -> y[N C P..]%s |%s %s |", at ? " i:i64[N C P..]" : "", needs.at,
             even ? SIZES_EVEN : SIZES_ODD);
    if (!even) text_put(out, " l[P] = " LENGTH);
    const char *from = even ? "#K*P" : "P*#Q//#P";
    text_put(out, " | %s[N C P] = %s[K%s] x[N C %s+K]", at ? "(y,m)" : "y", at ? "maxat" : "max",
             even ? "" : " | K<l[P]", from);
    if (at) text_put(out, "; i[N C P] = lin(#Q, %s+dig(m[N C P],#K))", from);
    return SOL_OK;
}
