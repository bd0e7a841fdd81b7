/* A term requires f(index variables) == Q for every dimension of the tensor whose gradient it is (a *pin*). Each rule
 * below removes a pin:
 *
 *   direct   f is an index variable, or digits (4*G+J), that cover the dimension: f itself is the written index
 *   residue  f = s*P + d*K + c: Q = s*U + r for each r, where P and K follow without a division
 *   fixed    f has no index variable of the context: a guard
 *   unit     an index variable has the coefficient 1 or -1: it equals the rest
 *   radix    8*A + B == Q: A = Q//8, B = Q%8
 *   guarded  8*X + Y == Q, where conditions bound Y: X = Q//8, Y = Q%8; X//2 where X is even (guarded.c)
 *   digits   e//6 and e%6 are pinned: e = 6*Q1 + Q2
 *   modular  s*P + K, s large: K = s*T + Q%s, P = Q//s - T
 *   divide   s*P + ..: P = (Q - ..)//s where that divides
 *   rotate   (P + c) % size, P up to that size: P = (Q - c) % size
 *   split    digits of index variables, L//6 and L%6, become index variables
 *   range    (a*P + b)//c + K: a short range of P, and one K (ranges.c)
 *   invert   tables (invert.c); window.c removed ranges of tables before
 *   search   tries all index variables, if they are few */
#include <string.h>

#include "grad/grad.h"

enum { MAX_RESIDUES = 8, SEARCHED = 1 << 24 };

struct solving {
    struct adjoint *a;
    struct term *out;
    int room, *n;
};

/* -- terms */

void term_replace(struct adjoint *a, struct term *t, int ivar, int32_t node)
{
    struct loops *w = a->w;
    int32_t map[LOOPS_MAX_IVARS];
    for (int i = 0; i < w->ivars.n; i++) map[i] = i == ivar ? node : ex_ivar(w, i);
    t->ctx &= ~(UINT64_C(1) << ivar);
    for (int i = 0; i < t->npin; i++) t->pin[i].f = ex_copy(w, w, t->pin[i].f, map, NULL);
    for (int i = 0; i < t->nbound; i++) t->bound[i].e = ex_copy(w, w, t->bound[i].e, map, NULL);
    for (int i = 0; i < t->nguard; i++) t->guard[i] = ex_copy(w, w, t->guard[i], map, NULL);
    for (int d = 0; d < SOL_MAX_DIMS; d++) t->index[d] = ex_copy(w, w, t->index[d], map, NULL);
    t->value = ex_copy(w, w, t->value, map, NULL);
}

int32_t term_sum(struct adjoint *a, const struct term *t)
{
    struct loops *w = a->w;
    int32_t cond[2 * COUNT_OF(t->bound) + COUNT_OF(t->guard)];
    int n = 0;
    for (int i = 0; i < t->nbound; i++) {
        cond[n++] = ex_cmp(w, CMP_LE, ex_int(w, 0), t->bound[i].e);
        cond[n++] = ex_cmp(w, CMP_LT, t->bound[i].e, ex_int(w, t->bound[i].size));
    }
    for (int i = 0; i < t->nguard; i++) cond[n++] = t->guard[i];
    int32_t guard = n ? ex_logic(w, EX_AND, n, cond) : 0;
    return t->ctx || guard ? ex_red(w, RED_SUM, t->ctx, guard, t->value) : t->value;
}

void term_bound(struct adjoint *a, struct term *t, int32_t e, int64_t size)
{
    int64_t low, high;
    if (ex_bounds(a->w, e, &low, &high) && size_le(0, low) && size_lt(high, size)) return;
    if (t->nbound == COUNT_OF(t->bound))
        grad_reject(a, "it has too many bounds");
    else
        t->bound[t->nbound++] = (struct bound){e, size};
}

static void add_guard(struct adjoint *a, struct term *t, int32_t cond)
{
    if (t->nguard == COUNT_OF(t->guard))
        grad_reject(a, "it has too many conditions");
    else
        t->guard[t->nguard++] = cond;
}

static void drop_pin(struct term *t, int i)
{
    t->pin[i].f = 0;
}

static int fresh_ivar(struct adjoint *a, const char *name, int64_t size)
{
    if (a->w->ivars.n >= LOOPS_MAX_IVARS) {
        grad_reject(a, "it has more loops than a row can name");
        return 0;
    }
    return loops_ivar(a->w, name, size);
}

/* The name of an index variable along dimension d of the tensor, which tells the purpose of the dimension. */
static const char *dimension_name(const struct adjoint *a, const struct term *t, int d)
{
    const struct sol_tensor *user = a->w->tensors.at[t->tensor].user;
    char purpose = user ? user->dim[d].purpose : 0;
    return purpose == 'C' ? "C" : purpose == 'P' ? "Q" : purpose == 'N' ? "N" : "A";
}

int32_t term_pinned(struct adjoint *a, struct term *t, int d)
{
    if (t->pin[d].q) return t->pin[d].q;
    if (!t->index[d])
        t->index[d] = t->pin[d].size == 1 ? ex_int(a->w, 0)
                                          : ex_ivar(a->w, fresh_ivar(a, dimension_name(a, t, d), t->pin[d].size));
    return t->index[d];
}

static int64_t size_of(const struct adjoint *a, int ivar)
{
    return a->w->ivars.at[ivar].size;
}

static bool in_context(const struct term *t, int ivar)
{
    return t->ctx >> ivar & 1;
}

/* -- direct */

/* Are these digits, lowest first, a count from 0 without gaps? *out_n is its length. */
static bool is_digits(const struct adjoint *a, const struct term *t, struct affine *f, int64_t *out_n)
{
    int64_t weight = 1;
    if (f->c || !f->n) return false;
    for (int i = 0; i < f->n; i++) {
        int at = -1;
        for (int k = i; k < f->n; k++)
            if (f->coef[k] == weight && in_context(t, f->ivar[k]) && size_of(a, f->ivar[k]) > 1) at = k;
        if (at < 0) return false;
        int64_t coef = f->coef[at];
        uint8_t ivar = f->ivar[at];
        f->coef[at] = f->coef[i], f->ivar[at] = f->ivar[i];
        f->coef[i] = coef, f->ivar[i] = ivar;
        weight = size_mul(weight, size_of(a, ivar));
    }
    *out_n = weight;
    return weight != SIZE_BAD;
}

static void direct(struct adjoint *a, struct term *t, int d)
{
    struct affine f;
    int64_t n;
    struct pin *p = &t->pin[d];
    if (p->size == 1 || !ex_affine(a->w, p->f, &f) || !is_digits(a, t, &f, &n)) return;
    if (n != p->size && (f.n == 1 || !size_le(n, p->size))) return;
    t->index[d] = p->f;
    t->rest[d] = n;
    for (int i = 0; i < f.n; i++) t->ctx &= ~(UINT64_C(1) << f.ivar[i]);
    drop_pin(t, d);
}

/* -- residues */

struct strided { /* s*P + k*K + c */
    int P, K;    /* K -1: none */
    int64_t s, k, c;
    int64_t rest; /* c % s, a number */
};

static bool is_strided(const struct adjoint *a, const struct term *t, int32_t node, struct strided *out)
{
    struct affine f;
    if (!ex_affine(a->w, node, &f) || f.n < 1 || f.n > 2) return false;
    int at = 0;
    for (int i = 0; i < f.n; i++) {
        if (!in_context(t, f.ivar[i])) return false;
        const int64_t n = size_hint(size_of(a, f.ivar[i])), most = size_hint(size_of(a, f.ivar[at]));
        if (n > most || (n == most && size_hint(f.coef[i]) > size_hint(f.coef[at]))) at = i;
    }
    *out = (struct strided){.P = f.ivar[at], .K = -1, .s = f.coef[at], .c = f.c};
    if (f.n == 2) out->K = f.ivar[!at], out->k = f.coef[!at];
    if (out->s < 2 || out->s > MAX_RESIDUES || size_varies(out->k)) return false;
    out->rest = size_mod(f.c, out->s);
    return !size_varies(out->rest);
}

/* May dimension d be written residue by residue? */
static bool has_residues(const struct adjoint *a, const struct term *t, int d, struct strided *out)
{
    const struct pin *p = &t->pin[d];
    return p->f && !p->q && !p->whole && !t->index[d] && p->size != 1 && is_strided(a, t, p->f, out);
}

/* The index variables of all residues of a dimension: one each, and another one where several K are read. */
static int64_t residue_ivars(const struct adjoint *a, const struct strided *f)
{
    if (f->K < 0) return f->s;
    const int64_t more = f->k == 1 ? size_hint(size_of(a, f->K)) - f->s : f->s;
    return f->s + MIN(MAX(more, 0), f->s);
}

/* Are there index variables for the residues of dimension d and of those behind it, which are a term for each
 * combination? Each term has one more for every other dimension, or two where that is written without residues. */
static bool residues_fit(const struct adjoint *a, const struct term *t, int d)
{
    int64_t terms = 1, ivars = a->w->ivars.n, others = 0;
    for (int e = 0; e < t->npin; e++) {
        struct strided f;
        const bool strided = has_residues(a, t, e, &f);
        if (strided && e >= d)
            ivars += terms * residue_ivars(a, &f), terms *= f.s;
        else if (t->pin[e].f && t->pin[e].size != 1)
            others += 1 + (strided || t->pin[e].whole);
    }
    return ivars + terms * others <= LOOPS_MAX_IVARS;
}

static int64_t modulo(int64_t a, int64_t b)
{
    return (a % b + b) % b;
}

static sol_status solve(struct solving *s, struct term t);

/* The gradient is 0 at these elements. Every dimension that is not decided runs over all its elements. */
static sol_status solve_nothing(struct solving *s, struct term t)
{
    for (int d = 0; d < t.npin; d++) {
        if (t.pin[d].f) term_pinned(s->a, &t, d);
        drop_pin(&t, d);
    }
    t.ctx = 0;
    t.nbound = t.nguard = 0;
    t.value = ex_real(s->a->w, 0);
    return solve(s, t);
}

static sol_status solve_residue(struct solving *s, struct term t, int d, const struct strided *f, int64_t r)
{
    struct adjoint *a = s->a;
    struct loops *w = a->w;
    int64_t size = size_ceil_div(size_sub(t.pin[d].size, r), f->s), first = 0, by = 0;
    int32_t u = size == 1 ? ex_int(w, 0) : ex_ivar(w, fresh_ivar(a, dimension_name(a, &t, d), size));
    t.index[d] = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, ex_int(w, f->s), u), ex_int(w, r));
    if (f->K >= 0) {
        while (by < f->s && (by == 0 || modulo(by * f->k, f->s))) by++;
        while (first < by && modulo(f->k * first + f->rest - r, f->s)) first++;
        if (first == by || size_le(size_of(a, f->K), first)) return solve_nothing(s, t);
    } else if (modulo(f->rest - r, f->s)) {
        return solve_nothing(s, t);
    }
    int64_t shift = size_exact_div(size_sub(r - f->k * first, f->c), f->s);
    int32_t p = ex_binary(w, EX_ADD, u, ex_int(w, shift));
    if (f->K >= 0) {
        int64_t steps = size_ceil_div(size_sub(size_of(a, f->K), first), by);
        int ivar = steps == 1 ? -1 : fresh_ivar(a, w->ivars.at[f->K].name, steps);
        int32_t j = ivar < 0 ? ex_int(w, 0) : ex_ivar(w, ivar);
        if (ivar >= 0) t.ctx |= UINT64_C(1) << ivar;
        term_replace(a, &t, f->K, ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, ex_int(w, by), j), ex_int(w, first)));
        p = ex_binary(w, EX_SUB, p, ex_binary(w, EX_MUL, ex_int(w, f->k * by / f->s), j));
    }
    int64_t n = size_of(a, f->P);
    term_replace(a, &t, f->P, p);
    term_bound(a, &t, p, n);
    drop_pin(&t, d);
    return solve(s, t);
}

/* -- the other rules */

static bool fixed(struct adjoint *a, struct term *t, int d)
{
    struct pin *p = &t->pin[d];
    if (ex_ivars(a->w, p->f) & t->ctx) return false;
    int32_t equal = ex_cmp(a->w, CMP_EQ, p->f, term_pinned(a, t, d));
    const struct ex *e = &a->w->ex.at[equal];
    if (!(e->kind == EX_INT && e->u.i == 1)) add_guard(a, t, equal);
    drop_pin(t, d);
    return true;
}

/* A function without a range: the largest index variable of the context in f, its coefficient, and -(the rest). */
static int largest(struct adjoint *a, const struct term *t, int32_t node, struct affine *f)
{
    int at = -1;
    if (!ex_affine(a->w, node, f)) return -1;
    for (int i = 0; i < f->n; i++)
        if (in_context(t, f->ivar[i]) &&
            (at < 0 || size_hint(size_of(a, f->ivar[i])) > size_hint(size_of(a, f->ivar[at]))))
            at = i;
    return at;
}

static int32_t without(struct adjoint *a, struct affine f, int at)
{
    for (int i = at; i + 1 < f.n; i++) f.ivar[i] = f.ivar[i + 1], f.coef[i] = f.coef[i + 1];
    f.n--;
    return ex_from_affine(a->w, &f);
}

/* For too many residues, or a step that varies: the remainder tells the possible K. It is not used if there are fewer P
 * to try. */
static bool modular(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct affine f;
    if (!ex_affine(w, t->pin[d].f, &f) || f.n != 2) return false;
    if (!in_context(t, f.ivar[0]) || !in_context(t, f.ivar[1])) return false;
    int one = f.coef[0] == 1 ? 0 : 1, K = f.ivar[one], P = f.ivar[!one];
    const int64_t s = f.coef[!one], nK = size_of(a, K), nP = size_of(a, P);
    const bool few = !size_varies(s) && s <= MAX_RESIDUES && !t->pin[d].whole;
    if (f.coef[one] != 1 || few || (size_varies(s) && !size_le(1, s))) return false;
    const int64_t taps = size_ceil_div(nK, s);
    if (taps == SIZE_BAD || size_hint(taps) >= size_hint(nP)) return false;
    int32_t by = ex_int(w, s), q = ex_binary(w, EX_SUB, term_pinned(a, t, d), ex_int(w, f.c)), j = ex_int(w, 0);
    if (taps > 1) {
        int ivar = fresh_ivar(a, w->ivars.at[K].name, taps);
        j = ex_ivar(w, ivar);
        t->ctx |= UINT64_C(1) << ivar;
    }
    int32_t k = ex_binary(w, EX_ADD, ex_binary(w, EX_MUL, by, j), ex_binary(w, EX_MOD, q, by));
    int32_t p = ex_binary(w, EX_SUB, ex_binary(w, EX_FLOOR, q, by), j);
    drop_pin(t, d);
    term_replace(a, t, K, k);
    term_replace(a, t, P, p);
    term_bound(a, t, k, nK);
    term_bound(a, t, p, nP);
    return true;
}

static bool unit(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct affine f;
    int at = largest(a, t, t->pin[d].f, &f);
    if (at < 0 || (f.coef[at] != 1 && f.coef[at] != -1)) return false;
    int ivar = f.ivar[at];
    int64_t n = size_of(a, ivar);
    int32_t rest = without(a, f, at), q = term_pinned(a, t, d);
    int32_t e = f.coef[at] == 1 ? ex_binary(w, EX_SUB, q, rest) : ex_binary(w, EX_SUB, rest, q);
    drop_pin(t, d);
    term_replace(a, t, ivar, e);
    term_bound(a, t, e, n);
    return true;
}

/* Sorts the atoms, lowest first. False: they are not digits that count from 0 without gaps. */
static bool sort_digits(const struct adjoint *a, const struct term *t, struct sum *s, int64_t *count, int64_t *out_n)
{
    int64_t weight = 1, low, high;
    for (int i = 0; i < s->n; i++) {
        int at = -1;
        for (int k = i; k < s->n && at < 0; k++)
            if (s->coef[k] == weight && !(ex_ivars(a->w, s->atom[k]) & ~t->ctx)) at = k;
        if (at < 0 || !ex_bounds(a->w, s->atom[at], &low, &high) || low) return false;
        int32_t atom = s->atom[at];
        int64_t coef = s->coef[at];
        s->atom[at] = s->atom[i], s->coef[at] = s->coef[i];
        s->atom[i] = atom, s->coef[i] = coef;
        count[i] = size_add(high, 1);
        weight = size_mul(weight, count[i]);
    }
    *out_n = weight;
    return weight != SIZE_BAD;
}

static bool radix(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct sum f = {0};
    int64_t n, count[COUNT_OF(f.atom)];
    if (!grad_sum(w, t->pin[d].f, 1, &f) || f.n < 2 || t->npin + f.n > GRAD_MAX_PINS) return false;
    if (!sort_digits(a, t, &f, count, &n)) return false;
    int32_t q = ex_binary(w, EX_SUB, term_pinned(a, t, d), ex_int(w, f.c));
    drop_pin(t, d);
    term_bound(a, t, q, n);
    for (int i = 0; i < f.n; i++) {
        int32_t digit = ex_binary(w, EX_FLOOR, q, ex_int(w, f.coef[i]));
        if (i + 1 < f.n) digit = ex_binary(w, EX_MOD, digit, ex_int(w, count[i]));
        t->pin[t->npin++] = (struct pin){.f = f.atom[i], .q = digit, .size = count[i]};
    }
    return true;
}

/* Is the node a digit, (e // weight) % base, of an e that the context decides? base 0: no remainder is taken; 0: it is
 * not. */
static int32_t digit_of(const struct adjoint *a, const struct term *t, int32_t node, int64_t *weight, int64_t *base)
{
    const struct ex *at = a->w->ex.at;
    *weight = 1, *base = 0;
    if (at[node].kind == EX_MOD && at[at[node].b].kind == EX_INT) *base = at[at[node].b].u.i, node = at[node].a;
    if (at[node].kind == EX_FLOOR && at[at[node].b].kind == EX_INT) *weight = at[at[node].b].u.i, node = at[node].a;
    uint64_t ivars = ex_ivars(a->w, node);
    return ivars && !(ivars & ~t->ctx) && *weight > 0 && *base >= 0 ? node : 0;
}

static bool digits(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    int64_t weight, base, low, high, reached = 1;
    int32_t e = digit_of(a, t, t->pin[d].f, &weight, &base);
    int used[SOL_MAX_DIMS], n = 0;
    if (!e || e == t->pin[d].f || !ex_bounds(w, e, &low, &high) || !size_le(0, low)) return false;
    const int64_t all = size_add(high, 1);
    while (!size_le(all, reached)) {
        int found = -1;
        for (int i = 0; i < t->npin && found < 0; i++) {
            int32_t other = t->pin[i].f ? digit_of(a, t, t->pin[i].f, &weight, &base) : 0;
            if (!other || !ex_equal(w, other, e) || weight != reached) continue;
            found = i;
            reached = base ? size_mul(reached, base) : all;
            if (reached == SIZE_BAD || (base && !size_le(t->pin[i].size, base))) return false;
        }
        if (found < 0 || n == SOL_MAX_DIMS) return false;
        used[n++] = found;
    }
    int32_t sum = ex_int(w, 0);
    for (int i = 0; i < n; i++) {
        digit_of(a, t, t->pin[used[i]].f, &weight, &base);
        sum = ex_binary(w, EX_ADD, sum, ex_binary(w, EX_MUL, ex_int(w, weight), term_pinned(a, t, used[i])));
        if (used[i] != d) drop_pin(t, used[i]);
    }
    t->pin[d].f = e; /* pinned to something else than an index: another rule's turn */
    t->pin[d].q = sum;
    return true;
}

static bool divide(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct affine f;
    int at = largest(a, t, t->pin[d].f, &f);
    if (at < 0 || f.coef[at] < 2 || !size_le(1, f.coef[at])) return false;
    int ivar = f.ivar[at];
    int64_t n = size_of(a, ivar);
    int32_t e = ex_binary(w, EX_SUB, term_pinned(a, t, d), without(a, f, at)), by = ex_int(w, f.coef[at]);
    int32_t p = ex_binary(w, EX_FLOOR, e, by);
    drop_pin(t, d);
    add_guard(a, t, ex_cmp(w, CMP_EQ, ex_binary(w, EX_MOD, e, by), ex_int(w, 0)));
    term_replace(a, t, ivar, p);
    term_bound(a, t, p, n);
    return true;
}

static bool rotate(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    const struct ex *e = &w->ex.at[t->pin[d].f];
    struct affine f;
    if (e->kind != EX_MOD || w->ex.at[e->b].kind != EX_INT || !ex_affine(w, e->a, &f) || f.n != 1) return false;
    const int64_t n = w->ex.at[e->b].u.i;
    const int ivar = f.ivar[0];
    if ((f.coef[0] != 1 && f.coef[0] != -1) || n != t->pin[d].size || n != size_of(a, ivar)) return false;
    if (!in_context(t, ivar)) return false;
    const int32_t q = term_pinned(a, t, d), c = ex_int(w, f.c);
    const int32_t p = f.coef[0] == 1 ? ex_binary(w, EX_SUB, q, c) : ex_binary(w, EX_SUB, c, q);
    drop_pin(t, d);
    term_replace(a, t, ivar, ex_binary(w, EX_MOD, p, ex_int(w, n)));
    return true;
}

/* Where the windows of Unfold are, say: L//6 + K and L%6 + J. */
static bool split(struct adjoint *a, struct term *t, int d)
{
    struct loops *w = a->w;
    struct mixed_radix *v = NEW(w->arena, struct mixed_radix);
    v->loops = w;
    for (int i = 0; i < t->npin; i++)
        if (t->pin[i].f) radix_find(v, t->pin[i].f);
    for (int i = 0; i < w->ivars.n; i++) {
        int n = radix_cuts(v, i), first = w->ivars.n;
        if (!n || !in_context(t, i) || !(ex_ivars(w, t->pin[d].f) >> i & 1)) continue;
        if (first + n + 1 > LOOPS_MAX_IVARS) return false;
        int32_t whole = radix_ivars(v, i, w);
        for (int k = first; k < w->ivars.n; k++) t->ctx |= UINT64_C(1) << k;
        term_replace(a, t, i, whole);
        return true;
    }
    return false;
}

int64_t term_varies(const struct adjoint *a, const struct term *t, int d)
{
    const uint64_t ivars = ex_ivars(a->w, t->pin[d].f);
    if (size_varies(t->pin[d].size)) return t->pin[d].size;
    for (int i = 0; i < a->w->ivars.n; i++)
        if (ivars >> i & 1 && size_varies(size_of(a, i))) return size_of(a, i);
    return 0;
}

/* Short borders and, of sizes that vary, data alone are searched for: SEARCHED bounds the time of no other search. */
static bool search(struct adjoint *a, struct term *t, int d)
{
    const struct loops_tensor *to = &a->w->tensors.at[t->tensor];
    double work = 1;
    for (int i = 0; i < to->ndim; i++) work *= (double)size_hint(to->shape[i]);
    for (int i = 0; i < a->w->ivars.n; i++)
        if (in_context(t, i)) work *= (double)size_hint(size_of(a, i));
    const bool few = size_le(ivars_size(a->w, ex_ivars(a->w, t->pin[d].f) & t->ctx), GRAD_BORDER);
    if (!few && (work > SEARCHED || (term_varies(a, t, d) && !ex_reads_data(a->w, t->pin[d].f)))) return false;
    int32_t q = term_pinned(a, t, d);
    add_guard(a, t, ex_cmp(a->w, CMP_EQ, t->pin[d].f, q));
    drop_pin(t, d);
    return true;
}

/* What a dimension's index leaves over is nothing: terms of value 0, which split the rest into boxes. */
static sol_status push(struct solving *s, struct term *t)
{
    struct loops *w = s->a->w;
    const struct loops_tensor *to = &w->tensors.at[t->tensor];
    if (*s->n == s->room) return grad_reject(s->a, "it falls into too many pieces");
    for (int d = 0; d < to->ndim; d++)
        if (!t->index[d]) t->index[d] = ex_int(w, 0);
    s->out[(*s->n)++] = *t;
    for (int d = 0; d < to->ndim; d++) {
        if (t->rest[d] == to->shape[d]) continue;
        struct term zero = *t;
        const int64_t n = size_sub(to->shape[d], t->rest[d]);
        zero.ctx = 0;
        zero.nbound = zero.nguard = 0;
        zero.value = ex_real(w, 0);
        zero.index[d] = ex_int(w, t->rest[d]);
        if (n != 1)
            zero.index[d] =
                ex_binary(w, EX_ADD, zero.index[d], ex_ivar(w, fresh_ivar(s->a, dimension_name(s->a, t, d), n)));
        for (int k = d + 1; k < to->ndim; k++) /* all of the dimensions behind; those before: only what is written */
            if (t->rest[k] != to->shape[k])
                zero.index[k] = ex_ivar(w, fresh_ivar(s->a, dimension_name(s->a, t, k), to->shape[k]));
        if (*s->n == s->room) return grad_reject(s->a, "it falls into too many pieces");
        s->out[(*s->n)++] = zero;
    }
    return SOL_OK;
}

static sol_status reject_pin(struct adjoint *a, const struct term *t, int d)
{
    const int64_t size = ex_reads_data(a->w, t->pin[d].f) ? 0 : term_varies(a, t, d);
    if (!size) return grad_reject(a, "where it reads depends on data, or in a way that has no inverse yet");
    return grad_reject(a, arena_printf(a->w->arena,
                                       "a size is %lld, but which elements of '%s' it reads must be tabulated for its "
                                       "gradient, which needs a number",
                                       (long long)size, a->w->tensors.at[t->tensor].name));
}

static sol_status solve(struct solving *s, struct term t)
{
    struct adjoint *a = s->a;
    TRY(a->rejected);
    for (int d = 0; d < t.npin; d++) {
        struct strided f;
        if (!has_residues(a, &t, d, &f)) continue;
        t.pin[d].whole = !residues_fit(a, &t, d);
        if (t.pin[d].whole) continue;
        for (int64_t r = 0; r < MIN(f.s, t.pin[d].size); r++) TRY(solve_residue(s, t, d, &f, r));
        return SOL_OK;
    }
    for (int d = 0; d < t.npin; d++) {
        while (t.pin[d].f) {
            if (fixed(a, &t, d) || radix(a, &t, d) || guarded_pin(a, &t, d) || modular(a, &t, d) || unit(a, &t, d) ||
                digits(a, &t, d) || divide(a, &t, d) || rotate(a, &t, d))
                continue;
            if (split(a, &t, d)) return solve(s, t); /* residues of the new index variables first */
            if (range_pin(a, &t, d) || beside_pin(a, &t, d)) continue;
            if (invert_pin(a, &t, d, term_pinned(a, &t, d)) || search(a, &t, d)) continue;
            return reject_pin(a, &t, d);
        }
    }
    TRY(a->rejected);
    return push(s, &t);
}

sol_status solve_term(struct adjoint *a, const struct term *term, struct term *out, int room, int *out_n)
{
    struct term t = *term;
    struct solving s = {a, out, room, out_n};
    *out_n = 0;
    for (int d = 0; d < t.npin; d++) direct(a, &t, d);
    return solve(&s, t);
}
