/* Constructors that fold: constants, sums of multiples, floor divisions and remainders by constants, and guards and
 * reads that the ranges of the index variables decide.
 *
 * Integer sums are brought into a *linear form*: a constant plus multiples of atoms. Atoms are index variables and all
 * nodes other than +, - and * by a constant. For a floor division by k, the terms that k divides are taken out; the
 * rest vanishes if its range lies between two neighbouring multiples of k. That removes reshapes, residues (s*U+r)//s
 * and unravelled positions. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "hlir/loops.h"

#define LIN_MAX 16

struct lin {
    int n;
    struct {
        int32_t atom;
        int64_t k;
    } t[LIN_MAX];
    int64_t c;
};

static int32_t raw(struct loops *loops, enum ex_kind kind, int32_t a, int32_t b)
{
    return ex_put(loops, (struct ex){.kind = (uint8_t)kind, .a = a, .b = b});
}

static bool is_const(const struct loops *loops, int32_t node, int64_t v)
{
    return loops->ex.at[node].kind == EX_INT && loops->ex.at[node].u.i == v;
}

/* -- linear forms */

static bool lin_atom(const struct loops *loops, struct lin *f, int32_t atom, int64_t k)
{
    for (int i = 0; i < f->n; ++i) {
        if (!ex_equal(loops, f->t[i].atom, atom)) continue;
        f->t[i].k = size_add(f->t[i].k, k);
        if (!f->t[i].k) f->t[i] = f->t[--f->n];
        return i >= f->n || f->t[i].k != SIZE_BAD;
    }
    if (f->n == LIN_MAX) return false;
    f->t[f->n].atom = atom;
    f->t[f->n++].k = k;
    return true;
}

/* f += k * node. False: there are too many terms, or numbers are too large. */
static bool lin_add(const struct loops *loops, struct lin *f, int32_t node, int64_t k)
{
    const struct ex *e = &loops->ex.at[node];
    const int64_t minus = size_sub(0, k);
    if (!k) return true;
    if (k == SIZE_BAD || minus == SIZE_BAD) return false;
    switch (e->kind) {
    case EX_INT: return (f->c = size_add(f->c, size_mul(e->u.i, k))) != SIZE_BAD;
    case EX_NEG: return lin_add(loops, f, e->a, minus);
    case EX_ADD: return lin_add(loops, f, e->a, k) && lin_add(loops, f, e->b, k);
    case EX_SUB: return lin_add(loops, f, e->a, k) && lin_add(loops, f, e->b, minus);
    case EX_MUL: {
        bool left = loops->ex.at[e->a].kind == EX_INT;
        const struct ex *factor = &loops->ex.at[left ? e->a : e->b];
        if (factor->kind != EX_INT) return lin_atom(loops, f, node, k);
        return lin_add(loops, f, left ? e->b : e->a, size_mul(factor->u.i, k));
    }
    default: return lin_atom(loops, f, node, k);
    }
}

/* Replaces m*k*(e//k) + m*(e%k) by m*e. */
static bool lin_join(struct loops *loops, struct lin *f)
{
    for (int i = 0; i < f->n; ++i) {
        struct ex e = loops->ex.at[f->t[i].atom];
        const int64_t m = f->t[i].k;
        if (e.kind != EX_MOD || loops->ex.at[e.b].kind != EX_INT) continue;
        const int64_t whole = size_mul(m, loops->ex.at[e.b].u.i);
        if (whole == SIZE_BAD) continue;
        bool any = false;
        for (int j = 0; j < f->n; ++j) any |= f->t[j].k == whole && loops->ex.at[f->t[j].atom].kind == EX_FLOOR;
        if (!any) continue;
        int32_t quotient = ex_binary(loops, EX_FLOOR, e.a, e.b);
        for (int j = 0; j < f->n; ++j) {
            if (f->t[j].k != whole || !ex_equal(loops, f->t[j].atom, quotient)) continue;
            f->t[MAX(i, j)] = f->t[--f->n];
            f->t[MIN(i, j)] = f->t[--f->n];
            return lin_add(loops, f, e.a, m) && lin_join(loops, f);
        }
    }
    return true;
}

static int ivar_rank(const struct loops *loops, int32_t atom)
{
    return loops->ex.at[atom].kind == EX_IVAR ? loops->ex.at[atom].tensor : LOOPS_MAX_IVARS;
}

static int32_t lin_term(struct loops *loops, int32_t atom, int64_t k)
{
    return k == 1 ? atom : raw(loops, EX_MUL, ex_int(loops, k), atom);
}

/* Positive terms come first, index variables by number, the constant last. The form is unique, so equal indices are
 * equal nodes. */
static int32_t lin_build(struct loops *loops, struct lin *f)
{
    int32_t e = 0;
    for (int i = 1; i < f->n; ++i) /* a stable insertion sort; f->n is small */
        for (int j = i; j > 0 && ivar_rank(loops, f->t[j].atom) < ivar_rank(loops, f->t[j - 1].atom); --j) {
            int32_t atom = f->t[j].atom;
            int64_t k = f->t[j].k;
            f->t[j] = f->t[j - 1];
            f->t[j - 1].atom = atom;
            f->t[j - 1].k = k;
        }
    for (int i = 0; i < f->n; ++i) {
        if (f->t[i].k < 0) continue;
        int32_t t = lin_term(loops, f->t[i].atom, f->t[i].k);
        e = e ? raw(loops, EX_ADD, e, t) : t;
    }
    int64_t c = f->c;
    if (!e && c > 0) {
        e = ex_int(loops, c);
        c = 0;
    }
    for (int i = 0; i < f->n; ++i) {
        int64_t k = f->t[i].k;
        if (k > 0) continue;
        if (!e)
            e = k == -1 ? raw(loops, EX_NEG, f->t[i].atom, 0) : lin_term(loops, f->t[i].atom, k);
        else if (k == INT64_MIN)
            e = raw(loops, EX_ADD, e, lin_term(loops, f->t[i].atom, k));
        else
            e = raw(loops, EX_SUB, e, lin_term(loops, f->t[i].atom, -k));
    }
    if (!e) return ex_int(loops, c);
    if (!c) return e;
    return c > 0 || c == INT64_MIN ? raw(loops, EX_ADD, e, ex_int(loops, c)) : raw(loops, EX_SUB, e, ex_int(loops, -c));
}

/* -- floor and remainder by a constant */

static int32_t divide(struct loops *loops, enum ex_kind kind, int32_t a, int64_t k);

/* The quotient or remainder of a quotient or remainder. 0: no rule applies. */
static int32_t divide_again(struct loops *loops, enum ex_kind kind, struct ex e, int64_t k)
{
    if ((e.kind != EX_FLOOR && e.kind != EX_MOD) || loops->ex.at[e.b].kind != EX_INT) return 0;
    const int64_t j = loops->ex.at[e.b].u.i;
    if (j <= 0) return 0;
    if (e.kind == EX_FLOOR) {
        const int64_t both = size_mul(j, k);
        if (kind != EX_FLOOR || both == SIZE_BAD) return 0;
        return divide(loops, EX_FLOOR, e.a, both);
    }
    const int64_t parts = size_exact_div(j, k);
    if (parts == SIZE_BAD) return 0;
    if (kind == EX_MOD) return divide(loops, EX_MOD, e.a, k);
    return divide(loops, EX_MOD, divide(loops, EX_FLOOR, e.a, k), parts);
}

/* f = g * out_high + out_low: the terms that g divides are in out_high. */
static void split_terms(const struct lin *f, int64_t g, struct lin *out_high, struct lin *out_low)
{
    *out_high = *out_low = (struct lin){0};
    for (int i = 0; i < f->n; ++i) {
        const int64_t whole = size_exact_div(f->t[i].k, g);
        struct lin *into = whole == SIZE_BAD ? out_low : out_high;
        into->t[into->n].atom = f->t[i].atom;
        into->t[into->n++].k = whole == SIZE_BAD ? f->t[i].k : whole;
    }
    const int64_t whole = size_exact_div(f->c, g);
    out_high->c = whole != SIZE_BAD ? whole : size_varies(f->c) || size_varies(g) ? 0 : floor_div(f->c, g);
    out_low->c = size_sub(f->c, size_mul(out_high->c, g));
}

/* A divisor of k and of one coefficient; 0: none is known. */
static int64_t common_divisor(int64_t k, int64_t coefficient)
{
    if (!size_varies(k) && !size_varies(coefficient)) return gcd(k, coefficient);
    if (!size_varies(coefficient) && coefficient < 0) return 0;
    return size_exact_div(k, coefficient) != SIZE_BAD ? coefficient : 0;
}

/* Is 0 <= node < n? */
static bool is_below(const struct loops *loops, int32_t node, int64_t n)
{
    int64_t lo, hi;
    return ex_bounds(loops, node, &lo, &hi) && size_le(0, lo) && size_lt(hi, n);
}

/* out + kind(rest, k), if rest is g*high + low with 0 <= low < g, where g divides k. 0: there is no such g. */
static int32_t divide_parts(struct loops *loops, enum ex_kind kind, const struct lin *rest, int64_t k)
{
    int64_t best = 0;
    struct lin high = {0}, low = {0};
    for (int i = 0; i < rest->n; ++i) {
        int64_t g = common_divisor(k, rest->t[i].k);
        struct lin h, w;
        if (g <= 1 || g == k || size_hint(g) <= size_hint(best) || size_hint(g) >= size_hint(k)) continue;
        split_terms(rest, g, &h, &w);
        struct lin copy = w;
        if (!is_below(loops, lin_build(loops, &copy), g)) continue;
        best = g;
        high = h;
        low = w;
    }
    if (!best) return 0;
    int32_t q = divide(loops, kind, lin_build(loops, &high), size_exact_div(k, best));
    if (kind == EX_FLOOR) return q;
    return ex_binary(loops, EX_ADD, ex_binary(loops, EX_MUL, ex_int(loops, best), q), lin_build(loops, &low));
}

static int32_t divide(struct loops *loops, enum ex_kind kind, int32_t a, int64_t k)
{
    struct lin f = {0}, out = {0}, rest = {0};
    int64_t lo, hi;
    if (k == 1) return kind == EX_FLOOR ? a : ex_int(loops, 0);
    if (!lin_add(loops, &f, a, 1)) return raw(loops, kind, a, ex_int(loops, k));
    if (f.n == 1 && f.t[0].k == 1 && !f.c) {
        int32_t again = divide_again(loops, kind, loops->ex.at[f.t[0].atom], k);
        if (again) return again;
    }
    split_terms(&f, k, &out, &rest);
    int32_t part = lin_build(loops, &rest), made;
    const bool bounded = ex_bounds(loops, part, &lo, &hi);
    const int64_t m = bounded ? size_floor_div(lo, k) : 0;
    if (bounded && m != SIZE_BAD && m == size_floor_div(hi, k)) {
        made = kind == EX_FLOOR ? ex_int(loops, m) : ex_binary(loops, EX_SUB, part, ex_int(loops, size_mul(m, k)));
    } else {
        made = divide_parts(loops, kind, &rest, k);
        if (!made) made = raw(loops, kind, part, ex_int(loops, k));
    }
    return kind == EX_FLOOR ? ex_binary(loops, EX_ADD, lin_build(loops, &out), made) : made;
}

/* -- arithmetic */

static bool number(const struct loops *loops, int32_t node, double *out)
{
    const struct ex *e = &loops->ex.at[node];
    const bool whole = e->kind == EX_INT && !size_varies(e->u.i);
    if (whole) *out = (double)e->u.i;
    if (e->kind == EX_REAL) *out = e->u.r;
    return whole || e->kind == EX_REAL;
}

/* Folds an operation on two integers of which at least one varies. 0: it cannot be folded. */
static int32_t fold_sizes(struct loops *loops, enum ex_kind kind, int64_t x, int64_t y)
{
    int64_t v = SIZE_BAD;
    if (kind == EX_ADD) v = size_add(x, y);
    if (kind == EX_SUB) v = size_sub(x, y);
    if (kind == EX_MUL) v = size_mul(x, y);
    if (kind == EX_FLOOR && size_le(1, y)) v = size_floor_div(x, y);
    if (kind == EX_MOD && size_le(1, y)) v = size_mod(x, y);
    return v == SIZE_BAD ? 0 : ex_int(loops, v);
}

/* Folds an operation on two numbers. 0: it cannot be folded (integer overflow, division by zero). */
static int32_t fold_numbers(struct loops *loops, enum ex_kind kind, int32_t a, int32_t b)
{
    int64_t x = loops->ex.at[a].u.i, y = loops->ex.at[b].u.i, v;
    double p = 0, q = 0;
    if (loops->ex.at[a].kind == EX_INT && loops->ex.at[b].kind == EX_INT && kind != EX_DIV) {
        bool bad = false;
        switch (kind) {
        case EX_ADD: bad = __builtin_add_overflow(x, y, &v); break;
        case EX_SUB: bad = __builtin_sub_overflow(x, y, &v); break;
        case EX_MUL: bad = __builtin_mul_overflow(x, y, &v); break;
        default:
            bad = !y || (y == -1 && x == INT64_MIN);
            if (!bad) v = kind == EX_FLOOR ? floor_div(x, y) : x - floor_div(x, y) * y;
        }
        return bad ? 0 : ex_int(loops, v);
    }
    number(loops, a, &p);
    number(loops, b, &q);
    switch (kind) {
    case EX_ADD: return ex_real(loops, p + q);
    case EX_SUB: return ex_real(loops, p - q);
    case EX_MUL: return ex_real(loops, p * q);
    case EX_DIV: return ex_real(loops, p / q);
    default: return 0;
    }
}

/* Folds x+0, x*1 and x/1 of floats. x*0 is not 0, because x may be NaN. 0: no rule applies. */
static int32_t fold_neutral(struct loops *loops, enum ex_kind kind, int32_t a, int32_t b)
{
    double v;
    if (!ex_is_int(loops, a) && number(loops, b, &v)) {
        if ((kind == EX_ADD || kind == EX_SUB) && v == 0) return a;
        if ((kind == EX_MUL || kind == EX_DIV) && v == 1) return a;
    }
    if (!ex_is_int(loops, b) && number(loops, a, &v))
        if ((kind == EX_ADD && v == 0) || (kind == EX_MUL && v == 1)) return b;
    return 0;
}

int32_t ex_binary(struct loops *loops, enum ex_kind kind, int32_t a, int32_t b)
{
    const struct ex *x = &loops->ex.at[a], *y = &loops->ex.at[b];
    int32_t made = 0;
    double v;
    assert(kind >= EX_ADD && kind <= EX_MOD && a && b);
    if (number(loops, a, &v) && number(loops, b, &v))
        made = fold_numbers(loops, kind, a, b);
    else if (x->kind == EX_INT && y->kind == EX_INT)
        made = fold_sizes(loops, kind, x->u.i, y->u.i);
    else if (kind == EX_FLOOR || kind == EX_MOD)
        made = y->kind == EX_INT && y->u.i > 0 ? divide(loops, kind, a, y->u.i) : 0;
    else if (kind == EX_DIV || !ex_is_int(loops, a) || !ex_is_int(loops, b))
        made = fold_neutral(loops, kind, a, b);
    else {
        struct lin f = {0};
        bool good = true;
        if (kind == EX_MUL)
            good = x->kind == EX_INT   ? lin_add(loops, &f, b, x->u.i)
                   : y->kind == EX_INT ? lin_add(loops, &f, a, y->u.i)
                                       : false;
        else
            good = lin_add(loops, &f, a, 1) && lin_add(loops, &f, b, kind == EX_ADD ? 1 : -1);
        if (good && lin_join(loops, &f)) made = lin_build(loops, &f);
    }
    return made ? made : raw(loops, kind, a, b);
}

int32_t ex_neg(struct loops *loops, int32_t a)
{
    struct ex e = loops->ex.at[a];
    if (e.kind == EX_REAL) return ex_real(loops, -e.u.r);
    if (ex_is_int(loops, a)) return ex_binary(loops, EX_SUB, ex_int(loops, 0), a);
    if (e.kind == EX_NEG) return e.a;
    return raw(loops, EX_NEG, a, 0);
}

/* -- conditions */

/* 1: always holds, 0: never, -1: it depends; lo..hi is the range of a - b */
static int decide(enum ex_cmp op, int64_t lo, int64_t hi)
{
    const bool below = size_lt(hi, 0), above = size_lt(0, lo), equal = lo == 0 && hi == 0;
    switch (op) {
    case CMP_LT: return below ? 1 : size_le(0, lo) ? 0 : -1;
    case CMP_LE: return size_le(hi, 0) ? 1 : above ? 0 : -1;
    case CMP_GT: return above ? 1 : size_le(hi, 0) ? 0 : -1;
    case CMP_GE: return size_le(0, lo) ? 1 : below ? 0 : -1;
    case CMP_EQ: return equal ? 1 : above || below ? 0 : -1;
    case CMP_NE: return above || below ? 1 : equal ? 0 : -1;
    }
    return -1;
}

int32_t ex_cmp(struct loops *loops, enum ex_cmp op, int32_t a, int32_t b)
{
    double p, q;
    if (ex_is_int(loops, a) && ex_is_int(loops, b)) {
        int64_t lo, hi;
        int known = ex_bounds(loops, ex_binary(loops, EX_SUB, a, b), &lo, &hi) ? decide(op, lo, hi) : -1;
        if (known >= 0) return ex_int(loops, known);
    } else if (number(loops, a, &p) && number(loops, b, &q) && !isnan(p) && !isnan(q)) {
        return ex_int(loops, decide(op, p < q ? -1 : p > q, p < q ? -1 : p > q));
    }
    return ex_put(loops, (struct ex){.kind = EX_CMP, .op = (uint8_t)op, .a = a, .b = b});
}

int32_t ex_test(struct loops *loops, int32_t cond)
{
    if (loops->ex.at[cond].kind == EX_INT) return ex_int(loops, loops->ex.at[cond].u.i != 0);
    return raw(loops, EX_TEST, cond, 0);
}

static int gather(const struct loops *loops, enum ex_kind kind, int32_t cond, int32_t *out, int n, int room)
{
    int64_t neutral = kind == EX_AND;
    if (is_const(loops, cond, neutral)) return n;
    if (loops->ex.at[cond].kind == kind) {
        for (int32_t i = loops->ex.at[cond].a; i; i = loops->ex.at[i].next) n = gather(loops, kind, i, out, n, room);
        return n;
    }
    for (int i = 0; i < n; ++i)
        if (ex_equal(loops, out[i], cond)) return n;
    assert(n < room);
    (void)room;
    out[n] = cond;
    return n + 1;
}

int32_t ex_logic(struct loops *loops, enum ex_kind kind, int n, const int32_t *conds)
{
    int32_t part[64];
    int got = 0;
    assert(kind == EX_AND || kind == EX_OR);
    for (int i = 0; i < n; ++i) got = gather(loops, kind, conds[i], part, got, COUNT_OF(part));
    for (int i = 0; i < got; ++i)
        if (loops->ex.at[part[i]].kind == EX_INT) return ex_int(loops, kind == EX_OR);
    if (!got) return ex_int(loops, kind == EX_AND);
    if (got == 1) return part[0];
    int32_t list = ex_list(loops, got, part);
    return raw(loops, kind, list, 0);
}

/* -- reads, calls, reductions */

static int32_t fold_table(struct loops *loops, const struct loops_tensor *t, int32_t first_index)
{
    int64_t at = 0;
    int d = 0;
    if (t->role != LOOPS_TABLE || !t->table) return 0;
    for (int32_t i = first_index; i; i = loops->ex.at[i].next, ++d) {
        if (loops->ex.at[i].kind != EX_INT || size_varies(loops->ex.at[i].u.i)) return 0;
        at = at * t->shape[d] + loops->ex.at[i].u.i;
    }
    return t->dtype == SOL_I64 ? ex_int(loops, ((const int64_t *)t->table)[at])
                               : ex_real(loops, ((const double *)t->table)[at]);
}

int32_t ex_read(struct loops *loops, int tensor, int32_t first_index, int32_t outside)
{
    struct loops_tensor t = loops->tensors.at[tensor];
    int32_t index[SOL_MAX_DIMS];
    bool inside = true, changed = false;
    int n = 0;
    for (int32_t i = first_index; i; i = loops->ex.at[i].next, ++n) {
        int64_t lo, hi;
        assert(n < t.ndim);
        index[n] = i;
        if (!ex_bounds(loops, i, &lo, &hi))
            inside = false;
        else if (outside && (size_lt(hi, 0) || size_le(t.shape[n], lo)))
            return outside;
        else
            inside &= size_le(0, lo) && size_lt(hi, t.shape[n]);
    }
    assert(n == t.ndim);
    if (inside) outside = 0;
    for (int d = 0; !outside && d < n; ++d) /* inside a dimension of size 1, every index is 0 */
        if (t.shape[d] == 1 && !is_const(loops, index[d], 0)) {
            index[d] = ex_int(loops, 0);
            changed = true;
        }
    if (changed) first_index = ex_list(loops, n, index);
    int32_t known = inside ? fold_table(loops, &t, first_index) : 0;
    if (known) return known;
    return ex_put(loops, (struct ex){.kind = EX_READ, .tensor = (uint16_t)tensor, .a = first_index, .b = outside});
}

/* Folds a call with constant arguments. 0: it stays a call. */
static int32_t fold_call(struct loops *loops, int row, int n, const int32_t *args)
{
    const struct math_def *m = math_at(row);
    bool whole = true, is_bool = !strcmp(m->type, "bool");
    double real[4] = {0};
    int64_t ints[4] = {0};
    for (int i = 0; i < n; ++i) {
        if (!number(loops, args[i], &real[i])) return 0;
        whole &= loops->ex.at[args[i]].kind == EX_INT;
        ints[i] = loops->ex.at[args[i]].u.i;
    }
    if (whole && m->c_int && strcmp(m->type, "float")) return ex_int(loops, math_eval_int(row, ints));
    double v = math_eval(row, real);
    if (is_bool) return ex_int(loops, v != 0);
    return whole && strcmp(m->type, "float") ? 0 : ex_real(loops, v);
}

/* Rows of math.def that have a node kind of their own. 0: it is none. */
static int32_t fold_operator(struct loops *loops, const char *name, const int32_t *args)
{
    static const struct {
        const char *name;
        enum ex_kind kind;
    } operators[] = {{"add", EX_ADD}, {"sub", EX_SUB}, {"mul", EX_MUL}, {"div", EX_DIV}};
    if (!strcmp(name, "identity")) return args[0];
    if (!strcmp(name, "neg")) return ex_neg(loops, args[0]);
    for (int i = 0; i < COUNT_OF(operators); ++i)
        if (!strcmp(name, operators[i].name)) return ex_binary(loops, operators[i].kind, args[0], args[1]);
    return 0;
}

/* Folds min, max and abs of integers whose ranges decide, and `where` with a known condition. */
static int32_t fold_known(struct loops *loops, const char *name, const int32_t *args)
{
    int64_t a, b, p, q;
    bool is_min = !strcmp(name, "min");
    if (!strcmp(name, "where")) {
        if (loops->ex.at[args[0]].kind != EX_INT || ex_is_int(loops, args[1]) != ex_is_int(loops, args[2])) return 0;
        return loops->ex.at[args[0]].u.i ? args[1] : args[2];
    }
    if (!strcmp(name, "abs")) return ex_bounds(loops, args[0], &a, &b) && size_le(0, a) ? args[0] : 0;
    if (!is_min && strcmp(name, "max")) return 0;
    if (!ex_bounds(loops, args[0], &a, &b) || !ex_bounds(loops, args[1], &p, &q)) return 0;
    if (size_le(b, p)) return is_min ? args[0] : args[1];
    if (size_le(q, a)) return is_min ? args[1] : args[0];
    if (a == b && p == q && (size_varies(a) || size_varies(p))) { /* two sizes */
        const int64_t v = is_min ? size_min(a, p) : size_max(a, p);
        return v == SIZE_BAD ? 0 : ex_int(loops, v);
    }
    return 0;
}

static int32_t call1(struct loops *loops, const char *name, int32_t x)
{
    return ex_call(loops, math_row(name), 1, &x);
}

/* sqrt(x) where C's pow(x, 0.5) is that; pow(-0.0, 0.5) is 0, and pow(-inf, 0.5) is inf. */
static int32_t half_power(struct loops *loops, int32_t x)
{
    const int32_t least = ex_test(loops, ex_cmp(loops, CMP_EQ, x, ex_real(loops, -INFINITY)));
    const int32_t args[] = {least, ex_real(loops, INFINITY), call1(loops, "abs", call1(loops, "sqrt", x))};
    return ex_call(loops, math_row("where"), 3, args);
}

/* Folds pow by some constants, with pow's values at zeros, infinities and NaN. Integers have the exponents that are
 * not negative. 0: it stays a call. */
static int32_t fold_pow(struct loops *loops, const char *name, const int32_t *args)
{
    double y;
    const int32_t x = args[0];
    const bool real = !ex_is_int(loops, x);
    if (strcmp(name, "pow") || !number(loops, args[1], &y) || (!real && loops->ex.at[args[1]].kind != EX_INT)) return 0;
    if (y == 1) return x;
    if (y == 2) return call1(loops, "square", x);
    if (y == 3) return ex_binary(loops, EX_MUL, call1(loops, "square", x), x);
    if (y == 4) return call1(loops, "square", call1(loops, "square", x));
    if (real && y == 0.5) return half_power(loops, x);
    if (real && (y == -1 || y == -0.5))
        return ex_binary(loops, EX_DIV, ex_real(loops, 1), y == -1 ? x : half_power(loops, x));
    return 0;
}

int32_t ex_call(struct loops *loops, int math_row, int n, const int32_t *args)
{
    assert(math_row >= 0 && n == math_at(math_row)->arity);
    int32_t made = fold_operator(loops, math_at(math_row)->name, args);
    if (!made) made = fold_call(loops, math_row, n, args);
    if (!made) made = fold_known(loops, math_at(math_row)->name, args);
    if (!made) made = fold_pow(loops, math_at(math_row)->name, args);
    if (made) return made;
    int32_t list = ex_list(loops, n, args);
    return ex_put(loops, (struct ex){.kind = EX_CALL, .op = (uint8_t)math_row, .a = list});
}

int32_t ex_red(struct loops *loops, int reduce_row, uint64_t bound, int32_t guard, int32_t body)
{
    if (guard && is_const(loops, guard, 1)) guard = 0;
    if (reduce_row == RED_SUM && guard && is_const(loops, guard, 0))
        return ex_is_int(loops, body) ? ex_int(loops, 0) : ex_real(loops, 0);
    if (reduce_row == RED_SUM &&
        /* a sum of a constant: index variables that the guard does not use become a factor */
        loops->ex.at[body].kind == EX_INT) {
        uint64_t asked = ex_ivars(loops, guard);
        for (int i = 0; i < loops->ivars.n; ++i) {
            if (!(bound >> i & 1) || asked >> i & 1) continue;
            const int64_t n = size_mul(loops->ex.at[body].u.i, loops->ivars.at[i].size);
            if (n == SIZE_BAD) continue;
            body = ex_int(loops, n);
            bound &= ~(1ull << i);
        }
    }
    if (!bound && !guard) {
        if (reduce_row == RED_ANY || reduce_row == RED_ALL)
            return ex_test(loops, ex_cmp(loops, CMP_NE, body, ex_int(loops, 0)));
        if (reduce_row <= RED_MIN) return body;
    }
    return ex_put(loops,
                  (struct ex){.kind = EX_RED, .op = (uint8_t)reduce_row, .a = guard, .b = body, .u.bound = bound});
}
