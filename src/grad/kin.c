/* Which values can be equal by construction. `x - max(x)` is exactly 0 at the maximum, `|x| / max|x|` exactly 1, and
 * `x - x[0]` 0 at the first element: both operands come from the same elements by element-wise layers, views and
 * selections alone. Every tensor has a set of *origins*: the results of sums, products, contractions, and inputs, that
 * it is computed from in this way. Tensors that share an origin are kin. A tensor computed from two that are kin is
 * mixed, and so is what is computed from it. The sets keep their newest members, so that they are found in linear time.
 */
#include <string.h>

#include "grad/checkpoint.h"

enum { MOST_ORIGINS = 8 };
struct kin {
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

static bool share(const struct kin *a, const struct kin *b)
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

static void merge(struct kin *into, const struct kin *other)
{
    const struct kin old = *into;
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
static struct kin of_inputs(const struct kin *kin, const struct sol_layer *l)
{
    struct kin all = {0};
    for (int i = 0; i < l->nin; i++) {
        const struct sol_tensor *t = l->in[i];
        const bool square = i && l->in[i - 1] == t; /* x * x is a function of one value */
        if (!t || t->role == TENSOR_PARAM || !tensor_varies(t) || square) continue;
        all.mixed |= share(&all, &kin[t->id]);
        merge(&all, &kin[t->id]);
    }
    return all;
}

struct kin *kin_find(const struct sol_graph *g)
{
    struct kin *kin = NEW_ARRAY(g->arena, struct kin, g->ntensors + 1);
    for (int i = 0; i < g->ntensors; i++) kin[i] = (struct kin){.n = 1, .origin = {i}};
    for (const struct sol_layer *l = g->first; l; l = l->next) {
        const struct kin all = selects(l) ? of_inputs(kin, l) : (struct kin){0};
        for (int o = 0; o < l->nout && (all.n || all.mixed); o++) kin[l->out[o]->id] = all;
    }
    return kin;
}

bool kin_mixed(const struct kin *kin, const struct sol_tensor *t)
{
    return kin[t->id].mixed;
}

bool kin_related(const struct kin *kin, const struct sol_tensor *a, const struct sol_tensor *b)
{
    return share(&kin[a->id], &kin[b->id]);
}
