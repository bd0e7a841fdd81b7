/* Moves tests of reads `t[i]:v` inside a reduction to the reduction's guard if their value outside does not change the
 * result (0 in a sum's product, -inf in a max). Affine parts of a guard then become loop bounds. */
#include <math.h>

#include "print/print.h"

/* Is v neutral for this kind of reduction? */
static bool neutral(const struct loops *loops, int op, int32_t v)
{
    const struct ex *e = &loops->ex.at[v];
    if (e->kind != EX_INT && e->kind != EX_REAL) return false;
    const double r = e->kind == EX_INT ? (double)e->u.i : e->u.r;
    switch (op) {
    case RED_SUM:
    case RED_ANY: return r == 0;
    case RED_PROD: return r == 1;
    case RED_MAX: return isinf(r) && r < 0;
    case RED_MIN: return isinf(r) && r > 0;
    default: return false;
    }
}

struct gather {
    struct loops *loops;
    const struct memory *memory;
    int op;
    VECTOR(int32_t) conds;
};

static int32_t without_test(struct gather *g, int32_t node)
{
    struct loops *loops = g->loops;
    const struct ex e = loops->ex.at[node];
    const struct memory *halo =
        ex_is_zero(loops, e.b) && loops->tensors.at[e.tensor].role != LOOPS_TABLE ? &g->memory[e.tensor] : NULL;
    struct affine a;
    for (int32_t i = e.a; i; i = loops->ex.at[i].next)
        if (!ex_affine(loops, i, &a)) return node;
    int d = 0;
    for (int32_t i = e.a; i; i = loops->ex.at[i].next, d++) {
        const int64_t n = loops->tensors.at[e.tensor].shape[d];
        int64_t low, high;
        const bool known = ex_bounds(loops, i, &low, &high);
        /* with size 1, the printed index is 0 where there is no test, and does not reach the halo */
        if (known && halo && n > 1 && size_le(-halo->halo_low[d], low) &&
            size_lt(high, size_add(n, halo->halo_high[d])))
            continue;
        if (!known || !size_le(0, low)) PUSH(loops->arena, g->conds, ex_cmp(loops, CMP_GE, i, ex_int(loops, 0)));
        if (!known || !size_lt(high, n)) PUSH(loops->arena, g->conds, ex_cmp(loops, CMP_LT, i, ex_int(loops, n)));
    }
    return ex_read(loops, e.tensor, e.a, 0);
}

/* A copy of the body in which such reads have no test: the whole body, or factors of a sum's product. */
static int32_t strip(struct gather *g, int32_t node)
{
    const struct ex e = g->loops->ex.at[node];
    if (e.kind == EX_READ && e.b && neutral(g->loops, g->op, e.b)) return without_test(g, node);
    if (e.kind == EX_MUL && g->op == RED_SUM) {
        const int32_t a = strip(g, e.a), b = strip(g, e.b);
        if (a != e.a || b != e.b) return ex_binary(g->loops, EX_MUL, a, b);
    }
    return node;
}

static int32_t guarded(void *user, struct loops *loops, int32_t node)
{
    const struct ex e = loops->ex.at[node];
    if (e.kind != EX_RED) return node;
    struct gather g = {.loops = loops, .memory = user, .op = e.op};
    const int32_t body = strip(&g, e.b);
    if (body == e.b) return node;
    VECTOR(int32_t) parts = {0};
    if (e.a) PUSH(loops->arena, parts, e.a);
    for (int i = 0; i < g.conds.n; i++) PUSH(loops->arena, parts, g.conds.at[i]);
    return ex_red(loops, e.op, e.u.bound, ex_logic(loops, EX_AND, parts.n, parts.at), body);
}

void guards_from_reads(struct loops *loops, struct memory *memory)
{
    for (int i = 0; i < loops->stmts.n; i++) {
        struct loops_stmt s = loops->stmts.at[i];
        s.value = ex_map(loops, s.value, guarded, memory);
        loops_set_stmt(loops, i, s);
    }
}
