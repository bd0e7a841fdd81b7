/* Matrix products of two activations (attention, batched products), or of an operand that `direct` cannot have packed
 * ahead. b is read in place if its rows are whole vectors; otherwise each task packs one panel at a time. In place,
 * rows that lie in different pages are read in short chunks of K: the pages of a chunk stay in the TLB, and its lines
 * in L2, while all panels pass. */
#include "dnn/solvers.h"

/* dfp handles short sums without reuse, such as those of a depthwise convolution. */
static bool find(const struct solver_context *sc, const struct cluster *c, bool swap, struct problem *out,
                 const char **why)
{
    if (!problem_make(sc->arena, c, swap, out, why)) return false;
    *why = "a short sum for each element of one factor";
    return problem_about(out, out->k) >= 8 || (problem_about(out, out->m) > 1 && problem_about(out, out->n) > 1);
}

/* Either factor may be b. The cost decides, as for the rest of a variant. */
static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct problem p;
    struct blocking b;
    for (int swap = 0; swap < 2; swap++)
        for (int source = B_IN_PLACE; source <= B_SCRATCH; source++) {
            const struct blocking_options o = {
                .pixels = 1, .vectors = 1, .chunk = 640, .tiles = 1, .source = (enum b_source)source};
            if (find(sc, c, swap, &p, out_why) && blocking_make(&p, sc->target, &o, &b, out_why)) return true;
        }
    return false;
}

static struct blocking_options options_of(const struct solver_context *sc, const struct variant *v)
{
    struct blocking_options o = variant_blocking(sc, v);
    o.source = (enum b_source)v->p[4];
    return o;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int tiles[] = {8, 32, 1 << 20}, chunks[] = {640, 64};
    enum { CHUNKS = COUNT_OF(chunks), EACH = CHUNKS * COUNT_OF(tiles) };
    struct problem p;
    struct blocking b;
    const char *why;
    struct variant_list list = {.at = out};
    struct tile_shape shape[8];
    const int n = cost_tile_shapes(sc->target, shape, COUNT_OF(shape));
    for (int order = 0; order < 4; order++) { /* bit 0: which factor is b; bit 1: where b lies */
        const int source = order & 1 ? B_SCRATCH : B_IN_PLACE, swap = order >> 1;
        if (!find(sc, c, swap, &p, &why)) continue;
        for (int s = 0; s < n; s++)
            for (int e = 0; e < EACH; e++) {
                const int i = variant_tiles(&p, e / CHUNKS, COUNT_OF(tiles)), chunk = chunks[e % CHUNKS];
                struct variant v = {.p = {shape[s].pixels, shape[s].vectors, chunk, tiles[i], source, swap}};
                if (!variant_wanted(sc, &v)) continue;
                const struct blocking_options o = options_of(sc, &v);
                if (!blocking_try(&p, sc->target, &o, i ? tiles[i - 1] : 0, &b)) continue;
                if (chunk < chunks[0] && !tile_reads_ahead(&b)) continue;
                v.cost = cost_blocking(&b);
                v.text = arena_printf(sc->arena, "%dx%d k%d b%lld%s%s", b.rows * b.cols, b.vectors, v.p[2],
                                      (long long)b.block_tiles, source == B_SCRATCH ? " packed" : "",
                                      swap ? " swapped" : "");
                variants_add(&list, &v);
            }
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
    if (!find(sc, c, v->p[5], &p, &why) || !blocking_make(&p, sc->target, &o, &b, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "matmul: %s", why);
    blocking_kernel(&b, sc, out);
    return SOL_OK;
}

const struct solver dnn_matmul = {
    .name = "matmul", .blocks = true, .dynamic = true, .applicable = applicable, .variants = variants, .emit = emit};
