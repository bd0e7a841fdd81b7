/* Operator definitions of resampling along any dimensions.
 *
 * Every coordinate rule is x = (alpha*P + beta) / gamma with integers. Scales are ratios of sizes, or given numbers
 * approximated by the fraction with the smallest denominator. So the definition is exact: an index is `num // gamma`, a
 * weight is `num % gamma / gamma`, and both are tables or affine, or expressions where sizes vary. Output dimension i
 * has index variable i, its taps have index variable TAPS + i. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layers/build.h"

enum { TAPS = 2 * SOL_MAX_DIMS };
enum mode { NEAREST, LINEAR, CUBIC };
enum coord { HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, HALF_PIXEL_SYMMETRIC, TF_CROP_AND_RESIZE };
enum rounding { FLOOR, CEIL, PREFER_FLOOR, PREFER_CEIL };

struct fraction {
    int64_t up, down; /* down > 0 */
};
struct axis {
    bool plain;                 /* the size does not change */
    int64_t n, m;               /* sizes of input and output */
    int64_t alpha, beta, gamma; /* gamma > 0 */
    int64_t support;            /* antialias: number of taps; 0: none */
    struct fraction wider;      /* antialias: factor by which the filter is wider, at least 1 */
};
struct resize {
    int ndim, mode, coord, round;
    bool exclude, antialias;
    double a;
    struct axis axis[SOL_MAX_DIMS];
};

/* tf_crop_and_resize multiplies sizes and two fractions, so these are limited to fit into 64 bits */
enum { CROP_DOWN = 1 << 12, CROP_SIZE = 1 << 16, CROP_REGION = 16 };

static struct fraction reduce(int64_t up, int64_t down)
{
    int64_t a = up < 0 ? -up : up, b = down;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a ? (struct fraction){up / a, down / a} : (struct fraction){0, 1};
}

/* The simplest fraction that equals v within the precision of a double or float, with a denominator of at most `most`
 * (continued fractions). */
static struct fraction fraction_of(double v, int64_t most)
{
    double x = fabs(v), close = x == (double)(float)x ? 6e-8 : 1e-14;
    int64_t h0 = 0, h1 = 1, k0 = 1, k1 = 0;
    for (int i = 0; i < 40; i++) {
        int64_t whole = (int64_t)floor(x), h = whole * h1 + h0, k = whole * k1 + k0;
        if (k > most || h > (int64_t)1 << 32) break;
        h0 = h1;
        h1 = h;
        k0 = k1;
        k1 = k;
        if (fabs((double)h1 / (double)k1 - fabs(v)) <= close * fabs(v) || x - (double)whole < 1e-15) break;
        x = 1 / (x - (double)whole);
    }
    return k1 ? (struct fraction){v < 0 ? -h1 : h1, k1} : (struct fraction){0, 1};
}

static double list_real(const struct attrs *attrs, const char *name, int i, double otherwise)
{
    const struct opdef_attr *v = attrs_find(attrs, name);
    if (!v || v->kind != ATTR_REAL || (v->n >= 0 && i >= v->n)) return otherwise;
    return v->reals[v->n < 0 ? 0 : i];
}

/* m/n as a fraction: of numbers if their ratio is the same for all sizes. */
static struct fraction ratio(int64_t m, int64_t n)
{
    const int64_t by = size_factor(m), of = size_factor(n);
    const bool varies = size_varies(m) || size_varies(n);
    if (!varies || size_exact_div(m, by) == size_exact_div(n, of)) return varies ? reduce(by, of) : reduce(m, n);
    return (struct fraction){m, n};
}

/* Divides alpha, beta and gamma by what they have in common. */
static void simplify(struct axis *x)
{
    if (size_varies(x->alpha) || size_varies(x->beta) || size_varies(x->gamma)) return;
    struct fraction f = reduce(x->beta, x->gamma);
    if (!x->alpha) {
        x->beta = f.up;
        x->gamma = f.down;
        return;
    }
    const int64_t g = gcd(x->beta ? x->gamma / f.down : x->gamma, x->alpha);
    x->alpha /= g;
    x->beta /= g;
    x->gamma /= g;
}

/* x = (alpha*P + beta) / gamma. The scale s is m/n, or the given number as the fraction up/down. */
static void set_coordinates(struct axis *x, int coord, struct fraction s, double start, double end)
{
    int64_t n = x->n, m = x->m;
    struct fraction from = fraction_of(start, CROP_DOWN), span = fraction_of(end - start, CROP_DOWN);
    switch (coord) {
    case PYTORCH_HALF_PIXEL:
    case HALF_PIXEL:
    case HALF_PIXEL_SYMMETRIC: /* (P + 1/2) / s - 1/2 */
        x->alpha = size_mul(2, s.down);
        x->beta = size_sub(s.down, s.up);
        x->gamma = size_mul(2, s.up);
        if (coord == PYTORCH_HALF_PIXEL && m <= 1) x->alpha = x->beta = 0;
        if (coord == HALF_PIXEL_SYMMETRIC) /* keeps the centre in the centre */
            x->beta = size_add(x->beta, size_sub(size_mul(n, s.up), size_mul(m, s.down)));
        break;
    case ALIGN_CORNERS: /* where m is 1, P is 0 */
        x->alpha = m > 1 ? size_sub(n, 1) : 0;
        x->beta = 0;
        x->gamma = size_max(size_sub(m, 1), 1);
        break;
    case ASYMMETRIC:
        x->alpha = s.down;
        x->beta = 0;
        x->gamma = s.up;
        break;
    default: /* start*(n-1) + P*(end-start)*(n-1)/(m-1), or the centre of the region */
        x->gamma = 2 * from.down * span.down * (m > 1 ? m - 1 : 1);
        x->alpha = m > 1 ? 2 * span.up * (n - 1) * from.down : 0;
        x->beta = 2 * from.up * (n - 1) * span.down * (m > 1 ? m - 1 : 1);
        if (m <= 1) x->beta += span.up * (n - 1) * from.down;
    }
    simplify(x);
}

/* What works for numbers only. */
static sol_status needs_numbers(struct sol_ctx *ctx, const struct layer_def *def, const struct resize *r, int d,
                                const struct axis *x)
{
    char what[64];
    const bool fixed = r->coord == TF_CROP_AND_RESIZE;
    snprintf(what, sizeof what, "with coord=tf_crop_and_resize, dimension %d", d);
    if (fixed) TRY(number_of(ctx, def, what, x->n));
    if (fixed) TRY(number_of(ctx, def, what, x->m));
    if (r->coord == PYTORCH_HALF_PIXEL && size_varies(x->m) && !size_le(2, x->m))
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED,
                        "%s: dimension %d of the result is %lld; coord=pytorch_half_pixel needs at least 2: give the "
                        "dimension a least size",
                        def->name, d, (long long)x->m);
    return SOL_OK;
}

static bool too_long(int64_t n)
{
    return n > (int64_t)1 << 31 && !size_varies(n);
}

/* The filter reaches `radius` pixels of the smaller of the two grids. */
static void set_support(struct axis *x, struct fraction s, int radius)
{
    x->wider = (struct fraction){size_max(s.down, s.up), s.up};
    x->support = size_add(size_mul(2, size_ceil_div(size_mul(radius, x->wider.up), s.up)), 1);
}

static sol_status read_axis(struct sol_ctx *ctx, const struct layer_def *def, const struct resize *r,
                            const struct attrs *attrs, int d, struct axis *x)
{
    double given = list_real(attrs, "scale", d, 0);
    bool crop = r->coord == TF_CROP_AND_RESIZE;
    if (x->m < 0 || (x->m > 0 && x->n == 0) || too_long(x->m) || too_long(x->n) || given < 0 || given > 1e6)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: cannot make %lld of %lld (scale %g)", def->name, d,
                        (long long)x->m, (long long)x->n, given);
    double start = list_real(attrs, "start", d, 0), end = list_real(attrs, "end", d, 1);
    if (crop && !(x->m <= CROP_SIZE && x->n <= CROP_SIZE && fabs(start) <= CROP_REGION && fabs(end) <= CROP_REGION))
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: dimension %d: sizes above %d or a region beyond -%d..%d",
                        def->name, d, CROP_SIZE, CROP_REGION, CROP_REGION);
    const bool whole = !crop || (size_varies(x->n) && start == 0 && end == 1);
    x->plain = x->m == x->n && (given == 0 || given == 1) && whole;
    if (x->plain || !x->m) return SOL_OK;
    TRY(needs_numbers(ctx, def, r, d, x));
    struct fraction s = given > 0 ? fraction_of(given, 1 << 24) : ratio(x->m, x->n);
    if (given > 0 && !s.up)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: scale %g is too small", def->name, d, given);
    set_coordinates(x, r->coord, s, start, end);
    x->plain = crop && x->m == x->n && x->alpha == x->gamma && !x->beta;
    if (r->antialias && r->mode != NEAREST) set_support(x, s, r->mode == CUBIC ? 2 : 1);
    return SOL_OK;
}

static sol_status read_resize(struct sol_ctx *ctx, const struct layer_def *def, const struct opdef_input *in,
                              const struct attrs *attrs, struct resize *r)
{
    r->ndim = in->ndim;
    TRY(length_attr(ctx, def, attrs, "size", in->ndim));
    TRY(word_attr(ctx, def, attrs, "mode", "nearest|linear|cubic", &r->mode));
    TRY(word_attr(ctx, def, attrs, "coord",
                  "half_pixel|pytorch_half_pixel|align_corners|asymmetric|half_pixel_symmetric|tf_crop_and_resize",
                  &r->coord));
    TRY(word_attr(ctx, def, attrs, "round", "floor|ceil|round_prefer_floor|round_prefer_ceil", &r->round));
    r->exclude = attrs_int(attrs, "exclude", 0, 0) != 0;
    r->antialias = attrs_int(attrs, "antialias", 0, 0) != 0;
    r->a = attrs_real(attrs, "a", -0.75);
    if (r->mode != NEAREST && !dtype_def(in->dtype)->is_float)
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: expected a float type for this mode, got %s", def->name,
                        type_name(in->dtype));
    for (int d = 0; d < in->ndim; d++) {
        r->axis[d] = (struct axis){.n = in->shape[d], .m = attrs_int(attrs, "size", d, 0)};
        TRY(read_axis(ctx, def, r, attrs, d, &r->axis[d]));
    }
    return SOL_OK;
}

static bool resampled(const struct resize *r, int d)
{
    return !r->axis[d].plain && r->axis[d].m;
}

static int64_t taps_of(const struct resize *r, int d)
{
    return !resampled(r, d) ? 1 : r->axis[d].support ? r->axis[d].support : r->mode == CUBIC ? 4 : 2;
}

/* -- indices and weights as text */

/* "(A*5-3)": the numerator of a coordinate */
static const char *numerator(struct arena *a, const struct axis *x, int d)
{
    if (!x->alpha) return arena_printf(a, "(%lld)", (long long)x->beta);
    if (!x->beta) return arena_printf(a, "(%s*%lld)", ivar(d), (long long)x->alpha);
    return arena_printf(a, "(%s*%lld%+lld)", ivar(d), (long long)x->alpha, (long long)x->beta);
}

/* The index, clamped to 0..n-1 if it can leave that range: an index is monotone in P, so its ends tell. `plus` is added
 * to it. */
static const char *inside(struct arena *a, const struct axis *x, const char *e, int64_t low, int64_t high)
{
    const int64_t last = size_sub(x->n, 1);
    if (!size_le(0, low)) e = arena_printf(a, "max(%s,0)", e);
    if (!size_le(high, last)) e = arena_printf(a, "min(%s,%lld)", e, (long long)last);
    return e;
}

/* The numerator of the first or last coordinate. */
static int64_t end_of(const struct axis *x, bool last)
{
    return last ? size_add(size_mul(x->alpha, size_sub(x->m, 1)), x->beta) : x->beta;
}

static const char *nearest_index(struct arena *a, const struct resize *r, int d)
{
    const struct axis *x = &r->axis[d];
    const char *num = numerator(a, x, d), *e = NULL;
    const int64_t g = x->gamma, below = size_sub(g, 1), twice = size_mul(2, g);
    int64_t ends[2];
    switch (r->round) {
    case FLOOR: e = arena_printf(a, "%s//%lld", num, (long long)g); break;
    case CEIL: e = arena_printf(a, "(%s+%lld)//%lld", num, (long long)below, (long long)g); break;
    case PREFER_FLOOR: e = arena_printf(a, "(2*%s+%lld)//%lld", num, (long long)below, (long long)twice); break;
    default: e = arena_printf(a, "(2*%s+%lld)//%lld", num, (long long)g, (long long)twice);
    }
    for (int i = 0; i < 2; i++) {
        const int64_t v = end_of(x, i), add = r->round == PREFER_CEIL ? g : r->round == FLOOR ? 0 : below;
        ends[i] = r->round == FLOOR || r->round == CEIL ? size_floor_div(size_add(v, add), g)
                                                        : size_floor_div(size_add(size_mul(2, v), add), twice);
    }
    return inside(a, x, e, size_min(ends[0], ends[1]), size_max(ends[0], ends[1]));
}

/* A filter at distance t, which is text. */
static const char *filter(struct arena *a, const struct resize *r, const char *t)
{
    if (r->mode == LINEAR) return arena_printf(a, "max(1-%s, 0)", t);
    const char *c = arena_printf(a, "(%.17g)", r->a);
    return arena_printf(a, "where(%s<=1, ((%s+2)*%s-(%s+3))*%s*%s+1, where(%s<2, ((%s*%s-5*%s)*%s+8*%s)*%s-4*%s, 0))",
                        t, c, t, c, t, t, t, c, t, c, t, c, t, c);
}

/* The tables of dimension d: i%d[P K] is the index, v%d[P K] its weight. */
static void put_taps(struct text *out, const struct resize *r, int d)
{
    struct arena *a = out->arena;
    const struct axis *x = &r->axis[d];
    const char *P = ivar(d), *K = ivar(TAPS + d), *num = numerator(a, x, d);
    const int64_t v0 = end_of(x, false), v1 = end_of(x, true);
    const int64_t low = size_floor_div(size_min(v0, v1), x->gamma), high = size_floor_div(size_max(v0, v1), x->gamma);
    int before = r->mode == CUBIC, behind = r->mode == CUBIC ? 2 : 1;
    const char *at = arena_printf(a, "%s//%lld+%s%s", num, (long long)x->gamma, K, before ? "-1" : "");
    const char *t =
        arena_printf(a, "abs(%s%%%lld/%lld-%s+%d)", num, (long long)x->gamma, (long long)x->gamma, K, before);
    text_put(out, "i%d[%s %s] = %s; ", d, P, K, inside(a, x, at, size_sub(low, before), size_add(high, behind)));
    if (!r->exclude) {
        text_put(out, "v%d[%s %s] = %s; ", d, P, K, filter(a, r, t));
        return;
    }
    const char *weight = arena_printf(a, "[0<=%s and %s<%lld] * %s", at, at, (long long)x->n, filter(a, r, t));
    text_put(out, "v%d[%s %s] = %s / (", d, P, K, weight);
    for (int k = 0; k < before + behind + 1; k++) {
        const char *one = arena_printf(a, "%s//%lld%+d", num, (long long)x->gamma, k - before);
        const char *dist =
            arena_printf(a, "abs(%s%%%lld/%lld%+d)", num, (long long)x->gamma, (long long)x->gamma, before - k);
        text_put(out, "%s[0<=%s and %s<%lld] * %s", k ? " + " : "", one, one, (long long)x->n, filter(a, r, dist));
    }
    text_put(out, "); ");
}

/* Does dimension d have wide filters whose sizes vary? Their tables would be computed where they are read, so their
 * first taps b%d[P], distances, weights and sums are temporaries. */
static bool wide_and_varies(const struct resize *r, int d)
{
    const struct axis *x = &r->axis[d];
    return resampled(r, d) && x->support && (size_varies(x->n) || size_varies(x->m));
}

/* Antialias: the first pixel that the filter can reach, which is that of the first tap. */
static const char *first_tap(struct arena *a, const struct resize *r, int d)
{
    const struct axis *x = &r->axis[d];
    if (wide_and_varies(r, d)) return arena_printf(a, "b%d[%s]", d, ivar(d));
    return arena_printf(a, "(%s//%lld-%lld)", numerator(a, x, d), (long long)x->gamma, (long long)(x->support / 2));
}

/* Antialias: the weight of a tap at distance `t`, not normalized. */
static const char *wide_weight(struct arena *a, const struct resize *r, int d, const char *tap, const char *t)
{
    const char *first = first_tap(a, r, d);
    return arena_printf(a, "[0<=%s+%s and %s+%s<%lld] * (%s)", first, tap, first, tap, (long long)r->axis[d].n,
                        filter(a, r, t));
}

/* Antialias: the filter is `wider` times as wide, and normalized to sum 1. */
static void put_wide_taps(struct text *out, const struct resize *r, int d)
{
    struct arena *a = out->arena;
    const struct axis *x = &r->axis[d];
    const char *P = ivar(d), *K = ivar(TAPS + d), *J = ivar(TAPS + SOL_MAX_DIMS + d), *taps[2] = {K, J}, *weight[2];
    if (wide_and_varies(r, d)) return;
    const char *first = first_tap(a, r, d);
    for (int i = 0; i < 2; i++) {
        const char *t = arena_printf(a, "(abs(%s/%lld-%s-%s)/%.17g)", numerator(a, x, d), (long long)x->gamma, first,
                                     taps[i], (double)x->wider.up / (double)x->wider.down);
        weight[i] = wide_weight(a, r, d, taps[i], t);
    }
    text_put(out, "i%d[%s %s] = min(max(%s+%s,0),%lld); ", d, P, K, first, K, (long long)(x->n - 1));
    text_put(out, "v%d[%s %s] = %s / (sum[%s] %s); ", d, P, K, weight[0], J, weight[1]);
}

/* The index at a tap of dimension d. */
static const char *index_at(struct arena *a, const struct resize *r, int d)
{
    const char *P = ivar(d), *K = ivar(TAPS + d);
    return wide_and_varies(r, d)
               ? arena_printf(a, "min(max(%s+%s,0),%lld)", first_tap(a, r, d), K, (long long)size_sub(r->axis[d].n, 1))
               : arena_printf(a, "i%d[%s %s]", d, P, K);
}

static void put_temporaries(struct text *out, const struct resize *r)
{
    const char *arrow = " ->";
    for (int d = 0; d < r->ndim; d++) {
        if (!wide_and_varies(r, d)) continue;
        text_put(out, "%s b%d:i64[%s]", arrow, d, ivar(d));
        arrow = "";
    }
}

/* The distances t%d[P K] are differences of integers: in float32, a difference of quotients is inexact. */
static void put_varying_weights(struct text *out, const struct resize *r)
{
    struct arena *a = out->arena;
    for (int d = 0; d < r->ndim; d++) {
        const struct axis *x = &r->axis[d];
        const char *P = ivar(d), *K = ivar(TAPS + d), *num = numerator(a, x, d);
        const char *t = arena_printf(a, "t%d[%s %s]", d, P, K);
        if (!wide_and_varies(r, d)) continue;
        text_put(out, "b%d[%s] = %s//%lld-%lld; ", d, P, num, (long long)x->gamma,
                 (long long)size_floor_div(x->support, 2));
        text_put(out, "%s = abs(%s-(%s+%s)*%lld)/%lld/(%lld/%lld); ", t, num, first_tap(a, r, d), K,
                 (long long)x->gamma, (long long)x->gamma, (long long)x->wider.up, (long long)x->wider.down);
        text_put(out, "w%d[%s %s] = %s; ", d, P, K, wide_weight(a, r, d, K, t));
        text_put(out, "n%d[%s] = sum[%s] w%d[%s %s]; ", d, P, K, d, P, K);
        text_put(out, "v%d[%s %s] = w%d[%s %s] / n%d[%s]; ", d, P, K, d, P, K, d, P);
    }
}

/* -- the row */

static void put_sizes_and_tables(struct text *out, const struct resize *r)
{
    for (int d = 0; d < r->ndim; d++) {
        const struct axis *x = &r->axis[d];
        text_put(out, " #%s=%lld;", ivar(d), (long long)x->m);
        if (x->plain || r->mode == NEAREST) continue;
        text_put(out, " #%s=%lld;", ivar(TAPS + d), (long long)taps_of(r, d));
        if (x->support && !wide_and_varies(r, d))
            text_put(out, " #%s=%lld;", ivar(TAPS + SOL_MAX_DIMS + d), (long long)x->support);
    }
    text_put(out, " | ");
    for (int d = 0; r->mode != NEAREST && d < r->ndim; d++) {
        if (!resampled(r, d)) continue;
        if (r->axis[d].support)
            put_wide_taps(out, r, d);
        else
            put_taps(out, r, d);
    }
}

/* Where tf_crop_and_resize leaves x, the result is a fixed value. */
static void put_outside(struct text *out, const struct resize *r, const char *value, double v, enum sol_dtype t)
{
    text_put(out, "where(");
    const char *between = "";
    for (int d = 0; d < r->ndim; d++) {
        const struct axis *x = &r->axis[d];
        if (x->plain) continue;
        const char *num = numerator(out->arena, x, d);
        text_put(out, "%s0<=%s and %s<=%lld", between, num, num, (long long)((x->n - 1) * x->gamma));
        between = " and ";
    }
    text_put(out, "%s, %s, ", *between ? "" : "0==0", value);
    put_value(out, v, t);
    text_put(out, ")");
}

/* All dimensions at once, without arithmetic, so it can be forwarded to readers as an index. */
static const char *nearest(struct arena *a, const struct resize *r)
{
    struct text t = text_new(a);
    text_put(&t, "x[");
    for (int d = 0; d < r->ndim; d++) text_put(&t, " %s", resampled(r, d) ? nearest_index(a, r, d) : ivar(d));
    text_put(&t, "]");
    return t.at;
}

/* Dimension d of `from`, after the dimensions before it. `behind` is the first index variable of the later
 * dimensions. */
static const char *along(struct arena *a, const struct resize *r, int d, const char *from, int behind)
{
    struct text t = text_new(a);
    const char *at = ivar(d), *tap = ivar(TAPS + d);
    text_put(&t, "sum[%s] %s[", tap, from);
    put_ivars(&t, 0, d);
    text_put(&t, " %s", index_at(a, r, d));
    put_ivars(&t, behind, r->ndim - d - 1);
    text_put(&t, "] * v%d[%s %s]", d, at, tap);
    return t.at;
}

/* Is one dimension after another less work than all at once? Later dimensions still have their input size then. */
static bool apart(const struct resize *r)
{
    double once = 1, steps = 0, points = 1;
    for (int d = 0; d < r->ndim; d++) {
        once *= (double)size_hint(r->axis[d].m) * (double)taps_of(r, d);
        points *= (double)size_hint(r->axis[d].n);
    }
    for (int d = 0; d < r->ndim; d++) {
        points *= resampled(r, d) ? (double)size_hint(r->axis[d].m) / (double)size_hint(r->axis[d].n) : 1;
        if (resampled(r, d)) steps += points * (double)taps_of(r, d);
    }
    return steps < once;
}

/* Resamples all dimensions at once. */
static const char *together(struct arena *a, const struct resize *r)
{
    struct text taps = text_new(a), index = text_new(a), weights = text_new(a);
    for (int d = 0; d < r->ndim; d++) {
        if (!resampled(r, d)) {
            text_put(&index, " %s", ivar(d));
            continue;
        }
        text_put(&taps, " %s", ivar(TAPS + d));
        text_put(&index, " %s", index_at(a, r, d));
        text_put(&weights, " * v%d[%s %s]", d, ivar(d), ivar(TAPS + d));
    }
    return arena_printf(a, "(sum[%s] x[%s]%s)", taps.at, index.at, weights.at);
}

/* Resamples one dimension after another, the outermost first, whose taps are whole rows. Writes statements for all but
 * the last, and returns the last one's value. */
static const char *in_turn(struct text *out, const struct resize *r)
{
    const char *from = "x";
    int last = r->ndim - 1;
    while (!resampled(r, last)) last--;
    for (int d = 0; d < last; d++) {
        if (!resampled(r, d)) continue;
        const char *value = along(out->arena, r, d, from, INNER + d + 1);
        from = arena_printf(out->arena, "s%d", d);
        text_put(out, "%s[", from);
        put_ivars(out, 0, d + 1);
        put_ivars(out, INNER + d + 1, r->ndim - d - 1);
        text_put(out, "] = %s; ", value);
    }
    return arena_printf(out->arena, "(%s)", along(out->arena, r, last, from, last + 1));
}

static const char *value(struct text *out, const struct resize *r)
{
    bool any = false;
    for (int d = 0; d < r->ndim; d++) any = any || resampled(r, d);
    if (r->mode == NEAREST || !any) return nearest(out->arena, r);
    return apart(r) ? in_turn(out, r) : together(out->arena, r);
}

BUILDER(build_resize)
{
    struct resize r = {0};
    (void)nin;
    TRY(read_resize(arena_ctx(a), def, in, attrs, &r));
    text_put(out, "x[");
    put_ivars(out, INNER, r.ndim);
    text_put(out, "] -> y[");
    put_ivars(out, 0, r.ndim);
    text_put(out, "]");
    put_temporaries(out, &r);
    text_put(out, " |");
    put_sizes_and_tables(out, &r);
    text_put(out, " | ");
    put_varying_weights(out, &r);
    const char *v = value(out, &r);
    text_put(out, "y[");
    put_ivars(out, 0, r.ndim);
    text_put(out, "] = ");
    if (r.coord == TF_CROP_AND_RESIZE)
        put_outside(out, &r, v, attrs_real(attrs, "v", 0), in->dtype);
    else
        text_put(out, "%s", v);
    return SOL_OK;
}
