/* Loops: making them and asking about them. Nodes are appended to one array and never changed. Only this file writes to
 * the array. */
#include "hlir/loops.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* -- making */

/* The arrays of `struct loops`, writable. */
struct loops_memory {
    VECTOR(struct ex) ex;
    VECTOR(struct loops_ivar) ivars;
    VECTOR(struct loops_tensor) tensors;
    VECTOR(struct loops_stmt) stmts;
    VECTOR(int64_t) needs;
};
#define SHOW(l, rows) ((l)->rows.at = (l)->memory->rows.at, (l)->rows.n = (l)->memory->rows.n)
#define APPEND(l, rows, row)                      \
    do {                                          \
        PUSH((l)->arena, (l)->memory->rows, row); \
        SHOW(l, rows);                            \
    } while (0)
#define COPY(l, rows, count, from)                                                                             \
    do {                                                                                                       \
        (l)->memory->rows.at = arena_memdup((l)->arena, from, (size_t)(count) * sizeof *(l)->memory->rows.at); \
        (l)->memory->rows.n = (l)->memory->rows.room = (count);                                                \
        SHOW(l, rows);                                                                                         \
    } while (0)

static struct loops *empty(struct arena *a, const char *name)
{
    struct loops *loops = NEW(a, struct loops);
    loops->arena = a;
    loops->name = name;
    loops->memory = NEW(a, struct loops_memory);
    return loops;
}

struct loops *loops_create(struct arena *a, const char *name)
{
    struct loops *loops = empty(a, arena_strdup(a, name ? name : ""));
    ex_put(loops, (struct ex){0});
    return loops;
}

struct loops *loops_copy_with(struct arena *a, const struct loops *from, int n, const struct loops_stmt *stmts)
{
    struct loops *loops = empty(a, from->name);
    loops->memory->ex = from->memory->ex; /* the nodes are shared; a copy that outgrows the array moves to its own */
    loops->memory->ex.room = loops->memory->ex.n;
    SHOW(loops, ex);
    COPY(loops, ivars, from->ivars.n, from->ivars.at);
    COPY(loops, tensors, from->tensors.n, from->tensors.at);
    COPY(loops, stmts, n, stmts);
    return loops;
}

struct loops *loops_copy(struct arena *a, const struct loops *from)
{
    return loops_copy_with(a, from, from->stmts.n, from->stmts.at);
}

/* Tells which fields of a kind are children, and which of these are lists. */
static void children(const struct ex *e, int32_t *a, bool *a_list, int32_t *b)
{
    *a = e->a;
    *b = e->b;
    *a_list = e->kind == EX_READ || e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR;
}

/* Nodes that statements need: number[i] is not 0. A node's parts were made before it. */
static void find_needed(const struct loops *loops, int32_t *number)
{
    for (int i = 0; i < loops->stmts.n; ++i) {
        number[loops->stmts.at[i].value] = 1;
        for (int32_t k = loops->stmts.at[i].index; k; k = loops->ex.at[k].next) number[k] = 1;
    }
    for (int32_t i = loops->ex.n - 1; i > 0; --i) {
        int32_t a, b;
        bool list;
        if (!number[i]) continue;
        children(&loops->ex.at[i], &a, &list, &b);
        assert(a < i && b < i);
        number[b] = 1;
        for (; a; a = list ? loops->ex.at[a].next : 0) number[a] = 1;
    }
    number[0] = 0;
}

/* The nodes that have a number, in their order. */
static void copy_nodes(struct loops *to, const struct loops *from, const int32_t *number, int n)
{
    struct ex *at = NEW_ARRAY(to->arena, struct ex, n);
    for (int32_t i = 1; i < from->ex.n; ++i) {
        struct ex e = from->ex.at[i];
        e.a = number[e.a], e.b = number[e.b], e.next = number[e.next];
        if (number[i]) at[number[i]] = e;
    }
    to->memory->ex.at = at;
    to->memory->ex.n = to->memory->ex.room = n;
    SHOW(to, ex);
}

struct loops *loops_compact(struct arena *a, const struct loops *from)
{
    struct loops *loops = empty(a, arena_strdup(a, from->name));
    int32_t *number = NEW_ARRAY(from->arena, int32_t, from->ex.n), n = 1;
    find_needed(from, number);
    for (int32_t i = 1; i < from->ex.n; ++i)
        if (number[i]) number[i] = n++;
    copy_nodes(loops, from, number, n);
    COPY(loops, ivars, from->ivars.n, from->ivars.at);
    COPY(loops, tensors, from->tensors.n, from->tensors.at);
    COPY(loops, stmts, from->stmts.n, from->stmts.at);
    for (int i = 0; i < loops->tensors.n; ++i) {
        struct loops_tensor *t = &loops->memory->tensors.at[i];
        t->name = arena_strdup(a, t->name);
        t->ivar = arena_strdup(a, t->ivar);
        t->formula = arena_strdup(a, t->formula);
    }
    for (int i = 0; i < loops->stmts.n; ++i) {
        struct loops_stmt *s = &loops->memory->stmts.at[i];
        s->index = number[s->index];
        s->value = number[s->value];
    }
    return loops;
}

static bool ivar_taken(const struct loops *loops, const char *name)
{
    for (int i = 0; i < loops->ivars.n; ++i)
        if (!strcmp(loops->ivars.at[i].name, name)) return true;
    return false;
}

int loops_ivar(struct loops *loops, const char *name, int64_t size)
{
    struct loops_ivar ivar = {.size = size};
    assert(loops->ivars.n < LOOPS_MAX_IVARS);
    snprintf(ivar.name, sizeof ivar.name, "%.8s", name);
    for (int i = 2; ivar_taken(loops, ivar.name); ++i)
        snprintf(ivar.name, sizeof ivar.name, "%.6s_%hhu", name, (unsigned char)i);
    APPEND(loops, ivars, ivar);
    return loops->ivars.n - 1;
}

static bool tensor_taken(const struct loops *loops, const char *name)
{
    for (int i = 0; i < loops->tensors.n; ++i)
        if (!strcmp(loops->tensors.at[i].name, name)) return true;
    return false;
}

int loops_tensor_like(struct loops *loops, const struct loops_tensor *t)
{
    struct loops_tensor tensor = *t;
    assert(loops->tensors.n < UINT16_MAX);
    const char *plain = tensor.name = text_identifier(loops->arena, t->name);
    for (int i = 2; tensor_taken(loops, tensor.name); ++i)
        tensor.name = arena_printf(loops->arena, "%.50s_%d", plain, i);
    APPEND(loops, tensors, tensor);
    return loops->tensors.n - 1;
}

int loops_tensor(struct loops *loops, const char *name, enum loops_role role, enum sol_dtype t, int ndim,
                 const int64_t *shape)
{
    struct loops_tensor tensor = {.name = name, .role = (uint8_t)role, .dtype = (uint8_t)t, .ndim = (uint8_t)ndim};
    assert(ndim <= SOL_MAX_DIMS);
    for (int i = 0; i < ndim; ++i) tensor.shape[i] = shape[i];
    return loops_tensor_like(loops, &tensor);
}

int loops_table(struct loops *loops, const char *name, enum sol_dtype t, int ndim, const int64_t *shape,
                const void *values)
{
    const int made = loops_tensor(loops, name, LOOPS_TABLE, t, ndim, shape);
    loops->memory->tensors.at[made].table = values;
    return made;
}

void loops_stmt(struct loops *loops, struct loops_stmt s)
{
    APPEND(loops, stmts, s);
}

void loops_set_tensor(struct loops *loops, int i, struct loops_tensor t)
{
    loops->memory->tensors.at[i] = t;
}

void loops_set_role(struct loops *loops, int tensor, enum loops_role role)
{
    loops->memory->tensors.at[tensor].role = (uint8_t)role;
}

void loops_set_user(struct loops *loops, int tensor, void *user)
{
    loops->memory->tensors.at[tensor].user = user;
}

void loops_need(struct loops *loops, int64_t size)
{
    if (!size_le(0, size)) APPEND(loops, needs, size);
}

void loops_set_stmt(struct loops *loops, int i, struct loops_stmt s)
{
    loops->memory->stmts.at[i] = s;
}

void loops_drop_stmt(struct loops *loops, int i)
{
    for (; i + 1 < loops->stmts.n; ++i) loops_set_stmt(loops, i, loops->stmts.at[i + 1]);
    loops->stmts.n = --loops->memory->stmts.n;
}

void loops_set_stmts(struct loops *loops, int n, const struct loops_stmt *s)
{
    COPY(loops, stmts, n, s);
}

void loops_set_size(struct loops *loops, int ivar, int64_t size)
{
    loops->memory->ivars.at[ivar].size = size;
}

void loops_drop_ivars(struct loops *loops, int n)
{
    loops->ivars.n = loops->memory->ivars.n = n;
}

int32_t ex_put(struct loops *loops, struct ex e)
{
    APPEND(loops, ex, e);
    return loops->ex.n - 1;
}

int32_t ex_int(struct loops *loops, int64_t v)
{
    return ex_put(loops, (struct ex){.kind = EX_INT, .u.i = v});
}

int32_t ex_real(struct loops *loops, double v)
{
    return ex_put(loops, (struct ex){.kind = EX_REAL, .u.r = v});
}

int32_t ex_ivar(struct loops *loops, int ivar)
{
    assert(ivar >= 0 && ivar < loops->ivars.n);
    return ex_put(loops, (struct ex){.kind = EX_IVAR, .tensor = (uint16_t)ivar});
}

int32_t ex_list(struct loops *loops, int n, const int32_t *nodes)
{
    int32_t first = loops->ex.n;
    for (int i = 0; i < n; ++i) {
        struct ex e = loops->ex.at[nodes[i]];
        e.next = i + 1 < n ? first + i + 1 : 0;
        ex_put(loops, e);
    }
    return n ? first : 0;
}

/* -- asking */

int ex_list_length(const struct loops *loops, int32_t first)
{
    int n = 0;
    for (; first; first = loops->ex.at[first].next) ++n;
    return n;
}

int32_t ex_nth(const struct loops *loops, int32_t first, int n)
{
    while (n-- > 0) first = loops->ex.at[first].next;
    return first;
}

bool ex_is_zero(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    return (e->kind == EX_INT && e->u.i == 0) || (e->kind == EX_REAL && e->u.r == 0);
}

static bool reads_memory(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    return e->kind == EX_READ && loops->tensors.at[e->tensor].role != LOOPS_TABLE;
}

bool ex_is_contraction(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node], *body = &loops->ex.at[e->b];
    return e->kind == EX_RED && e->op == RED_SUM && body->kind == EX_MUL && reads_memory(loops, body->a) &&
           reads_memory(loops, body->b);
}

int64_t loops_elements(const struct loops_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n = size_mul(n, t->shape[d]);
    return n;
}

uint64_t ex_ivars(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    int32_t a, b;
    bool list;
    if (!node) return 0;
    if (e->kind == EX_IVAR) return 1ull << e->tensor;
    children(e, &a, &list, &b);
    uint64_t set = 0;
    for (; a; a = list ? loops->ex.at[a].next : 0) set |= ex_ivars(loops, a);
    set |= ex_ivars(loops, b);
    return e->kind == EX_RED ? set & ~e->u.bound : set;
}

uint64_t stmt_ivars(const struct loops *loops, const struct loops_stmt *s)
{
    uint64_t set = 0;
    for (int32_t i = s->index; i; i = loops->ex.at[i].next) set |= ex_ivars(loops, i);
    return set;
}

int64_t ivars_points(const struct loops *loops, uint64_t ivars)
{
    int64_t n = 1;
    bool more = false;
    for (int i = 0; i < loops->ivars.n; i++) {
        if (!(ivars >> i & 1)) continue;
        if (!loops->ivars.at[i].size) return 0;
        more |= __builtin_mul_overflow(n, size_hint(loops->ivars.at[i].size), &n);
    }
    return more ? INT64_MAX : n;
}

int64_t ivars_size(const struct loops *loops, uint64_t ivars)
{
    int64_t n = 1;
    for (int i = 0; i < loops->ivars.n; i++)
        if (ivars >> i & 1) n = size_mul(n, loops->ivars.at[i].size);
    return n;
}

uint32_t loops_dims(const struct loops *loops)
{
    uint32_t dims = 0;
    for (int i = 0; i < loops->ivars.n; i++) dims |= size_dims(loops->ivars.at[i].size);
    for (int i = 0; i < loops->tensors.n; i++)
        for (int d = 0; d < loops->tensors.at[i].ndim; d++) dims |= size_dims(loops->tensors.at[i].shape[d]);
    for (int i = 0; i < loops->ex.n; i++)
        if (loops->ex.at[i].kind == EX_INT) dims |= size_dims(loops->ex.at[i].u.i);
    return dims;
}

bool loops_vary(const struct loops *loops)
{
    return loops_dims(loops) != 0;
}

static int64_t *shape_at(int64_t *shape, int ndim, const int64_t *dim)
{
    for (int d = 0; d < ndim; d++) shape[d] = size_at(shape[d], dim);
    return shape;
}

struct loops *loops_at(struct arena *a, const struct loops *from, const int64_t *dim)
{
    struct loops *loops = loops_compact(a, from);
    for (int i = 1; i < loops->ex.n; i++) {
        struct ex *e = &loops->memory->ex.at[i];
        if (e->kind == EX_INT) e->u.i = size_at(e->u.i, dim);
    }
    for (int i = 0; i < loops->ivars.n; i++) shape_at(&loops->memory->ivars.at[i].size, 1, dim);
    for (int i = 0; i < loops->tensors.n; i++)
        shape_at(loops->memory->tensors.at[i].shape, loops->memory->tensors.at[i].ndim, dim);
    return loops;
}

void ex_walk(const struct loops *loops, int32_t node, void (*visit)(void *user, int32_t node), void *user)
{
    int32_t a, b;
    bool list;
    if (!node) return;
    visit(user, node);
    children(&loops->ex.at[node], &a, &list, &b);
    for (; a; a = list ? loops->ex.at[a].next : 0) ex_walk(loops, a, visit, user);
    ex_walk(loops, b, visit, user);
}

void ex_walk_times(const struct loops *loops, int32_t node, double times,
                   void (*visit)(void *user, int32_t node, double times), void *user)
{
    if (!node) return;
    const struct ex *e = &loops->ex.at[node];
    int32_t a, b;
    bool list;
    if (e->kind == EX_RED) times *= (double)MAX(ivars_points(loops, e->u.bound), 1);
    if (e->kind == EX_RED || e->kind == EX_READ) visit(user, node, times);
    children(e, &a, &list, &b);
    if (e->kind == EX_RED || e->kind == EX_READ) a = 0;
    for (; a; a = list ? loops->ex.at[a].next : 0) ex_walk_times(loops, a, times, visit, user);
    ex_walk_times(loops, b, times, visit, user);
}

struct any {
    const struct loops *loops;
    bool (*is)(const struct loops *loops, int32_t node);
    bool found;
};

static void find_any(void *user, int32_t node)
{
    struct any *a = user;
    a->found = a->found || a->is(a->loops, node);
}

bool ex_any(const struct loops *loops, int32_t node, bool (*is)(const struct loops *loops, int32_t node))
{
    struct any a = {loops, is, false};
    ex_walk(loops, node, find_any, &a);
    return a.found;
}

static bool is_data(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    return e->kind == EX_READ && loops->tensors.at[e->tensor].role != LOOPS_TABLE;
}

bool ex_reads_data(const struct loops *loops, int32_t node)
{
    return ex_any(loops, node, is_data);
}

static bool is_varying(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    if (e->kind == EX_IVAR) return size_varies(loops->ivars.at[e->tensor].size);
    return e->kind == EX_INT && size_varies(e->u.i);
}

bool ex_varies(const struct loops *loops, int32_t node)
{
    return ex_any(loops, node, is_varying);
}

bool ex_equal(const struct loops *loops, int32_t a, int32_t b)
{
    if (a == b) return true;
    if (!a || !b) return false;
    const struct ex *x = &loops->ex.at[a], *y = &loops->ex.at[b];
    if (x->kind != y->kind || x->op != y->op || x->tensor != y->tensor) return false;
    if (x->kind == EX_REAL) return !memcmp(&x->u.r, &y->u.r, sizeof x->u.r);
    if ((x->kind == EX_INT || x->kind == EX_RED) && x->u.i != y->u.i) return false;
    int32_t xa, ya, xb, yb;
    bool list;
    children(y, &ya, &list, &yb);
    children(x, &xa, &list, &xb);
    while (xa && ya) {
        if (!ex_equal(loops, xa, ya)) return false;
        xa = list ? loops->ex.at[xa].next : 0;
        ya = list ? loops->ex.at[ya].next : 0;
    }
    return !xa && !ya && ex_equal(loops, xb, yb);
}

static bool call_is_int(const struct loops *loops, const struct ex *e)
{
    const struct math_def *m = math_at(e->op);
    bool first = true;
    if (!strcmp(m->type, "bool")) return true;
    if (!strcmp(m->type, "float")) return false;
    for (int32_t a = e->a; a; a = loops->ex.at[a].next, first = false)
        if (!(first && *m->type == 'y') && !ex_is_int(loops, a)) return false;
    return true;
}

bool ex_is_int(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    switch (e->kind) {
    case EX_INT:
    case EX_IVAR:
    case EX_TEST:
    case EX_CMP:
    case EX_AND:
    case EX_OR:
    case EX_FLOOR:
    case EX_MOD: return true;
    case EX_NEG: return ex_is_int(loops, e->a);
    case EX_ADD:
    case EX_SUB:
    case EX_MUL: return ex_is_int(loops, e->a) && ex_is_int(loops, e->b);
    case EX_READ: return !dtype_def(loops->tensors.at[e->tensor].dtype)->is_float && (!e->b || ex_is_int(loops, e->b));
    case EX_CALL: return call_is_int(loops, e);
    case EX_RED:
        if (e->op == RED_ANY || e->op == RED_ALL) return true;
        return e->op != RED_MOMENTS && e->op != RED_SOFTSUM && ex_is_int(loops, e->b);
    default: return false;
    }
}

static bool has_unsigned(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    const char *type = e->kind == EX_CALL ? math_at(e->op)->type : "";
    switch (e->kind) {
    case EX_READ: return loops->tensors.at[e->tensor].dtype == SOL_U64;
    case EX_NEG:
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_FLOOR:
    case EX_MOD: return has_unsigned(loops, e->a) || has_unsigned(loops, e->b);
    case EX_RED: return e->op <= RED_MINAT && has_unsigned(loops, e->b);
    case EX_CALL:
        for (int32_t a = *type == 'y' ? loops->ex.at[e->a].next : e->a; a; a = loops->ex.at[a].next)
            if (has_unsigned(loops, a)) return strcmp(type, "bool") != 0;
        return false;
    default: return false;
    }
}

bool ex_is_unsigned(const struct loops *loops, int32_t node)
{
    bool any = false; /* most loops have no u64 at all */
    for (int i = 0; i < loops->tensors.n; ++i) any |= loops->tensors.at[i].dtype == SOL_U64;
    return any && ex_is_int(loops, node) && has_unsigned(loops, node);
}

/* Adds k * index variable. */
static bool affine_term(struct affine *f, int ivar, int64_t k)
{
    int at = 0;
    while (at < f->n && f->ivar[at] < ivar) ++at;
    if (at < f->n && f->ivar[at] == ivar) {
        f->coef[at] = size_add(f->coef[at], k);
        if (f->coef[at]) return f->coef[at] != SIZE_BAD;
        for (--f->n; at < f->n; ++at) {
            f->ivar[at] = f->ivar[at + 1];
            f->coef[at] = f->coef[at + 1];
        }
        return true;
    }
    if (!k) return true;
    if (f->n == COUNT_OF(f->coef)) return false;
    for (int i = f->n++; i > at; --i) {
        f->ivar[i] = f->ivar[i - 1];
        f->coef[i] = f->coef[i - 1];
    }
    f->ivar[at] = (uint8_t)ivar;
    f->coef[at] = k;
    return true;
}

static bool affine_add(const struct loops *loops, int32_t node, int64_t k, struct affine *f)
{
    const struct ex *e = &loops->ex.at[node];
    if (k == SIZE_BAD) return false;
    switch (e->kind) {
    case EX_INT: return (f->c = size_add(f->c, size_mul(e->u.i, k))) != SIZE_BAD;
    case EX_IVAR: return affine_term(f, e->tensor, k);
    case EX_NEG: return affine_add(loops, e->a, size_sub(0, k), f);
    case EX_ADD: return affine_add(loops, e->a, k, f) && affine_add(loops, e->b, k, f);
    case EX_SUB: return affine_add(loops, e->a, k, f) && affine_add(loops, e->b, size_sub(0, k), f);
    case EX_MUL: {
        bool left = loops->ex.at[e->a].kind == EX_INT;
        const struct ex *factor = &loops->ex.at[left ? e->a : e->b];
        return factor->kind == EX_INT && affine_add(loops, left ? e->b : e->a, size_mul(factor->u.i, k), f);
    }
    default: return false;
    }
}

bool ex_affine(const struct loops *loops, int32_t node, struct affine *out)
{
    *out = (struct affine){0};
    return node && affine_add(loops, node, 1, out);
}

int32_t ex_from_affine(struct loops *loops, const struct affine *f)
{
    int32_t e = ex_int(loops, f->c);
    for (int i = 0; i < f->n; ++i)
        e = ex_binary(loops, EX_ADD, e,
                      ex_binary(loops, EX_MUL, ex_int(loops, f->coef[i]), ex_ivar(loops, f->ivar[i])));
    return e;
}
