/* map(move(x)) = move(map(x)) for a move that only rearranges: the map then stands directly behind what makes x, which
 * can compute it on the way, and the move goes into the index of whoever reads. */
#include "passes/passes.h"

static bool rearranges(const struct sol_layer *l)
{
    return is_kind(l, "Permute") || is_kind(l, "Reshape") || is_kind(l, "Flip");
}

/* The one input of a map that is not the same number everywhere; -1 if there are several. */
static int only_tensor(const struct sol_layer *map)
{
    int found = -1;
    for (int i = 0; i < map->nin; i++) {
        double v;
        if (known_scalar(map->in[i], &v)) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

static sol_status swap(struct sol_graph *g, struct sol_layer *map, int at, struct sol_layer *move,
                       struct sol_tensor **out_t)
{
    struct sol_tensor **in = NEW_ARRAY(g->arena, struct sol_tensor *, map->nin), *y;
    for (int i = 0; i < map->nin; i++) {
        in[i] = i == at ? move->in[0] : map->in[i];
        while (i != at && in[i]->role == TENSOR_VALUE)
            in[i] = in[i]->from->in[0]; /* the number itself, broadcast anew */
    }
    TRY(pass_add(g, map, map->def->name, map, map->nin, in, &map->attrs, &y));
    struct sol_layer *l;
    TRY(graph_add(g, map, move->def->name, move->name, move->where, 1, &y, &move->attrs, &l));
    *out_t = l->out[0];
    return SOL_OK;
}

sol_status pass_move_down(struct sol_graph *g)
{
    graph_count_uses(g);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        if (!(l->def->flags & LAYER_MAP)) continue;
        int at = only_tensor(l);
        if (at < 0 || l->in[at]->role != TENSOR_VALUE || tensor_uses(l->in[at]) != 1) continue;
        struct sol_layer *move = l->in[at]->from;
        if (!rearranges(move) || move->in[0]->role != TENSOR_VALUE) continue;
        bool scalars = true; /* a number that is not of one element cannot be broadcast to another shape */
        for (int i = 0; i < l->nin; i++) {
            const struct sol_tensor *t = l->in[i];
            while (i != at && t->role == TENSOR_VALUE) t = t->from->in[0];
            scalars &= i == at || tensor_elements(t) == 1;
            scalars &= i == at || t->ndim <= move->in[0]->ndim;
        }
        if (!scalars) continue;
        struct sol_tensor *y;
        intptr_t uses = tensor_uses(l->out[0]);
        TRY(swap(g, l, at, move, &y));
        y->user = (void *)uses;
        next = y->from->in[0]->from; /* the map again: there may be another move in front of it */
        next->out[0]->user = (void *)(intptr_t)1;
        graph_replace(g, l->out[0], y);
        graph_remove(g, l);
        graph_remove(g, move);
    }
    return SOL_OK;
}
