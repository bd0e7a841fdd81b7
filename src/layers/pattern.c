/* Definitions with a fixed pattern: diagonals and triangles, blocks of pixels, windows. */
#include <string.h>

#include "layers/build.h"

BUILDER(build_triangle)
{
    (void)nin;
    int n = in->ndim;
    TRY(rank_of(arena_ctx(a), def, in, 0, 2, false));
    struct text x = text_new(a);
    text_put(&x, "[");
    put_ivars(&x, 0, n);
    text_put(&x, "]");
    text_put(out, "x%s -> y%s | | | y%s = where([%s-%s%s%lld], x%s, 0)", x.at, x.at, x.at, ivar(n - 1), ivar(n - 2),
             def->name[3] == 'l' ? "<=" : ">=", (long long)attrs_int(attrs, "k", 0, 0), x.at);
    return SOL_OK;
}

static sol_status two_axes(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, int ndim,
                           int *a1, int *a2)
{
    TRY(axis_attr(ctx, def, attrs, "axis1", ndim, a1));
    TRY(axis_attr(ctx, def, attrs, "axis2", ndim, a2));
    if (*a1 == *a2) return ctx_fail(ctx, SOL_ERR_INVALID, "%s: axis1 and axis2 are the same", def->name);
    return SOL_OK;
}

BUILDER(build_diagonal)
{
    (void)nin;
    int n = in->ndim, a1, a2;
    int64_t k = attrs_int(attrs, "k", 0, 0);
    TRY(rank_of(arena_ctx(a), def, in, 0, 2, false));
    TRY(two_axes(arena_ctx(a), def, attrs, n, &a1, &a2));
    int64_t low = MAX(-k, 0), high = MAX(k, 0),
            size = size_min(size_sub(in->shape[a1], low), size_sub(in->shape[a2], high));
    TRY(number_of(arena_ctx(a), def, "k", k));
    size = size_max(size, 0);
    const char *run = ivar(n);
    text_put(out, "x[");
    put_ivars(out, 0, n);
    struct text y = text_new(a);
    text_put(&y, "y[");
    for (int d = 0; d < n; d++)
        if (d != a1 && d != a2) text_put(&y, " %s", ivar(d));
    text_put(&y, " %s]", run);
    text_put(out, "] -> %s | #%s=%lld | | %s = x[", y.at, run, (long long)size, y.at);
    for (int d = 0; d < n; d++) {
        int64_t from = !size ? 0 : d == a1 ? low : d == a2 ? high : 0;
        text_put(out, " %s", d == a1 || d == a2 ? run : ivar(d));
        if (from) text_put(out, "+%lld", (long long)from);
    }
    text_put(out, "]");
    return SOL_OK;
}

/* One statement also fills in zeros: positions off the diagonal are mapped to outside, where a read gives 0. */
BUILDER(build_diag_embed)
{
    (void)nin;
    int n = in->ndim + 1, a1, a2;
    int64_t k = attrs_int(attrs, "k", 0, 0), size;
    TRY(rank_of(arena_ctx(a), def, in, 0, 1, false));
    TRY(two_axes(arena_ctx(a), def, attrs, n, &a1, &a2));
    TRY(number_of(arena_ctx(a), def, "k", k));
    size = size_add(in->shape[in->ndim - 1], k < 0 ? -k : k);
    if (n > SOL_MAX_DIMS) return ctx_fail(arena_ctx(a), SOL_ERR_UNSUPPORTED, "%s: too many dimensions", def->name);
    text_put(out, "x[");
    put_ivars(out, SOL_MAX_DIMS, in->ndim);
    struct text y = text_new(a);
    text_put(&y, "y[");
    put_ivars(&y, 0, n);
    text_put(out, "] -> %s] |", y.at);
    for (int d = 0, i = 0; d < n; d++)
        text_put(out, " #%s=%lld;", ivar(d), (long long)(d == a1 || d == a2 ? size : in->shape[i++]));
    text_put(out, " | | %s] = where([%s+(%lld)==%s], x[", y.at, ivar(a1), (long long)k, ivar(a2));
    for (int d = 0; d < n; d++)
        if (d != a1 && d != a2) text_put(out, " %s", ivar(d));
    text_put(out, " %s", ivar(k < 0 ? a2 : a1));
    text_put(out, "]:0, 0)");
    return SOL_OK;
}

/* -- blocks of pixels: C, H, W are the last three dimensions; index variables 0.. are the leading ones */

/* Can blocks of `area` channels become pixels (up), or blocks of r x r pixels channels, of sizes C, H, W? */
static bool divides(int64_t area, int64_t r, bool up, const int64_t *s)
{
    if (up) return s[0] % area == 0;
    return size_exact_div(s[1], r) != SIZE_BAD && size_exact_div(s[2], r) != SIZE_BAD;
}

BUILDER(build_pixel_shuffle)
{
    (void)nin;
    int n = in->ndim, mode = 1;
    int64_t r = attrs_int(attrs, "r", 0, 1), s[SOL_MAX_DIMS];
    const char *name = def->name;
    bool up = !strcmp(name, "PixelShuffle") || !strcmp(name, "DepthToSpace");
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, false));
    if (!strcmp(name, "DepthToSpace")) TRY(word_attr(arena_ctx(a), def, attrs, "mode", "DCR|CRD", &mode));
    if (!strcmp(name, "SpaceToDepth")) mode = 0;
    memcpy(s, in->shape, (size_t)n * sizeof *s);
    int64_t *c = &s[n - 3], *h = &s[n - 2], *w = &s[n - 1];
    TRY(number_of(arena_ctx(a), def, "r", r));
    TRY(number_of(arena_ctx(a), def, "the number of channels", *c));
    if (r < 1 || r > 1 << 20 || !divides(r * r, r, up, s + n - 3))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: r=%lld does not divide the sizes %lld %lld %lld", name,
                        (long long)r, (long long)*c, (long long)*h, (long long)*w);
    *c = up ? *c / (r * r) : *c * r * r;
    *h = up ? size_mul(*h, r) : size_exact_div(*h, r);
    *w = up ? size_mul(*w, r) : size_exact_div(*w, r);
    put_copy(out, in, n, s);
    put_ivars(out, 0, n - 3);
    const char *C = ivar(n - 3), *H = ivar(n - 2), *W = ivar(n - 1);
    long long b = (long long)r, groups = up ? *c : *c / (r * r);
    if (up && mode) /* channel = (C, row, column) */
        text_put(out, " %s*%lld+%s%%%lld*%lld+%s%%%lld %s//%lld %s//%lld]", C, b * b, H, b, b, W, b, H, b, W, b);
    else if (up) /* channel = (row, column, C) */
        text_put(out, " (%s%%%lld*%lld+%s%%%lld)*%lld+%s %s//%lld %s//%lld]", H, b, b, W, b, groups, C, H, b, W, b);
    else if (mode)
        text_put(out, " %s//%lld %s*%lld+%s//%lld%%%lld %s*%lld+%s%%%lld]", C, b * b, H, b, C, b, b, W, b, C, b);
    else
        text_put(out, " %s%%%lld %s*%lld+%s//%lld %s*%lld+%s//%lld%%%lld]", C, MAX(groups, 1), H, b, C,
                 MAX(groups, 1) * b, W, b, C, MAX(groups, 1), b);
    return SOL_OK;
}

/* -- windows. Index variables of the kernel follow those of the output. */

struct windows {
    int rank; /* pixel dimensions */
    int64_t k[SOL_MAX_DIMS], s[SOL_MAX_DIMS], p[SOL_MAX_DIMS], d[SOL_MAX_DIMS], blocks[SOL_MAX_DIMS];
    struct text needs; /* as of put_need */
};

static sol_status read_windows(struct sol_ctx *ctx, const struct layer_def *def, const struct attrs *attrs, int rank,
                               const int64_t *pixels, struct windows *w)
{
    static const char *const names[] = {"k", "s", "p", "d"};
    w->rank = rank;
    for (int i = 0; i < 4; i++) TRY(length_attr(ctx, def, attrs, names[i], rank));
    for (int i = 0; i < rank; i++) {
        w->k[i] = attrs_int(attrs, "k", i, 1);
        w->s[i] = attrs_int(attrs, "s", i, 1);
        w->p[i] = attrs_int(attrs, "p", i, 0);
        w->d[i] = attrs_int(attrs, "d", i, 1);
        for (int k = 0; k < 4; k++) TRY(number_of(ctx, def, names[k], attrs_int(attrs, names[k], i, 0)));
        const int64_t span = size_add(pixels[i], 2 * w->p[i] - w->d[i] * (w->k[i] - 1) - 1);
        put_need(&w->needs, span);
        if (w->k[i] < 1 || w->s[i] < 1 || w->p[i] < 0 || w->d[i] < 1 || span < 0)
            return ctx_fail(ctx, SOL_ERR_INVALID, "%s: dimension %d: no window of %lld fits %lld", def->name, i,
                            (long long)w->k[i], (long long)pixels[i]);
        w->blocks[i] = size_add(size_floor_div(span, w->s[i]), 1);
    }
    return SOL_OK;
}

/* The component i of linear position `e` in a row-major shape `sizes`. */
static void put_digit(struct text *out, const char *e, int rank, const int64_t *sizes, int i)
{
    int64_t stride = product(sizes + i + 1, rank - i - 1);
    if (sizes[i] == 1) {
        text_put(out, "0");
        return;
    }
    text_put(out, "%s", e);
    if (stride > 1) text_put(out, "//%lld", (long long)stride);
    if (i > 0 || e[1]) text_put(out, "%%%lld", (long long)sizes[i]);
}

/* y[N, C*K, L]: index variables N, row R, column L */
BUILDER(build_unfold)
{
    (void)nin;
    struct windows w = {.needs = text_new(a)};
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, false));
    TRY(read_windows(arena_ctx(a), def, attrs, in->ndim - 2, in->shape + 2, &w));
    int64_t kernel = product(w.k, w.rank), columns = product(w.blocks, w.rank);
    text_put(out, "x[N M");
    put_ivars(out, SOL_MAX_DIMS, w.rank);
    text_put(out, "] -> y[N R L] |%s #R=%lld; #L=%lld | | y[N R L] = x[N R//%lld", w.needs.at,
             (long long)product((int64_t[]){in->shape[1], kernel}, 2), (long long)columns, (long long)kernel);
    for (int i = 0; i < w.rank; i++) {
        text_put(out, w.s[i] == 1 ? " " : " %lld*(", (long long)w.s[i]);
        put_digit(out, "L", w.rank, w.blocks, i);
        text_put(out, w.s[i] == 1 ? "+" : ")+");
        if (w.d[i] != 1) text_put(out, "%lld*(", (long long)w.d[i]);
        put_digit(out, arena_printf(a, "(R%%%lld)", (long long)kernel), w.rank, w.k, i);
        if (w.d[i] != 1) text_put(out, ")");
        text_put(out, "-%lld", (long long)w.p[i]);
    }
    text_put(out, "]:0");
    return SOL_OK;
}

/* y[N C pixels] = sum over the kernel of the columns that cover the pixel: the window is (pixel + p - d*K) / s, where
 * that is an integer. */
BUILDER(build_fold)
{
    (void)nin;
    struct windows w = {.needs = text_new(a)};
    int rank = MAX(attr_length(attrs, "o"), attr_length(attrs, "k"));
    int64_t o[SOL_MAX_DIMS] = {0};
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, true));
    if (rank < 1 || rank > 4)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: expected 1 to 4 sizes in o", def->name);
    TRY(length_attr(arena_ctx(a), def, attrs, "o", rank));
    for (int i = 0; i < rank; i++) o[i] = attrs_int(attrs, "o", i, 0);
    TRY(read_windows(arena_ctx(a), def, attrs, rank, o, &w));
    int64_t kernel = product(w.k, rank);
    const int64_t channels = size_exact_div(in->shape[1], kernel);
    if (channels == SIZE_BAD || in->shape[2] != product(w.blocks, rank))
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: [%lld %lld] is not what windows of this size give",
                        def->name, (long long)in->shape[1], (long long)in->shape[2]);
    static const char *const pixel[] = {"A", "B", "D", "E"}, *const tap[] = {"F", "H", "U", "V"};
    struct text y = text_new(a), taps = text_new(a), row = text_new(a), column = text_new(a), guard = text_new(a);
    text_put(&row, "M*%lld", (long long)kernel);
    for (int i = 0; i < rank; i++) {
        long long inner = (long long)product(w.k + i + 1, rank - i - 1),
                  across = (long long)product(w.blocks + i + 1, rank - i - 1);
        const char *e = arena_printf(a, "(%s+%lld-%lld*%s)", pixel[i], (long long)w.p[i], (long long)w.d[i], tap[i]);
        text_put(&y, " %s", pixel[i]);
        text_put(&taps, " %s", tap[i]);
        text_put(&row, "+%s*%lld", tap[i], inner);
        text_put(&column, "%s%s//%lld*%lld", i ? "+" : "", e, (long long)w.s[i], across);
        text_put(&guard, "%s%s%%%lld==0 and 0<=%s<%lld", i ? " and " : "", e, (long long)w.s[i], e,
                 (long long)size_mul(w.blocks[i], w.s[i]));
    }
    text_put(out, "x[N R L] -> y[N M%s] |%s #M=%lld;", y.at, w.needs.at, (long long)channels);
    for (int i = 0; i < rank; i++)
        text_put(out, " #%s=%lld; #%s=%lld;", pixel[i], (long long)o[i], tap[i], (long long)w.k[i]);
    text_put(out, " | | y[N M%s] = sum[%s | %s] x[N %s %s]", y.at, taps.at, guard.at, row.at, column.at);
    return SOL_OK;
}

BUILDER(build_windows)
{
    (void)nin;
    int n = in->ndim, axis;
    int64_t size = attrs_int(attrs, "n", 0, 1), step = attrs_int(attrs, "s", 0, 1), shape[SOL_MAX_DIMS + 1];
    TRY(axis_attr(arena_ctx(a), def, attrs, "axis", n, &axis));
    TRY(number_of(arena_ctx(a), def, "s", step));
    const int64_t rest = size_sub(in->shape[axis], size);
    if (n == SOL_MAX_DIMS || size < 1 || step < 1 || rest < 0)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: no window of %lld every %lld fits %lld", def->name,
                        (long long)size, (long long)step, (long long)in->shape[axis]);
    memcpy(shape, in->shape, (size_t)n * sizeof *shape);
    shape[axis] = size_add(size_floor_div(rest, step), 1);
    shape[n] = size;
    text_put(out, "x[");
    put_ivars(out, SOL_MAX_DIMS + 1, n);
    text_put(out, "] -> y[");
    put_ivars(out, 0, n + 1);
    text_put(out, "] |");
    put_need(out, rest);
    put_sizes(out, 0, n + 1, shape);
    text_put(out, " | | y[");
    put_ivars(out, 0, n + 1);
    text_put(out, "] = x[");
    for (int d = 0; d < n; d++) text_put(out, d == axis ? " %s*%lld+%s" : " %s", ivar(d), (long long)step, ivar(n));
    text_put(out, "]");
    return SOL_OK;
}
