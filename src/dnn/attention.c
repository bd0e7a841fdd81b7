/* The solver of attention (attention.h): two contractions and the softmax between them in one kernel, without a tensor
 * of all scores. */
#include "dnn/attention.h"
#include "dnn/solvers.h"

#define KEYS 144 /* of a block, about: their scores stay in L1 */

enum { P_VECTORS };

/* How many accumulators a tile has room for: a broadcast, the vectors of queries, and without FMA a product. */
int attention_tile_rows(const struct target *t, int vectors)
{
    return (t->registers - (t->fma ? 1 : 2) - vectors) / vectors;
}

void attention_shape(struct attention *a, int vectors, int most)
{
    const int64_t keys = MAX(1, size_hint(a->loops->ivars.at[a->s].size));
    const int64_t blocks = (keys + most - 1) / most, block = (keys + blocks - 1) / blocks;
    a->vectors = vectors;
    a->queries = vectors * a->lanes;
    a->rows = attention_tile_rows(a->target, vectors);
    a->keys = (int)((block + a->rows - 1) / a->rows * a->rows);
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct attention a;
    return attention_find(sc, c, &a, out_why);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    struct attention a;
    struct variant_list list = {.at = out};
    const char *why;
    if (!attention_find(sc, c, &a, &why)) return 0;
    for (int vectors = 1; vectors <= 3; vectors++) {
        struct variant v = {.p = {vectors}};
        if (!variant_wanted(sc, &v)) continue;
        attention_shape(&a, vectors, KEYS);
        v.cost = cost_attention(&a);
        v.text = arena_printf(sc->arena, "q%d k%d", a.queries, a.keys);
        variants_add(&list, &v);
    }
    return list.n;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct attention a;
    const char *why = "";
    if (!attention_find(sc, c, &a, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "attention: %s", why);
    attention_shape(&a, v->p[P_VECTORS], KEYS);
    attention_print(&a, out);
    return SOL_OK;
}

const struct solver dnn_attention = {
    .name = "attention", .blocks = true, .dynamic = true, .applicable = applicable, .variants = variants, .emit = emit};
