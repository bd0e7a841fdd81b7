/* Recurrences such as running sums: a statement of a scan whose value reads the element before. That element is kept in
 * a variable, its *state*, in double where elements of float32 are added up, as frameworks do: the error of a long
 * running sum is that of its last rounding. */
#include "print/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct print_state {
    const struct loops_stmt *stmt;
    int point;
    enum compute k;
    const char *name;
    struct print_state *next;
};

/* The reads of the element before, if the value has no others of the tensor that it writes. */
struct before {
    const struct loops *loops;
    const struct loops_stmt *s;
    int n;
    int32_t node[4];
    bool others;
};

/* Does a variable of the tensor's type keep the number that stands for elements outside? */
static bool fits(const struct before *b, int32_t node)
{
    const struct ex *e = &b->loops->ex.at[node];
    const enum sol_dtype t = (enum sol_dtype)b->loops->tensors.at[b->s->out[0]].dtype;
    if (!node) return false;
    if (e->kind == EX_INT) return t == SOL_I64 || llabs(e->u.i) < 1 << 24;
    return e->kind == EX_REAL && t != SOL_I64 && (t == SOL_F64 || (double)(float)e->u.r == e->u.r || isnan(e->u.r));
}

static void see_before(void *user, int32_t node)
{
    struct before *b = user;
    const struct loops *loops = b->loops;
    const struct ex *e = &loops->ex.at[node];
    struct affine at, own;
    if (e->kind != EX_READ || e->tensor != b->s->out[0]) return;
    b->others |= !fits(b, e->b) || b->n == COUNT_OF(b->node) || (b->n && !ex_equal(loops, b->node[0], node));
    for (int32_t i = e->a, k = b->s->index; i && k && !b->others; i = loops->ex.at[i].next, k = loops->ex.at[k].next) {
        b->others |= !ex_affine(loops, i, &at) || !ex_affine(loops, k, &own) || own.n != 1 || own.coef[0] != 1 || own.c;
        const bool scan = !b->others && own.ivar[0] == b->s->scan_ivar;
        b->others |= at.n != 1 || at.coef[0] != 1 || at.ivar[0] != own.ivar[0] || at.c != (scan ? -b->s->scan_step : 0);
    }
    if (!b->others) b->node[b->n++] = node;
}

static struct before before(const struct loops *loops, const struct loops_stmt *s)
{
    struct before b = {.loops = loops, .s = s};
    const enum sol_dtype t = (enum sol_dtype)loops->tensors.at[s->out[0]].dtype;
    if (s->nout != 1 || rewrite_has_reduction(loops, s->value)) return b;
    if (t == SOL_I64 && !ex_is_int(loops, s->value)) return b;
    ex_walk(loops, s->value, see_before, &b);
    if (b.others || (t != SOL_F32 && t != SOL_F64 && t != SOL_I64)) b.n = 0;
    return b;
}

static bool is_before(const struct before *b, int32_t node)
{
    for (int i = 0; i < b->n; i++)
        if (b->node[i] == node) return true;
    return false;
}

static void see_state(void *user, int32_t node)
{
    struct before *b = user;
    b->others |= is_before(b, node);
}

/* Does a part of the value contain the state? */
static bool contains(const struct before *b, int32_t node)
{
    struct before found = *b;
    ex_walk(b->loops, node, see_state, &found);
    return found.others;
}

/* Is the value a sum that the state is a term or a factor of, maybe of logarithms? Then each step rounds it again. */
static bool adds_up(const struct before *b, int32_t node)
{
    const struct ex *e = &b->loops->ex.at[node];
    if (!contains(b, node) || is_before(b, node)) return true;
    switch (e->kind) {
    case EX_NEG: return adds_up(b, e->a);
    case EX_ADD:
    case EX_SUB:
    case EX_MUL: return adds_up(b, e->a) && adds_up(b, e->b);
    case EX_CALL:
        if (strncmp(math_at(e->op)->name, "logaddexp", 9) != 0) return false;
        for (int32_t i = e->a; i; i = b->loops->ex.at[i].next)
            if (!adds_up(b, i)) return false;
        return true;
    default: return false;
    }
}

/* What the state joins is computed in its own type: names the largest parts of the value without the state. */
static void name_terms(struct print_expr *p, const struct before *b, int32_t node, enum compute own)
{
    const struct ex *e = &p->loops->ex.at[node];
    if (is_before(b, node) || e->kind == EX_INT || e->kind == EX_REAL) return;
    if (!contains(b, node)) {
        expr_know(p, node, own, expr_temp(p, expr_value(p, node, own), own));
        return;
    }
    if (e->kind == EX_CALL) {
        for (int32_t i = e->a; i; i = p->loops->ex.at[i].next) name_terms(p, b, i, own);
        return;
    }
    name_terms(p, b, e->a, own);
    if (e->kind != EX_NEG) name_terms(p, b, e->b, own);
}

void running_begin(struct print_expr *p, const struct loops_stmt *s, uint64_t open, int point)
{
    const struct before b = before(p->loops, s);
    if (!s->scan_step || !b.n || stmt_ivars(p->loops, s) & ~open) return;
    const enum compute own = compute_of((enum sol_dtype)p->loops->tensors.at[s->out[0]].dtype);
    struct print_state *state = NEW(p->out->arena, struct print_state);
    const bool wide = own == C_F32 && !p->target->single && !target_is_card(p->target) && adds_up(&b, s->value);
    *state = (struct print_state){s, point, wide ? C_F64 : own, expr_name(p), p->states};
    p->states = state;
    text_line(p->out, "%s %s = %s;", expr_type(p, state->k), state->name,
              text_bare(p->out->arena, expr_value(p, p->loops->ex.at[b.node[0]].b, state->k)));
}

const char *running_next(struct print_expr *p, const struct loops_stmt *s, int point)
{
    const struct print_state *state = p->states;
    while (state && !(state->stmt == s && state->point == point)) state = state->next;
    if (!state) return NULL;
    const struct print_known *known = p->known;
    const struct before b = before(p->loops, s);
    const enum compute own = compute_of((enum sol_dtype)p->loops->tensors.at[s->out[0]].dtype);
    for (int i = 0; i < b.n; i++) expr_know(p, b.node[i], state->k, state->name);
    if (state->k != own) name_terms(p, &b, s->value, own);
    const char *value = expr_value(p, s->value, state->k);
    p->known = known;
    text_line(p->out, "%s = %s;", state->name, text_bare(p->out->arena, value));
    return expr_convert(p, state->name, state->k, own);
}

void running_end(struct print_expr *p)
{
    p->states = NULL;
}
