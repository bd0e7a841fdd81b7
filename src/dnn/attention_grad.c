/* The solver of attention's gradient (attention.h): the weights of a block of queries and keys are computed again, and
 * all three gradients from them, so there is no tensor of all weights. A task is a batch element, such as a head, which
 * adds up in a fixed order; its sums of keys and values are in scratch memory. */
#include "dnn/attention.h"
#include "dnn/solvers.h"

#define KEYS 72 /* of a block, about: its weights and their gradients stay in L1 */

enum { P_VECTORS };

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct attention_grad g;
    if (target_has_vectors(sc->target)) return attention_grad_find(sc, c, &g, out_why);
    *out_why = "it has no vectors";
    return false;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    struct attention_grad g;
    struct variant_list list = {.at = out};
    const char *why;
    if (!attention_grad_find(sc, c, &g, &why)) return 0;
    for (int vectors = 1; vectors <= 3; vectors++) {
        struct variant v = {.p = {vectors}};
        if (!variant_wanted(sc, &v)) continue;
        attention_shape(&g.a, vectors, KEYS);
        v.cost = cost_attention_grad(&g);
        v.text = arena_printf(sc->arena, "q%d k%d", g.a.queries, g.a.keys);
        variants_add(&list, &v);
    }
    return list.n;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct attention_grad g;
    const char *why = "";
    if (!attention_grad_find(sc, c, &g, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "attention_grad: %s", why);
    attention_shape(&g.a, v->p[P_VECTORS], KEYS);
    attention_grad_print(&g, out);
    return SOL_OK;
}

const struct solver dnn_attention_grad = {.name = "attention_grad",
                                          .blocks = true,
                                          .dynamic = true,
                                          .whole = true,
                                          .applicable = applicable,
                                          .variants = variants,
                                          .emit = emit};
