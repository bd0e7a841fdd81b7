/* What solvers with blocks of a product have in common: the numbers of their variants, and a list that keeps the
 * cheapest variants, in order. */
#include "dnn/solvers.h"

#include <string.h>

struct blocking_options variant_blocking(const struct solver_context *sc, const struct variant *v)
{
    return (struct blocking_options){
        .pixels = v->p[0], .vectors = v->p[1], .chunk = v->p[2], .tiles = v->p[3], .sum = blocking_sum(sc)};
}

int variant_tiles(const struct problem *p, int i, int n)
{
    return p->varies ? n - 1 - i : i;
}

void variants_add(struct variant_list *l, const struct variant *v)
{
    int i = l->n;
    if (l->n == SOLVER_MAX_VARIANTS) {
        if (l->at[--i].cost <= v->cost) return;
    } else
        l->n++;
    for (; i > 0 && l->at[i - 1].cost > v->cost; i--) l->at[i] = l->at[i - 1];
    l->at[i] = *v;
}

bool variant_wanted(const struct solver_context *sc, const struct variant *v)
{
    return !sc->only || !memcmp(sc->only->p, v->p, sizeof v->p);
}
