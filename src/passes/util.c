/* Questions that several passes ask about a graph. */
#include "passes/passes.h"

#include <string.h>

sol_status pass_add(struct sol_graph *g, struct sol_layer *before, const char *kind, const struct sol_layer *origin,
                    int nin, struct sol_tensor *const *in, const struct attrs *attrs, struct sol_tensor **out_t)
{
    struct sol_layer *l;
    static const struct attrs none = {0};
    TRY(graph_add(g, before, kind, origin->name, origin->where, nin, in, attrs ? attrs : &none, &l));
    *out_t = l->out[0];
    return SOL_OK;
}

bool is_kind(const struct sol_layer *l, const char *kind)
{
    return l && !strcmp(l->def->name, kind);
}

struct sol_layer *only_maker(const struct sol_tensor *t, const char *kind)
{
    if (!t || t->role != TENSOR_VALUE || !is_kind(t->from, kind) || tensor_uses(t) != 1) return NULL;
    return t->from;
}

void mark_prepared(struct sol_graph *g, bool *by_tensor_id)
{
    for (int i = 0; i < g->tensors.n; i++) {
        const struct sol_tensor *t = g->tensors.at[i];
        by_tensor_id[t->id] = t->role == TENSOR_PARAM || t->role == TENSOR_CONST;
    }
    for (struct sol_layer *l = g->first; l; l = l->next) {
        bool all = l->nin > 0;
        for (int i = 0; i < l->nin; i++) all &= !l->in[i] || by_tensor_id[l->in[i]->id];
        for (int i = 0; i < l->nout; i++) by_tensor_id[l->out[i]->id] = all;
    }
}

bool known_scalar(const struct sol_tensor *t, double *out_v)
{
    while (t->role == TENSOR_VALUE && (is_kind(t->from, "Expand") || is_kind(t->from, "Reshape"))) t = t->from->in[0];
    return t->role == TENSOR_CONST && tensor_uniform(t, out_v);
}
