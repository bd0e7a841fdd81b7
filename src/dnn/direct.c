/* Direct contraction with constant weights: convolutions of any kernel size, linear layers, matrix products with a
 * parameter. Weights are packed into panels once, in `prepare`. The input is read where it lies, or gathered block
 * by block. */
#include "dnn/solvers.h"

#include <string.h>

static bool find(const struct solver_context *sc, const struct cluster *c, struct problem *out, const char **why)
{
    struct problem other;
    int found = 0;
    for (int swap = 0; swap < 2; swap++) {
        struct problem *p = found ? &other : out;
        if (!problem_make(sc->arena, c, swap, p, why)) continue;
        if (!c->memory[p->b.tensor].constant) {
            *why = "no constant factor";
            continue;
        }
        if (!problem_packs_b(p)) {
            *why = "the weights are read twice";
            continue;
        }
        if (p->vector < 0) {
            *why = "the weights have no index variable of the result";
            continue;
        }
        if (found && other.unit && !out->unit) *out = other;
        found = 1;
    }
    return found;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct problem p;
    struct blocking b;
    const struct blocking_options o = {.pixels = 1, .vectors = 1, .chunk = 640, .tiles = 1};
    return find(sc, c, &p, out_why) && blocking_make(&p, sc->target, &o, &b, out_why);
}

static struct blocking_options options_of(const struct solver_context *sc, const struct variant *v)
{
    struct blocking_options o = variant_blocking(sc, v);
    o.source = B_PACKED;
    o.gather = v->p[4];
    o.groups = v->p[5];
    return o;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int tiles[] = {4, 8, 16, 32, 1 << 20};
    static const char *const groups[] = {[B_APART] = "", [B_SHARE] = " groups", [B_PANELS] = " panels"};
    struct problem p;
    struct blocking b;
    const char *why;
    struct variant_list list = {.at = out};
    struct tile_shape shape[8];
    if (!find(sc, c, &p, &why)) return 0;
    const int n = cost_tile_shapes(sc->target, shape, COUNT_OF(shape));
    const double read = (double)loops_elements(&p.loops->tensors.at[p.b.tensor]) * p.bytes;
    for (int form = 0; form < 2 * (B_PANELS + 1); form++) /* bit 0: gathered; the others: groups */
        for (int s = 0; s < n; s++)
            for (int k = 0; k < COUNT_OF(tiles); k++) {
                const int i = variant_tiles(&p, k, COUNT_OF(tiles));
                struct variant v = {.p = {shape[s].pixels, shape[s].vectors, 640, tiles[i], form & 1, form >> 1}};
                if (p.a.any_border && !v.p[4]) continue;
                if (v.p[5] == B_SHARE) v.p[0] = MIN(v.p[0], sc->target->registers - 12);
                if (!variant_wanted(sc, &v)) continue;
                const struct blocking_options o = options_of(sc, &v);
                if (!blocking_try(&p, sc->target, &o, i ? tiles[i - 1] : 0, &b)) continue;
                v.cost = cost_blocking(&b);
                v.moved = read + 2.0 * p.bytes * (double)blocking_packed_elements(&b);
                v.text = arena_printf(sc->arena, "%dx%d%s k%lld b%lld%s%s", b.rows * b.cols, b.vectors,
                                      b.rows > 1 ? " rows" : "", (long long)(b.nrun * b.len), (long long)b.block_tiles,
                                      b.gather ? " gather" : "", groups[b.options.groups]);
                variants_add(&list, &v);
            }
    return list.n;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct problem p;
    struct blocking b;
    const char *why = "";
    const struct blocking_options o = options_of(sc, v);
    struct sol_ctx *ctx = arena_ctx(sc->arena);
    if (!find(sc, c, &p, &why) || !blocking_make(&p, sc->target, &o, &b, &why))
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "direct: %s", why);
    struct loops *pack = blocking_pack(&b, sc->arena);
    if (!pack)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "direct: the packed weights have more than %d dimensions",
                        SOL_MAX_DIMS);
    blocking_kernel(&b, sc, out);
    out->npack = 1;
    out->pack[0] = (struct kernel_pack){.tensor = p.b.tensor, .loops = pack};
    return SOL_OK;
}

const struct solver dnn_direct = {
    .name = "direct", .blocks = true, .dynamic = true, .applicable = applicable, .variants = variants, .emit = emit};
