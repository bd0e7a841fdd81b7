/* The table of solvers. A new one is a file, a declaration in solvers.h and a row here. */
#include "dnn/solvers.h"

const struct solver *const dnn_solvers[] = {&dnn_direct,   &dnn_gemv,    &dnn_matmul,
                                            &dnn_winograd, &dnn_weights, &dnn_weights_winograd,
#define X(name) &dnn_##name,
#include "dnn/plugins.def"
#undef X
                                            NULL};

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
