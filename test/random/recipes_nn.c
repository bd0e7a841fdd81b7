/* Contractions, pooling, reductions, normalizations, sequences, and common blocks of networks. */
#include "random/recipes.h"

#include <string.h>

#define ONE(kind, needs, attrs, ...)                                                                 \
    gen_one(r, kind, needs, (int)(sizeof((struct value *[]){__VA_ARGS__}) / sizeof(struct value *)), \
            (struct value *[]){__VA_ARGS__}, attrs)

static struct value *vector(struct gen *r, int64_t n)
{
    return new_param(r, 1, &n);
}

static struct value *maybe_vector(struct gen *r, int64_t n, int percent)
{
    return gen_chance(r, percent) ? vector(r, n) : NULL;
}

/* -- contractions */

static int some_groups(struct gen *r, int64_t channels)
{
    if (gen_chance(r, 60) || channels < 2) return 1;
    if (gen_chance(r, 50)) return (int)channels;
    int g = gen_between(r, 1, (int)channels);
    while (channels % g) g--;
    return g;
}

static int64_t some_channels(struct gen *r, int groups)
{
    static const int many[] = {8, 16, 24, 32};
    if (groups == 1 && gen_chance(r, 35)) return many[gen_below(r, COUNT_OF(many))];
    return groups * gen_between(r, 1, groups > 4 ? 2 : 4);
}

/* The weights of a convolution with `pixels` dimensions: a new parameter, or sometimes a computed value. */
static struct value *kernel(struct gen *r, int pixels, int64_t a, int64_t b, const struct value *x, bool *out_three)
{
    int64_t shape[SOL_MAX_DIMS] = {a, b};
    int common = gen_chance(r, 45) ? 1 : gen_chance(r, 60) ? 3 : 0;
    *out_three = true;
    for (int d = 0; d < pixels; d++) {
        shape[d + 2] = common ? common : gen_between(r, 1, 4);
        if (size_of(x, d + 2) + 2 < shape[d + 2] && gen_chance(r, 80)) shape[d + 2] = MAX(size_of(x, d + 2), 1);
        *out_three &= shape[d + 2] == 3;
    }
    struct value *w = new_param(r, pixels + 2, shape);
    return gen_chance(r, 5) ? ONE("tanh", 0, "", w) : w;
}

static const char *conv_attrs(struct gen *r, int pixels, int groups)
{
    const char *p = gen_chance(r, 40) ? "1" : ints(r, pixels, 0, 2);
    const char *q = gen_chance(r, 85) ? p : ints(r, pixels, 0, 2);
    const char *s = gen_chance(r, 60) ? "1" : ints(r, pixels, 1, 3),
               *d = gen_chance(r, 75) ? "1" : ints(r, pixels, 1, 2);
    return format(r, "s=%s p=%s q=%s d=%s g=%d", s, p, q, d, groups);
}

static bool make_conv(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0);
    if (x->special) return false;
    int pixels = x->t->ndim - 2, g = some_groups(r, size_of(x, 1));
    int64_t out = some_channels(r, g);
    bool three;
    struct value *w = kernel(r, pixels, out, size_of(x, 1) / g, x, &three);
    return ONE("Conv", p->needs | (three ? IS_ROUGH : KEEPS_EXACT), conv_attrs(r, pixels, g), x, w,
               maybe_vector(r, out, 60)) != NULL;
}

static bool make_conv_t(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0);
    if (x->special) return false;
    int pixels = x->t->ndim - 2, g = some_groups(r, size_of(x, 1));
    int64_t out = gen_chance(r, 30) ? 8 : gen_between(r, 1, 5);
    bool three;
    struct value *w = kernel(r, pixels, size_of(x, 1), out, x, &three);
    const char *attrs = format(r, "%s o=%s", conv_attrs(r, pixels, g), gen_chance(r, 70) ? "0" : ints(r, pixels, 0, 1));
    return ONE("ConvT", p->needs | (three ? IS_ROUGH : KEEPS_EXACT), attrs, x, w, maybe_vector(r, out * g, 60)) != NULL;
}

static bool make_linear(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4);
    if (x->special) return false;
    int64_t out = gen_chance(r, 30) ? 16 * gen_between(r, 1, 4) : some_size(r), shape[] = {out, size_of(x, -1)};
    return ONE("Linear", p->needs, "", x, new_param(r, 2, shape), maybe_vector(r, out, 60)) != NULL;
}

static bool make_bilinear(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 3);
    int64_t shape[SOL_MAX_DIMS], j = gen_between(r, 1, 5), o = gen_between(r, 1, 5);
    shape_of(x, shape);
    int64_t w[] = {o, shape[x->t->ndim - 1], j};
    shape[x->t->ndim - 1] = j;
    return ONE("Bilinear", p->needs, "", x, new_real(r, x->t->ndim, shape), new_param(r, 3, w),
               maybe_vector(r, o, 50)) != NULL;
}

static bool make_matmul(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4), *y;
    int64_t shape[SOL_MAX_DIMS];
    int ndim = x->t->ndim;
    shape_of(x, shape);
    if (gen_chance(r, 20)) { /* a vector */
        y = new_real(r, 1, &shape[ndim - 1]);
    } else {
        int64_t k = shape[ndim - 1];
        shape[MAX(ndim, 2) - 2] = k;
        shape[MAX(ndim, 2) - 1] = gen_chance(r, 30) ? 16 : some_size(r);
        for (int d = 0; d < ndim - 2; d++)
            if (gen_chance(r, 25)) shape[d] = 1;
        int drop = ndim > 2 && gen_chance(r, 30) ? gen_between(r, 0, ndim - 2) : 0;
        y = gen_chance(r, 60) ? new_real(r, MAX(ndim, 2) - drop, shape + drop)
                              : new_param(r, MAX(ndim, 2) - drop, shape + drop);
    }
    return ONE("MatMul", p->needs, "", x, y) != NULL;
}

static bool make_einsum(struct gen *r, const struct recipe *p)
{
    static const struct {
        const char *eq, *a, *b; /* operands: one letter per dimension */
    } rows[] = {{"ij,jk->ik", "ij", "jk"},
                {"bij,bkj->bik", "bij", "bkj"},
                {"bhqd,bhkd->bhqk", "bhqd", "bhkd"},
                {"i,j->ij", "i", "j"},
                {"ij->ji", "ij", ""},
                {"ii->i", "ii", ""},
                {"ij,ij->", "ij", "ij"},
                {"...ij,jk->...ik", "hij", "jk"},
                {"bij->bj", "bij", ""},
                {"abc,cd,bd->ad", "abc", "cd"},
                {"ij,kj", "ij", "kj"}};
    int row = gen_below(r, COUNT_OF(rows) - 1) + (gen_chance(r, 10) ? 1 : 0);
    int64_t size[128];
    for (int i = 0; i < 128; i++) size[i] = gen_between(r, 1, 7);
    struct value *in[3] = {0};
    int n = 0;
    const char *operands[] = {rows[row].a, rows[row].b, strstr(rows[row].eq, ",bd") ? "bd" : ""};
    for (int i = 0; i < 3; i++) {
        int64_t shape[8];
        int ndim = (int)strlen(operands[i]);
        for (int d = 0; d < ndim; d++) shape[d] = size[(int)operands[i][d]];
        if (ndim) in[n++] = new_real(r, ndim, shape);
    }
    return gen_one(r, "Einsum", p->needs, n, in, format(r, "eq=%s", rows[row].eq)) != NULL;
}

static bool make_cdist(struct gen *r, const struct recipe *p)
{
    int64_t m = gen_between(r, 1, 5), xs[] = {some_size(r), m}, zs[] = {some_size(r), m};
    static const char *const norms[] = {"", "n=1.0", "n=2.0", "n=3.0", "n=inf"};
    return ONE("CDist", p->needs, norms[gen_below(r, 4)], new_real(r, 2, xs), new_real(r, 2, zs)) != NULL;
}

/* -- pooling */

static const char *pool_attrs(struct gen *r, const struct value *x, bool padded)
{
    int pixels = x->t->ndim - 2;
    int64_t k[8];
    for (int d = 0; d < pixels; d++) k[d] = MAX(MIN(gen_between(r, 1, 4), size_of(x, d + 2)), 1);
    const char *p = padded && gen_chance(r, 50) ? ints(r, pixels, 0, 1) : "0", *q = gen_chance(r, 85) ? p : "1";
    return format(r, "k=%s s=%s p=%s q=%s d=%s c=%d", list(r, pixels, k), ints(r, pixels, 1, 3), p, q,
                  gen_chance(r, 85) ? "1" : "2", gen_chance(r, 25));
}

static bool make_pool(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0), *out[GEN_OUTPUTS];
    const char *attrs = pool_attrs(r, x, true);
    if (!strcmp(p->kind, "MaxPoolAt")) attrs = format(r, "%s whole=%d", attrs, gen_chance(r, 40));
    if (!strcmp(p->kind, "AvgPool"))
        attrs = format(r, "%s pads=%d div=%d", attrs, gen_chance(r, 50), gen_chance(r, 15) ? 3 : 0);
    if (!strcmp(p->kind, "LpPool"))
        attrs = format(r, "%s n=%s", attrs, gen_chance(r, 50) ? "2.0" : gen_chance(r, 50) ? "1.0" : "3.0");
    return gen_layer(r, p->kind, p->needs, 1, &x, attrs, out);
}

static bool make_adaptive(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0), *out[GEN_OUTPUTS];
    return gen_layer(r, p->kind, p->needs, 1, &x, format(r, "o=%s", ints(r, x->t->ndim - 2, 1, 5)), out);
}

/* -- reductions */

static struct value *pick_number(struct gen *r, const struct recipe *p, int low, int high)
{
    bool ints = p->text && strchr(p->text, 'i');
    return pick(r, ints && gen_chance(r, 15) ? IS_INT : IS_REAL, low, high);
}

static bool make_reduce(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_number(r, p, 0, 5);
    const char *attrs = format(r, "axes=%s keep=%d", some_axes(r, x->t->ndim), gen_chance(r, 50));
    bool positive = p->text && strchr(p->text, 'p');
    if (strstr(p->kind, "Var") || strstr(p->kind, "Std")) attrs = format(r, "%s correction=%d", attrs, gen_below(r, 2));
    if (!strcmp(p->kind, "LpNorm")) {
        static const char *const norms[] = {"1.0", "2.0", "3.0", "0.5", "inf", "-inf"};
        attrs = format(r, "%s n=%s", attrs, norms[gen_below(r, 6)]);
        positive = true;
    }
    if (positive) x = ONE("abs", KEEPS_EXACT, "", x);
    if (x && positive) x = ONE("add", KEEPS_EXACT, "", x, gen_number(r, x->t->dtype, 1));
    return x && gen_one(r, p->kind, p->needs, 1, &x, attrs);
}

static bool make_arg_reduce(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_number(r, p, 1, 4), *out[GEN_OUTPUTS];
    const char *attrs = format(r, "axis=%d keep=%d", some_axis(r, x->t->ndim), gen_chance(r, 50));
    if (!strncmp(p->kind, "Arg", 3)) attrs = format(r, "%s last=%d", attrs, gen_chance(r, 30));
    return gen_layer(r, p->kind, p->needs, 1, &x, attrs, out);
}

static bool make_scan(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_number(r, p, 1, 4);
    const char *attrs =
        format(r, "axis=%d exclusive=%d reverse=%d", some_axis(r, x->t->ndim),
               strcmp(p->kind, "CumSum") && strcmp(p->kind, "CumProd") ? 0 : gen_chance(r, 30), gen_chance(r, 30));
    return gen_one(r, p->kind, p->needs, 1, &x, attrs) != NULL;
}

/* -- normalization */

static bool make_softmax(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 5);
    return gen_one(r, p->kind, p->needs, 1, &x, format(r, "axis=%d", some_axis(r, x->t->ndim))) != NULL;
}

static bool make_softmax_grad(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 5), *in[] = {x, x};
    return gen_one(r, p->kind, p->needs, 2, in,
                   format(r, "axis=%d log=%d", some_axis(r, x->t->ndim), gen_chance(r, 50) ? 1 : 0)) != NULL;
}

static bool make_layer_norm(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 1, 4);
    int n = gen_between(r, 1, MIN(x->t->ndim, 2));
    int64_t shape[SOL_MAX_DIMS];
    shape_of(x, shape);
    int64_t *last = shape + x->t->ndim - n;
    struct value *in[] = {x, gen_chance(r, 70) ? new_param(r, n, last) : NULL,
                          gen_chance(r, 70) ? new_param(r, n, last) : NULL};
    return gen_one(r, p->kind, p->needs, strcmp(p->kind, "RMSNorm") ? 3 : 2, in,
                   format(r, "n=%d e=%s", n, gen_chance(r, 50) ? "0.1" : "0.001")) != NULL;
}

static bool make_batch_norm(struct gen *r, const struct recipe *p)
{
    struct value *x = gen_chance(r, 80) ? pick_image(r, 0) : pick(r, IS_REAL, 2, 3);
    int64_t c = size_of(x, 1);
    struct value *in[] = {x, maybe_vector(r, c, 80), maybe_vector(r, c, 80), vector(r, c), new_positive(r, 1, &c)};
    return gen_one(r, "BatchNorm", p->needs, 5, in, "e=0.01") != NULL;
}

static bool make_statistics(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0), *out[GEN_OUTPUTS];
    int64_t c = size_of(x, 1);
    struct value *in[] = {x, maybe_vector(r, c, 70), maybe_vector(r, c, 70)};
    const char *attrs = "e=0.1";
    if (!strcmp(p->kind, "GroupNorm")) attrs = format(r, "e=0.1 g=%d", some_groups(r, c));
    return gen_layer(r, p->kind, p->needs, 3, in, attrs, out);
}

static bool make_lrn(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 0);
    return ONE("LRN", p->needs, format(r, "n=%d alpha=0.01 beta=0.75 bias=1.5", gen_between(r, 1, 5)), x) != NULL;
}

/* -- sequences */

/* The gradient from what AttentionSums says. */
static bool attention_grad(struct gen *r, const struct recipe *p, struct value *const in[4], const char *attrs)
{
    struct value *y[GEN_OUTPUTS], *out[GEN_OUTPUTS];
    if (!gen_layer(r, "AttentionSums", p->needs, 4, in, attrs, y)) return false;
    const int ndim = y[0]->t->ndim;
    int64_t shape[SOL_MAX_DIMS];
    for (int d = 0; d < ndim; d++) shape[d] = size_of(y[0], d);
    struct value *dy = new_real(r, ndim, shape), *n = ONE("reciprocal", 0, "", y[2]);
    struct value *g = ONE("mul", 0, "", dy, y[0]);
    if (g) g = ONE("Sum", 0, format(r, "axes=[%d]", ndim - 1), g);
    if (!n || !g) return false;
    struct value *given[] = {in[0], in[1], in[2], in[3], dy, y[1], n, g};
    return gen_layer(r, p->kind, p->needs, COUNT_OF(given), given, attrs, out);
}

static bool make_attention(struct gen *r, const struct recipe *p)
{
    int64_t b = gen_between(r, 1, 2), h = gen_between(r, 1, 4), t = some_size(r), s = some_size(r),
            d = gen_between(r, 1, 9), e = gen_between(r, 1, 9);
    int64_t qs[] = {b, h, t, d}, ks[] = {b, h % 2 == 0 && gen_chance(r, 25) ? h / 2 : h, s, d}, vs[] = {b, ks[1], s, e},
            ms[] = {gen_chance(r, 50) ? b : 1, 1, t, s};
    bool causal = s <= t && gen_chance(r, 30);
    int skip = ks[1] == h && gen_chance(r, 20); /* omits leading dimensions */
    struct value *mask = NULL;
    if (gen_chance(r, 40)) mask = new_real(r, 4 - skip, ms + skip);
    struct value *in[] = {new_real(r, 4 - skip, qs + skip), new_real(r, 4 - skip, ks + skip),
                          new_real(r, 4 - skip, vs + skip), mask};
    static const char *const empty[] = {"zero", "nan", "safe"};
    const char *attrs = format(r, "causal=%d scale=%s empty=%s", causal, gen_chance(r, 70) ? "0.0" : "0.5",
                               gen_chance(r, 60) ? empty[0] : empty[gen_between(r, 1, 2)]);
    if (!strcmp(p->kind, "AttentionGrad")) return attention_grad(r, p, in, attrs);
    struct value *out[GEN_OUTPUTS];
    return gen_layer(r, p->kind, p->needs, 4, in, attrs, out);
}

static bool make_recurrent(struct gen *r, const struct recipe *p)
{
    int gates = !strcmp(p->kind, "LSTM") ? 4 : !strcmp(p->kind, "GRU") ? 3 : 1;
    int64_t t = gen_between(r, 1, 5), n = gen_between(r, 1, 4), i = gen_between(r, 1, 8), h = gen_between(r, 1, 12);
    int64_t xs[] = {t, n, i}, ws[] = {gates * h, i}, us[] = {gates * h, h}, hs[] = {n, h};
    struct value *x = new_real(r, 3, xs), *w = new_param(r, 2, ws), *u = new_param(r, 2, us), *out[GEN_OUTPUTS];
    struct value *in[] = {x,
                          w,
                          u,
                          maybe_vector(r, gates * h, 60),
                          maybe_vector(r, gates * h, 60),
                          gen_chance(r, 50) ? new_real(r, 2, hs) : NULL,
                          gates == 4 && gen_chance(r, 50) ? new_real(r, 2, hs) : NULL};
    const char *attrs = format(r, "reverse=%d", gen_chance(r, 40));
    if (gates == 4) attrs = format(r, "%s order=%s", attrs, gen_chance(r, 50) ? "ifgo" : "iofg");
    if (gates == 3)
        attrs = format(r, "%s order=%s inner=%d", attrs, gen_chance(r, 50) ? "rzn" : "zrn", gen_chance(r, 50));
    if (gates == 1) attrs = format(r, "%s act=%s", attrs, gen_chance(r, 50) ? "tanh" : "relu");
    return gen_layer(r, p->kind, p->needs, gates == 4 ? 7 : 6, in, attrs, out);
}

static bool make_loss(struct gen *r, const struct recipe *p)
{
    static const char *const modes[] = {"none", "sum", "mean"};
    int64_t n = gen_between(r, 1, 4), c = gen_between(r, 1, 6), xs[] = {n, c, gen_between(r, 1, 3)}, ts[] = {n, xs[2]};
    int pixels = gen_below(r, 2);
    struct value *x = new_real(r, 2 + pixels, xs);
    struct value *t = gen_source(r, TENSOR_INPUT, SOL_I64, 1 + pixels, ts, FILL_RANGE, 0, (double)c - 1);
    struct value *in[] = {x, t, gen_chance(r, 40) ? new_positive(r, 1, &c) : NULL};
    const char *attrs = format(r, "mode=%s ignore=%d", modes[gen_below(r, 3)], gen_chance(r, 20) ? 0 : -100);
    if (!strcmp(p->kind, "CrossEntropy"))
        attrs = format(r, "%s smoothing=%s", attrs, gen_chance(r, 50) ? "0.0" : "0.25");
    return gen_one(r, p->kind, p->needs, 3, in, attrs) != NULL;
}

/* -- blocks */

static struct value *activated(struct gen *r, struct value *x)
{
    static const char *const kinds[] = {"relu", "relu6", "silu", "sigmoid", "gelu", "hardswish", "tanh", "relu"};
    return x ? ONE(kinds[gen_below(r, COUNT_OF(kinds))], 0, "", x) : NULL;
}

static struct value *conv_block(struct gen *r, struct value *x, int64_t out, int k, int groups, bool act)
{
    int64_t ws[] = {out, size_of(x, 1) / groups, k, k};
    struct value *w = new_param(r, 4, ws);
    struct value *y = ONE("Conv", NEED_FINITE | IS_ROUGH, format(r, "p=%d q=%d g=%d", k / 2, k / 2, groups), x, w,
                          maybe_vector(r, out, 40));
    if (y && gen_chance(r, 75))
        y = ONE("BatchNorm", 0, "e=0.01", y, vector(r, out), vector(r, out), vector(r, out), new_positive(r, 1, &out));
    return act ? activated(r, y) : y;
}

/* x + f(x) with convolutions, and an activation. */
static bool make_residual(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 2), *y;
    (void)p;
    if (x->special || x->t->ndim != 4) return false;
    int64_t c = size_of(x, 1);
    y = conv_block(r, x, gen_chance(r, 50) ? c : 8, gen_chance(r, 50) ? 1 : 3, 1, true);
    if (y && gen_chance(r, 50)) y = conv_block(r, y, size_of(y, 1), 3, (int)size_of(y, 1), true);
    if (y) y = conv_block(r, y, c, gen_chance(r, 50) ? 1 : 3, 1, false);
    if (y && gen_chance(r, 50)) { /* squeeze and excitation */
        struct value *s = ONE("Mean", 0, "axes=[2,3] keep=1", y);
        if (s) s = conv_block(r, s, 4, 1, 1, true);
        if (s) s = conv_block(r, s, c, 1, 1, false);
        if (s) s = ONE("sigmoid", 0, "", s);
        if (s) y = ONE("mul", 0, "", y, s);
    }
    if (y) y = gen_chance(r, 50) ? ONE("add", 0, "", x, y) : ONE("add", 0, "", y, x);
    return (gen_chance(r, 70) ? activated(r, y) : y) != NULL;
}

/* DenseNet: each layer reads all earlier results and adds one. */
static bool make_dense(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 2);
    (void)p;
    for (int i = gen_between(r, 1, 3); i > 0 && x && !x->special; i--) {
        struct value *y = conv_block(r, x, gen_between(r, 1, 8), gen_chance(r, 50) ? 1 : 3, 1, true);
        x = y ? ONE("Concat", KEEPS_EXACT, "axis=1", x, y) : NULL;
    }
    if (x && gen_chance(r, 30)) x = ONE("AvgPool", 0, "k=2 s=2", x);
    return x != NULL;
}

/* ShuffleNet: channels are shuffled, then split. */
static bool make_shuffle(struct gen *r, const struct recipe *p)
{
    struct value *x = pick_image(r, 2), *out[GEN_OUTPUTS];
    int64_t n = size_of(x, 0), c = size_of(x, 1), h = size_of(x, 2), w = size_of(x, 3);
    (void)p;
    if (c % 2 || x->special) return false;
    struct value *y = conv_block(r, x, c, 1, 1, true);
    if (y) y = ONE("Reshape", KEEPS_EXACT, format(r, "shape=[%d,2,%d,%d,%d]", (int)n, (int)c / 2, (int)h, (int)w), y);
    if (y) y = ONE("Permute", KEEPS_EXACT, "perm=[0,2,1,3,4]", y);
    if (y) y = ONE("Reshape", KEEPS_EXACT, format(r, "shape=[%d,%d,%d,%d]", (int)n, (int)c, (int)h, (int)w), y);
    if (!y ||
        !gen_layer(r, "Split", KEEPS_EXACT, 1, &y, format(r, "axis=1 sizes=[%d,%d]", (int)c / 2, (int)c / 2), out))
        return false;
    struct value *z = conv_block(r, out[1], c / 2, 1, 1, true);
    return z && ONE("Concat", KEEPS_EXACT, "axis=1", out[0], z);
}

/* A transformer's layer. */
static bool make_transformer(struct gen *r, const struct recipe *p)
{
    struct value *x = pick(r, IS_REAL, 3, 3), *q[3];
    int64_t n = size_of(x, 0), t = size_of(x, 1), d = size_of(x, 2), heads = d % 4 == 0 ? 4 : d % 2 == 0 ? 2 : 1;
    int64_t ws[] = {d, d}, up[] = {2 * d, d}, down[] = {d, 2 * d};
    (void)p;
    if (x->special || !x->elements) return false;
    struct value *y = ONE("LayerNorm", 0, "e=0.01", x, vector(r, d), vector(r, d));
    for (int i = 0; y && i < 3; i++) {
        q[i] = ONE("Linear", 0, "", y, new_param(r, 2, ws), maybe_vector(r, d, 70));
        const char *shape = format(r, "shape=[%d,%d,%d,%d]", (int)n, (int)t, (int)heads, (int)(d / heads));
        if (q[i]) q[i] = ONE("Reshape", 0, shape, q[i]);
        if (q[i]) q[i] = ONE("Permute", 0, "perm=[0,2,1,3]", q[i]);
        if (!q[i]) return false;
    }
    if (y && gen_chance(r, 50)) {
        y = ONE("Attention", NEED_FINITE, "", q[0], q[1], q[2], NULL);
    } else if (y) {
        struct value *k = ONE("Permute", 0, "perm=[0,1,3,2]", q[1]);
        y = k ? ONE("MatMul", 0, "", q[0], k) : NULL;
        if (y) y = ONE("mul", 0, "", y, gen_number(r, r->real, 0.25));
        if (y) y = ONE("Softmax", 0, "axis=-1", y);
        if (y) y = ONE("MatMul", 0, "", y, q[2]);
    }
    if (y) y = ONE("Permute", 0, "perm=[0,2,1,3]", y);
    if (y) y = ONE("Reshape", 0, format(r, "shape=[%d,%d,%d]", (int)n, (int)t, (int)d), y);
    if (y) y = ONE("Linear", 0, "", y, new_param(r, 2, ws), vector(r, d));
    if (y) y = ONE("add", 0, "", x, y);
    struct value *f = y ? ONE("LayerNorm", 0, "e=0.01", y, vector(r, d), vector(r, d)) : NULL;
    if (f) f = ONE("Linear", 0, "", f, new_param(r, 2, up), vector(r, 2 * d));
    f = activated(r, f);
    if (f) f = ONE("Linear", 0, "", f, new_param(r, 2, down), vector(r, d));
    return f && ONE("add", 0, "", y, f);
}

const struct recipe nn_recipes[] = {
    {"Conv", make_conv, NEED_FINITE, 40, NULL},
    {"ConvT", make_conv_t, NEED_FINITE, 8, NULL},
    {"Linear", make_linear, NEED_FINITE | KEEPS_EXACT, 16, NULL},
    {"Bilinear", make_bilinear, NEED_FINITE | KEEPS_EXACT, 3, NULL},
    {"MatMul", make_matmul, NEED_FINITE | KEEPS_EXACT, 16, NULL},
    {"Einsum", make_einsum, NEED_FINITE | KEEPS_EXACT, 6, NULL},
    {"CDist", make_cdist, NEED_FINITE, 3, NULL},
    {"MaxPool", make_pool, KEEPS_EXACT, 8, NULL},
    {"MaxPoolRelu", make_pool, KEEPS_EXACT, 2, NULL},
    {"MaxPoolAt", make_pool, NEED_EXACT | KEEPS_EXACT, 3, NULL},
    {"AvgPool", make_pool, 0, 8, NULL},
    {"LpPool", make_pool, NEED_FINITE, 3, NULL},
    {"AdaptiveAvgPool", make_adaptive, 0, 3, NULL},
    {"AdaptiveMaxPool", make_adaptive, KEEPS_EXACT, 3, NULL},
    {"AdaptiveMaxPoolAt", make_adaptive, NEED_EXACT | KEEPS_EXACT, 2, NULL},
    {"Sum", make_reduce, KEEPS_EXACT, 8, "i"},
    {"Mean", make_reduce, 0, 8, NULL},
    {"Prod", make_reduce, 0, 3, "i"},
    {"Max", make_reduce, KEEPS_EXACT, 5, "i"},
    {"Min", make_reduce, KEEPS_EXACT, 3, "i"},
    {"Any", make_reduce, NEED_EXACT, 2, "i"},
    {"All", make_reduce, NEED_EXACT, 2, "i"},
    {"SumSquare", make_reduce, KEEPS_EXACT, 2, "i"},
    {"L1", make_reduce, KEEPS_EXACT, 2, NULL},
    {"L2", make_reduce, 0, 2, "p"},
    {"LpNorm", make_reduce, NEED_FINITE, 2, NULL},
    {"LogSum", make_reduce, 0, 2, "p"},
    {"LogSumExp", make_reduce, NEED_FINITE, 3, NULL},
    {"Var", make_reduce, NEED_FINITE, 3, NULL},
    {"Std", make_reduce, NEED_FINITE, 3, NULL},
    {"ArgMax", make_arg_reduce, NEED_EXACT, 3, "i"},
    {"ArgMin", make_arg_reduce, NEED_EXACT, 3, "i"},
    {"MaxAt", make_arg_reduce, NEED_EXACT | KEEPS_EXACT, 3, "i"},
    {"MinAt", make_arg_reduce, NEED_EXACT | KEEPS_EXACT, 3, "i"},
    {"CumSum", make_scan, KEEPS_EXACT, 4, "i"},
    {"CumProd", make_scan, 0, 2, "i"},
    {"CumMax", make_scan, KEEPS_EXACT, 2, "i"},
    {"CumMin", make_scan, KEEPS_EXACT, 2, "i"},
    {"LogCumSumExp", make_scan, NEED_FINITE, 2, NULL},
    {"Softmax", make_softmax, 0, 8, NULL},
    {"LogSoftmax", make_softmax, NEED_FINITE, 4, NULL},
    {"SoftmaxGrad", make_softmax_grad, NEED_FINITE, 3, NULL},
    {"LayerNorm", make_layer_norm, NEED_FINITE, 8, NULL},
    {"RMSNorm", make_layer_norm, NEED_FINITE, 4, NULL},
    {"BatchNorm", make_batch_norm, 0, 12, NULL},
    {"BatchNormTrain", make_statistics, NEED_FINITE, 3, NULL},
    {"InstanceNorm", make_statistics, NEED_FINITE, 3, NULL},
    {"GroupNorm", make_statistics, NEED_FINITE, 4, NULL},
    {"LRN", make_lrn, NEED_FINITE, 3, NULL},
    {"Attention", make_attention, NEED_FINITE, 5, NULL},
    {"AttentionSums", make_attention, NEED_FINITE, 3, NULL},
    {"AttentionGrad", make_attention, NEED_FINITE, 3, NULL},
    {"LSTM", make_recurrent, NEED_FINITE, 2, NULL},
    {"GRU", make_recurrent, NEED_FINITE, 2, NULL},
    {"RNN", make_recurrent, NEED_FINITE, 2, NULL},
    {"NLLLoss", make_loss, NEED_FINITE, 2, NULL},
    {"CrossEntropy", make_loss, NEED_FINITE, 2, NULL},
    {"(residual)", make_residual, 0, 10, NULL},
    {"(dense)", make_dense, 0, 6, NULL},
    {"(shuffle)", make_shuffle, 0, 4, NULL},
    {"(transformer)", make_transformer, 0, 4, NULL},
    {NULL, NULL, 0, 0, NULL},
};
