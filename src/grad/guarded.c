/* Digits whose ranges are conditions of the term: where 0 <= X < n and 0 <= Y hold, `n*Y + X == Q` means X = Q%n and
 * Y = Q//n. Fold reads windows like this: 56*(A-F+1) + B-H+1, with conditions that keep windows inside of the picture.
 */
#include "grad/grad.h"

struct digit { /* an expression from 0 to n - 1 */
    int32_t e;
    int64_t n;
    struct sum parts; /* e as a sum */
};
struct candidates {
    const struct loops *w;
    const struct term *t;
    int nlow, n;
    int32_t low[16]; /* not negative */
    struct digit digit[16];
};

static bool is_int(const struct loops *w, int32_t node, int64_t *out)
{
    *out = w->ex.at[node].kind == EX_INT ? w->ex.at[node].u.i : 0;
    return w->ex.at[node].kind == EX_INT;
}

static void add_digit(struct candidates *c, int32_t e, int64_t n)
{
    struct digit d = {e, n, {0}};
    if (c->n == COUNT_OF(c->digit) || !size_le(1, n) || !grad_sum(c->w, e, 1, &d.parts) || !d.parts.n) return;
    if (!(ex_ivars(c->w, e) & c->t->ctx)) return;
    c->digit[c->n++] = d;
}

static void see_condition(struct candidates *c, int32_t node, bool upper)
{
    const struct ex *e = &c->w->ex.at[node];
    int64_t n;
    if (e->kind == EX_AND) {
        for (int32_t i = e->a; i; i = c->w->ex.at[i].next) see_condition(c, i, upper);
    } else if (e->kind == EX_CMP && e->op == CMP_LE && !upper) {
        if (is_int(c->w, e->a, &n) && size_le(0, n) && c->nlow < COUNT_OF(c->low)) c->low[c->nlow++] = e->b;
    } else if (e->kind == EX_CMP && e->op == CMP_LT && upper && is_int(c->w, e->b, &n)) {
        for (int i = 0; i < c->nlow; i++)
            if (ex_equal(c->w, c->low[i], e->a)) {
                add_digit(c, e->a, n);
                break;
            }
    }
}

/* X//s of a digit X of f is one, too. */
static void add_quotients(struct candidates *c, const struct sum *f)
{
    for (int i = 0, n = c->n; i < f->n; i++) {
        const struct ex *e = &c->w->ex.at[f->atom[i]];
        int64_t by;
        if (e->kind != EX_FLOOR || !is_int(c->w, e->b, &by) || !size_le(1, by)) continue;
        for (int k = 0; k < n; k++)
            if (ex_equal(c->w, c->digit[k].e, e->a)) {
                add_digit(c, f->atom[i], size_ceil_div(c->digit[k].n, by));
                break;
            }
    }
}

/* Removes weight * digit from the sum. False: the sum does not contain it. */
static bool take(const struct loops *w, struct sum *f, const struct digit *d, int64_t weight)
{
    struct sum rest = *f;
    for (int i = 0; i < d->parts.n; i++) {
        int at = -1;
        for (int k = 0; k < rest.n; k++)
            if (rest.coef[k] == size_mul(weight, d->parts.coef[i]) && ex_equal(w, rest.atom[k], d->parts.atom[i]))
                at = k;
        if (at < 0) return false;
        rest.n--;
        rest.atom[at] = rest.atom[rest.n];
        rest.coef[at] = rest.coef[rest.n];
    }
    rest.c = size_sub(rest.c, size_mul(weight, d->parts.c));
    *f = rest;
    return true;
}

static bool digits(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct candidates c = {.w = w, .t = t};
    struct sum f = {0};
    int used[SOL_MAX_DIMS], n = 0;
    int64_t weight = 1;
    if (!grad_sum(w, t->pin[d].f, 1, &f) || f.n < 2) return false;
    for (int upper = 0; upper < 2; upper++)
        for (int i = 0; i < t->nguard; i++) see_condition(&c, t->guard[i], upper);
    for (int i = 0; i < t->nbound; i++) add_digit(&c, t->bound[i].e, t->bound[i].size);
    add_quotients(&c, &f);
    while (f.n) {
        int found = -1;
        for (int i = 0; i < c.n && found < 0; i++)
            if (take(w, &f, &c.digit[i], weight)) found = i;
        if (found < 0 || n == SOL_MAX_DIMS) return false;
        used[n++] = found;
        weight = size_mul(weight, c.digit[found].n);
        if (weight == SIZE_BAD) return false;
    }
    if (f.c || n < 2 || t->npin + n > GRAD_MAX_PINS) return false;
    const int32_t q = term_pinned(a, t, d);
    int64_t below = 1;
    t->pin[d].f = 0;
    term_bound(a, t, q, weight);
    for (int i = 0; i < n; i++) {
        const struct digit *at = &c.digit[used[i]];
        int32_t digit = ex_binary(w, EX_FLOOR, q, ex_int(w, below));
        if (i + 1 < n) digit = ex_binary(w, EX_MOD, digit, ex_int(w, at->n));
        t->pin[t->npin++] = (struct pin){.f = at->e, .q = digit, .size = at->n};
        below = size_mul(below, at->n);
    }
    return true;
}

/* Is this, or a part of it, the condition x%by == 0? */
static bool divides(const struct loops *w, int32_t cond, int32_t x, int64_t by)
{
    const struct ex *e = &w->ex.at[cond];
    int64_t zero, n;
    if (e->kind == EX_AND) {
        for (int32_t i = e->a; i; i = w->ex.at[i].next)
            if (divides(w, i, x, by)) return true;
        return false;
    }
    if (e->kind != EX_CMP || e->op != CMP_EQ || !is_int(w, e->b, &zero) || zero) return false;
    const struct ex *rest = &w->ex.at[e->a];
    return rest->kind == EX_MOD && is_int(w, rest->b, &n) && n == by && ex_equal(w, rest->a, x);
}

static bool multiple(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    const struct ex e = w->ex.at[t->pin[d].f];
    int64_t by;
    bool found = false;
    if (e.kind != EX_FLOOR || !is_int(w, e.b, &by)) return false;
    for (int i = 0; i < t->nguard && !found; i++) found = divides(w, t->guard[i], e.a, by);
    if (!found) return false;
    const int32_t q = ex_binary(w, EX_MUL, term_pinned(a, t, d), ex_int(w, by));
    t->pin[d] = (struct pin){.f = e.a, .q = q, .size = size_mul(t->pin[d].size, by)};
    return true;
}

bool guarded_pin(struct adjoint *a, struct term *t, int d)
{
    return digits(a, t, d) || multiple(a, t, d);
}
