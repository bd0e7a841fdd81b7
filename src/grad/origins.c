/* Which values can be equal by construction. `x - max(x)` is exactly 0 at the maximum, `|x| / max|x|` exactly 1, and
 * `x - x[0]` 0 at the first element: both operands come from the same elements by element-wise layers, views and
 * selections alone. Every tensor has a set of *origins*: the results of sums, products, contractions, and inputs, that
 * it is computed from in this way. A tensor that is computed from two which share an origin is mixed, and so is what is
 * computed from it. The sets keep their newest members, so that they are found in linear time. */
#include <string.h>

#include "grad/checkpoint.h"

enum { MOST_ORIGINS = 8 };
struct origins {
    int n, origin[MOST_ORIGINS]; /* numbers of tensors, descending */
    bool mixed;
};

/* Are its results computed element by element, or selected? A maximum selects, and so does an opaque layer: sorting. */
static bool selects(const struct sol_layer *l)
{
    if (!l->nin) return false;
    for (int32_t e = 0; !(l->def->flags & LAYER_OPAQUE) && e < l->loops->ex.n; e++) {
        const struct ex *x = &l->loops->ex.at[e];
        if (x->kind == EX_RED && x->u.bound && (x->op < RED_MAX || x->op > RED_MINAT)) return false;
    }
    return true;
}

static bool share(const struct origins *a, const struct origins *b)
{
    for (int i = 0, j = 0; i < a->n && j < b->n;) {
        if (a->origin[i] == b->origin[j]) return true;
        if (a->origin[i] > b->origin[j])
            i++;
        else
            j++;
    }
    return false;
}

static void merge(struct origins *into, const struct origins *other)
{
    const struct origins old = *into;
    into->n = 0;
    for (int i = 0, j = 0; into->n < MOST_ORIGINS && (i < old.n || j < other->n);) {
        const int a = i < old.n ? old.origin[i] : -1, b = j < other->n ? other->origin[j] : -1;
        into->origin[into->n++] = MAX(a, b);
        i += a >= b;
        j += b >= a;
    }
    into->mixed |= other->mixed;
}

/* What a layer's results are computed from, besides parameters and constants. */
static struct origins of_inputs(const struct origins *origins, const struct sol_layer *l)
{
    struct origins all = {0};
    for (int i = 0; i < l->nin; i++) {
        const struct sol_tensor *t = l->in[i];
        const bool square = i && l->in[i - 1] == t; /* x * x is a function of one value */
        if (!t || t->role == TENSOR_PARAM || !tensor_varies(t) || square) continue;
        all.mixed |= share(&all, &origins[t->id]);
        merge(&all, &origins[t->id]);
    }
    return all;
}

struct origins *origins_find(const struct sol_graph *g)
{
    struct origins *origins = NEW_ARRAY(g->arena, struct origins, g->ntensors + 1);
    for (int i = 0; i < g->ntensors; i++) origins[i] = (struct origins){.n = 1, .origin = {i}};
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        const struct origins all = selects(l) ? of_inputs(origins, l) : (struct origins){0};
        for (int o = 0; o < l->nout && (all.n || all.mixed); o++) origins[l->out[o]->id] = all;
    }
    return origins;
}

bool origins_mixed(const struct origins *origins, const struct sol_tensor *t)
{
    return origins[t->id].mixed;
}

bool origins_shared(const struct origins *origins, const struct sol_tensor *a, const struct sol_tensor *b)
{
    return share(&origins[a->id], &origins[b->id]);
}
