/* Definitions that sample at positions given by data. A position is unnormalized, padded, and split into an integer (a
 * tensor used as an index) and a fraction (which gives the weights). x[N C pixels..], grid[N out.. D]: the grid's first
 * coordinate belongs to the last pixel dimension. */
#include <string.h>

#include "layers/build.h"

enum { LINEAR, NEAREST, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { TAPS = 2 * SOL_MAX_DIMS };

struct grid {
    int rank, mode, pad;
    bool align;
    const char *out_ivars; /* " A B" */
};

/* c[N A B]: the position along dimension d with n pixels, in pixels. Applies padding modes that change positions. */
static void put_position(struct text *out, const struct grid *g, int d, int64_t n)
{
    struct arena *a = out->arena;
    const long long size = n, last = size_sub(n, 1);
    const char *p = arena_printf(a, "g[N%s %d]", g->out_ivars, g->rank - 1 - d);
    if (!g->align)
        p = arena_printf(a, "((%s+1)*%lld-1)*0.5", p, size);
    else if (size_varies(n))
        p = arena_printf(a, "(%s+1)*(%lld/2)", p, last);
    else
        p = arena_printf(a, "(%s+1)*%.1f", p, (double)last / 2);
    text_put(out, "c%d[N%s] = ", d, g->out_ivars);
    if (g->mode == CUBIC || g->pad == ZEROS) {
        text_put(out, "%s; ", p);
        return;
    }
    if (g->pad == REFLECTION && g->align && n > 1) /* reflected at the centres 0 and n-1 */
        p = arena_printf(a, "%lld-abs(%lld-remainder(%s, %lld))", last, last, p, (long long)size_mul(2, last));
    else if (g->pad == REFLECTION && g->align)
        p = arena_printf(a, "0*(%s)", p);
    else if (g->pad == REFLECTION) /* at the edges -1/2 and n-1/2 */
        p = arena_printf(a, "%lld-abs(%lld-remainder(%s+0.5, %lld))-0.5", size, size, p, (long long)size_mul(2, n));
    text_put(out, "min(max(%s, 0), %lld); ", p, last);
}

/* The index of one tap of a cubic interpolation, padded as an integer. */
static const char *cubic_index(struct arena *a, const struct grid *g, int d, int64_t n)
{
    const long long last = size_sub(n, 1), twice = size_mul(2, n), mirror = size_sub(twice, 1);
    const char *e = arena_printf(a, "i%d[N%s]+%s-1", d, g->out_ivars, ivar(TAPS + d));
    if (g->pad == BORDER) return arena_printf(a, "min(max(%s,0),%lld)", e, last);
    if (g->pad == ZEROS) return e;
    if (n == 1) return "0";
    if (g->align) return arena_printf(a, "%lld-abs(%lld-(%s)%%%lld)", last, last, e, (long long)size_mul(2, last));
    return arena_printf(a, "min((%s)%%%lld,%lld-(%s)%%%lld)", e, twice, mirror, e, twice);
}

static const char *cubic_weight(struct arena *a, const char *t)
{
    return arena_printf(a, "where(%s<=1, (1.25*%s-2.25)*%s*%s+1, ((-0.75*%s+3.75)*%s-6)*%s+3)", t, t, t, t, t, t, t);
}

/* Statements of dimension d: the position c, its integer part f, f as an integer i; cubic: the weights u. */
static void put_dimension(struct text *out, const struct grid *g, int d, int64_t n)
{
    const char *o = g->out_ivars;
    put_position(out, g, d, n);
    if (g->mode == NEAREST) {
        text_put(out, "i%d[N%s] = round(c%d[N%s]); ", d, o, d, o);
        return;
    }
    text_put(out, "f%d[N%s] = floor(c%d[N%s]); i%d[N%s] = f%d[N%s]; ", d, o, d, o, d, o, d, o);
    if (g->mode != CUBIC) return;
    const char *t = arena_printf(out->arena, "abs(c%d[N%s]-f%d[N%s]+1-%s)", d, o, d, o, ivar(TAPS + d));
    text_put(out, "u%d[N%s %s] = %s; ", d, o, ivar(TAPS + d), cubic_weight(out->arena, t));
}

static void put_sample(struct text *out, const struct grid *g, const int64_t *pixels)
{
    struct arena *a = out->arena;
    struct text taps = text_new(a), index = text_new(a), weights = text_new(a);
    const char *o = g->out_ivars;
    for (int d = 0; d < g->rank; d++) {
        text_put(&taps, " %s", ivar(TAPS + d));
        if (g->mode == NEAREST)
            text_put(&index, " i%d[N%s]", d, o);
        else if (g->mode == CUBIC)
            text_put(&index, " %s", cubic_index(a, g, d, pixels[d]));
        else
            text_put(&index, " i%d[N%s]+%s", d, o, ivar(TAPS + d));
        if (g->mode == CUBIC)
            text_put(&weights, " * u%d[N%s %s]", d, o, ivar(TAPS + d));
        else
            text_put(&weights, " * abs(1-%s-(c%d[N%s]-f%d[N%s]))", ivar(TAPS + d), d, o, d, o);
    }
    text_put(out, "y[N C%s] = ", o);
    if (g->mode != NEAREST) text_put(out, "sum[%s] ", taps.at);
    text_put(out, "x[N C%s]:0", index.at);
    if (g->mode != NEAREST) text_put(out, "%s", weights.at);
}

BUILDER(build_grid_sample)
{
    struct grid g = {.rank = in[0].ndim - 2, .align = attrs_int(attrs, "align", 0, 0) != 0};
    (void)nin;
    TRY(word_attr(arena_ctx(a), def, attrs, "mode", "linear|nearest|cubic", &g.mode));
    TRY(word_attr(arena_ctx(a), def, attrs, "pad", "zeros|border|reflection", &g.pad));
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, false));
    TRY(rank_of(arena_ctx(a), def, in, 1, in[0].ndim, true));
    if (in[1].shape[g.rank + 1] != g.rank)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: input 1: last dimension: expected %d, got %lld", def->name,
                        g.rank, (long long)in[1].shape[g.rank + 1]);
    struct text o = text_new(a);
    for (int d = 0; d < g.rank; d++) text_put(&o, " P%d", d);
    g.out_ivars = o.at;
    text_put(out, "x:float[N C");
    put_ivars(out, INNER, g.rank);
    text_put(out, "] g:float[N%s %s] -> y[N C%s] ->", o.at, ivar(INNER + g.rank), o.at);
    for (int d = 0; d < g.rank; d++) text_put(out, " i%d:i64[N%s]", d, o.at);
    text_put(out, " |");
    for (int d = 0; g.mode != NEAREST && d < g.rank; d++)
        text_put(out, " #%s=%d;", ivar(TAPS + d), g.mode == CUBIC ? 4 : 2);
    text_put(out, " | | ");
    for (int d = 0; d < g.rank; d++) put_dimension(out, &g, d, in[0].shape[d + 2]);
    put_sample(out, &g, in[0].shape + 2);
    return SOL_OK;
}

/* grid[N P.. R] = sum of theta[N R C] * (x, y, .., 1) at the pixel */
BUILDER(build_affine_grid)
{
    int rank = attr_length(attrs, "size");
    bool align = attrs_int(attrs, "align", 0, 0) != 0;
    (void)nin;
    TRY(rank_of(arena_ctx(a), def, in, 0, 3, true));
    if (rank < 1 || in->shape[1] != rank || in->shape[2] != rank + 1)
        return ctx_fail(arena_ctx(a), SOL_ERR_INVALID, "%s: expected theta of [N, %d, %d] for %d sizes", def->name,
                        rank, rank + 1, rank);
    struct text y = text_new(a);
    for (int d = 0; d < rank; d++) text_put(&y, " P%d", d);
    text_put(out, "t[N R C] -> y[N%s R] |", y.at);
    for (int d = 0; d < rank; d++) text_put(out, " #P%d=%lld;", d, (long long)attrs_int(attrs, "size", d, 1));
    text_put(out, " | | y[N%s R] = t[N R %d]", y.at, rank);
    for (int d = 0; d < rank; d++) {
        const long long n = attrs_int(attrs, "size", d, 1), span = align ? size_sub(n, 1) : n;
        text_put(out, " + t[N R %d] * ", rank - 1 - d);
        if (n == 1)
            text_put(out, "0");
        else
            text_put(out, align ? "((2*P%d-%lld)/%lld)" : "((2*P%d+1-%lld)/%lld)", d, span, span);
    }
    return SOL_OK;
}
