/* Tightens the bounds of sums over products: terms with a factor that is 0 are left out. `sum[T] a[T] * b[T-1]:0`
 * starts at T=1, and b needs no border then. */
#include "plan/plan.h"

struct tightening {
    struct loops *loops;
    int32_t node;                                        /* the sum */
    int64_t low[LOOPS_MAX_IVARS], high[LOOPS_MAX_IVARS]; /* by bound index variable: the values that matter */
};

/* Finds bounds from the factors of a product that are 0 outside, if their index is an index variable of the sum plus a
 * number. */
static void see_factor(struct tightening *s, uint64_t bound, int32_t node)
{
    const struct loops *loops = s->loops;
    const struct ex *e = &loops->ex.at[node];
    if (e->kind == EX_MUL) {
        see_factor(s, bound, e->a);
        see_factor(s, bound, e->b);
    }
    if (e->kind != EX_READ || !e->b || !ex_is_zero(loops, e->b)) return;
    int d = 0;
    for (int32_t i = e->a; i; i = loops->ex.at[i].next, d++) {
        struct affine f;
        if (!ex_affine(loops, i, &f) || f.n != 1 || f.coef[0] != 1 || !(bound >> f.ivar[0] & 1)) continue;
        int64_t *low = &s->low[f.ivar[0]], *high = &s->high[f.ivar[0]];
        const int64_t first = size_sub(0, f.c), end = size_sub(loops->tensors.at[e->tensor].shape[d], f.c);
        if (size_le(*low, first)) *low = first;
        if (size_le(end, *high)) *high = end;
    }
}

/* The sum over fewer values. 0: no value remains, or the sum cannot be shortened. */
static int32_t shorten(struct tightening *s)
{
    struct loops *loops = s->loops;
    const struct ex red = loops->ex.at[s->node];
    int32_t map[LOOPS_MAX_IVARS];
    bool shorter = false;
    for (int i = 0; i < loops->ivars.n; i++) {
        s->low[i] = 0;
        s->high[i] = loops->ivars.at[i].size;
    }
    see_factor(s, red.u.bound, red.b);
    const int n = loops->ivars.n;
    uint64_t bound = red.u.bound;
    for (int i = 0; i < n; i++) {
        map[i] = ex_ivar(loops, i);
        const int64_t size = size_sub(s->high[i], s->low[i]);
        if (size == loops->ivars.at[i].size) continue;
        if (!size_le(2, size) || loops->ivars.n == LOOPS_MAX_IVARS) return 0;
        const int ivar = loops_ivar(loops, loops->ivars.at[i].name, size);
        map[i] = ex_binary(loops, EX_ADD, ex_ivar(loops, ivar), ex_int(loops, s->low[i]));
        bound ^= UINT64_C(1) << i | UINT64_C(1) << ivar;
        shorter = true;
    }
    return shorter ? ex_red(loops, red.op, bound, 0, ex_copy(loops, loops, red.b, map, NULL)) : 0;
}

static void find_sum(void *user, int32_t node)
{
    struct tightening *s = user;
    const struct ex *e = &s->loops->ex.at[node];
    if (e->kind == EX_RED && e->op == RED_SUM && !e->a && s->loops->ex.at[e->b].kind == EX_MUL &&
        !rewrite_has_reduction(s->loops, e->b))
        s->node = node;
}

const struct loops *plan_tighten(const struct loops *loops)
{
    struct loops *to = loops_copy(loops->arena, loops);
    bool any = false;
    for (int i = 0; i < loops->stmts.n; i++) {
        struct loops_stmt s = loops->stmts.at[i];
        struct tightening sum = {.loops = to};
        ex_walk(to, s.value, find_sum, &sum);
        const int32_t shorter = sum.node ? shorten(&sum) : 0;
        if (!shorter) continue;
        s.value = ex_replace(to, s.value, sum.node, shorter);
        loops_set_stmt(to, i, s);
        any = true;
    }
    return any ? rewrite_sweep(to) : loops;
}
