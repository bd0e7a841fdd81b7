/* Questions that several passes ask about a graph. */
#include "passes/passes.h"

#include <string.h>

sol_status pass_add(struct sol_graph *g, struct sol_layer *before, const struct sol_layer *origin,
                    const struct new_layer *n, struct sol_tensor **out_t)
{
    struct sol_layer *l;
    struct new_layer named = *n;
    named.name = origin->name;
    named.where = origin->where;
    TRY(graph_add(g, before, &named, &l));
    *out_t = l->out[0];
    return SOL_OK;
}

sol_status pass_op(struct sol_graph *g, struct sol_layer *at, const char *kind, struct sol_tensor *a,
                   struct sol_tensor *b, struct sol_tensor **out_t)
{
    struct sol_tensor *in[] = {a, b};
    return pass_add(g, at, at, &(struct new_layer){.kind = kind, .nin = 1 + (b != NULL), .in = in}, out_t);
}

bool is_kind(const struct sol_layer *l, const char *kind)
{
    return l && !strcmp(l->def->name, kind);
}

bool same_shape(const struct sol_tensor *a, const struct sol_tensor *b)
{
    bool same = a->ndim == b->ndim;
    for (int d = 0; same && d < a->ndim; d++) same = a->dim[d].size == b->dim[d].size;
    return same;
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
        bool all = l->nin > 0 && !loops_vary(l->loops);
        for (int i = 0; i < l->nin; i++) all &= !l->in[i] || by_tensor_id[l->in[i]->id];
        for (int i = 0; i < l->nout; i++) by_tensor_id[l->out[i]->id] = all;
    }
}

bool known_scalar(const struct sol_tensor *t, double *out_v)
{
    while (t->role == TENSOR_VALUE && (is_kind(t->from, "Expand") || is_kind(t->from, "Reshape"))) t = t->from->in[0];
    return t->role == TENSOR_CONST && tensor_uniform(t, out_v);
}
