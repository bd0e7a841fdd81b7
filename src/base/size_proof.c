/* Bounds of forms, and proofs that one is never below another.
 *
 * a <= b holds if b - a is never negative. A quotient q = p // k is bounded by its fact k*q <= p <= k*q + k-1; a
 * minimum or a maximum is one of two forms. What is left is a polynomial over dimensions. There each dimension is
 * written as its least value and something that is not negative, or replaced by its largest value where it only
 * subtracts. If no coefficient is negative then, the form is not. */
#include "base/size_form.h"

#include <string.h>

#define MOST_DEPTH 10 /* of a proof */

/* -- bounds */

static int64_t times_bound(int64_t a, int64_t b)
{
    int64_t v;
    if (!a || !b) return 0;
    if (a != INT64_MIN && a != INT64_MAX && b != INT64_MIN && b != INT64_MAX && !__builtin_mul_overflow(a, b, &v))
        return v;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static struct interval times(struct interval x, struct interval y)
{
    const int64_t v[] = {times_bound(x.low, y.low), times_bound(x.low, y.high), times_bound(x.high, y.low),
                         times_bound(x.high, y.high)};
    struct interval r = {v[0], v[0]};
    for (int i = 1; i < 4; i++) {
        r.low = MIN(r.low, v[i]);
        r.high = MAX(r.high, v[i]);
    }
    return r;
}

static int64_t plus_bound(int64_t a, int64_t b, int64_t none)
{
    int64_t v;
    return a == none || b == none || __builtin_add_overflow(a, b, &v) ? none : v;
}

static struct interval interval_of(int64_t s);

struct interval symbol_interval(const struct symbol *x)
{
    if (x->kind == SYMBOL_DIM)
        return (struct interval){ceil_div(x->dim.min, x->dim.multiple), x->dim.max / x->dim.multiple};
    const struct interval a = interval_of(x->a), b = interval_of(x->b);
    if (x->kind == SYMBOL_MIN) return (struct interval){MIN(a.low, b.low), MIN(a.high, b.high)};
    if (x->kind == SYMBOL_MAX) return (struct interval){MAX(a.low, b.low), MAX(a.high, b.high)};
    const int64_t least = MAX(b.low, 1), most = b.high;
    struct interval r = {INT64_MIN, INT64_MAX};
    if (a.low != INT64_MIN)
        r.low = a.low < 0 ? floor_div(a.low, least) : most == INT64_MAX ? 0 : floor_div(a.low, most);
    if (a.high != INT64_MAX)
        r.high = a.high >= 0 ? floor_div(a.high, least) : most == INT64_MAX ? -1 : floor_div(a.high, most);
    return r;
}

static struct interval interval_of(int64_t s)
{
    if (s == SIZE_BAD) return (struct interval){INT64_MIN, INT64_MAX};
    if (!size_varies(s)) return (struct interval){s, s};
    const struct poly p = poly_load(s);
    struct interval sum = {0, 0};
    for (int i = 0; i < p.n; i++) {
        struct interval t = {p.t[i].k, p.t[i].k};
        for (int k = 0; k < p.t[i].n; k++) t = times(t, symbol_at(p.t[i].symbol[k])->range);
        sum.low = plus_bound(sum.low, t.low, INT64_MIN);
        sum.high = plus_bound(sum.high, t.high, INT64_MAX);
    }
    return sum;
}

int64_t size_least(int64_t s)
{
    return interval_of(s).low;
}

int64_t size_most(int64_t s)
{
    return interval_of(s).high;
}

/* -- proofs */

static bool never_negative(const struct poly *p, int depth);

static bool has_symbol(const struct term *t, int32_t symbol)
{
    for (int i = 0; i < t->n; i++)
        if (t->symbol[i] == symbol) return true;
    return false;
}

/* The terms of p without a symbol in `out_rest`, the others, divided by it, in `out_with`. False: it occurs twice in
 * a term, or beside something that may be negative. */
static bool take_out(const struct poly *p, int32_t symbol, struct poly *out_with, struct poly *out_rest)
{
    *out_with = *out_rest = (struct poly){0};
    for (int i = 0; i < p->n; i++) {
        if (!has_symbol(&p->t[i], symbol)) {
            poly_add_term(out_rest, &p->t[i]);
            continue;
        }
        const struct term t = term_without(&p->t[i], symbol);
        if (has_symbol(&t, symbol)) return false;
        for (int k = 0; k < t.n; k++)
            if (symbol_at(t.symbol[k])->range.low < 0) return false;
        poly_add_term(out_with, &t);
    }
    return true;
}

/* A quotient q = a // b in rest + with * q: b * q is at least a - b + 1 and at most a. What is b times as large need
 * only be more than -b: sizes are integers. */
static bool by_quotient(const struct symbol *x, const struct poly *with, const struct poly *rest, int depth)
{
    const struct poly a = poly_load(x->a), b = poly_load(x->b), above = poly_load(size_sub(size_add(x->a, 1), x->b));
    struct poly scaled = poly_load(size_sub(x->b, 1));
    bool adds = true;
    for (int i = 0; i < b.n; i++) poly_add_times(&scaled, &b.t[i], rest);
    for (int i = 0; i < with->n; i++) {
        poly_add_times(&scaled, &with->t[i], with->t[i].k > 0 ? &above : &a);
        adds &= with->t[i].k > 0;
    }
    if (never_negative(&scaled, depth + 1)) return true;
    return adds && x->range.low >= 0 && never_negative(rest, depth + 1);
}

/* A minimum or maximum is one of its two forms. Where it bounds the right way, either will do. */
static bool by_choice(const struct symbol *x, const struct poly *with, const struct poly *rest, int depth)
{
    bool good[2], either = true;
    for (int i = 0; i < 2; i++) {
        const struct poly form = poly_load(i ? x->b : x->a);
        struct poly p = *rest;
        for (int k = 0; k < with->n; k++) poly_add_times(&p, &with->t[k], &form);
        good[i] = never_negative(&p, depth + 1);
    }
    for (int k = 0; k < with->n; k++) either &= (with->t[k].k > 0) == (x->kind == SYMBOL_MAX);
    return either ? good[0] || good[1] : good[0] && good[1];
}

/* Does a dimension occur in terms that subtract only? */
static bool only_subtracts(const struct poly *p, int32_t symbol)
{
    for (int i = 0; i < p->n; i++)
        if (has_symbol(&p->t[i], symbol) && p->t[i].k > 0) return false;
    return true;
}

/* p with the number v in place of a symbol. */
static struct poly put_number(const struct poly *p, int32_t symbol, int64_t v)
{
    struct poly r = {.bad = p->bad};
    for (int i = 0; i < p->n; i++) {
        struct term t = p->t[i];
        while (has_symbol(&t, symbol)) {
            t = term_without(&t, symbol);
            r.bad |= __builtin_mul_overflow(t.k, v, &t.k);
        }
        poly_add_term(&r, &t);
    }
    return r;
}

/* p += t with (least value + symbol) in place of every symbol: the symbol now means what is above the least value. */
static void add_shifted(struct poly *p, const struct term *t)
{
    struct poly made = {.n = 1, .t[0] = {.k = t->k}};
    for (int i = 0; i < t->n; i++) {
        const int64_t least = symbol_at(t->symbol[i])->range.low;
        const struct term above = {.k = 1, .n = 1, .symbol[0] = t->symbol[i]}, constant = {.k = least};
        struct poly next = {0};
        poly_add_times(&next, &above, &made);
        poly_add_times(&next, &constant, &made);
        made = next;
    }
    poly_add(p, &made, 1);
}

/* A polynomial over dimensions alone. */
static bool over_dims(const struct poly *p)
{
    struct poly r = *p, all = {.bad = p->bad};
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->t[i].n; k++) {
            const int32_t symbol = p->t[i].symbol[k];
            const int64_t most = symbol_at(symbol)->range.high;
            if (only_subtracts(p, symbol) && most != INT64_MAX) r = put_number(&r, symbol, most);
        }
    for (int i = 0; i < r.n; i++) add_shifted(&all, &r.t[i]);
    for (int i = 0; i < all.n; i++)
        if (all.t[i].k < 0) return false;
    return !all.bad && !r.bad;
}

/* The symbol that is nested deepest, if it is no dimension; -1: there is none. */
static int32_t outermost(const struct poly *p)
{
    int32_t best = -1;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->t[i].n; k++) {
            const int32_t s = p->t[i].symbol[k];
            if (symbol_at(s)->nesting > (best < 0 ? 0 : symbol_at(best)->nesting)) best = s;
        }
    return best;
}

/* p over the common factor of all coefficients but the constant, which is rounded down: sizes are integers, so 2*q >= 1
 * is q >= 1. */
static struct poly without_factor(const struct poly *p)
{
    struct poly r = {.bad = p->bad};
    int64_t factor = 0;
    for (int i = 0; i < p->n; i++)
        if (p->t[i].n) factor = gcd(factor, p->t[i].k);
    if (factor < 2) return *p;
    for (int i = 0; i < p->n; i++) {
        struct term t = p->t[i];
        t.k = floor_div(t.k, factor);
        poly_add_term(&r, &t);
    }
    return r;
}

static bool never_negative(const struct poly *p, int depth)
{
    struct poly with, rest;
    if (p->bad || depth > MOST_DEPTH) return false;
    const struct poly least = without_factor(p);
    const int32_t s = outermost(&least);
    if (s < 0) return over_dims(&least);
    if (!take_out(&least, s, &with, &rest)) return false;
    const struct symbol *x = symbol_at(s);
    return x->kind == SYMBOL_QUOTIENT ? by_quotient(x, &with, &rest, depth) : by_choice(x, &with, &rest, depth);
}

/* -- bounds by other dimensions */

static int64_t bound(int64_t s, bool upper, const int64_t *most);

static bool bounded(int64_t s, const int64_t *most) /* does a dimension with a bound occur in it? */
{
    const uint32_t dims = size_dims(s);
    for (int i = 0; i < SIZE_MOST_DIMS; i++)
        if (dims >> i & 1 && most[i] >= 0) return true;
    return false;
}

static int64_t bound_of_symbol(const struct symbol *x, bool upper, const int64_t *most)
{
    if (x->kind == SYMBOL_DIM) {
        const int64_t m = most[x->dim.index];
        return size_floor_div(m < 0 ? size_of_dim(&x->dim) : upper ? m : 0, x->dim.multiple);
    }
    const int64_t a = bound(x->a, upper, most);
    if (x->kind == SYMBOL_QUOTIENT && bounded(x->b, most)) { /* a large divisor brings a quotient of any sign near 0 */
        const int64_t few = size_floor_div(a, size_max(bound(x->b, false, most), 1));
        const int64_t many = size_floor_div(a, size_max(bound(x->b, true, most), 1));
        return upper ? size_max(few, many) : size_min(few, many);
    }
    if (x->kind == SYMBOL_QUOTIENT) return size_floor_div(a, x->b);
    const int64_t b = bound(x->b, upper, most);
    return x->kind == SYMBOL_MIN ? size_min(a, b) : size_max(a, b);
}

/* A term is monotonic in one symbol whatever its sign is, in several only if none is negative. */
static int64_t bound_of_term(const struct term *t, bool upper, const int64_t *most)
{
    int64_t made = t->k;
    for (int i = 0; i < t->n; i++) {
        const struct symbol *x = symbol_at(t->symbol[i]);
        if (t->n > 1 && x->range.low < 0) return SIZE_BAD;
        const int64_t v = bound_of_symbol(x, upper == (t->k > 0), most);
        made = size_mul(made, t->n > 1 ? size_max(v, 0) : v);
    }
    return made;
}

static int64_t bound(int64_t s, bool upper, const int64_t *most)
{
    if (!bounded(s, most)) return s;
    const struct poly p = poly_load(s);
    int64_t sum = 0;
    for (int i = 0; i < p.n; i++) sum = size_add(sum, bound_of_term(&p.t[i], upper, most));
    return sum;
}

int64_t size_upper(int64_t s, const int64_t *most)
{
    return bound(s, true, most);
}

bool size_le(int64_t a, int64_t b)
{
    if (a == SIZE_BAD || b == SIZE_BAD) return false;
    if (!size_varies(a) && !size_varies(b)) return a <= b;
    const int64_t d = size_sub(b, a);
    if (!size_varies(d)) return d != SIZE_BAD && d >= 0;
    atomic_schar *proof = size_proof(d);
    if (atomic_load_explicit(proof, memory_order_relaxed) == SIZE_PROOF_OPEN) {
        const struct poly p = poly_load(d);
        const bool holds = never_negative(&p, 0);
        atomic_store_explicit(proof, holds ? SIZE_PROOF_NEVER_NEGATIVE : SIZE_PROOF_NONE, memory_order_relaxed);
    }
    return atomic_load_explicit(proof, memory_order_relaxed) == SIZE_PROOF_NEVER_NEGATIVE;
}
