/* Quotients where sizes vary, as resizes and adaptive pools have them: (a*P + b)//c + K == Q holds for few P, which are
 * P = first(Q) + U, and for one K. A condition says for which of them it does. */
#include "grad/grad.h"

bool grad_sum(const struct loops *w, int32_t node, int64_t k, struct sum *s)
{
    const struct ex *e = &w->ex.at[node];
    switch (e->kind) {
    case EX_INT: return (s->c = size_add(s->c, size_mul(k, e->u.i))) != SIZE_BAD;
    case EX_ADD: return grad_sum(w, e->a, k, s) && grad_sum(w, e->b, k, s);
    case EX_SUB: return grad_sum(w, e->a, k, s) && grad_sum(w, e->b, size_sub(0, k), s);
    case EX_MUL: {
        bool left = w->ex.at[e->a].kind == EX_INT;
        const struct ex *factor = &w->ex.at[left ? e->a : e->b];
        return factor->kind == EX_INT && grad_sum(w, left ? e->b : e->a, size_mul(k, factor->u.i), s);
    }
    case EX_IVAR:
    case EX_FLOOR:
    case EX_MOD:
        if (s->n == COUNT_OF(s->atom) || k == SIZE_BAD) return false;
        s->atom[s->n] = node;
        s->coef[s->n++] = k;
        return true;
    default: return false;
    }
}

bool grad_quotient(const struct loops *w, int32_t node, struct quotient *out)
{
    struct sum s = {0};
    uint64_t others = 0;
    *out = (struct quotient){.P = -1};
    if (!grad_sum(w, node, 1, &s)) return false;
    out->low = out->high = s.c;
    for (int i = 0; i < s.n; i++) {
        const struct ex *e = &w->ex.at[s.atom[i]];
        struct affine f;
        int64_t low, high;
        if (e->kind == EX_FLOOR && out->P < 0 && s.coef[i] == 1) {
            if (w->ex.at[e->b].kind != EX_INT || !ex_affine(w, e->a, &f) || f.n != 1) return false;
            *out = (struct quotient){f.ivar[0], f.coef[0], f.c, w->ex.at[e->b].u.i, out->low, out->high};
            if (!size_le(1, out->a) || !size_le(1, out->c)) return false;
            continue;
        }
        if (!ex_bounds(w, s.atom[i], &low, &high)) return false;
        const bool up = size_le(0, s.coef[i]);
        if (!up && !size_le(s.coef[i], 0)) return false;
        out->low = size_add(out->low, size_mul(s.coef[i], up ? low : high));
        out->high = size_add(out->high, size_mul(s.coef[i], up ? high : low));
        others |= ex_ivars(w, s.atom[i]);
    }
    return out->P >= 0 && !(others >> out->P & 1) && out->low != SIZE_BAD && out->high != SIZE_BAD;
}

/* The least P for which (a*P + b)//c >= v: (c*v - b + a-1) // a. */
static int64_t least(const struct quotient *f, int64_t v)
{
    const int64_t rest = size_sub(size_sub(f->a, 1), f->b);
    return size_floor_div(size_add(size_mul(f->c, v), rest), f->a);
}

int64_t grad_quotient_from(const struct quotient *f, int64_t v, bool any)
{
    return least(f, size_sub(v, any ? f->high : f->low));
}

bool range_pin(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct quotient f;
    if (!term_varies(a, t, d) || !grad_quotient(w, t->pin[d].f, &f) || !(t->ctx >> f.P & 1)) return false;
    const int64_t n = w->ivars.at[f.P].size, span = size_add(size_sub(f.high, f.low), 1);
    const int64_t m = size_add(size_floor_div(size_sub(size_mul(f.c, span), 1), f.a), 1);
    if (!size_varies(n) || size_varies(m) || m < 1 || m > GRAD_BORDER || w->ivars.n == LOOPS_MAX_IVARS) return false;
    const int32_t q = term_pinned(a, t, d);
    const int64_t rest = size_sub(size_sub(size_sub(f.a, 1), f.b), size_mul(f.c, f.high));
    int32_t at = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, ex_int(w, f.c), q), ex_int(w, rest));
    at = ex_binary(w, EX_FLOOR, at, ex_int(w, f.a));
    if (m > 1) {
        const int U = loops_ivar(w, "U", m);
        t->ctx |= bit(U);
        at = ex_binary(w, EX_ADD, at, ex_ivar(w, U));
    }
    term_replace(a, t, f.P, at);
    term_bound(a, t, at, n);
    return true;
}

bool beside_pin(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct sum s = {0};
    int K = -1;
    int64_t sign = 0;
    if (!term_varies(a, t, d) || !grad_sum(w, t->pin[d].f, 1, &s) || s.n < 2) return false;
    for (int i = 0; i < s.n; i++) {
        const struct ex *e = &w->ex.at[s.atom[i]];
        bool alone = e->kind == EX_IVAR && t->ctx >> e->tensor & 1 && (s.coef[i] == 1 || s.coef[i] == -1);
        for (int k = 0; k < s.n && alone; k++) alone = k == i || !(ex_ivars(w, s.atom[k]) >> e->tensor & 1);
        if (!alone || (K >= 0 && size_hint(w->ivars.at[K].size) >= size_hint(w->ivars.at[e->tensor].size))) continue;
        K = e->tensor;
        sign = s.coef[i];
    }
    if (K < 0) return false;
    const int32_t q = term_pinned(a, t, d), f = t->pin[d].f, k = ex_ivar(w, K);
    const int64_t n = w->ivars.at[K].size;
    const int32_t rest = ex_binary(w, sign == 1 ? EX_SUB : EX_ADD, f, k);
    const int32_t e = sign == 1 ? ex_binary(w, EX_SUB, q, rest) : ex_binary(w, EX_SUB, rest, q);
    t->pin[d].f = 0;
    term_replace(a, t, K, e);
    term_bound(a, t, e, n);
    return true;
}
