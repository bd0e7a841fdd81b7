/* Operands whose rows are reduced for many results.
 *
 * In y[X Z] = sum[Y] f(x[X Y], z[Z Y]) the lanes would run along Y, and each result would be a sum across the lanes. A
 * copy of z with Z as its last dimension lets them run along Z; every row of y reads it. */
#include "dfp/expand.h"

enum { TURN_REUSE = 16 }; /* results that read an element of the copy, at least */

struct turn {
    const struct expand *x;
    uint64_t bound;
    int along;       /* index variable of lanes */
    int32_t operand; /* the read with rows across the lanes; 0: none so far */
    bool ok;
};

static void see_operand(void *user, int32_t node)
{
    struct turn *t = user;
    const struct loops *loops = t->x->loops;
    const struct ex *e = &loops->ex.at[node];
    struct affine a;
    int64_t step = 0;
    bool row = false;
    if (e->kind == EX_RED) t->ok = false;
    if (e->kind != EX_READ) return;
    if (loops->tensors.at[e->tensor].role == LOOPS_TABLE || loops->tensors.at[e->tensor].role == LOOPS_TEMP || e->b ||
        !expr_affine_offset(loops, t->x->memory, e->tensor, e->a, &a)) {
        t->ok = false;
        return;
    }
    for (int i = 0; i < a.n; i++) {
        if (a.ivar[i] == t->along) step = a.coef[i];
        row |= a.coef[i] == 1 && t->bound >> a.ivar[i] & 1;
    }
    if (!step) return;
    uint64_t seen = 0;
    for (int32_t i = e->a; i; i = loops->ex.at[i].next) {
        const struct ex *at = &loops->ex.at[i];
        if (at->kind == EX_INT) continue;
        if (at->kind != EX_IVAR || seen >> at->tensor & 1) t->ok = false;
        seen |= UINT64_C(1) << at->tensor;
    }
    if (step == 1 || !row || (t->operand && !ex_equal(loops, t->operand, node))) t->ok = false;
    t->operand = node;
}

void expand_turn(struct expand *x, struct loops_stmt *s)
{
    struct loops *loops = x->loops;
    int32_t red[2];
    if (target_is_card(x->target) || x->lanes < 2 || s->nout != 1 || s->scan_step) return;
    if (dfp_reductions(loops, s->value, red, 2) != 1) return;
    const struct ex e = loops->ex.at[red[0]];
    const uint64_t own = stmt_ivars(loops, s), unit = own & x->unit;
    if (e.a || __builtin_popcountll(unit) != 1) return;
    struct turn t = {.x = x, .bound = e.u.bound, .along = __builtin_ctzll(unit), .ok = true};
    ex_walk(loops, e.b, see_operand, &t);
    if (!t.ok || !t.operand) return;
    const uint64_t ivars = ex_ivars(loops, t.operand);
    const int64_t reuse = ivars_points(loops, own & ~ivars), terms = ivars_points(loops, t.bound);
    if (reuse < TURN_REUSE || reuse < terms / 8 || size_hint(loops->ivars.at[t.along].size) < x->lanes) return;
    const enum sol_dtype type = (enum sol_dtype)loops->tensors.at[loops->ex.at[t.operand].tensor].dtype;
    if (type != SOL_F32 && type != SOL_F64) return;
    const int copy = expand_temp(x, "turned", ivars, type);
    expand_put(x, s, copy, expand_ivar_list(x, ivars), t.operand);
    s->value = ex_replace(loops, s->value, t.operand, ex_read(loops, copy, expand_ivar_list(x, ivars), 0));
}
