/* Copies a graph, so that something can be tried on the copy. */
#include "hlir/graph.h"

static void copy_layer(struct sol_graph *to, const struct sol_layer *from, struct sol_tensor *const *tensor)
{
    struct arena *a = to->arena;
    struct sol_layer *l = arena_memdup(a, from, sizeof *l);
    l->in = NEW_ARRAY(a, struct sol_tensor *, from->nin + 1);
    l->out = NEW_ARRAY(a, struct sol_tensor *, from->nout + 1);
    l->user = NULL;
    l->next = NULL;
    l->prev = to->last;
    *(to->last ? &to->last->next : &to->first) = l;
    to->last = l;
    for (int i = 0; i < l->nin; i++) {
        if (!from->in[i]) continue;
        l->in[i] = tensor[from->in[i]->id];
        PUSH(a, l->in[i]->readers, l);
    }
    for (int o = 0; o < l->nout; o++) {
        l->out[o] = tensor[from->out[o]->id];
        l->out[o]->from = l;
    }
}

sol_status graph_copy(const struct sol_graph *g, struct sol_graph **out_g)
{
    struct sol_graph *to;
    TRY(graph_create(g->ctx, g->kinds, g->name, &to));
    struct arena *a = to->arena;
    struct sol_tensor **tensor = NEW_ARRAY(a, struct sol_tensor *, g->ntensors + 1);
    to->nlayers = g->nlayers;
    to->ntensors = g->ntensors;
    to->removed = g->removed;
    for (int i = 0; i < g->tensors.n; i++) {
        struct sol_tensor *t = arena_memdup(a, g->tensors.at[i], sizeof *t);
        t->graph = to;
        t->from = NULL;
        t->user = NULL;
        t->readers.at = NULL;
        t->readers.n = t->readers.room = 0;
        tensor[t->id] = t;
        PUSH(a, to->tensors, t);
    }
    for (int i = 0; i < g->dims.n; i++) PUSH(a, to->dims, g->dims.at[i]);
    for (int i = 0; i < g->checks.n; i++) PUSH(a, to->checks, g->checks.at[i]);
    for (int i = 0; i < g->inputs.n; i++) PUSH(a, to->inputs, tensor[g->inputs.at[i]->id]);
    for (int i = 0; i < g->params.n; i++) PUSH(a, to->params, tensor[g->params.at[i]->id]);
    for (int i = 0; i < g->outputs.n; i++) {
        struct graph_output o = g->outputs.at[i];
        o.t = tensor[o.t->id];
        PUSH(a, to->outputs, o);
    }
    for (const struct sol_layer *l = g->first; l; l = l->next) copy_layer(to, l, tensor);
    sol_status status = ctx_check(g->ctx);
    if (status)
        sol_graph_destroy(to);
    else
        *out_g = to;
    return status;
}
