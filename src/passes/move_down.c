/* Moves element-wise layers in front of views: map(view(x)) = view(map(x)) for views that only rearrange elements. The
 * element-wise layer then follows the layer that computes x and becomes its epilogue, and the view becomes an index of
 * its readers.
 *
 * Consecutive views form a run. An element-wise layer behind a run is inserted once, in front of all
 * views of the run. If it changes the data type, the views are made anew after the last one has passed. So the pass is
 * linear in the length of a chain. */
#include "passes/passes.h"

struct run { /* views, each of which only the next one reads */
    VECTOR(struct sol_layer *) moves;
    bool retyped; /* they read another type than they were made for */
};

static bool rearranges(const struct sol_layer *l)
{
    return is_kind(l, "Permute") || is_kind(l, "Reshape") || is_kind(l, "Flip");
}

/* The only input of an element-wise layer that is not a broadcast constant; -1 if there are several. */
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

/* The constant that fills t, as a tensor that broadcasts to any shape. */
static struct sol_tensor *number_of(struct sol_graph *g, struct sol_tensor *t)
{
    while (t->role == TENSOR_VALUE) t = t->from->in[0];
    if (!t->ndim) return t;
    struct sol_tensor *c = graph_tensor(g, TENSOR_CONST, t->name, (enum sol_dtype)t->dtype, 0, NULL);
    c->data = t->data;
    return c;
}

/* The run that ends with t, if t has no other reader. */
static struct run *run_behind(struct run *const *runs, int n, const struct sol_tensor *t)
{
    return t->role == TENSOR_VALUE && t->id < n && tensor_uses(t) == 1 ? runs[t->id] : NULL;
}

static sol_status pass_below(struct sol_graph *g, struct sol_layer *map, int at, struct run *r)
{
    struct sol_tensor **in = NEW_ARRAY(g->arena, struct sol_tensor *, map->nin), *y, *end = map->in[at];
    struct sol_layer *first = r->moves.at[0];
    const enum sol_dtype before = (enum sol_dtype)first->in[0]->dtype;
    for (int i = 0; i < map->nin; i++) in[i] = i == at ? first->in[0] : number_of(g, map->in[i]);
    TRY(pass_add(g, first, map,
                 &(struct new_layer){.kind = map->def->name, .nin = map->nin, .in = in, .attrs = &map->attrs}, &y));
    first->in[0] = y;
    PUSH(g->arena, y->readers, first);
    y->user = (void *)(intptr_t)1;
    r->retyped |= y->dtype != before;
    end->user = map->out[0]->user;
    graph_replace(g, map->out[0], end);
    graph_remove(g, map);
    return SOL_OK;
}

/* Makes the views of a run again for the type that they read now. */
static sol_status retype(struct sol_graph *g, struct run *r)
{
    struct sol_tensor *t = r->moves.at[0]->in[0];
    for (int i = 0; i < r->moves.n; i++) {
        struct sol_layer *old = r->moves.at[i];
        TRY(pass_add(g, old, old, &(struct new_layer){.kind = old->def->name, .nin = 1, .in = &t, .attrs = &old->attrs},
                     &t));
        if (i == r->moves.n - 1) graph_replace(g, old->out[0], t);
    }
    for (int i = r->moves.n - 1; i >= 0; i--) graph_remove(g, r->moves.at[i]);
    return SOL_OK;
}

sol_status pass_move_down(struct sol_graph *g)
{
    const int n = g->ntensors;
    struct run **by_tensor = NEW_ARRAY(g->arena, struct run *, n + 1);
    VECTOR(struct run *) runs = {0};
    graph_count_uses(g);
    for (struct sol_layer *l = g->first, *next; l; l = next) {
        next = l->next;
        if (rearranges(l) && l->in[0]->role == TENSOR_VALUE) {
            struct run *r = run_behind(by_tensor, n, l->in[0]);
            if (!r) {
                r = NEW(g->arena, struct run);
                PUSH(g->arena, runs, r);
            }
            PUSH(g->arena, r->moves, l);
            by_tensor[l->out[0]->id] = r;
        } else if (l->def->flags & LAYER_ELEMENTWISE) {
            const int at = only_tensor(l);
            struct run *r = at < 0 ? NULL : run_behind(by_tensor, n, l->in[at]);
            if (r) TRY(pass_below(g, l, at, r));
        }
    }
    for (int i = 0; i < runs.n; i++)
        if (runs.at[i]->retyped) TRY(retype(g, runs.at[i]));
    return SOL_OK;
}
