/* Prints loops over index variables under a guard. A part of the guard that is affine in an index variable becomes a
 * bound of that variable's loop if all its other index variables are known by then. Other parts are tested as soon as
 * their index variables are known. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "print/print.h"

#define SAY(p, ...) arena_printf((p)->out->arena, __VA_ARGS__)

void nest_guard(struct print_expr *p, struct print_loops *l, int32_t guard)
{
    if (!guard || (print_ex(p, guard)->kind == EX_INT && print_ex(p, guard)->u.i)) return;
    if (print_ex(p, guard)->kind == EX_AND) {
        for (int32_t i = print_ex(p, guard)->a; i; i = print_ex(p, i)->next) nest_guard(p, l, i);
        return;
    }
    if (nest_decide(p, guard) != 1) PUSH(p->out->arena, l->guard, guard);
}

/* -- order */

struct strides {
    const struct print_expr *p;
    int64_t *step; /* by index variable: total distance that one step moves in memory, in bytes */
};
static void see_strides(void *user, int32_t node)
{
    struct strides *s = user;
    const struct ex *e = print_ex(s->p, node);
    if (e->kind != EX_READ || s->p->loops->tensors.at[e->tensor].role == LOOPS_TABLE) return;
    struct affine a;
    if (!expr_affine_offset(s->p->loops, s->p->memory, e->tensor, e->a, &a)) return;
    const int bytes = dtype_def(s->p->loops->tensors.at[e->tensor].dtype)->bytes;
    for (int i = 0; i < a.n; i++) s->step[a.ivar[i]] += llabs(a.coef[i]) * bytes;
}

void nest_order(const struct print_expr *p, struct print_loops *l, int32_t node)
{
    int64_t step[LOOPS_MAX_IVARS] = {0};
    struct strides s = {p, step};
    ex_walk(p->loops, node, see_strides, &s);
    for (int i = 1; i < l->n; i++) { /* a stable sort: equal ones stay in ascending order */
        const uint8_t x = l->ivar[i];
        int j = i;
        for (; j > 0 && step[l->ivar[j - 1]] < step[x]; j--) l->ivar[j] = l->ivar[j - 1];
        l->ivar[j] = x;
    }
}

/* -- bounds */

/* a - b as an affine form. */
static bool difference(const struct loops *loops, int32_t a, int32_t b, struct affine *out)
{
    struct affine x, y;
    if (!ex_affine(loops, a, &x) || !ex_affine(loops, b, &y)) return false;
    *out = (struct affine){.c = size_sub(x.c, y.c)};
    int i = 0, j = 0;
    while (i < x.n || j < y.n) {
        const bool left = j == y.n || (i < x.n && x.ivar[i] <= y.ivar[j]);
        const bool right = i == x.n || (j < y.n && y.ivar[j] <= x.ivar[i]);
        const int ivar = left ? x.ivar[i] : y.ivar[j];
        const int64_t c = size_sub(left ? x.coef[i++] : 0, right ? y.coef[j++] : 0);
        if (!c) continue;
        if (out->n == COUNT_OF(out->coef)) return false;
        out->ivar[out->n] = (uint8_t)ivar;
        out->coef[out->n++] = c;
    }
    return true;
}

int nest_decide(const struct print_expr *p, int32_t part)
{
    const struct ex *e = print_ex(p, part);
    struct affine a;
    if (e->kind != EX_CMP) return -1;
    const bool less = e->op == CMP_LT || e->op == CMP_LE, strict = e->op == CMP_LT || e->op == CMP_GT;
    const bool equal = e->op == CMP_EQ, other = e->op == CMP_NE;
    if (!p->ivars || !ex_is_int(p->loops, e->a) || !ex_is_int(p->loops, e->b)) return -1;
    if (!difference(p->loops, less ? e->a : e->b, less ? e->b : e->a, &a)) return -1;
    expr_fold(p, &a);
    int64_t most, least;
    if (!expr_affine_bounds(p, &a, &least, &most)) return -1;
    const bool below = size_lt(most, 0), above = size_lt(0, least);
    if (equal || other) return below || above ? other : most == 0 && least == 0 ? equal : -1;
    if (strict ? below : size_le(most, 0)) return 1;
    return (strict ? size_le(0, least) : above) ? 0 : -1;
}

static const char *sum_text(struct print_expr *p, const struct affine *a, int64_t sign, int64_t plus)
{
    struct text t = text_new(p->out->arena);
    for (int i = 0; i < a->n; i++) {
        const int64_t c = size_mul(sign, a->coef[i]);
        text_put(&t, c < 0 ? (i ? " - " : "-") : i ? " + " : "");
        if (llabs(c) != 1) text_put(&t, "%lld * ", llabs(c));
        text_put(&t, "%s", expr_ivar_base(p, a->ivar[i]));
    }
    const int64_t c = size_add(size_mul(sign, a->c), plus);
    if (!a->n)
        text_put(&t, "%" PRId64, c);
    else if (c)
        text_put(&t, c < 0 ? " - %lld" : " + %lld", llabs(c));
    return t.at;
}

/* floor((sign * rest + plus) / c) + behind as C text; a plain number if possible. */
static const char *quotient(struct print_expr *p, const struct affine *rest, int64_t sign, int64_t plus, int64_t c,
                            int64_t behind)
{
    const int64_t constant = size_add(size_mul(sign, rest->c), plus);
    if (!rest->n) return SAY(p, "%" PRId64, size_add(size_floor_div(constant, c), behind));
    if (c == 1) return sum_text(p, rest, sign, size_add(plus, behind));
    /* a multiple of c is added, because C's division rounds towards zero */
    struct affine all = {.n = rest->n, .c = constant};
    for (int i = 0; i < rest->n; i++) {
        all.ivar[i] = rest->ivar[i];
        all.coef[i] = size_mul(sign, rest->coef[i]);
    }
    int64_t low, high;
    const bool bounded = expr_affine_bounds(p, &all, &low, &high);
    if (!bounded || (size_varies(low) && !size_le(0, low)))
        return SAY(p, "@sol_floordiv_i64(%s, %" PRId64 ") + %" PRId64, sum_text(p, rest, sign, plus), c, behind);
    const int64_t up = size_le(0, low) ? 0 : ceil_div(-low, c);
    const int64_t after = behind - up;
    const char *text = SAY(p, "(%s) / %" PRId64, sum_text(p, rest, sign, size_add(plus, up * c)), c);
    return after ? SAY(p, "%s %c %" PRId64, text, after < 0 ? '-' : '+', after < 0 ? -after : after) : text;
}

/* Turns a part of the guard into a bound of `ivar`: low (inclusive) or high (exclusive). False: it is no bound. */
static bool clip(struct print_expr *p, int32_t part, int ivar, uint64_t unknown, const char **out_low,
                 const char **out_high)
{
    const struct ex *e = print_ex(p, part);
    *out_low = *out_high = NULL;
    if (e->kind != EX_CMP || e->op == CMP_EQ || e->op == CMP_NE) return false;
    const bool less = e->op == CMP_LT || e->op == CMP_LE; /* as c * index variable + rest < 0, or <= 0 */
    const int64_t strict = e->op == CMP_LT || e->op == CMP_GT;
    struct affine a, rest = {0};
    if (!ex_is_int(p->loops, e->a) || !ex_is_int(p->loops, e->b)) return false;
    if (!difference(p->loops, less ? e->a : e->b, less ? e->b : e->a, &a)) return false;
    int64_t c = 0;
    rest.c = a.c;
    for (int i = 0; i < a.n; i++) {
        if (a.ivar[i] == ivar) {
            c = a.coef[i];
            continue;
        }
        if (unknown & bit(a.ivar[i])) return false;
        rest.ivar[rest.n] = a.ivar[i];
        rest.coef[rest.n++] = a.coef[i];
    }
    if (!c || (size_varies(c) && !size_le(1, c))) return false;
    expr_fold(p, &rest);
    if (c > 0)
        *out_high = quotient(p, &rest, -1, -strict, c, 1);
    else
        *out_low = quotient(p, &rest, 1, strict - c - 1, -c, 0);
    return true;
}

static bool is_number(const char *s)
{
    if (*s == '-') s++;
    return *s && !s[strspn(s, "0123456789")];
}

/* The tighter of two bounds, as C text. */
static const char *tighter(struct print_expr *p, const char *a, const char *b, bool high)
{
    if (!a) return b;
    if (is_number(a) && is_number(b)) {
        const int64_t x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10), best = high ? size_min(x, y) : size_max(x, y);
        if (best != SIZE_BAD) return best == x ? a : SAY(p, "%" PRId64, best);
    }
    return SAY(p, "@sol_%s_i64(%s, %s)", high ? "min" : "max", a, b);
}

static void test_ready(struct print_expr *p, struct print_loops *l, uint64_t unknown)
{
    int kept = 0;
    for (int i = 0; i < l->guard.n; i++) {
        const int32_t part = l->guard.at[i];
        /* parts keep their order, because an earlier part may make a later one safe to evaluate */
        if (kept || (ex_ivars(p->loops, part) & unknown)) {
            l->guard.at[kept++] = part;
            continue;
        }
        const char *cond = print_condition(p, part);
        text_open(p->out, "if (%s) {", text_bare(p->out->arena, cond));
        l->opened++;
        l->tested = true;
    }
    l->guard.n = kept;
}

/* The bounds of an index variable's loop, as C text. Removes the parts of the guard that became bounds. */
void nest_range(struct print_expr *p, struct print_loops *l, int ivar, uint64_t unknown, const char **out_low,
                const char **out_high)
{
    const char *low = "0", *high = SAY(p, "%" PRId64, p->loops->ivars.at[ivar].size);
    int kept = 0;
    for (int g = 0; g < l->guard.n; g++) {
        const char *least, *end;
        if (!clip(p, l->guard.at[g], ivar, unknown, &least, &end)) {
            l->guard.at[kept++] = l->guard.at[g];
            continue;
        }
        if (least) low = tighter(p, low, least, false);
        if (end) high = tighter(p, high, end, true);
    }
    l->guard.n = kept;
    const char **bound[] = {&low, &high};
    for (int b = 0; b < 2; b++) {
        if (is_number(*bound[b])) continue;
        const char *name = expr_name(p);
        text_line(p->out, "const int64_t %s = %s;", name, *bound[b]);
        *bound[b] = name;
    }
    *out_low = low;
    *out_high = high;
}

static void open_one(struct print_expr *p, struct print_loops *l, int i, uint64_t unknown)
{
    const int ivar = l->ivar[i];
    const char *low, *high;
    nest_range(p, l, ivar, unknown, &low, &high);
    l->low[i] = low;
    l->high[i] = high;
    const char *name = expr_ivar(p, ivar);
    if (l->between && i == l->inner) {
        if (l->strip) {
            const char *strip = expr_name(p);
            text_open(p->out, "for (int64_t %s = %s; %s < %s; %s += %" PRId64 ") {", strip, low, strip, high, strip,
                      l->strip);
            l->opened++;
            low = strip;
            high = SAY(p, "@sol_min_i64(%s, %s + %" PRId64 ")", high, strip, l->strip);
        }
        l->inner_opened = -l->opened;
        l->between(l->user);
    }
    text_open(p->out, "for (int64_t %s = %s; %s < %s; %s++) {", name, low, name, high, name);
    l->opened++;
}

/* An index variable with a constant value needs no loop. */
static bool is_constant(const struct print_expr *p, int ivar)
{
    return p->ivars && p->ivars[ivar].known && !p->ivars[ivar].base;
}

void nest_open(struct print_expr *p, struct print_loops *l)
{
    uint64_t unknown = l->later;
    for (int i = 0; i < l->n; i++) unknown |= bit(l->ivar[i]);
    l->opened = 0;
    l->tested = false;
    test_ready(p, l, unknown);
    for (int i = 0; i < l->n; i++) {
        unknown &= ~bit(l->ivar[i]);
        if (!is_constant(p, l->ivar[i])) open_one(p, l, i, unknown);
        test_ready(p, l, unknown);
    }
    if (l->between) l->inner_opened += l->opened;
}

void nest_open_last(struct print_expr *p, struct print_loops *l, int ivar, const char **out_low, const char **out_high)
{
    const int before = l->opened;
    nest_range(p, l, ivar, 0, out_low, out_high);
    test_ready(p, l, 0);
    if (l->between) l->inner_opened += l->opened - before;
}

void nest_close(struct print_expr *p, const struct print_loops *l)
{
    for (int i = 0; i < l->opened; i++) text_close(p->out, "}");
}
