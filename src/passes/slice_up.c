/* slice(map(x, ..)) = map(slice(x), ..): what is cut off is never computed. Backwards, so that a slice rises as far as it
 * can in one sweep. */
#include "passes/passes.h"

sol_status pass_slice_up(struct sol_graph *g)
{
    graph_count_uses(g);
    for (struct sol_layer *l = g->last, *prev; l; l = prev) {
        prev = l->prev;
        if (!is_kind(l, "Slice") && !is_kind(l, "Select")) continue;
        struct sol_tensor *t = l->in[0];
        if (t->role != TENSOR_VALUE || tensor_uses(t) != 1 || !(t->from->def->flags & LAYER_MAP)) continue;
        struct sol_layer *map = t->from;
        if (tensor_elements(l->out[0]) >= tensor_elements(t)) continue;
        struct sol_tensor **in = NEW_ARRAY(g->arena, struct sol_tensor *, map->nin);
        for (int i = 0; i < map->nin; i++) {
            TRY(pass_add(g, l, l->def->name, l, 1, &map->in[i], &l->attrs, &in[i]));
        }
        struct sol_tensor *y;
        TRY(pass_add(g, l, map->def->name, map, map->nin, in, &map->attrs, &y));
        graph_replace(g, l->out[0], y);
        prev = l->prev;
        graph_remove(g, l);
        graph_remove(g, map);
    }
    return SOL_OK;
}
