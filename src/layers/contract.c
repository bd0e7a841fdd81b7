/* Definitions of contractions whose dimensions depend on the instance: matrix products and einsum with broadcasting,
 * and transposed convolutions as dense ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/build.h"

/* -- two tensors with broadcast leading dimensions */

enum { OWN = 20 }; /* index variables of leading dimensions whose size is 1 in one of the two */

struct batch {
    int n; /* leading dimensions of the result: index variables 0.. */
    int64_t size[SOL_MAX_DIMS];
};

/* Input i has `inner[i]` dimensions besides the leading ones. */
static sol_status read_batch(struct sol_ctx *ctx, const struct layer_def *def, int nin, const struct opdef_input *in,
                             const int *inner, struct batch *b)
{
    b->n = 0;
    for (int i = 0; i < nin; i++)
        if (!in[i].missing) b->n = MAX(b->n, in[i].ndim - inner[i]);
    for (int d = 0; d < b->n; d++) b->size[d] = 1;
    for (int i = 0; i < nin; i++) {
        int lead = in[i].missing ? 0 : in[i].ndim - inner[i];
        for (int d = 0; d < lead; d++) {
            int64_t *size = &b->size[b->n - lead + d], own = in[i].shape[d];
            if (!same_size(size, own))
                return ctx_unequal(ctx, *size, own,
                                   ctx_fail(ctx, SOL_ERR_INVALID,
                                            "%s: input %d: dimension %d of size %lld does not go with %lld", def->name,
                                            i, d, (long long)own, (long long)*size));
        }
    }
    return SOL_OK;
}

/* The leading index variables of an input. The head has an index variable for each; the body has index 0 where the size
 * is 1 and is repeated. */
static void put_batch(struct text *out, const struct batch *b, const struct opdef_input *in, int inner, bool head)
{
    int lead = in->ndim - inner;
    for (int d = 0; d < lead; d++) {
        int at = b->n - lead + d;
        bool repeated = in->shape[d] == 1 && b->size[at] != 1;
        text_put(out, " %s", !repeated ? ivar(at) : head ? ivar(OWN) : "0");
    }
}

static void put_batch_head(struct text *out, const struct batch *b, const struct opdef_input *in, int inner,
                           const char *name, const char *own)
{
    text_put(out, "%s[", name);
    put_batch(out, b, in, inner, true);
    text_put(out, " %s] ", own);
}

static void put_batch_read(struct text *out, const struct batch *b, const struct opdef_input *in, int inner,
                           const char *name, const char *own)
{
    text_put(out, "%s[", name);
    put_batch(out, b, in, inner, false);
    text_put(out, " %s]", own);
}

BUILDER(build_matmul)
{
    struct batch b;
    (void)attrs;
    TRY(rank_of(arena_ctx(a), def, in, 0, 1, false));
    TRY(rank_of(arena_ctx(a), def, in, 1, 1, false));
    int inner[] = {MIN(in[0].ndim, 2), MIN(in[1].ndim, 2)};
    TRY(read_batch(arena_ctx(a), def, nin, in, inner, &b));
    const char *row = inner[0] == 2 ? "X" : "", *column = inner[1] < 2 ? "" : in[1].ndim == 2 ? "O" : "Z";
    const char *left = arena_printf(a, "%s Y", row), *right = arena_printf(a, "Y %s", column);
    put_batch_head(out, &b, &in[0], inner[0], "a", left);
    put_batch_head(out, &b, &in[1], inner[1], "b", right);
    struct text y = text_new(a);
    put_ivars(&y, 0, b.n);
    text_put(out, "-> y[%s %s %s] | | | y[%s %s %s] = sum[Y] ", y.at, row, column, y.at, row, column);
    put_batch_read(out, &b, &in[0], inner[0], "a", left);
    text_put(out, " * ");
    put_batch_read(out, &b, &in[1], inner[1], "b", right);
    return SOL_OK;
}

BUILDER(build_cdist)
{
    struct batch b;
    double n = attrs_real(attrs, "n", 2);
    int inner[] = {2, 2};
    TRY(rank_of(arena_ctx(a), def, in, 0, 2, false));
    TRY(rank_of(arena_ctx(a), def, in, 1, 2, false));
    TRY(read_batch(arena_ctx(a), def, nin, in, inner, &b));
    put_batch_head(out, &b, &in[0], 2, "x", "X Y");
    put_batch_head(out, &b, &in[1], 2, "z", "Z Y");
    struct text y = text_new(a), e = text_new(a);
    put_ivars(&y, 0, b.n);
    text_put(&e, "(");
    put_batch_read(&e, &b, &in[0], 2, "x", "X Y");
    text_put(&e, "-");
    put_batch_read(&e, &b, &in[1], 2, "z", "Z Y");
    text_put(&e, ")");
    text_put(out, "-> y[%s X Z] | | | y[%s X Z] = ", y.at, y.at);
    if (n == 0) {
        text_put(out, "sum[Y] [%s!=0]", e.at);
    } else if (n == 1) {
        text_put(out, "sum[Y] abs(%s)", e.at);
    } else if (n == 2) {
        text_put(out, "norm_sqrt(sum[Y] %s * %s)", e.at, e.at);
    } else if (isinf(n)) {
        text_put(out, "max[Y] abs(%s)", e.at);
    } else {
        text_put(out, "norm_pow(sum[Y] norm_pow(abs(%s), ", e.at);
        put_number(out, n);
        text_put(out, "), ");
        put_number(out, 1 / n);
        text_put(out, ")");
    }
    return SOL_OK;
}

/* -- einsum. A label is a letter of the equation, or, from ELLIPSIS on, a dimension of "...". */

enum { LABELS = 64, ELLIPSIS = 52, FRESH = 40 };
struct einsum {
    int nlabels; /* in order of appearance: number i has ivar(i) */
    int number[LABELS];
    int64_t size[LABELS];
    int last[LABELS]; /* number of the last operand that uses it; nin: the output */
    bool in_head[LABELS];
    int fresh;                            /* index variables of dimensions that are not a plain label */
    int rank[16], dims[16][SOL_MAX_DIMS]; /* numbers, by operand; [nin]: of the output */
    int dots;                             /* dimensions of "..." */
};

static int label_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static int label_number(struct einsum *e, int label)
{
    if (e->number[label] < 0) {
        e->size[e->nlabels] = 1;
        e->last[e->nlabels] = -1;
        e->number[label] = e->nlabels++;
    }
    return e->number[label];
}

static sol_status bad_equation(struct sol_ctx *ctx, const char *eq, const char *what)
{
    return ctx_fail(ctx, SOL_ERR_INVALID, "Einsum: eq '%s': %s", eq, what);
}

/* Reads the labels of one operand or the output; "..." has `dots` dimensions, the last of e->dots. */
static sol_status read_labels(struct sol_ctx *ctx, struct einsum *e, const char *eq, const char **at, int which,
                              int dots)
{
    int n = 0;
    bool seen = false;
    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        if (**at == ' ') continue;
        int label = label_of(**at), count = label < 0 ? dots : 1;
        if (label < 0 && (seen || strncmp(*at, "...", 3) != 0))
            return bad_equation(ctx, eq, "expected letters, ',', '...' or '->'");
        if (n + count > SOL_MAX_DIMS) return bad_equation(ctx, eq, "too many dimensions");
        if (label >= 0) {
            e->dims[which][n++] = label_number(e, label);
            continue;
        }
        for (int d = 0; d < dots; d++) e->dims[which][n++] = label_number(e, ELLIPSIS + e->dots - dots + d);
        seen = true;
        *at += 2;
    }
    e->rank[which] = n;
    return SOL_OK;
}

/* The number of dimensions that "..." has in an operand: those without an index variable. -1: there is no "...". */
static int dots_of(const char *at, int ndim)
{
    bool dots = false;
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (*at == '.' && !dots) dots = true;
        ndim -= label_of(*at) >= 0;
    }
    return dots ? ndim : ndim ? -2 : -1;
}

/* Without "->": "..." first, then the labels that occur once, in order. */
static void implied_output(struct einsum *e, int nin)
{
    int n = 0;
    for (int d = 0; d < e->dots; d++) e->dims[nin][n++] = label_number(e, ELLIPSIS + d);
    for (int label = 0; label < ELLIPSIS; label++) {
        int times = 0;
        for (int i = 0; i < nin; i++)
            for (int d = 0; d < e->rank[i]; d++) times += e->number[label] >= 0 && e->dims[i][d] == e->number[label];
        if (times == 1 && n < SOL_MAX_DIMS) e->dims[nin][n++] = e->number[label];
    }
    e->rank[nin] = n;
}

static sol_status read_operands(struct sol_ctx *ctx, struct einsum *e, const char *eq, int nin,
                                const struct opdef_input *in)
{
    const char *at = eq;
    for (int i = 0; i < nin; i++, at += strcspn(at, ",-"), at += *at == ',')
        e->dots = MAX(e->dots, dots_of(at, in[i].ndim));
    if (e->dots > SOL_MAX_DIMS) return bad_equation(ctx, eq, "too many dimensions");
    at = eq;
    for (int i = 0; i < nin; i++) {
        int dots = dots_of(at, in[i].ndim);
        TRY(read_labels(ctx, e, eq, &at, i, MAX(dots, 0)));
        if (dots < -1 || e->rank[i] != in[i].ndim)
            return bad_equation(ctx, eq, "an operand's letters are not its dimensions");
        if (i < nin - 1 && *at++ != ',') return bad_equation(ctx, eq, "fewer operands than inputs");
    }
    if (*at && strncmp(at, "->", 2) != 0) return bad_equation(ctx, eq, "more operands than inputs");
    if (!*at) {
        implied_output(e, nin);
        return SOL_OK;
    }
    at += 2;
    TRY(read_labels(ctx, e, eq, &at, nin, e->dots));
    return *at ? bad_equation(ctx, eq, "something follows the output") : SOL_OK;
}

static sol_status read_sizes(struct sol_ctx *ctx, struct einsum *e, const char *eq, int nin,
                             const struct opdef_input *in)
{
    for (int i = 0; i < nin; i++)
        for (int d = 0; d < e->rank[i]; d++) {
            int k = e->dims[i][d];
            int64_t own = in[i].shape[d];
            if (!same_size(&e->size[k], own))
                return ctx_unequal(ctx, e->size[k], own, bad_equation(ctx, eq, "sizes of a letter differ"));
            e->last[k] = i;
        }
    for (int d = 0; d < e->rank[nin]; d++) {
        if (e->last[e->dims[nin][d]] < 0) return bad_equation(ctx, eq, "a letter of the output is in no operand");
        if (e->last[e->dims[nin][d]] == nin) return bad_equation(ctx, eq, "a letter is in the output twice");
        e->last[e->dims[nin][d]] = nin;
    }
    return SOL_OK;
}

/* In the head, an operand has each index variable at most once, and only for a dimension of the index variable's own
 * size. */
static void put_operand_head(struct text *out, struct einsum *e, int i, const struct opdef_input *in)
{
    text_put(out, "x%d[", i);
    for (int d = 0; d < e->rank[i]; d++) {
        int k = e->dims[i][d];
        bool plain = in->shape[d] == e->size[k];
        for (int c = 0; c < d; c++) plain &= e->dims[i][c] != k;
        e->in_head[k] |= plain;
        text_put(out, " %s", ivar(plain ? k : FRESH + e->fresh++));
    }
    text_put(out, "] ");
}

static void put_operand(struct text *out, const struct einsum *e, int i, const struct opdef_input *in)
{
    text_put(out, "x%d[", i);
    for (int d = 0; d < e->rank[i]; d++)
        text_put(out, " %s", in->shape[d] == 1 && e->size[e->dims[i][d]] != 1 ? "0" : ivar(e->dims[i][d]));
    text_put(out, "]");
}

/* The labels used up to operand i that later operands need; with `gone`, those that no later operand needs. */
static void put_numbers(struct text *out, const struct einsum *e, const bool *live, int i, bool gone)
{
    for (int k = 0; k < e->nlabels; k++)
        if (live[k] && (e->last[k] <= i) == gone) text_put(out, " %s", ivar(k));
}

/* Writes one statement for each operand after the first: t1 = x0 * x1, summed over the labels that nothing needs later,
 * y = t1 * x2, ... */
static void put_chain(struct text *out, const struct einsum *e, int nin, const struct opdef_input *in)
{
    bool live[LABELS] = {false};
    for (int i = MIN(1, nin - 1); i < nin; i++) {
        struct text factors = text_new(out->arena), sum = text_new(out->arena);
        if (i > 1) {
            text_put(&factors, "t%d[", i - 1);
            put_numbers(&factors, e, live, i - 1, false);
            text_put(&factors, "] * ");
        } else if (i == 1) {
            put_operand(&factors, e, 0, &in[0]);
            text_put(&factors, " * ");
        }
        for (int k = 0; k < e->nlabels; k++) live[k] &= e->last[k] > i - 1;
        for (int o = i == 1 ? 0 : i; o <= i; o++)
            for (int d = 0; d < e->rank[o]; d++) live[e->dims[o][d]] = true;
        put_operand(&factors, e, i, &in[i]);
        if (i < nin - 1) {
            text_put(out, "t%d[", i);
            put_numbers(out, e, live, i, false);
        } else {
            text_put(out, "y[");
            for (int d = 0; d < e->rank[nin]; d++) text_put(out, " %s", ivar(e->dims[nin][d]));
        }
        put_numbers(&sum, e, live, i, true);
        text_put(out, "] = ");
        if (sum.n) text_put(out, "sum[%s] ", sum.at);
        text_put(out, "%s; ", factors.at);
    }
}

BUILDER(build_einsum)
{
    struct einsum e = {0};
    const char *eq = attrs_text(attrs, "eq", "");
    for (int i = 0; i < LABELS; i++) e.number[i] = -1;
    if (nin < 1 || nin > COUNT_OF(e.rank) - 1)
        return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: expected 1 to 15 inputs", def->name);
    TRY(read_operands(arena_ctx(a), &e, eq, nin, in));
    TRY(read_sizes(arena_ctx(a), &e, eq, nin, in));
    for (int i = 0; i < nin; i++) put_operand_head(out, &e, i, &in[i]);
    if (e.nlabels > FRESH || FRESH + e.fresh > 63) return bad_equation(arena_ctx(a), eq, "too many letters");
    text_put(out, "-> y[");
    for (int d = 0; d < e.rank[nin]; d++) text_put(out, " %s", ivar(e.dims[nin][d]));
    text_put(out, "] |");
    for (int k = 0; k < e.nlabels; k++)
        if (!e.in_head[k]) text_put(out, " #%s=%lld;", ivar(k), (long long)e.size[k]);
    text_put(out, " | | ");
    put_chain(out, &e, nin, in);
    return SOL_OK;
}

/* -- transposed convolution. y[Q] gets x[P] w[K] where s*P + d*K - p == Q. For each residue r of Q modulo s this is a
 * dense convolution: Q = s*U + r, K = k0 + m*T, P = U + c - (d/g)*T with g = gcd(s, d), m = s/g. */

struct transposed {
    int rank;
    int64_t s[SOL_MAX_DIMS], p[SOL_MAX_DIMS], d[SOL_MAX_DIMS], k[SOL_MAX_DIMS], q[SOL_MAX_DIMS];
    bool bias;
};
enum { MOST_RESIDUES = 16 };

static sol_status read_transposed(struct sol_ctx *ctx, const struct layer_def *def, int nin,
                                  const struct opdef_input *in, const struct attrs *attrs, struct transposed *t)
{
    static const char *const names[] = {"s", "p", "q", "d", "o"};
    TRY(rank_of(ctx, def, in, 0, 3, false));
    TRY(rank_of(ctx, def, in, 1, in[0].ndim, true));
    TRY(numbers_of(ctx, def, in, 1));
    t->rank = in[0].ndim - 2;
    t->bias = nin > 2 && !in[2].missing;
    for (int i = 0; i < COUNT_OF(names); i++) TRY(length_attr(ctx, def, attrs, names[i], t->rank));
    if (t->rank > 4) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: expected at most 4 pixel dimensions", def->name);
    for (int i = 0; i < t->rank; i++) {
        int64_t q = attrs_int(attrs, "q", i, 0), o = attrs_int(attrs, "o", i, 0), n = in[0].shape[i + 2];
        t->s[i] = attrs_int(attrs, "s", i, 1);
        t->p[i] = attrs_int(attrs, "p", i, 0);
        t->d[i] = attrs_int(attrs, "d", i, 1);
        t->k[i] = in[1].shape[i + 2];
        if (t->s[i] < 1 || t->d[i] < 1)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: s and d: expected at least 1", def->name);
        TRY(number_of(ctx, def, "s", t->s[i]));
        TRY(number_of(ctx, def, "d", t->d[i]));
        TRY(number_of(ctx, def, "p", t->p[i]));
        const int64_t inner = size_add(size_mul(size_sub(n, 1), t->s[i]), t->d[i] * (t->k[i] - 1) - t->p[i] + 1);
        t->q[i] = size_add(inner, size_sub(o, q));
        if (t->q[i] < 0 || !n)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: size %lld gives %lld", def->name, i + 2,
                            (long long)n, (long long)t->q[i]);
    }
    return SOL_OK;
}

/* One dimension of one residue: index variables U and T, their sizes, the indices. False: no weight contributes. */
struct residue {
    int64_t outputs, taps;
    char to[96], from[96], weight[96];
};

static struct residue residue_of(const struct transposed *t, int i, int64_t r)
{
    struct residue x = {0};
    int64_t s = t->s[i], d = t->d[i], g = gcd(s, d), m = s / g, e = r + t->p[i], k0 = 0;
    x.outputs = size_max(size_ceil_div(size_sub(t->q[i], r), s), 0);
    while (k0 < m && floor_mod(d * k0 - e, s)) k0++;
    x.taps = k0 < m && k0 < t->k[i] ? (t->k[i] - k0 - 1) / m + 1 : 0;
    snprintf(x.to, sizeof x.to, "%lld*U%d_%lld+%lld", (long long)s, i, (long long)r, (long long)r);
    snprintf(x.from, sizeof x.from, "U%d_%lld%+lld-%lld*T%d_%lld", i, (long long)r, (long long)((e - d * k0) / s),
             (long long)(d / g), i, (long long)r);
    snprintf(x.weight, sizeof x.weight, "%lld+%lld*T%d_%lld", (long long)k0, (long long)m, i, (long long)r);
    return x;
}

static void put_residues(struct text *out, const struct transposed *t)
{
    int64_t all = product(t->s, t->rank);
    for (int64_t n = 0; n < all; n++) {
        struct arena *a = out->arena;
        const char *to = "", *taps = "", *from = "", *w = "";
        bool some = true, empty = false;
        for (int i = t->rank - 1, rest = (int)n; i >= 0; rest /= (int)t->s[i], i--) {
            struct residue x = residue_of(t, i, rest % t->s[i]);
            some &= x.taps > 0;
            empty |= x.outputs == 0;
            to = arena_printf(a, " %s%s", x.to, to);
            from = arena_printf(a, " %s%s", x.from, from);
            w = arena_printf(a, " %s%s", x.weight, w);
            taps = arena_printf(a, " T%d_%lld%s", i, (long long)(rest % t->s[i]), taps);
        }
        if (empty) continue;
        text_put(out, "y[N G*#J+J%s] = ", to);
        if (some)
            text_put(out, "(sum[C%s] x[N G*#C+C%s]:0 * w[G*#C+C J%s])", taps, from, w);
        else if (!t->bias)
            text_put(out, "0");
        if (t->bias) text_put(out, "%sb[G*#J+J]", some ? " + " : "");
        text_put(out, "; ");
    }
}

/* For large strides: one statement computes the residue of each output pixel. T counts the weights of a residue. */
static void put_modular(struct text *out, const struct transposed *t)
{
    text_put(out, "y[N G*#J+J");
    for (int i = 0; i < t->rank; i++) text_put(out, " P%d", i);
    text_put(out, "] = (sum[C");
    for (int i = 0; i < t->rank; i++) text_put(out, " T%d", i);
    const char *between = " | ";
    for (int i = 0; i < t->rank; i++) {
        if (t->d[i] == 1) continue;
        text_put(out, "%s(P%d+%lld-%lld*T%d)%%%lld==0", between, i, (long long)t->p[i], (long long)t->d[i], i,
                 (long long)t->s[i]);
        between = " and ";
    }
    text_put(out, "] x[N G*#C+C");
    for (int i = 0; i < t->rank; i++) {
        if (t->d[i] == 1)
            text_put(out, " (P%d+%lld)//%lld-T%d", i, (long long)t->p[i], (long long)t->s[i], i);
        else
            text_put(out, " (P%d+%lld-%lld*T%d)//%lld", i, (long long)t->p[i], (long long)t->d[i], i,
                     (long long)t->s[i]);
    }
    text_put(out, "]:0 * w[G*#C+C J");
    for (int i = 0; i < t->rank; i++) {
        if (t->d[i] == 1)
            text_put(out, " %lld*T%d+(P%d+%lld)%%%lld", (long long)t->s[i], i, i, (long long)t->p[i],
                     (long long)t->s[i]);
        else
            text_put(out, " T%d", i);
    }
    text_put(out, "]:0)%s", t->bias ? " + b[G*#J+J]" : "");
}

static void put_modular_sizes(struct text *out, const struct transposed *t)
{
    for (int i = 0; i < t->rank; i++)
        text_put(out, " #T%d=%lld;", i, (long long)(t->d[i] == 1 ? (t->k[i] + t->s[i] - 1) / t->s[i] : t->k[i]));
}

static void put_residue_sizes(struct text *out, const struct transposed *t)
{
    for (int i = 0; i < t->rank; i++)
        for (int64_t r = 0; r < t->s[i]; r++) {
            struct residue x = residue_of(t, i, r);
            text_put(out, " #U%d_%lld=%lld; #T%d_%lld=%lld;", i, (long long)r, (long long)x.outputs, i, (long long)r,
                     (long long)x.taps);
        }
}

BUILDER(build_conv_t)
{
    struct transposed t = {0};
    TRY(read_transposed(arena_ctx(a), def, nin, in, attrs, &t));
    int64_t residues = 1;
    for (int i = 0; i < t.rank; i++) residues = MIN(residues * MIN(t.s[i], MOST_RESIDUES + 1), MOST_RESIDUES + 1);
    text_put(out, "x[N I");
    for (int i = 0; i < t.rank; i++) text_put(out, " Q%d", i);
    text_put(out, "] w[I J");
    for (int i = 0; i < t.rank; i++) text_put(out, " K%d", i);
    text_put(out, "]%s -> y[N O", t.bias ? " b[O]" : nin > 2 ? " b?[O]" : "");
    for (int i = 0; i < t.rank; i++) text_put(out, " P%d", i);
    text_put(out, "] | #G=%lld; #I=#C*#G; #C=#I//#G; #O=#G*#J;", (long long)MAX(attrs_int(attrs, "g", 0, 1), 1));
    for (int i = 0; i < t.rank; i++) {
        text_put(out, " #P%d=%lld;", i, (long long)t.q[i]);
        put_need(out, size_sub(in[0].shape[i + 2], 1));
    }
    (residues > MOST_RESIDUES ? put_modular_sizes : put_residue_sizes)(out, &t);
    text_put(out, " | | ");
    (residues > MOST_RESIDUES ? put_modular : put_residues)(out, &t);
    return SOL_OK;
}
