/* A list of variants that keeps the cheapest ones, in order. */
#include "dnn/solvers.h"

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
