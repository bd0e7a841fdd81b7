/* Removes layers that reach no output. It goes backwards, so that one sweep removes whole chains. A layer that sets a
 * dimension stays. */
#include "passes/passes.h"

sol_status pass_dead(struct sol_graph *g)
{
    bool *needed = NEW_ARRAY(g->arena, bool, g->ntensors + 1);
    for (int i = 0; i < g->outputs.n; i++) needed[g->outputs.at[i].t->id] = true;
    for (struct sol_layer *l = g->last, *prev; l; l = prev) {
        prev = l->prev;
        bool any = layer_sets(l) >= 0;
        for (int i = 0; i < l->nout; i++) any |= needed[l->out[i]->id];
        for (int i = 0; any && i < l->nin; i++)
            if (l->in[i]) needed[l->in[i]->id] = true;
        if (!any) graph_remove(g, l);
    }
    return SOL_OK;
}

sol_status pass_dead_again(struct sol_graph *g)
{
    return pass_dead(g);
}
