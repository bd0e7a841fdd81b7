/* Operator definitions of attention and recurrent layers. They have several statements, with contractions separate from
 * element-wise functions, so that solvers find them. */
#include <string.h>

#include <math.h>

#include "layers/build.h"

/* -- attention: scores s, their largest m and sum of exponentials z, weights p, y = p v / z */

enum { TEN = 10, OWN = 24 }; /* index variables: leading dimensions 0.., T S D E, broadcast ones in heads */
#define LT ivar(TEN)
#define LS ivar(TEN + 1)
#define LD ivar(TEN + 2)
#define LE ivar(TEN + 3)
#define LC ivar(TEN + 4)
#define LF ivar(TEN + 5)

struct attention {
    const struct opdef_input *in;
    int lead; /* leading dimensions of the result */
    int64_t size[SOL_MAX_DIMS];
    bool mask, mask_bool, causal;
    bool none;    /* there may be no keys */
    bool bare;    /* a query may have no keys */
    bool written; /* as the formula says: a bool mask selects, and a query without keys is NaN */
    bool safe;    /* but where its weights are NaN, it is 0 */
    double scale, fill;
};

/* Do `own` heads (or a number of other leading elements) serve `all`, each the same number of times? */
static bool shares(int64_t own, int64_t all)
{
    return own == 1 || own == all || (all && size_exact_div(all, own) != SIZE_BAD);
}

static sol_status read_attention(struct sol_ctx *ctx, const struct layer_def *def, int nin,
                                 const struct opdef_input *in, const struct attrs *attrs, struct attention *t)
{
    t->in = in;
    t->mask = nin > 3 && !in[3].missing;
    t->causal = attrs_int(attrs, "causal", 0, 0) != 0;
    t->scale = attrs_real(attrs, "scale", 0);
    t->fill = attrs_real(attrs, "fill", -INFINITY);
    int empty;
    TRY(word_attr(ctx, def, attrs, "empty", "zero|nan|safe", &empty));
    t->written = empty > 0;
    t->safe = empty == 2;
    if (!t->written && t->fill != -INFINITY)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: fill=%g: not with empty=zero", def->name, t->fill);
    for (int i = 0; i < 3; i++) {
        TRY(rank_of(ctx, def, in, i, 2, false));
        t->lead = MAX(t->lead, in[i].ndim - 2);
    }
    if (t->mask) TRY(rank_of(ctx, def, in, 3, 2, false));
    if (t->mask) t->mask_bool = in[3].dtype == SOL_BOOL;
    if (t->mask && in[3].ndim - 2 > t->lead) t->lead = in[3].ndim - 2;
    if (t->lead > TEN) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: too many dimensions", def->name);
    for (int d = 0; d < t->lead; d++) t->size[d] = 1;
    for (int i = 0; i < (t->mask ? 4 : 3); i++)
        for (int d = 0; d < in[i].ndim - 2; d++) {
            int64_t *size = &t->size[t->lead - (in[i].ndim - 2) + d];
            if (shares(*size, in[i].shape[d])) *size = in[i].shape[d];
        }
    for (int i = 0; i < (t->mask ? 4 : 3); i++)
        for (int d = 0; d < in[i].ndim - 2; d++) {
            int at = t->lead - (in[i].ndim - 2) + d;
            const bool shared = i < 3 && at == t->lead - 1 && shares(in[i].shape[d], t->size[at]);
            if (in[i].shape[d] != t->size[at] && in[i].shape[d] != 1 && !shared)
                return ctx_unequal(ctx, t->size[at], in[i].shape[d],
                                   ctx_fail(ctx, SOL_ERR_INVALID,
                                            "%s: input %d: dimension %d of size %lld does not go with %lld", def->name,
                                            i, d, (long long)in[i].shape[d], (long long)t->size[at]));
        }
    t->none = !size_le(1, in[1].shape[in[1].ndim - 2]);
    t->bare = !t->written && (t->mask || t->none);
    if (t->scale == 0) TRY(number_of(ctx, def, "the last dimension of q", in[0].shape[in[0].ndim - 1]));
    if (t->scale == 0) t->scale = in[0].shape[in[0].ndim - 1] ? 1 / sqrt((double)in[0].shape[in[0].ndim - 1]) : 1;
    return SOL_OK;
}

/* The leading index variables of input i: those of the result where the sizes agree. */
static void put_lead(struct text *out, const struct attention *t, int i, bool head)
{
    const struct opdef_input *in = &t->in[i];
    int n = in->ndim - 2;
    for (int d = 0; d < n; d++) {
        int at = t->lead - n + d;
        int64_t size = in->shape[d];
        if (size == t->size[at])
            text_put(out, " %s", ivar(at));
        else if (head)
            text_put(out, " %s", ivar(OWN + i * 2 + (d == n - 1)));
        else if (size == 1)
            text_put(out, " 0");
        else
            text_put(out, " %s//%lld", ivar(at), (long long)size_exact_div(t->size[at], size));
    }
}

/* Input i: "q[A B T D]", or "q:float[A B T D]" in the head of the definition. */
static const char *operand(struct arena *a, const struct attention *t, int i, bool head, const char *row,
                           const char *column)
{
    struct text out = text_new(a);
    const char *type = i == 3 && t->mask_bool ? ":bool" : ":float";
    text_put(&out, "%c%s[", "qkvw"[i], head ? type : "");
    put_lead(&out, t, i, head);
    text_put(&out, " %s %s]", row, column);
    return out.at;
}

static void put_mask_head(struct text *out, const struct attention *t)
{
    if (!t->mask) return;
    const struct opdef_input *in = &t->in[3];
    bool row = in->shape[in->ndim - 2] == 1, column = in->shape[in->ndim - 1] == 1;
    text_put(out, " %s", operand(out->arena, t, 3, true, row ? ivar(OWN + 8) : LT, column ? ivar(OWN + 9) : LS));
}

/* The read of the mask. */
static const char *mask_of(struct arena *a, const struct attention *t)
{
    const struct opdef_input *in = &t->in[3];
    const char *row = in->shape[in->ndim - 2] == 1 ? "0" : LT, *column = in->shape[in->ndim - 1] == 1 ? "0" : LS;
    return operand(a, t, 3, false, row, column);
}

/* Does a bool mask choose between the score and `fill`? Otherwise it is added. */
static bool selects(const struct attention *t)
{
    return t->mask && t->mask_bool && t->written;
}

static void put_scores(struct text *out, const struct attention *t, const char *at)
{
    struct arena *a = out->arena;
    text_put(out, "s[%s %s %s] = ", at, LT, LS);
    if (selects(t)) text_put(out, "where(%s, ", mask_of(a, t));
    text_put(out, "(sum[%s] %s * %s) * ", LD, operand(a, t, 0, false, LT, LD), operand(a, t, 1, false, LS, LD));
    put_number(out, t->scale);
    if (selects(t)) {
        text_put(out, ", ");
        put_number(out, t->fill);
        text_put(out, ")");
    } else if (t->mask) {
        text_put(out, t->mask_bool ? " + where(%s, 0.0, (-inf))" : " + %s", mask_of(a, t));
    }
    text_put(out, "; ");
}

/* The results of `t`; `sums`: also m and z. */
static void put_attention(struct arena *a, const struct attention *t, bool sums, struct text *out)
{
    struct text lead = text_new(a);
    put_ivars(&lead, 0, t->lead);
    const char *at = lead.at, *guard = t->causal ? arena_printf(a, " | %s<=%s", LS, LT) : "";
    text_put(out, "%s %s %s", operand(a, t, 0, true, LT, LD), operand(a, t, 1, true, LS, LD),
             operand(a, t, 2, true, LS, LE));
    put_mask_head(out, t);
    text_put(out, " -> y[%s %s %s]", at, LT, LE);
    if (sums) text_put(out, " m[%s %s] z[%s %s]", at, LT, at, LT);
    text_put(out, " |");
    put_sizes(out, 0, t->lead, t->size);
    text_put(out, " | | ");
    put_scores(out, t, at);
    text_put(out, "(m,z)[%s %s] = softsum[%s%s] s[%s %s %s]; ", at, LT, LS, guard, at, LT, LS);
    const char *m = arena_printf(a, "m[%s %s]", at, LT);
    if (t->mask && !t->written) /* if all are masked: 0, as in PyTorch */
        m = arena_printf(a, "where(%s==(-inf), 0, %s)", m, m);
    const char *e = arena_printf(a, "exp(s[%s %s %s] - %s)", at, LT, LS, m);
    if (t->causal) e = arena_printf(a, "where(%s<=%s, %s, 0)", LS, LT, e);
    text_put(out, "p[%s %s %s] = %s; ", at, LT, LS, e);
    const char *z = arena_printf(a, "z[%s %s]", at, LT);
    if (t->bare)
        z = arena_printf(a, "where(%s==0, 1, %s)", z, z);
    else if (t->none) /* a sum over nothing is 0 */
        z = arena_printf(a, "where(#%s==0, 1, %s)", LS, z);
    const char *y =
        arena_printf(a, "(sum[%s] p[%s %s %s] * %s) / %s", LS, at, LT, LS, operand(a, t, 2, false, LS, LE), z);
    if (t->safe) y = arena_printf(a, "where(z[%s %s]>0, %s, 0)", at, LT, y); /* else 0 or NaN */
    text_put(out, "y[%s %s %s] = %s", at, LT, LE, y);
}

BUILDER(build_attention)
{
    struct attention t = {0};
    TRY(read_attention(arena_ctx(a), def, nin, in, attrs, &t));
    put_attention(a, &t, false, out);
    return SOL_OK;
}

BUILDER(build_attention_sums)
{
    struct attention t = {0};
    TRY(read_attention(arena_ctx(a), def, nin, in, attrs, &t));
    put_attention(a, &t, true, out);
    return SOL_OK;
}

/* Weights p = exp(s - m) n, and r, the gradient of the sums in the scores. The gradients have all leading dimensions of
 * the result; in them C stands for D, and F for E. */
BUILDER(build_attention_grad)
{
    struct attention t = {0};
    TRY(read_attention(arena_ctx(a), def, nin > 4 ? 4 : nin, in, attrs, &t));
    struct text lead = text_new(a), all = text_new(a);
    put_ivars(&lead, 0, t.lead);
    const char *at = lead.at;
    text_put(&all, "%s %s %s", at, LT, LS);
    text_put(out, "%s %s %s", operand(a, &t, 0, true, LT, LD), operand(a, &t, 1, true, LS, LD),
             operand(a, &t, 2, true, LS, LE));
    if (t.mask)
        put_mask_head(out, &t);
    else
        text_put(out, " w?[%s %s]", LT, LS);
    text_put(out, " d[%s %s %s] m[%s %s] n[%s %s] g[%s %s] -> ", at, LT, LE, at, LT, at, LT, at, LT);
    text_put(out, "dq[%s %s %s] dk[%s %s %s] dv[%s %s %s] |", at, LT, LC, at, LS, LC, at, LS, LF);
    put_sizes(out, 0, t.lead, t.size);
    text_put(out, " #%s=#%s; #%s=#%s | | ", LC, LD, LF, LE);
    put_scores(out, &t, at);
    const char *p = arena_printf(a, "exp(s[%s] - m[%s %s]) * n[%s %s]", all.at, at, LT, at, LT);
    struct text r = text_new(a);
    if (selects(&t)) text_put(&r, "where(%s, ", mask_of(a, &t));
    text_put(&r, "p[%s] * ((sum[%s] d[%s %s %s] * %s) - g[%s %s]) * ", all.at, LE, at, LT, LE,
             operand(a, &t, 2, false, LS, LE), at, LT);
    put_number(&r, t.scale);
    if (selects(&t)) text_put(&r, ", 0)");
    const char *before = t.causal ? arena_printf(a, "where(%s<=%s, ", LS, LT) : "", *behind = t.causal ? ", 0)" : "";
    text_put(out, "p[%s] = %s%s%s; r[%s] = %s%s%s; ", all.at, before, p, behind, all.at, before, r.at, behind);
    text_put(out, "dv[%s %s %s] = sum[%s] p[%s] * d[%s %s %s]; ", at, LS, LF, LT, all.at, at, LT, LF);
    text_put(out, "dk[%s %s %s] = sum[%s] r[%s] * %s; ", at, LS, LC, LT, all.at, operand(a, &t, 0, false, LT, LC));
    text_put(out, "dq[%s %s %s] = sum[%s] r[%s] * %s", at, LT, LC, LS, all.at, operand(a, &t, 1, false, LS, LC));
    return SOL_OK;
}

/* -- recurrent layers: x[T N I] w[A I] u[A H] b?[A] e?[A] h0?[N H]; an LSTM's c0?[N H] and p?[P H], which makes P
 * values of the H before they are handed on; l?[N], how many steps each sequence has: its state stays what it is in the
 * others, which come last, or with reverse=1 first; or l?[T N], which steps they are */

struct recurrent {
    int gates;
    bool b, e, h0, c0, p, l, mask; /* l is a mask */
    int64_t steps;
    const char *own;    /* index variable of the state that is passed on: H or P */
    const char *before; /* "T-1" or "T+1" */
    const char *last;   /* index of the last step */
};

/* Reads the rest of r; the caller knows how many gates there are. */
static sol_status read_recurrent(struct arena *a, const struct layer_def *def, int nin, const struct opdef_input *in,
                                 const struct attrs *attrs, struct recurrent *r)
{
    struct sol_ctx *ctx = arena_ctx(a);
    const int gates = r->gates;
    TRY(rank_of(ctx, def, in, 0, 3, true));
    TRY(rank_of(ctx, def, in, 1, 2, true));
    TRY(rank_of(ctx, def, in, 2, 2, true));
    bool reverse = attrs_int(attrs, "reverse", 0, 0) != 0;
    r->before = reverse ? "T+1" : "T-1";
    r->last = reverse ? "0" : "#T-1";
    r->b = nin > 3 && !in[3].missing;
    r->e = nin > 4 && !in[4].missing;
    r->h0 = nin > 5 && !in[5].missing;
    const bool cell = gates == 4;
    r->c0 = cell && nin > 6 && !in[6].missing;
    r->p = cell && nin > 7 && !in[7].missing;
    r->l = nin > (cell ? 8 : 6) && !in[cell ? 8 : 6].missing;
    r->mask = r->l && in[cell ? 8 : 6].ndim == 2;
    r->own = r->p ? "P" : "H";
    if (r->p) TRY(rank_of(ctx, def, in, 7, 2, true));
    const int64_t hidden = in[r->p ? 7 : 2].shape[1];
    r->steps = in[0].shape[0];
    if (in[1].shape[0] != size_mul(gates, hidden) || r->steps < 1)
        return ctx_fail(ctx, SOL_ERR_INVALID,
                        "%s: expected weights of %d*%lld rows and at least one step, got %lld and %lld", def->name,
                        gates, (long long)hidden, (long long)in[1].shape[0], (long long)in[0].shape[0]);
    return SOL_OK;
}

static void put_recurrent_head(struct text *out, const struct recurrent *r, int nin, bool cell)
{
    const char *const p = r->own, *h0 = arena_printf(out->arena, " h0?[N %s]", p);
    const char *const l = r->mask ? " l?:bool[T N]" : " l?:i64[N]", *const q = r->p ? " p[P H]" : " p?[P H]";
    const char *const names[] = {" b?[A]", " e?[A]", h0, cell ? " c0?[N H]" : l, q, l};
    text_put(out, "x:float[T N I] w[A I] u[A %s]", p);
    for (int i = 3; i < nin; i++) text_put(out, "%s", names[i - 3]);
    text_put(out, " -> y[T N %s] h[N %s]%s | #K=#%s; #G=%d; #A=#G*#H;", p, p, cell ? " c[N H]" : "", p, r->gates);
    put_need(out, size_sub(r->steps, 1));
    text_put(out, " | | ");
    text_put(out, "g[T N G H] = (sum[I] x[T N I] * w[G*#H+H I])%s; ", r->b ? " + b[G*#H+H]" : "");
}

/* "y[T-1 N H]:h0[N H]" with K for H where it is summed */
static const char *previous(struct arena *a, const struct recurrent *r, const char *name, const char *h)
{
    bool given = *name == 'y' ? r->h0 : r->c0;
    const char *start = !given ? "0" : arena_printf(a, "%s[N %s]", *name == 'y' ? "h0" : "c0", h);
    return arena_printf(a, "%s[%s N %s]:%s", name, r->before, h, start);
}

/* The new value of a state, or the old one where the sequence has no step: "where(T<l[N], .., y[T-1 N H]:h0[N H])" */
static const char *kept(struct arena *a, const struct recurrent *r, const char *name, const char *h, const char *value)
{
    const char *const there = r->mask ? "l[T N]" : "T<l[N]";
    return r->l ? arena_printf(a, "where(%s, %s, %s)", there, value, previous(a, r, name, h)) : value;
}

/* The number of the block of weights for the gate `name`. */
static sol_status gate_order(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs,
                             const char *gates, int *out_at)
{
    const char *order = attrs_text(attrs, "order", "");
    for (int i = 0; gates[i]; i++) {
        const char *at = strchr(order, gates[i]);
        if (!at || strlen(order) != strlen(gates))
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: order: expected the letters %s, got '%s'", def->name, gates,
                            order);
        out_at[i] = (int)(at - order);
    }
    return SOL_OK;
}

/* "sum over K of h u", with the row of the weights written out */
static const char *hidden(struct arena *a, const char *h, const char *row)
{
    return arena_printf(a, "(sum[K] %s * u[%s K])", h, row);
}

/* The contribution of the previous h to all gates, with its bias. */
static const char *hidden_gates(struct arena *a, const struct recurrent *r)
{
    return arena_printf(a, "%s%s", hidden(a, previous(a, r, "y", "K"), "G*#H+H"), r->e ? " + e[G*#H+H]" : "");
}

/* Sums are tensors separate from the functions applied to them: the gradients of both are simple then, and backward
 * needs only the gates. */
BUILDER(build_lstm)
{
    struct recurrent r = {.gates = 4};
    int at[4];
    TRY(read_recurrent(a, def, nin, in, attrs, &r));
    TRY(gate_order(arena_ctx(a), def, attrs, "ifgo", at));
    put_recurrent_head(out, &r, nin, true);
    text_put(out, "a[T N G H] = g[T N G H] + %s; ", hidden_gates(a, &r));
    text_put(out, "gi[T N H] = sigmoid(a[T N %d H]); gf[T N H] = sigmoid(a[T N %d H]); ", at[0], at[1]);
    text_put(out, "gg[T N H] = tanh(a[T N %d H]); go[T N H] = sigmoid(a[T N %d H]); ", at[2], at[3]);
    const char *const s = arena_printf(a, "gf[T N H] * %s + gi[T N H] * gg[T N H]", previous(a, &r, "s", "H"));
    const char *const y = "go[T N H] * tanh(s[T N H])";
    text_put(out, "s[T N H] = %s; ", kept(a, &r, "s", "H", s));
    if (r.p)
        text_put(out, "q[T N H] = %s; y[T N P] = %s; ", y, kept(a, &r, "y", "P", "(sum[H] q[T N H] * p[P H])"));
    else
        text_put(out, "y[T N H] = %s; ", kept(a, &r, "y", "H", y));
    text_put(out, "h[N %s] = y[%s N %s]; c[N H] = s[%s N H]", r.own, r.last, r.own, r.last);
    return SOL_OK;
}

BUILDER(build_gru)
{
    struct recurrent r = {.gates = 3};
    int at[3];
    TRY(read_recurrent(a, def, nin, in, attrs, &r));
    TRY(gate_order(arena_ctx(a), def, attrs, "rzn", at));
    put_recurrent_head(out, &r, nin, false);
    const char *h = previous(a, &r, "y", "K"), *own = previous(a, &r, "y", "H");
    if (attrs_int(attrs, "inner", 0, 1)) {
        text_put(out, "a[T N G H] = %s; ", hidden_gates(a, &r));
        text_put(out, "r[T N H] = sigmoid(g[T N %d H] + a[T N %d H]); ", at[0], at[0]);
        text_put(out, "z[T N H] = sigmoid(g[T N %d H] + a[T N %d H]); ", at[1], at[1]);
        text_put(out, "n[T N H] = tanh(g[T N %d H] + r[T N H] * a[T N %d H]); ", at[2], at[2]);
    } else {
        const char *row[3], *bias[3];
        for (int i = 0; i < 3; i++) {
            row[i] = arena_printf(a, "%d*#H+H", at[i]);
            bias[i] = r.e ? arena_printf(a, " + e[%s]", row[i]) : "";
        }
        text_put(out, "ar[T N H] = g[T N %d H] + %s%s; r[T N H] = sigmoid(ar[T N H]); ", at[0], hidden(a, h, row[0]),
                 bias[0]);
        text_put(out, "az[T N H] = g[T N %d H] + %s%s; z[T N H] = sigmoid(az[T N H]); ", at[1], hidden(a, h, row[1]),
                 bias[1]);
        text_put(out, "q[T N H] = r[T N H] * %s; ", own);
        text_put(out, "an[T N H] = g[T N %d H] + %s%s; n[T N H] = tanh(an[T N H]); ", at[2],
                 hidden(a, "q[T N K]", row[2]), bias[2]);
    }
    const char *const y = arena_printf(a, "(1-z[T N H]) * n[T N H] + z[T N H] * %s", own);
    text_put(out, "y[T N H] = %s; h[N H] = y[%s N H]", kept(a, &r, "y", "H", y), r.last);
    return SOL_OK;
}

BUILDER(build_rnn)
{
    struct recurrent r = {.gates = 1};
    int act;
    TRY(read_recurrent(a, def, nin, in, attrs, &r));
    TRY(word_attr(arena_ctx(a), def, attrs, "act", "tanh|relu", &act));
    put_recurrent_head(out, &r, nin, false);
    text_put(out, "a[T N G H] = g[T N G H] + %s; ", hidden_gates(a, &r));
    const char *const y = arena_printf(a, "%s(a[T N 0 H])", act ? "relu" : "tanh");
    text_put(out, "y[T N H] = %s; h[N H] = y[%s N H]", kept(a, &r, "y", "H", y), r.last);
    return SOL_OK;
}
