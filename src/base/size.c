/* Forms are polynomials with integer coefficients over symbols: dimensions, quotients, minima, maxima. Polynomials and
 * symbols are interned in two tables that only grow. A table's entries never move, so that reading needs no lock.
 *
 * Terms are in lexicographic order of their symbols, the highest first, which makes them unique and lets polynomials be
 * divided. The order of symbols follows from what they are, never from when they were made. */
#include "base/size_form.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024

/* -- tables */

struct table {
    _Atomic(void *) chunk[SIZE_FORMS / CHUNK];
    size_t bytes;                     /* of an entry */
    size_t (*used)(const void *data); /* bytes that make it what it is: its first */
    int n;
    int32_t *slots; /* open addressing: number of an entry + 1 */
    int nslots;
    pthread_mutex_t lock;
};

struct form {
    struct poly poly;
    atomic_schar proof; /* enum size_proof */
};

static size_t used_by_form(const void *data)
{
    const struct poly *p = data;
    return offsetof(struct poly, t) + (size_t)p->n * sizeof p->t[0];
}

static size_t used_by_symbol(const void *data)
{
    (void)data;
    return sizeof(struct symbol);
}

static struct table forms = {.bytes = sizeof(struct form), .used = used_by_form, .lock = PTHREAD_MUTEX_INITIALIZER};
static struct table symbols = {
    .bytes = sizeof(struct symbol), .used = used_by_symbol, .lock = PTHREAD_MUTEX_INITIALIZER};

static void *entry(struct table *t, int i)
{
    char *chunk = atomic_load_explicit(&t->chunk[i / CHUNK], memory_order_acquire);
    return chunk + (size_t)(i % CHUNK) * t->bytes;
}

/* Entries are whole words. */
static uint64_t hash_of(const void *data, size_t bytes)
{
    const char *p = data;
    uint64_t h = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return h;
}
_Static_assert(offsetof(struct poly, t) % sizeof(uint64_t) == 0 && sizeof(struct term) % sizeof(uint64_t) == 0 &&
                   sizeof(struct symbol) % sizeof(uint64_t) == 0,
               "entries are whole words");

static bool more_slots(struct table *t)
{
    if (t->n * 2 < t->nslots) return true;
    const int n = t->nslots ? t->nslots * 2 : 256;
    int32_t *slots = calloc((size_t)n, sizeof *slots);
    if (!slots) return false;
    for (int i = 0; i < t->n; i++) {
        uint64_t at = hash_of(entry(t, i), t->used(entry(t, i)));
        while (slots[at % (uint64_t)n]) at++;
        slots[at % (uint64_t)n] = i + 1;
    }
    free(t->slots);
    t->slots = slots;
    t->nslots = n;
    return true;
}

/* The number of an entry whose used bytes equal those of `data`; it is appended if there is none. -1: no memory. */
static int intern_locked(struct table *t, const void *data)
{
    if (!more_slots(t)) return -1;
    const size_t used = t->used(data);
    uint64_t at = hash_of(data, used);
    for (; t->slots[at % (uint64_t)t->nslots]; at++) {
        const int i = t->slots[at % (uint64_t)t->nslots] - 1;
        if (!memcmp(entry(t, i), data, used)) return i;
    }
    if (t->n == SIZE_FORMS) return -1;
    if (!atomic_load_explicit(&t->chunk[t->n / CHUNK], memory_order_relaxed)) {
        void *chunk = calloc(CHUNK, t->bytes);
        if (!chunk) return -1;
        atomic_store_explicit(&t->chunk[t->n / CHUNK], chunk, memory_order_release);
    }
    memcpy(entry(t, t->n), data, used); /* the rest is zero */
    t->slots[at % (uint64_t)t->nslots] = t->n + 1;
    return t->n++;
}

static int intern(struct table *t, const void *data)
{
    pthread_mutex_lock(&t->lock);
    const int i = intern_locked(t, data);
    pthread_mutex_unlock(&t->lock);
    return i;
}

const struct symbol *symbol_at(int32_t i)
{
    return entry(&symbols, i);
}

/* -- polynomials */

struct poly poly_load(int64_t s)
{
    if (size_varies(s)) return ((const struct form *)entry(&forms, (int)(s - SIZE_FORM)))->poly;
    struct poly p = {.bad = s == SIZE_BAD};
    if (s) p.t[p.n++].k = s;
    return p;
}

atomic_schar *size_proof(int64_t form)
{
    return &((struct form *)entry(&forms, (int)(form - SIZE_FORM)))->proof;
}

int64_t poly_store(const struct poly *p)
{
    if (p->bad) return SIZE_BAD;
    if (!p->n) return 0;
    if (p->n == 1 && !p->t[0].n) {
        const int64_t k = p->t[0].k;
        return k >= SIZE_FORM && k <= SIZE_BAD ? SIZE_BAD : k;
    }
    const int i = intern(&forms, p);
    return i < 0 ? SIZE_BAD : SIZE_FORM + i;
}

static int compare_sizes(int64_t a, int64_t b);

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_symbols(int32_t i, int32_t j)
{
    if (i == j) return 0;
    const struct symbol *a = symbol_at(i), *b = symbol_at(j);
    if (a->kind != b->kind) return compare_numbers(a->kind, b->kind);
    if (a->kind != SYMBOL_DIM) {
        const int c = compare_sizes(a->a, b->a);
        return c ? c : compare_sizes(a->b, b->b);
    }
    const int64_t x[] = {a->dim.index, a->dim.hint, a->dim.min, a->dim.max, a->dim.multiple};
    const int64_t y[] = {b->dim.index, b->dim.hint, b->dim.min, b->dim.max, b->dim.multiple};
    int c = 0;
    for (int k = 0; k < COUNT_OF(x) && !c; k++) c = compare_numbers(x[k], y[k]);
    return c;
}

/* < 0: a comes first */
static int compare_terms(const struct term *a, const struct term *b)
{
    for (int i = 0; i < a->n && i < b->n; i++) {
        const int c = compare_symbols(a->symbol[i], b->symbol[i]);
        if (c) return c;
    }
    return b->n - a->n;
}

static int compare_sizes(int64_t a, int64_t b)
{
    if (a == b) return 0;
    if (!size_varies(a) || !size_varies(b)) return size_varies(a) ? -1 : size_varies(b) ? 1 : compare_numbers(a, b);
    const struct poly p = poly_load(a), q = poly_load(b);
    for (int i = 0; i < p.n && i < q.n; i++) {
        int c = compare_terms(&p.t[i], &q.t[i]);
        if (!c) c = compare_numbers(p.t[i].k, q.t[i].k);
        if (c) return c;
    }
    return q.n - p.n;
}

void poly_add_term(struct poly *p, const struct term *t)
{
    int i = 0;
    if (!t->k || p->bad) return;
    for (; i < p->n; i++) {
        const int c = compare_terms(&p->t[i], t);
        if (c > 0) break;
        if (c) continue;
        p->bad |= __builtin_add_overflow(p->t[i].k, t->k, &p->t[i].k);
        if (p->t[i].k) return;
        for (p->n--; i < p->n; i++) p->t[i] = p->t[i + 1];
        memset(&p->t[p->n], 0, sizeof p->t[0]); /* entries are compared byte for byte */
        return;
    }
    if (p->n == SIZE_TERMS) {
        p->bad = true;
        return;
    }
    for (int k = p->n++; k > i; k--) p->t[k] = p->t[k - 1];
    p->t[i] = *t;
}

static struct term times(const struct term *a, const struct term *b, int32_t *bad)
{
    struct term t = {0};
    int i = 0, j = 0;
    *bad |= __builtin_mul_overflow(a->k, b->k, &t.k) || a->n + b->n > SIZE_SYMBOLS;
    while ((i < a->n || j < b->n) && t.n < SIZE_SYMBOLS) {
        const bool left = j == b->n || (i < a->n && compare_symbols(a->symbol[i], b->symbol[j]) <= 0);
        t.symbol[t.n++] = left ? a->symbol[i++] : b->symbol[j++];
    }
    return t;
}

/* p += t * q */
void poly_add_times(struct poly *p, const struct term *t, const struct poly *q)
{
    p->bad |= q->bad;
    for (int i = 0; i < q->n; i++) {
        const struct term x = times(t, &q->t[i], &p->bad);
        poly_add_term(p, &x);
    }
}

void poly_add(struct poly *p, const struct poly *q, int64_t k)
{
    const struct term t = {.k = k};
    poly_add_times(p, &t, q);
}

static struct poly product(const struct poly *a, const struct poly *b)
{
    struct poly p = {.bad = a->bad};
    for (int i = 0; i < a->n; i++) poly_add_times(&p, &a->t[i], b);
    return p;
}

struct term term_without(const struct term *t, int32_t symbol)
{
    struct term r = {.k = t->k};
    bool gone = false;
    for (int i = 0; i < t->n; i++) {
        const bool drop = !gone && t->symbol[i] == symbol;
        gone |= drop;
        if (!drop) r.symbol[r.n++] = t->symbol[i];
    }
    return r;
}

/* -- symbols */

static int nesting(int64_t s)
{
    int n = 0;
    if (!size_varies(s)) return 0;
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++)
        for (int k = 0; k < p.t[i].n; k++) n = MAX(n, symbol_at(p.t[i].symbol[k])->nesting + 1);
    return n;
}

static int64_t symbol_size(const struct symbol *made)
{
    struct symbol s;
    memset(&s, 0, sizeof s); /* padding, too */
    s.kind = made->kind;
    s.nesting = made->kind == SYMBOL_DIM ? 0 : MAX(nesting(made->a), nesting(made->b));
    s.dim.index = made->dim.index;
    s.dim.hint = made->dim.hint;
    s.dim.min = made->dim.min;
    s.dim.max = made->dim.max;
    s.dim.multiple = made->dim.multiple;
    s.a = made->a;
    s.b = made->b;
    s.range = symbol_interval(&s);
    const int i = intern(&symbols, &s);
    if (i < 0) return SIZE_BAD;
    struct poly p = {.n = 1, .t[0] = {.k = 1, .n = 1, .symbol[0] = i}};
    return poly_store(&p);
}

static int64_t symbol_pair(enum symbol_kind kind, int64_t a, int64_t b)
{
    if (a == SIZE_BAD || b == SIZE_BAD) return SIZE_BAD;
    return symbol_size(&(struct symbol){.kind = kind, .a = a, .b = b});
}

int64_t size_of_dim(const struct size_dim *d)
{
    const int64_t m = d->multiple;
    if (d->index < 0 || d->index >= SIZE_MOST_DIMS || m < 1 || d->min < 0 || d->max >= SIZE_POISON) return SIZE_BAD;
    if (ceil_div(d->min, m) > d->max / m || d->hint < d->min || d->hint > d->max || d->hint % m) return SIZE_BAD;
    return size_mul(m, symbol_size(&(struct symbol){.kind = SYMBOL_DIM, .dim = *d}));
}

bool size_is_dim(int64_t s, struct size_dim *out)
{
    if (!size_varies(s)) return false;
    const struct poly p = poly_load(s);
    if (p.n != 1 || p.t[0].n != 1) return false;
    const struct symbol *x = symbol_at(p.t[0].symbol[0]);
    if (x->kind != SYMBOL_DIM || p.t[0].k != x->dim.multiple) return false;
    *out = x->dim;
    return true;
}

/* -- arithmetic */

static bool plain(int64_t a, int64_t b)
{
    return !size_varies(a) && !size_varies(b) && a != SIZE_BAD && b != SIZE_BAD;
}

static int64_t number(bool overflow, int64_t v)
{
    return overflow || (v >= SIZE_FORM && v <= SIZE_BAD) ? SIZE_BAD : v;
}

static int64_t sum(int64_t a, int64_t b, int64_t k)
{
    struct poly p = poly_load(a);
    const struct poly q = poly_load(b);
    poly_add(&p, &q, k);
    return poly_store(&p);
}

int64_t size_add(int64_t a, int64_t b)
{
    int64_t v = 0;
    if (!plain(a, b)) return sum(a, b, 1);
    const bool bad = __builtin_add_overflow(a, b, &v);
    return number(bad, v);
}

int64_t size_sub(int64_t a, int64_t b)
{
    int64_t v = 0;
    if (!plain(a, b)) return sum(a, b, -1);
    const bool bad = __builtin_sub_overflow(a, b, &v);
    return number(bad, v);
}

int64_t size_constant(int64_t s)
{
    const struct poly p = poly_load(s);
    for (int i = 0; i < p.n; i++)
        if (!p.t[i].n) return p.t[i].k;
    return 0;
}

int64_t size_mul(int64_t a, int64_t b)
{
    int64_t v = 0;
    if (plain(a, b)) {
        const bool bad = __builtin_mul_overflow(a, b, &v);
        return number(bad, v);
    }
    const struct poly p = poly_load(a), q = poly_load(b), r = product(&p, &q);
    return poly_store(&r);
}

/* a = b * quotient + rest by the division of polynomials, which ends where the highest term of b divides no term. */
static void divide(const struct poly *a, const struct poly *b, struct poly *quotient, struct poly *rest)
{
    struct poly left = *a;
    *quotient = *rest = (struct poly){.bad = a->bad || b->bad};
    while (left.n && !left.bad && !quotient->bad && !rest->bad) {
        const struct term first = left.t[0], *by = &b->t[0];
        struct term t = {.k = by->k ? first.k / by->k : 0};
        bool fits = t.k && t.k * by->k == first.k;
        int j = 0;
        for (int i = 0; i < first.n; i++) {
            if (j < by->n && first.symbol[i] == by->symbol[j])
                j++;
            else
                t.symbol[t.n++] = first.symbol[i];
        }
        fits &= j == by->n;
        if (!fits) {
            const struct poly one = {.n = 1, .t[0] = first};
            poly_add_term(rest, &first);
            poly_add(&left, &one, -1);
            continue;
        }
        const struct term minus = {.k = -t.k, .n = t.n};
        struct term m = minus;
        memcpy(m.symbol, t.symbol, sizeof m.symbol);
        poly_add_term(quotient, &t);
        poly_add_times(&left, &m, b);
    }
    quotient->bad |= left.bad;
}

/* (p // j + c) // k = (p + c * j) // (j * k) for numbers j and k. SIZE_BAD: rest is no such sum. */
static int64_t nested_quotient(const struct poly *rest, int64_t k)
{
    const struct term *t = &rest->t[0];
    int64_t both, c;
    if (rest->n > 2 || t->k != 1 || t->n != 1 || (rest->n == 2 && rest->t[1].n)) return SIZE_BAD;
    const struct symbol *x = symbol_at(t->symbol[0]);
    if (x->kind != SYMBOL_QUOTIENT || size_varies(x->b)) return SIZE_BAD;
    if (__builtin_mul_overflow(x->b, k, &both) || __builtin_mul_overflow(rest->n == 2 ? rest->t[1].k : 0, x->b, &c))
        return SIZE_BAD;
    return size_floor_div(size_add(x->a, c), both);
}

int64_t size_floor_div(int64_t a, int64_t b)
{
    if (a == SIZE_BAD || b == SIZE_BAD || (!size_varies(b) && b <= 0)) return SIZE_BAD;
    if (plain(a, b)) return floor_div(a, b);
    const struct poly p = poly_load(a), q = poly_load(b);
    struct poly whole, rest;
    divide(&p, &q, &whole, &rest);
    if (whole.bad || rest.bad) return SIZE_BAD;
    if (!size_varies(b) && rest.n && !rest.t[rest.n - 1].n) { /* the constant: what is left of it is below b */
        struct term *c = &rest.t[rest.n - 1];
        const struct term out = {.k = floor_div(c->k, b)}, in = {.k = -out.k * b};
        poly_add_term(&whole, &out);
        poly_add_term(&rest, &in);
    }
    const int64_t r = poly_store(&rest), w = poly_store(&whole);
    if (!r || (size_le(0, r) && size_lt(r, b))) return w;
    if (size_lt(r, 0) && size_le(size_sub(0, b), r)) return size_sub(w, 1);
    int64_t n = size_varies(b) ? SIZE_BAD : nested_quotient(&rest, b);
    if (n == SIZE_BAD) n = symbol_pair(SYMBOL_QUOTIENT, r, b);
    return size_add(w, n);
}

int64_t size_ceil_div(int64_t a, int64_t b)
{
    return size_floor_div(size_add(a, size_sub(b, 1)), b);
}

int64_t size_mod(int64_t a, int64_t b)
{
    return size_sub(a, size_mul(b, size_floor_div(a, b)));
}

int64_t size_exact_div(int64_t a, int64_t b)
{
    if (a == SIZE_BAD || b == SIZE_BAD || !b) return SIZE_BAD;
    if (plain(a, b)) return a % b ? SIZE_BAD : a / b;
    const struct poly p = poly_load(a), q = poly_load(b);
    struct poly whole, rest;
    divide(&p, &q, &whole, &rest);
    return whole.bad || rest.bad || rest.n ? SIZE_BAD : poly_store(&whole);
}

int64_t size_min(int64_t a, int64_t b)
{
    if (size_le(a, b)) return a;
    if (size_le(b, a)) return b;
    return compare_sizes(a, b) < 0 ? symbol_pair(SYMBOL_MIN, a, b) : symbol_pair(SYMBOL_MIN, b, a);
}

int64_t size_max(int64_t a, int64_t b)
{
    if (size_le(a, b)) return b;
    if (size_le(b, a)) return a;
    return compare_sizes(a, b) < 0 ? symbol_pair(SYMBOL_MAX, a, b) : symbol_pair(SYMBOL_MAX, b, a);
}
