/* The gradient of one layer: reverse mode over its statements. Each read of a tensor gives a term. The terms of a
 * tensor together are its gradient, from which the earlier statements continue. */
#include <math.h>
#include <string.h>

#include "grad/grad.h"

/* A position in a statement: the index variables in scope, and the conditions that hold. */
struct site {
    uint64_t ctx;
    int nguard;
    int32_t guard[24];
    int32_t own; /* the value of the statement's result, as a read; 0: not at the top of the statement */
    int32_t own2;
};

static void go(struct adjoint *a, const struct site *s, int32_t e, int32_t adj);

/* -- building */

static int32_t call2(struct loops *w, const char *name, int n, int32_t x, int32_t y, int32_t z)
{
    int32_t args[] = {x, y, z};
    return ex_call(w, math_row(name), n, args);
}

static bool is_number(const struct loops *w, int32_t e, double v)
{
    const struct ex *x = &w->ex.at[e];
    return (x->kind == EX_INT && (double)x->u.i == v) || (x->kind == EX_REAL && x->u.r == v);
}

/* The chain rule. A condition chooses instead of multiplying: 0 * inf would leak. */
static int32_t chain(struct loops *w, int32_t adj, int32_t by)
{
    if (is_number(w, by, 1)) return adj;
    if (w->ex.at[by].kind == EX_TEST) return call2(w, "where", 3, by, adj, ex_real(w, 0));
    return ex_binary(w, EX_MUL, adj, by);
}

static int32_t list_of(struct loops *w, int32_t first)
{
    int32_t nodes[SOL_MAX_DIMS];
    int n = 0;
    for (; first; first = w->ex.at[first].next) nodes[n++] = first;
    return n ? ex_list(w, n, nodes) : 0;
}

static int32_t read_at(struct loops *w, int tensor, int32_t index)
{
    return ex_read(w, tensor, list_of(w, index), 0);
}

/* Copies the nodes. The index variables of `bound` get fresh copies, which are added to *out_fresh. */
struct renaming {
    int32_t map[LOOPS_MAX_IVARS];
    uint64_t fresh;
};

static bool rename_ivars(struct adjoint *a, uint64_t bound, struct renaming *r)
{
    struct loops *w = a->w;
    int n = w->ivars.n;
    r->fresh = 0;
    if (n + __builtin_popcountll(bound) > LOOPS_MAX_IVARS) return false;
    for (int i = 0; i < n; i++) {
        if (bound >> i & 1) {
            struct loops_ivar old = w->ivars.at[i];
            int fresh = loops_ivar(w, old.name, old.size);
            r->map[i] = ex_ivar(w, fresh);
            r->fresh |= UINT64_C(1) << fresh;
        } else {
            r->map[i] = ex_ivar(w, i);
        }
    }
    return true;
}

static int32_t renamed(struct adjoint *a, const struct renaming *r, int32_t e)
{
    return e ? ex_copy(a->w, a->w, e, r->map, NULL) : 0;
}

/* -- what a reduction hands on */

struct visit {
    const struct adjoint *a;
    bool found;
};

static void look(void *user, int32_t node)
{
    struct visit *v = user;
    const struct ex *e = &v->a->w->ex.at[node];
    if (e->kind == EX_READ && e->tensor < v->a->layer->loops->tensors.n && v->a->active[e->tensor]) v->found = true;
}

static bool depends(const struct adjoint *a, int32_t e)
{
    struct visit v = {.a = a};
    ex_walk(a->w, e, look, &v);
    return v.found;
}

static void add_guard(struct adjoint *a, struct site *s, int32_t cond)
{
    const struct ex *e = &a->w->ex.at[cond];
    if (!cond) return;
    if (e->kind == EX_AND) {
        for (int32_t i = e->a; i; i = a->w->ex.at[i].next) add_guard(a, s, i);
    } else if (s->nguard < COUNT_OF(s->guard)) {
        s->guard[s->nguard++] = cond;
    } else {
        grad_reject(a, "it has more conditions than a gradient can have");
    }
}

/* The position of the bound index variables, as maxat counts: row-major by index variable number. */
static int32_t position(struct loops *w, const int32_t *map, uint64_t bound)
{
    int32_t p = ex_int(w, 0);
    for (int i = 0; i < LOOPS_MAX_IVARS; i++) {
        if (!(bound >> i & 1)) continue;
        p = ex_binary(w, EX_MUL, p, ex_int(w, w->ivars.at[i].size));
        p = ex_binary(w, EX_ADD, p, map[i]);
    }
    return p;
}

/* The number of elements of the reduction: a size, or a sum where a guard decides. */
static int32_t population(struct adjoint *a, const struct ex *e)
{
    struct renaming r;
    const int64_t n = e->a ? 0 : ivars_size(a->w, e->u.bound);
    if (!e->a) return size_varies(n) ? ex_int(a->w, n) : ex_real(a->w, (double)n);
    if (!rename_ivars(a, e->u.bound, &r)) {
        grad_reject(a, "it has more loops than a row can name");
        return ex_real(a->w, 1);
    }
    return ex_red(a->w, RED_SUM, r.fresh, renamed(a, &r, e->a), ex_int(a->w, 1));
}

/* The value of a reduction inside a statement, computed again with its own index variables. */
static int32_t again(struct adjoint *a, const struct ex *e)
{
    struct renaming r;
    if (!rename_ivars(a, e->u.bound, &r)) return 0;
    return ex_red(a->w, e->op, r.fresh, renamed(a, &r, e->a), renamed(a, &r, e->b));
}

/* Elements that are equal to the extreme share its gradient. */
static void go_extreme(struct adjoint *a, const struct site *s, const struct ex *e, int32_t body, int32_t adj)
{
    struct loops *w = a->w;
    struct renaming count;
    int32_t own = s->own ? s->own : again(a, e);
    if (!own || !rename_ivars(a, e->u.bound, &count)) {
        grad_reject(a, "it has more loops than a row can name");
        return;
    }
    int32_t equal = ex_test(w, ex_cmp(w, CMP_EQ, renamed(a, &count, e->b), own));
    int32_t ties = ex_red(w, RED_SUM, count.fresh, renamed(a, &count, e->a), equal);
    struct site in = *s;
    in.own = 0;
    go(a, &in, body, chain(w, ex_binary(w, EX_DIV, adj, ties), ex_test(w, ex_cmp(w, CMP_EQ, body, own))));
}

/* The derivative of a product: the product of all other elements. It is the product of all nonzero elements divided by
 * the element; if exactly one element is 0, only that one has a nonzero derivative. Both reductions are the same for
 * all elements. */
static void go_product(struct adjoint *a, const struct site *s, const struct ex *e, int32_t body, int32_t adj)
{
    struct loops *w = a->w;
    struct renaming o;
    if (!rename_ivars(a, e->u.bound, &o)) {
        grad_reject(a, "it has more loops than a row can name");
        return;
    }
    const int32_t zero = ex_real(w, 0), one = ex_real(w, 1), guard = renamed(a, &o, e->a), x = renamed(a, &o, e->b);
    const int32_t is_zero = ex_test(w, ex_cmp(w, CMP_EQ, x, zero));
    const int32_t zeros = ex_red(w, RED_SUM, o.fresh, guard, is_zero);
    const int32_t rest = ex_red(w, RED_PROD, o.fresh, guard, call2(w, "where", 3, is_zero, one, x));
    const int32_t none = ex_test(w, ex_cmp(w, CMP_EQ, zeros, ex_int(w, 0)));
    const int32_t only[] = {ex_cmp(w, CMP_EQ, zeros, ex_int(w, 1)), ex_cmp(w, CMP_EQ, body, zero)};
    const int32_t alone = call2(w, "where", 3, ex_test(w, ex_logic(w, EX_AND, 2, only)), rest, zero);
    const int32_t others = call2(w, "where", 3, none, ex_binary(w, EX_DIV, rest, body), alone);
    go(a, s, body, ex_binary(w, EX_MUL, adj, others));
}

static void go_reduction(struct adjoint *a, const struct site *s, int32_t node, int32_t adj, int32_t adj2)
{
    struct loops *w = a->w;
    struct ex e = w->ex.at[node];
    struct renaming r;
    if (!rename_ivars(a, e.u.bound, &r)) {
        grad_reject(a, "it has more loops than a row can name");
        return;
    }
    struct site in = *s;
    in.ctx |= r.fresh;
    add_guard(a, &in, renamed(a, &r, e.a));
    int32_t body = renamed(a, &r, e.b);
    if (e.op == RED_MAX || e.op == RED_MIN) {
        go_extreme(a, &in, &e, body, adj);
        return;
    }
    in.own = 0;
    switch (e.op) {
    case RED_SUM: go(a, &in, body, adj); return;
    case RED_MAXAT:
    case RED_MINAT: {
        int32_t at = position(w, r.map, e.u.bound);
        add_guard(a, &in, ex_cmp(w, CMP_EQ, s->own2, at));
        go(a, &in, body, adj);
        return;
    }
    case RED_SOFTSUM: { /* the maximum is only a shift and has no gradient of its own; only the sum has */
        int32_t lowest = ex_real(w, -INFINITY), nothing = ex_test(w, ex_cmp(w, CMP_EQ, s->own, lowest));
        int32_t shift = call2(w, "where", 3, nothing, ex_real(w, 0), s->own); /* if all values are -inf */
        go(a, &in, body, chain(w, adj2, call2(w, "exp", 1, ex_binary(w, EX_SUB, body, shift), 0, 0)));
        return;
    }
    case RED_MOMENTS: {
        int32_t total = adj, spread = ex_binary(w, EX_MUL, ex_real(w, 2), ex_binary(w, EX_SUB, body, s->own));
        if (adj2) spread = ex_binary(w, EX_MUL, adj2, spread);
        if (adj2) total = adj ? ex_binary(w, EX_ADD, adj, spread) : spread;
        go(a, &in, body, ex_binary(w, EX_DIV, total, population(a, &e)));
        return;
    }
    case RED_PROD: go_product(a, &in, &e, body, adj); return;
    default: return; /* any, all: integers */
    }
}

/* -- reverse mode over an expression */

static void contribute(struct adjoint *a, const struct site *s, const struct ex *read, int32_t adj)
{
    struct term t = {.tensor = read->tensor, .ctx = s->ctx, .value = adj, .nguard = s->nguard};
    memcpy(t.guard, s->guard, sizeof t.guard);
    const struct loops_tensor *to = &a->w->tensors.at[read->tensor];
    for (int32_t i = read->a; i; i = a->w->ex.at[i].next, t.npin++)
        t.pin[t.npin] = (struct pin){.f = i, .size = to->shape[t.npin]};
    for (int d = 0; d < to->ndim; d++) t.rest[d] = to->shape[d];
    PUSH(a->w->arena, a->terms, t);
}

/* Can the read leave its tensor, so that the value outside is read instead? */
static int32_t leaves(struct loops *w, const struct ex *read)
{
    int32_t cond[2 * SOL_MAX_DIMS];
    int n = 0;
    for (int32_t i = read->a; i; i = w->ex.at[i].next, n += 2) {
        cond[n] = ex_cmp(w, CMP_LT, i, ex_int(w, 0));
        cond[n + 1] = ex_cmp(w, CMP_GE, i, ex_int(w, w->tensors.at[read->tensor].shape[n / 2]));
    }
    return ex_logic(w, EX_OR, n, cond);
}

static void go_call(struct adjoint *a, const struct site *s, int32_t node, int32_t adj)
{
    int k = 0;
    for (int32_t arg = a->w->ex.at[node].a; arg; arg = a->w->ex.at[arg].next, k++) {
        if (!depends(a, arg)) continue;
        int32_t by = ex_derivative(a->w, node, s->own ? s->own : node, k);
        if (!by) {
            grad_reject(a, arena_printf(a->w->arena, "the function '%s' has no derivative",
                                        math_at(a->w->ex.at[node].op)->name));
            return;
        }
        struct site below = *s;
        below.own = below.own2 = 0;
        if (!is_number(a->w, by, 0)) go(a, &below, arg, chain(a->w, adj, by));
    }
}

static void go(struct adjoint *a, const struct site *s, int32_t node, int32_t adj)
{
    struct loops *w = a->w;
    struct ex e = w->ex.at[node];
    struct site below = *s;
    below.own = below.own2 = 0;
    if (!depends(a, node) || is_number(w, adj, 0)) return;
    switch (e.kind) {
    case EX_READ:
        if (a->active[e.tensor]) contribute(a, s, &e, adj);
        if (e.b) go(a, &below, e.b, chain(w, adj, ex_test(w, leaves(w, &e))));
        return;
    case EX_NEG: go(a, &below, e.a, ex_neg(w, adj)); return;
    case EX_ADD:
        go(a, &below, e.a, adj);
        go(a, &below, e.b, adj);
        return;
    case EX_SUB:
        go(a, &below, e.a, adj);
        go(a, &below, e.b, ex_neg(w, adj));
        return;
    case EX_MUL:
        go(a, &below, e.a, chain(w, adj, e.b));
        go(a, &below, e.b, chain(w, adj, e.a));
        return;
    case EX_DIV:
        go(a, &below, e.a, ex_binary(w, EX_DIV, adj, e.b));
        if (depends(a, e.b)) go(a, &below, e.b, ex_neg(w, ex_binary(w, EX_DIV, ex_binary(w, EX_MUL, adj, node), e.b)));
        return;
    case EX_CALL: go_call(a, s, node, adj); return;
    case EX_RED: go_reduction(a, s, node, adj, 0); return;
    default: return; /* conditions and integers */
    }
}

void adjoint_statement(struct adjoint *a, const struct loops_stmt *st)
{
    struct loops *w = a->w;
    int32_t adj[3] = {0};
    bool any = false;
    for (int o = 0; o < st->nout; o++) {
        int d = a->active[st->out[o]] ? a->d[st->out[o]] : -1;
        if (d >= 0 && w->tensors.at[d].user) adj[o] = read_at(w, d, st->index), any = true;
    }
    if (!any) return;
    struct site s = {.ctx = stmt_ivars(w, st), .own = read_at(w, st->out[0], st->index)};
    if (st->nout > 1) s.own2 = read_at(w, st->out[1], st->index);
    const struct ex *e = &w->ex.at[st->value];
    if (e->kind == EX_RED && e->op != RED_SUM)
        go_reduction(a, &s, st->value, adj[0], adj[1]);
    else if (adj[0])
        go(a, &s, st->value, adj[0]);
}

/* -- the layer */

static void begin(struct adjoint *a, const bool *want)
{
    const struct loops *loops = a->layer->loops;
    struct loops *w = a->w = loops_copy(a->g->scratch, loops);
    a->d = NEW_ARRAY(w->arena, int, loops->tensors.n + 1);
    a->active = NEW_ARRAY(w->arena, bool, loops->tensors.n + 1);
    a->exposed = NEW_ARRAY(w->arena, bool, loops->tensors.n + 1);
    int in = 0, out = 0;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &w->tensors.at[i];
        a->d[i] = -1;
        if (t->role == LOOPS_INPUT) {
            while (!a->layer->in[in]) in++;
            a->active[i] = want[in] && dtype_def(t->dtype)->is_float;
            loops_set_user(w, i, a->layer->in[in++]);
        } else {
            loops_set_user(w, i, t->role == LOOPS_OUTPUT ? a->layer->out[out++] : NULL);
        }
    }
}

/* Active tensors: those through which a wanted input influences a result. Statements are sorted by dependence, except
 * that those of a scan depend on each other. */
static bool find_active(struct adjoint *a)
{
    struct loops *w = a->w;
    bool more = false;
    for (int i = 0; i < w->stmts.n; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        if (!depends(a, s->value)) continue;
        bool shift = w->ex.at[s->value].kind == EX_RED && w->ex.at[s->value].op == RED_SOFTSUM;
        for (int o = shift; o < s->nout; o++) {
            if (!dtype_def(w->tensors.at[s->out[o]].dtype)->is_float || a->active[s->out[o]]) continue;
            a->active[s->out[o]] = more = true;
        }
    }
    return more;
}

static int gradient_tensor(struct adjoint *a, int of, struct sol_tensor *user)
{
    const struct loops_tensor t = a->w->tensors.at[of];
    int d = loops_tensor(a->w, arena_printf(a->w->arena, "d%s", t.name), LOOPS_INPUT, t.dtype, t.ndim, t.shape);
    loops_set_user(a->w, d, user);
    return d;
}

/* Exposes temporaries and unread outputs that a gradient reads as outputs of the layer. Terms refer to tensors of w, so
 * the set is known when the terms are made, before any is written. */
static void mark_exposed(void *user, int32_t node)
{
    struct adjoint *a = user;
    const struct ex *e = &a->w->ex.at[node];
    if (e->kind != EX_READ || e->tensor >= a->layer->loops->tensors.n) return;
    const struct loops_tensor *t = &a->w->tensors.at[e->tensor];
    const struct sol_tensor *out = t->user;
    bool unread = t->role == LOOPS_OUTPUT && !out->readers.n && !out->output;
    if (t->role == LOOPS_TEMP || unread) a->exposed[e->tensor] = true;
}

static bool writes(const struct loops_stmt *s, int tensor)
{
    for (int o = 0; o < s->nout; o++)
        if (s->out[o] == tensor) return true;
    return false;
}

/* Does a statement from `first` on get terms from a tensor that has no gradient yet? */
static bool reach(struct adjoint *a, int first, int nterm)
{
    struct loops *w = a->w;
    bool behind = false;
    for (int i = nterm; i < a->terms.n; i++) {
        int t = a->terms.at[i].tensor;
        if (a->d[t] < 0 || w->tensors.at[a->d[t]].user) continue;
        loops_set_user(w, a->d[t], GRAD_SOMEBODY(a));
        for (int k = first; k < w->stmts.n; k++) behind |= writes(&w->stmts.at[k], t);
    }
    return behind;
}

/* A dry run over the statements finds out which temporaries the gradient will read, before any of its layers is
 * written. */
static sol_status expose(struct adjoint *a)
{
    struct loops *w = a->w;
    int n = a->layer->loops->tensors.n, ivars = w->ivars.n;
    void **user = NEW_ARRAY(w->arena, void *, n + 1);
    for (int i = 0; i < n; i++)
        if (a->d[i] >= 0) user[i] = w->tensors.at[a->d[i]].user;
    for (int i = w->stmts.n - 1; i >= 0; i--) {
        int before = a->terms.n;
        adjoint_statement(a, &w->stmts.at[i]);
        if (!reach(a, i, before)) continue;
        i = w->stmts.n; /* a scan: repeat */
        a->terms.n = 0;
        loops_drop_ivars(w, ivars);
    }
    for (int i = 0; i < a->terms.n; i++) {
        const struct term *t = &a->terms.at[i];
        ex_walk(w, t->value, mark_exposed, a);
        for (int k = 0; k < t->nguard; k++) ex_walk(w, t->guard[k], mark_exposed, a);
        for (int k = 0; k < t->npin; k++) ex_walk(w, t->pin[k].f, mark_exposed, a);
    }
    a->terms.n = 0;
    loops_drop_ivars(w, ivars); /* the number of index variables of a definition is limited */
    for (int i = 0; i < n; i++)
        if (a->d[i] >= 0) loops_set_user(w, a->d[i], user[i]);
    TRY(a->rejected);
    return write_exposed(a);
}

sol_status grad_reject(struct adjoint *a, const char *what)
{
    const struct sol_layer *l = a->layer;
    a->rejected = ctx_fail(a->g->ctx, SOL_ERR_UNSUPPORTED, "gradient of layer '%s' (%s)%s%s: %s", l->name, l->def->name,
                           *l->where ? " at " : "", l->where, what);
    return a->rejected;
}

/* Goes through the statements from the last to the first: completes the gradients of what they write, and adds their
 * terms. */
static sol_status walk_back(struct adjoint *a)
{
    const int n = a->layer->loops->tensors.n;
    bool *done = NEW_ARRAY(a->w->arena, bool, n + 1);
    for (int i = a->w->stmts.n - 1; i >= 0; i--) {
        const struct loops_stmt *s = &a->w->stmts.at[i];
        if (s->scan_step) {
            int first = i;
            while (first && s[first - 1 - i].scan_step == s->scan_step && s[first - 1 - i].scan_ivar == s->scan_ivar)
                first--;
            TRY(adjoint_scan(a, first, i));
            i = first;
            continue;
        }
        for (int t = 0; t < n; t++) {
            if (!writes(s, t) || done[t] || a->d[t] < 0) continue;
            done[t] = true;
            struct sol_tensor *whole;
            TRY(gather_terms(a, t, a->w->tensors.at[a->d[t]].user, &whole));
            loops_set_user(a->w, a->d[t], whole);
        }
        adjoint_statement(a, s);
        TRY(a->rejected);
        TRY(ctx_check(a->g->ctx));
    }
    return SOL_OK;
}

static sol_status find_adjoint(struct adjoint *a, struct sol_tensor *const *d, const bool *want,
                               struct sol_tensor **out_d)
{
    const struct sol_layer *l = a->layer;
    const int n = l->loops->tensors.n;
    int given = 0;
    begin(a, want);
    while (find_active(a)) continue;
    for (int i = 0; i < n; i++) {
        bool in = a->w->tensors.at[i].role == LOOPS_INPUT, out = a->w->tensors.at[i].role == LOOPS_OUTPUT;
        struct sol_tensor *user = out ? d[given++] : NULL;
        if (a->active[i] && !in) a->d[i] = gradient_tensor(a, i, user);
    }
    TRY(expose(a));
    TRY(walk_back(a));
    for (int i = 0, in = 0; i < n; i++) {
        if (a->w->tensors.at[i].role != LOOPS_INPUT) continue;
        while (!l->in[in]) in++;
        if (a->active[i]) TRY(gather_terms(a, i, NULL, &out_d[in]));
        in++;
    }
    return ctx_check(a->g->ctx);
}

sol_status adjoint_layer(struct sol_graph *g, struct sol_layer *l, struct sol_tensor *const *d, const bool *want,
                         struct sol_tensor **out_d)
{
    struct adjoint a = {.g = g, .layer = l};
    const struct arena_mark mark = arena_mark(g->scratch);
    const sol_status status = find_adjoint(&a, d, want, out_d);
    arena_rewind(g->scratch, mark);
    return status;
}

bool adjoint_known(const struct sol_layer *l, const char **out_why)
{
    *out_why = NULL;
    if (l->def->flags & LAYER_OPAQUE) *out_why = "it is not made of loops, and no rule gives its gradient";
    return !*out_why;
}
