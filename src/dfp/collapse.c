/* Merges neighbouring index variables. If every read and write steps through two index variables as through one (the
 * outer stride is the inner stride times the inner size), the inner index variable runs over the points of both.
 * Vectors get longer and remainders fewer. */
#include "dfp/dfp.h"

struct pair {
    const struct print_plan *pl;
    int outer, inner;
    bool ok;
};

static void check_index(struct pair *w, int tensor, int32_t first, bool tested)
{
    const struct loops *loops = w->pl->cluster.loops;
    const uint64_t both = bit(w->outer) | bit(w->inner);
    uint64_t used = 0;
    for (int32_t i = first; i; i = loops->ex.at[i].next) used |= ex_ivars(loops, i);
    if (!(used & both)) return;
    struct affine a;
    int64_t outer = 0, inner = 0;
    if (tested || loops->tensors.at[tensor].role == LOOPS_TABLE) w->ok = false;
    if (!expr_affine_offset(loops, w->pl->cluster.memory, tensor, first, &a)) w->ok = false;
    for (int i = 0; i < a.n; i++) {
        if (a.ivar[i] == w->outer) outer = a.coef[i];
        if (a.ivar[i] == w->inner) inner = a.coef[i];
    }
    if (outer != size_mul(inner, loops->ivars.at[w->inner].size)) w->ok = false;
}

static void see_pair(void *user, int32_t node)
{
    struct pair *w = user;
    const struct ex *e = &w->pl->cluster.loops->ex.at[node];
    const uint64_t both = bit(w->outer) | bit(w->inner);
    if (e->kind == EX_READ) check_index(w, e->tensor, e->a, e->b != 0);
    if (e->kind != EX_RED) return;
    const uint64_t bound = e->u.bound & both;
    if (bound && bound != both) w->ok = false;
}

/* The index variables that occur as values, not in indices of reads. */
static bool used_as_value(const struct loops *loops, int32_t node, uint64_t ivars)
{
    if (!node) return false;
    const struct ex *e = &loops->ex.at[node];
    switch (e->kind) {
    case EX_IVAR: return ivars >> e->tensor & 1;
    case EX_READ: return used_as_value(loops, e->b, ivars);
    case EX_INT:
    case EX_REAL: return false;
    case EX_CALL:
    case EX_AND:
    case EX_OR:
        for (int32_t i = e->a; i; i = loops->ex.at[i].next)
            if (used_as_value(loops, i, ivars)) return true;
        return false;
    default: return used_as_value(loops, e->a, ivars) || used_as_value(loops, e->b, ivars);
    }
}

static bool joinable(const struct print_plan *pl, int outer, int inner)
{
    const struct loops *loops = pl->cluster.loops;
    struct pair w = {pl, outer, inner, true};
    const uint64_t both = bit(outer) | bit(inner);
    for (int i = 0; i < loops->stmts.n && w.ok; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        const uint64_t own = stmt_ivars(loops, s) & both;
        if ((own && own != both) || used_as_value(loops, s->value, both)) return false;
        if (s->scan_step && both >> s->scan_ivar & 1) return false;
        for (int o = 0; o < s->nout; o++) check_index(&w, s->out[o], s->index, false);
        ex_walk(loops, s->value, see_pair, &w);
    }
    for (int i = 0; i < pl->ngroup; i++) { /* either all statements share the index variable, or none */
        const uint64_t shared = pl->group[i].shared & both;
        if (shared && shared != both) return false;
    }
    return w.ok;
}

/* The outer index variable's loop gets size 1, and the inner one runs over the points of both. Offsets stay affine. */
void dfp_collapse(struct print_plan *pl)
{
    struct loops *loops = pl->loops;
    for (bool again = true; again;) {
        again = false;
        for (int o = 0; o < loops->ivars.n; o++)
            for (int i = 0; i < loops->ivars.n; i++) {
                if (o == i || loops->ivars.at[o].size <= 1 || loops->ivars.at[i].size <= 1) continue;
                const int64_t both = size_mul(loops->ivars.at[i].size, loops->ivars.at[o].size);
                if (both == SIZE_BAD || !joinable(pl, o, i)) continue;
                loops_set_size(loops, i, both);
                loops_set_size(loops, o, 1);
                again = true;
            }
    }
}
