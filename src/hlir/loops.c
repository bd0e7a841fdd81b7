/* Loops: making them and asking about them. Nodes are appended to one array and never changed, so a rewrite is a copy
 * that goes through the constructors again, which fold (algebra.c). */
#include "hlir/loops.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* -- making */

struct loops *loops_create(struct arena *a, const char *name)
{
    struct loops *l = NEW(a, struct loops);
    struct ex none = {0};
    l->arena = a;
    l->name = arena_strdup(a, name ? name : "");
    PUSH(a, l->ex, none);
    return l;
}

struct loops *loops_copy(struct arena *a, const struct loops *from)
{
    struct loops *l = NEW(a, struct loops);
    *l = *from;
    l->arena = a;
    l->ex.at = arena_memdup(a, from->ex.at, (size_t)from->ex.n * sizeof *from->ex.at);
    l->letters.at = arena_memdup(a, from->letters.at, (size_t)from->letters.n * sizeof *from->letters.at);
    l->tensors.at = arena_memdup(a, from->tensors.at, (size_t)from->tensors.n * sizeof *from->tensors.at);
    l->stmts.at = arena_memdup(a, from->stmts.at, (size_t)from->stmts.n * sizeof *from->stmts.at);
    l->ex.room = l->ex.n;
    l->letters.room = l->letters.n;
    l->tensors.room = l->tensors.n;
    l->stmts.room = l->stmts.n;
    return l;
}

static bool letter_taken(const struct loops *l, const char *name)
{
    for (int i = 0; i < l->letters.n; ++i)
        if (!strcmp(l->letters.at[i].name, name)) return true;
    return false;
}

int loops_letter(struct loops *l, const char *name, int64_t size)
{
    struct loops_letter letter = {.size = size};
    assert(l->letters.n < LOOPS_MAX_LETTERS);
    snprintf(letter.name, sizeof letter.name, "%.8s", name);
    for (int i = 2; letter_taken(l, letter.name); ++i)
        snprintf(letter.name, sizeof letter.name, "%.6s_%hhu", name, (unsigned char)i);
    PUSH(l->arena, l->letters, letter);
    return l->letters.n - 1;
}

static bool tensor_taken(const struct loops *l, const char *name)
{
    for (int i = 0; i < l->tensors.n; ++i)
        if (!strcmp(l->tensors.at[i].name, name)) return true;
    return false;
}

int loops_tensor(struct loops *l, const char *name, enum loops_role role, enum sol_dtype t, int ndim,
                 const int64_t *shape)
{
    struct loops_tensor tensor = {.role = (uint8_t)role, .dtype = (uint8_t)t, .ndim = (uint8_t)ndim};
    assert(ndim <= SOL_MAX_DIMS && l->tensors.n < UINT16_MAX);
    const char *plain = tensor.name = text_identifier(l->arena, name);
    for (int i = 2; tensor_taken(l, tensor.name); ++i) tensor.name = arena_printf(l->arena, "%.50s_%d", plain, i);
    for (int i = 0; i < ndim; ++i) tensor.shape[i] = shape[i];
    PUSH(l->arena, l->tensors, tensor);
    return l->tensors.n - 1;
}

static int32_t put(struct loops *l, struct ex e)
{
    PUSH(l->arena, l->ex, e);
    return l->ex.n - 1;
}

int32_t ex_int(struct loops *l, int64_t v)
{
    return put(l, (struct ex){.kind = EX_INT, .u.i = v});
}

int32_t ex_real(struct loops *l, double v)
{
    return put(l, (struct ex){.kind = EX_REAL, .u.r = v});
}

int32_t ex_letter(struct loops *l, int letter)
{
    assert(letter >= 0 && letter < l->letters.n);
    return put(l, (struct ex){.kind = EX_LETTER, .tensor = (uint16_t)letter});
}

int32_t ex_list(struct loops *l, int n, const int32_t *nodes)
{
    int32_t first = l->ex.n;
    for (int i = 0; i < n; ++i) {
        struct ex e = l->ex.at[nodes[i]];
        e.next = i + 1 < n ? first + i + 1 : 0;
        put(l, e);
    }
    return n ? first : 0;
}

/* -- asking */

int ex_list_length(const struct loops *l, int32_t first)
{
    int n = 0;
    for (; first; first = l->ex.at[first].next) ++n;
    return n;
}

/* Which fields of a kind are children, which of them lists. */
static void children(const struct ex *e, int32_t *a, bool *a_list, int32_t *b)
{
    *a = e->a;
    *b = e->b;
    *a_list = e->kind == EX_READ || e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR;
}

uint64_t ex_letters(const struct loops *l, int32_t node)
{
    const struct ex *e = &l->ex.at[node];
    int32_t a, b;
    bool list;
    if (!node) return 0;
    if (e->kind == EX_LETTER) return 1ull << e->tensor;
    children(e, &a, &list, &b);
    uint64_t set = 0;
    for (; a; a = list ? l->ex.at[a].next : 0) set |= ex_letters(l, a);
    set |= ex_letters(l, b);
    return e->kind == EX_RED ? set & ~e->u.bound : set;
}

uint64_t stmt_letters(const struct loops *l, const struct loops_stmt *s)
{
    uint64_t set = 0;
    for (int32_t i = s->index; i; i = l->ex.at[i].next) set |= ex_letters(l, i);
    return set;
}

int64_t letters_points(const struct loops *l, uint64_t letters)
{
    int64_t n = 1;
    bool more = false;
    for (int i = 0; i < l->letters.n; i++) {
        if (!(letters >> i & 1)) continue;
        if (!l->letters.at[i].size) return 0;
        more |= __builtin_mul_overflow(n, l->letters.at[i].size, &n);
    }
    return more ? INT64_MAX : n;
}

void ex_walk(const struct loops *l, int32_t node, void (*visit)(void *user, int32_t node), void *user)
{
    int32_t a, b;
    bool list;
    if (!node) return;
    visit(user, node);
    children(&l->ex.at[node], &a, &list, &b);
    for (; a; a = list ? l->ex.at[a].next : 0) ex_walk(l, a, visit, user);
    ex_walk(l, b, visit, user);
}

struct data_read {
    const struct loops *l;
    bool found;
};

static void find_data(void *user, int32_t node)
{
    struct data_read *r = user;
    const struct ex *e = &r->l->ex.at[node];
    r->found |= e->kind == EX_READ && r->l->tensors.at[e->tensor].role != LOOPS_TABLE;
}

bool ex_reads_data(const struct loops *l, int32_t node)
{
    struct data_read r = {.l = l};
    ex_walk(l, node, find_data, &r);
    return r.found;
}

bool ex_equal(const struct loops *l, int32_t a, int32_t b)
{
    if (a == b) return true;
    if (!a || !b) return false;
    const struct ex *x = &l->ex.at[a], *y = &l->ex.at[b];
    if (x->kind != y->kind || x->op != y->op || x->tensor != y->tensor) return false;
    if (x->kind == EX_REAL) return !memcmp(&x->u.r, &y->u.r, sizeof x->u.r);
    if ((x->kind == EX_INT || x->kind == EX_RED) && x->u.i != y->u.i) return false;
    int32_t xa, ya, xb, yb;
    bool list;
    children(y, &ya, &list, &yb);
    children(x, &xa, &list, &xb);
    while (xa && ya) {
        if (!ex_equal(l, xa, ya)) return false;
        xa = list ? l->ex.at[xa].next : 0;
        ya = list ? l->ex.at[ya].next : 0;
    }
    return !xa && !ya && ex_equal(l, xb, yb);
}

static bool call_is_int(const struct loops *l, const struct ex *e)
{
    const struct math_def *m = math_at(e->op);
    bool first = true;
    if (!strcmp(m->type, "bool")) return true;
    if (!strcmp(m->type, "float")) return false;
    for (int32_t a = e->a; a; a = l->ex.at[a].next, first = false)
        if (!(first && *m->type == 'y') && !ex_is_int(l, a)) return false;
    return true;
}

bool ex_is_int(const struct loops *l, int32_t node)
{
    const struct ex *e = &l->ex.at[node];
    switch (e->kind) {
    case EX_INT:
    case EX_LETTER:
    case EX_TEST:
    case EX_CMP:
    case EX_AND:
    case EX_OR:
    case EX_FLOOR:
    case EX_MOD: return true;
    case EX_NEG: return ex_is_int(l, e->a);
    case EX_ADD:
    case EX_SUB:
    case EX_MUL: return ex_is_int(l, e->a) && ex_is_int(l, e->b);
    case EX_READ: return !dtype_def(l->tensors.at[e->tensor].dtype)->is_float && (!e->b || ex_is_int(l, e->b));
    case EX_CALL: return call_is_int(l, e);
    case EX_RED:
        if (e->op == RED_ANY || e->op == RED_ALL) return true;
        return e->op != RED_MOMENTS && e->op != RED_SOFTSUM && ex_is_int(l, e->b);
    default: return false;
    }
}

static bool has_unsigned(const struct loops *l, int32_t node)
{
    const struct ex *e = &l->ex.at[node];
    const char *type = e->kind == EX_CALL ? math_at(e->op)->type : "";
    switch (e->kind) {
    case EX_READ: return l->tensors.at[e->tensor].dtype == SOL_U64;
    case EX_NEG:
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_FLOOR:
    case EX_MOD: return has_unsigned(l, e->a) || has_unsigned(l, e->b);
    case EX_RED: return e->op <= RED_MINAT && has_unsigned(l, e->b);
    case EX_CALL:
        for (int32_t a = *type == 'y' ? l->ex.at[e->a].next : e->a; a; a = l->ex.at[a].next)
            if (has_unsigned(l, a)) return strcmp(type, "bool") != 0;
        return false;
    default: return false;
    }
}

bool ex_is_unsigned(const struct loops *l, int32_t node)
{
    bool any = false; /* as a rule there is no u64 at all */
    for (int i = 0; i < l->tensors.n; ++i) any |= l->tensors.at[i].dtype == SOL_U64;
    return any && ex_is_int(l, node) && has_unsigned(l, node);
}

/* Adds k * letter. */
static bool affine_term(struct affine *f, int letter, int64_t k)
{
    int at = 0;
    while (at < f->n && f->letter[at] < letter) ++at;
    if (at < f->n && f->letter[at] == letter) {
        if (__builtin_add_overflow(f->coef[at], k, &f->coef[at])) return false;
        if (f->coef[at]) return true;
        for (--f->n; at < f->n; ++at) {
            f->letter[at] = f->letter[at + 1];
            f->coef[at] = f->coef[at + 1];
        }
        return true;
    }
    if (!k) return true;
    if (f->n == COUNT_OF(f->coef)) return false;
    for (int i = f->n++; i > at; --i) {
        f->letter[i] = f->letter[i - 1];
        f->coef[i] = f->coef[i - 1];
    }
    f->letter[at] = (uint8_t)letter;
    f->coef[at] = k;
    return true;
}

static bool affine_add(const struct loops *l, int32_t node, int64_t k, struct affine *f)
{
    const struct ex *e = &l->ex.at[node];
    int64_t v, minus;
    switch (e->kind) {
    case EX_INT: return !__builtin_mul_overflow(e->u.i, k, &v) && !__builtin_add_overflow(f->c, v, &f->c);
    case EX_LETTER: return affine_term(f, e->tensor, k);
    case EX_NEG: return !__builtin_sub_overflow((int64_t)0, k, &minus) && affine_add(l, e->a, minus, f);
    case EX_ADD: return affine_add(l, e->a, k, f) && affine_add(l, e->b, k, f);
    case EX_SUB:
        return affine_add(l, e->a, k, f) && !__builtin_sub_overflow((int64_t)0, k, &minus) &&
               affine_add(l, e->b, minus, f);
    case EX_MUL: {
        bool left = l->ex.at[e->a].kind == EX_INT;
        const struct ex *factor = &l->ex.at[left ? e->a : e->b];
        if (factor->kind != EX_INT || __builtin_mul_overflow(factor->u.i, k, &v)) return false;
        return affine_add(l, left ? e->b : e->a, v, f);
    }
    default: return false;
    }
}

bool ex_affine(const struct loops *l, int32_t node, struct affine *out)
{
    *out = (struct affine){0};
    return node && affine_add(l, node, 1, out);
}

int32_t ex_from_affine(struct loops *l, const struct affine *f)
{
    int32_t e = ex_int(l, f->c);
    for (int i = 0; i < f->n; ++i)
        e = ex_binary(l, EX_ADD, e, ex_binary(l, EX_MUL, ex_int(l, f->coef[i]), ex_letter(l, f->letter[i])));
    return e;
}

/* -- copying */

struct copy {
    struct loops *to;
    const struct loops *from;
    const int32_t *letters;
    const int *tensors;
    int32_t *done; /* by node of `from`: shared nodes stay shared */
};

static int32_t copy(struct copy *c, int32_t node);

static int copy_list(struct copy *c, int32_t first, int32_t *out, int room)
{
    int n = 0;
    for (; first; first = c->from->ex.at[first].next) {
        assert(n < room);
        (void)room;
        out[n++] = copy(c, first);
    }
    return n;
}

/* Bound letters must map to letters, or to constants where they have the size 1. */
static uint64_t copy_bound(struct copy *c, uint64_t bound)
{
    uint64_t out = 0;
    for (int i = 0; i < c->from->letters.n; ++i) {
        if (!(bound >> i & 1)) continue;
        const struct ex *e = &c->to->ex.at[c->letters[i]];
        assert(e->kind == EX_LETTER || (e->kind == EX_INT && c->from->letters.at[i].size == 1));
        if (e->kind == EX_LETTER) out |= 1ull << e->tensor;
    }
    return out;
}

/* Positions count by letter number: does the mapping keep the order? */
static bool keeps_order(const struct copy *c, uint64_t bound)
{
    int last = -1;
    for (int i = 0; i < c->from->letters.n; ++i) {
        if (!(bound >> i & 1) || c->to->ex.at[c->letters[i]].kind != EX_LETTER) continue;
        if (c->to->ex.at[c->letters[i]].tensor < last) return false;
        last = c->to->ex.at[c->letters[i]].tensor;
    }
    return true;
}

static int32_t copy_red(struct copy *c, const struct ex *e)
{
    int32_t map[LOOPS_MAX_LETTERS];
    struct copy fresh = *c;
    if ((e->op == RED_MAXAT || e->op == RED_MINAT) && !keeps_order(c, e->u.bound)) {
        memcpy(map, c->letters, (size_t)c->from->letters.n * sizeof *map);
        for (int i = 0, n = c->from->letters.n; i < n; ++i) {
            struct loops_letter letter = c->from->letters.at[i];
            if (e->u.bound >> i & 1) map[i] = ex_letter(c->to, loops_letter(c->to, letter.name, letter.size));
        }
        fresh.letters = map;
        fresh.done = NEW_ARRAY(c->to->arena, int32_t, c->from->ex.n);
    }
    uint64_t bound = copy_bound(&fresh, e->u.bound);
    int32_t guard = e->a ? copy(&fresh, e->a) : 0;
    return ex_red(c->to, e->op, bound, guard, copy(&fresh, e->b));
}

static int32_t copy_node(struct copy *c, const struct ex *e)
{
    int32_t part[64], a, b;
    int n;
    switch (e->kind) {
    case EX_LETTER: assert(c->letters[e->tensor]); return c->letters[e->tensor];
    case EX_READ: {
        int tensor = c->tensors ? c->tensors[e->tensor] : e->tensor;
        assert(tensor >= 0);
        n = copy_list(c, e->a, part, COUNT_OF(part));
        b = e->b ? copy(c, e->b) : 0;
        return ex_read(c->to, tensor, ex_list(c->to, n, part), b);
    }
    case EX_CALL: n = copy_list(c, e->a, part, COUNT_OF(part)); return ex_call(c->to, e->op, n, part);
    case EX_AND:
    case EX_OR: n = copy_list(c, e->a, part, COUNT_OF(part)); return ex_logic(c->to, (enum ex_kind)e->kind, n, part);
    case EX_NEG: return ex_neg(c->to, copy(c, e->a));
    case EX_TEST: return ex_test(c->to, copy(c, e->a));
    case EX_RED: return copy_red(c, e);
    default: break;
    }
    a = e->a ? copy(c, e->a) : 0;
    b = e->b ? copy(c, e->b) : 0;
    if (e->kind == EX_CMP) return ex_cmp(c->to, (enum ex_cmp)e->op, a, b);
    if (e->kind >= EX_ADD && e->kind <= EX_MOD) return ex_binary(c->to, (enum ex_kind)e->kind, a, b);
    assert(e->kind == EX_INT || e->kind == EX_REAL);
    return put(c->to, (struct ex){.kind = e->kind, .u = e->u});
}

static int32_t copy(struct copy *c, int32_t node)
{
    if (!c->done[node]) {
        struct ex e = c->from->ex.at[node]; /* `to` may be `from`, whose array may move */
        int32_t made = copy_node(c, &e);
        c->done[node] = made;
    }
    return c->done[node];
}

int32_t ex_copy(struct loops *to, const struct loops *from, int32_t node, const int32_t *letter_map,
                const int *tensor_map)
{
    struct copy c = {to, from, letter_map, tensor_map, NULL};
    if (!node) return 0;
    c.done = NEW_ARRAY(to->arena, int32_t, from->ex.n);
    return copy(&c, node);
}
