/* Do loops keep the promises of loops.h? This finds our own bugs: tests call it between the phases of the planner. Each
 * check reports the first statement that breaks it, with what was expected and found. */
#include "hlir/loops.h"

#include <stdio.h>

struct check {
    const struct loops *loops;
    struct text *why;
    uint8_t *state; /* by node: 0 not seen, 1 in progress, 2 good */
    int stmt;
};

static bool wrong(const struct check *c, const char *format, ...) PRINTF_LIKE(2, 3);
static bool wrong(const struct check *c, const char *format, ...)
{
    char words[256];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (c->stmt >= 0) text_put(c->why, "statement %d: ", c->stmt);
    text_put(c->why, "%s", words);
    return false;
}

/* -- nodes: kinds, children, numbers of index variables and tensors */

static bool check_node(struct check *c, int32_t node);

/* A list of `want` nodes; -1: any number above 0. */
static bool check_list(struct check *c, int32_t first, int want, const char *what)
{
    int n = 0;
    for (int32_t i = first; i; i = c->loops->ex.at[i].next) {
        if (++n > c->loops->ex.n) return wrong(c, "%s: expected a list, got a ring of nodes", what);
        if (!check_node(c, i)) return false;
    }
    if (want < 0 ? n > 0 : n == want) return true;
    return wrong(c, "%s: expected %d of them, got %d", what, MAX(want, 1), n);
}

static bool check_read(struct check *c, const struct ex *e)
{
    if (e->tensor >= c->loops->tensors.n)
        return wrong(c, "a read: expected a tensor below %d, got %d", c->loops->tensors.n, e->tensor);
    const struct loops_tensor *t = &c->loops->tensors.at[e->tensor];
    return check_list(c, e->a, t->ndim, "indices of a read") && (!e->b || check_node(c, e->b));
}

static bool check_reduction(struct check *c, const struct ex *e)
{
    const int n = c->loops->ivars.n;
    if (!reduce_at(e->op)) return wrong(c, "a reduction: expected a row of reduce.def, got %d", e->op);
    if (n < LOOPS_MAX_IVARS && e->u.bound >> n)
        return wrong(c, "a reduction: expected index variables below %d, got set %#llx", n,
                     (unsigned long long)e->u.bound);
    return (!e->a || check_node(c, e->a)) && check_node(c, e->b);
}

static bool check_kind(struct check *c, const struct ex *e)
{
    switch ((enum ex_kind)e->kind) {
    case EX_INT:
    case EX_REAL: return true;
    case EX_IVAR:
        if (e->tensor < c->loops->ivars.n) return true;
        return wrong(c, "expected an index variable below %d, got %d", c->loops->ivars.n, e->tensor);
    case EX_NEG:
    case EX_TEST: return check_node(c, e->a);
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV:
    case EX_FLOOR:
    case EX_MOD:
    case EX_CMP: return check_node(c, e->a) && check_node(c, e->b);
    case EX_READ: return check_read(c, e);
    case EX_CALL:
        if (e->op >= math_rows()) return wrong(c, "a call: expected a row of math.def, got %d", e->op);
        return check_list(c, e->a, math_at(e->op)->arity, "arguments of a call");
    case EX_AND:
    case EX_OR: return check_list(c, e->a, -1, "parts of a condition");
    case EX_RED: return check_reduction(c, e);
    default: return wrong(c, "expected an expression that is bound, got a node of kind %d", e->kind);
    }
}

static bool check_node(struct check *c, int32_t node)
{
    if (node <= 0 || node >= c->loops->ex.n) return wrong(c, "expected a node below %d, got %d", c->loops->ex.n, node);
    if (c->state[node] == 1) return wrong(c, "node %d is below itself", node);
    if (c->state[node] == 2) return true;
    c->state[node] = 1;
    if (!check_kind(c, &c->loops->ex.at[node])) return false;
    c->state[node] = 2;
    return true;
}

/* -- accesses: reads and writes stay inside their tensors */

static bool check_places(struct check *c, int32_t node, bool guarded);

/* Is a range of indices outside of a dimension? Of sizes that vary, the hints are looked at: not all is proven. */
static bool leaves(int64_t low, int64_t high, int64_t size)
{
    return size_hint(low) < 0 || size_hint(high) >= size_hint(size);
}

/* A read must stay inside its tensor unless it has a guard or a value for outside. */
static bool check_inside(struct check *c, const struct ex *e)
{
    const struct loops_tensor *t = &c->loops->tensors.at[e->tensor];
    int d = 0;
    for (int32_t i = e->a; i; i = c->loops->ex.at[i].next, d++) {
        int64_t low, high;
        if (ex_reads_data(c->loops, i) || !ex_bounds(c->loops, i, &low, &high) || size_lt(high, low)) continue;
        if (leaves(low, high, t->shape[d]))
            return wrong(c, "a read of %s, dimension %d: expected an index in 0..%lld, got %lld..%lld", t->name, d,
                         (long long)t->shape[d] - 1, (long long)low, (long long)high);
    }
    return true;
}

static bool check_children(struct check *c, const struct ex *e, bool guarded)
{
    const bool list = e->kind == EX_READ || e->kind == EX_CALL || e->kind == EX_AND || e->kind == EX_OR;
    /* `where` evaluates its condition first */
    const bool lazy = e->kind == EX_AND || e->kind == EX_OR || e->kind == EX_CALL;
    if (e->kind == EX_INT || e->kind == EX_REAL || e->kind == EX_IVAR) return true;
    for (int32_t i = e->a; i; i = list ? c->loops->ex.at[i].next : 0)
        if (!check_places(c, i, guarded || lazy)) return false;
    return !e->b || check_places(c, e->b, guarded || (e->kind == EX_RED && e->a));
}

static bool check_places(struct check *c, int32_t node, bool guarded)
{
    const struct ex *e = &c->loops->ex.at[node];
    if (e->kind == EX_RED && !ivars_points(c->loops, e->u.bound)) return true; /* it never runs */
    if (e->kind == EX_READ && !e->b && !guarded && ivars_points(c->loops, ex_ivars(c->loops, node)))
        if (!check_inside(c, e)) return false;
    return check_children(c, e, guarded);
}

/* -- statements */

static bool check_write(struct check *c, const struct loops_stmt *s, int o)
{
    const struct loops *loops = c->loops;
    if (s->out[o] >= loops->tensors.n)
        return wrong(c, "expected to write a tensor below %d, got %d", loops->tensors.n, s->out[o]);
    const struct loops_tensor *t = &loops->tensors.at[s->out[o]];
    if (t->role != LOOPS_OUTPUT && t->role != LOOPS_TEMP)
        return wrong(c, "expected to write an output or a temporary, got %s of role %d", t->name, t->role);
    if (!check_list(c, s->index, t->ndim, "indices of what is written")) return false;
    int d = 0;
    for (int32_t i = s->index; i; i = loops->ex.at[i].next, d++) {
        struct affine f;
        int64_t low, high;
        if (!ex_affine(loops, i, &f)) return wrong(c, "%s: dimension %d: expected an affine index", t->name, d);
        if (!ivars_points(loops, stmt_ivars(loops, s)) || !ex_bounds(loops, i, &low, &high)) continue;
        if (leaves(low, high, t->shape[d]))
            return wrong(c, "%s: dimension %d: expected to write in 0..%lld, got %lld..%lld", t->name, d,
                         (long long)t->shape[d] - 1, (long long)low, (long long)high);
    }
    return true;
}

/* The number of results of the value. */
static int results(const struct loops *loops, const struct loops_stmt *s)
{
    const struct ex *e = &loops->ex.at[s->value];
    return e->kind == EX_RED ? reduce_at(e->op)->nout : 1;
}

static bool check_stmt(struct check *c)
{
    const struct loops *loops = c->loops;
    const struct loops_stmt *s = &loops->stmts.at[c->stmt];
    if (s->nout < 1 || s->nout > COUNT_OF(s->out)) return wrong(c, "expected 1 to 3 results, got %d", s->nout);
    if (s->scan_step && s->scan_ivar >= loops->ivars.n)
        return wrong(c, "expected a scan index variable below %d, got %d", loops->ivars.n, s->scan_ivar);
    if (!check_node(c, s->value)) return false;
    for (int o = 0; o < s->nout; o++)
        if (!check_write(c, s, o)) return false;
    if (s->nout > results(loops, s)) return wrong(c, "expected at most %d results, got %d", results(loops, s), s->nout);
    const uint64_t free = ex_ivars(loops, s->value) & ~stmt_ivars(loops, s);
    if (free & ~(s->scan_step ? UINT64_C(1) << s->scan_ivar : 0))
        return wrong(c, "index variable %s is neither written by nor bound in a reduction",
                     loops->ivars.at[__builtin_ctzll(free)].name);
    return !ivars_points(loops, stmt_ivars(loops, s)) || check_places(c, s->value, false);
}

/* -- order */

struct order {
    struct check *c;
    int *first;  /* by tensor: the first statement that writes it; stmts.n: none */
    int scan_to; /* the statements up to here are in the same scan as the current one */
    int bad;     /* tensor, -1: none */
};

static void see_read(void *user, int32_t node)
{
    struct order *o = user;
    const struct ex *e = &o->c->loops->ex.at[node];
    if (e->kind != EX_READ) return;
    const int role = o->c->loops->tensors.at[e->tensor].role;
    if (role != LOOPS_OUTPUT && role != LOOPS_TEMP) return;
    if (o->first[e->tensor] >= MAX(o->c->stmt, o->scan_to)) o->bad = e->tensor;
}

static bool is_empty(const struct loops_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (!t->shape[d]) return true;
    return false;
}

static bool check_order(struct check *c)
{
    const struct loops *loops = c->loops;
    struct order o = {.c = c, .first = NEW_ARRAY(c->why->arena, int, loops->tensors.n + 1), .bad = -1};
    for (int t = 0; t < loops->tensors.n; t++) o.first[t] = loops->stmts.n;
    for (int i = loops->stmts.n - 1; i >= 0; i--)
        for (int k = 0; k < loops->stmts.at[i].nout; k++) o.first[loops->stmts.at[i].out[k]] = i;
    for (c->stmt = 0; c->stmt < loops->stmts.n; c->stmt++) {
        const struct loops_stmt *s = &loops->stmts.at[c->stmt];
        for (int k = c->stmt; s->scan_step && o.scan_to <= c->stmt; k++) {
            const struct loops_stmt *next = k < loops->stmts.n ? &loops->stmts.at[k] : NULL;
            if (next && next->scan_step && next->scan_ivar == s->scan_ivar) continue;
            o.scan_to = k;
        }
        ex_walk(loops, s->value, see_read, &o);
        if (o.bad >= 0) return wrong(c, "%s is read before a statement writes it", loops->tensors.at[o.bad].name);
    }
    c->stmt = -1;
    for (int t = 0; t < loops->tensors.n; t++)
        if (loops->tensors.at[t].role == LOOPS_OUTPUT && o.first[t] == loops->stmts.n &&
            !is_empty(&loops->tensors.at[t]))
            return wrong(c, "no statement writes the output %s", loops->tensors.at[t].name);
    return true;
}

/* -- index variables and tensors */

static bool check_tensors(const struct check *c)
{
    const struct loops *loops = c->loops;
    struct map *names = map_create(c->why->arena);
    for (int i = 0; i < loops->ivars.n; i++)
        if (loops->ivars.at[i].size < 0)
            return wrong(c, "index variable %s: expected a size, got %lld", loops->ivars.at[i].name,
                         (long long)loops->ivars.at[i].size);
    for (int t = 0; t < loops->tensors.n; t++) {
        const struct loops_tensor *x = &loops->tensors.at[t];
        if (!x->name) return wrong(c, "tensor %d: expected a name", t);
        if (map_get(names, x->name)) return wrong(c, "two tensors are called %s", x->name);
        map_set(names, x->name, c->why); /* any non-NULL address */
        if (x->role > LOOPS_TABLE) return wrong(c, "tensor %s: expected a role, got %d", x->name, x->role);
        if (x->role == LOOPS_TABLE && !x->table) return wrong(c, "table %s: expected values", x->name);
    }
    return true;
}

bool loops_verify(const struct loops *loops, struct text *out_why)
{
    struct check c = {.loops = loops, .why = out_why, .stmt = -1};
    c.state = NEW_ARRAY(out_why->arena, uint8_t, loops->ex.n + 1);
    if (loops->ivars.n > LOOPS_MAX_IVARS)
        return wrong(&c, "expected at most %d index variables, got %d", LOOPS_MAX_IVARS, loops->ivars.n);
    if (!check_tensors(&c)) return false;
    for (c.stmt = 0; c.stmt < loops->stmts.n; c.stmt++)
        if (!check_stmt(&c)) return false;
    return check_order(&c);
}
