/* Moves slices in front of element-wise layers: slice(map(x, ..)) = map(slice(x), ..), so that elements which are cut
 * off are never computed. It goes backwards, so that one sweep moves a slice as far as possible. */
#include "passes/passes.h"

/* The slice of one operand. A broadcast constant is broadcast anew, so that it stays known as a constant, unless it
 * must be `whole`. */
static sol_status sliced(struct sol_graph *g, struct sol_layer *slice, struct sol_tensor *x, bool whole,
                         struct sol_tensor **out_t)
{
    struct sol_tensor *number = x;
    while (number->role == TENSOR_VALUE && (is_kind(number->from, "Expand") || is_kind(number->from, "Reshape")))
        number = number->from->in[0];
    *out_t = number;
    if (!whole && tensor_elements(number) == 1 && number->ndim <= slice->out[0]->ndim) return SOL_OK;
    return pass_add(g, slice, slice,
                    &(struct new_layer){.kind = slice->def->name, .nin = 1, .in = &x, .attrs = &slice->attrs}, out_t);
}

sol_status pass_slice_up(struct sol_graph *g)
{
    graph_count_uses(g);
    for (struct sol_layer *l = g->last, *prev; l; l = prev) {
        prev = l->prev;
        if (!is_kind(l, "Slice") && !is_kind(l, "Select")) continue;
        struct sol_tensor *t = l->in[0];
        if (t->role != TENSOR_VALUE || tensor_uses(t) != 1 || !(t->from->def->flags & LAYER_ELEMENTWISE)) continue;
        struct sol_layer *map = t->from;
        if (tensor_elements(l->out[0]) == tensor_elements(t)) continue;
        struct sol_tensor **in = NEW_ARRAY(g->arena, struct sol_tensor *, map->nin);
        bool shaped = false; /* does an operand have the result's shape? */
        for (int i = 0; i < map->nin; i++) {
            TRY(sliced(g, l, map->in[i], !shaped && i == map->nin - 1, &in[i]));
            shaped |= same_shape(in[i], l->out[0]);
        }
        struct sol_tensor *y;
        TRY(pass_add(g, l, map,
                     &(struct new_layer){.kind = map->def->name, .nin = map->nin, .in = in, .attrs = &map->attrs}, &y));
        graph_replace(g, l->out[0], y);
        prev = l->prev;
        graph_remove(g, l);
        graph_remove(g, map);
    }
    return SOL_OK;
}
