/* Loop-invariant code motion for reductions. A reduction that does not depend on all index variables around it is
 * computed once, as a unit of its own. In `d[N Q] = [x[N Q]==y[N]] * dy[N] / sum[K] [x[N K]==y[N]]` the sum would
 * otherwise be repeated for every Q. */
#include "plan/plan.h"

#define WORTH 4 /* elements of a reduction that justify a step */

struct hoist {
    const struct loops *loops;
    int32_t found; /* the outermost reduction that can be hoisted; 0: none */
};

struct check {
    const struct loops *loops;
    bool data, safe;
};

/* A reduction that is moved out of its guards must not read beyond a tensor or divide by 0. */
static void check_node(void *user, int32_t node)
{
    struct check *c = user;
    const struct ex *e = &c->loops->ex.at[node];
    int64_t low, high;
    if (e->kind == EX_FLOOR || e->kind == EX_MOD)
        c->safe &= ex_range(c->loops, e->b, &low, &high) && (low > 0 || high < 0);
    if (e->kind != EX_READ) return;
    const struct loops_tensor *t = &c->loops->tensors.at[e->tensor];
    c->data |= t->role == LOOPS_INPUT;
    c->safe &= t->role == LOOPS_INPUT || t->role == LOOPS_TABLE;
    int d = 0;
    for (int32_t i = e->a; i && !e->b; i = c->loops->ex.at[i].next, d++)
        c->safe &= ex_bounds(c->loops, i, &low, &high) && size_le(0, low) && size_lt(high, t->shape[d]);
}

static bool may_go(const struct hoist *h, int32_t node, uint64_t scope)
{
    const struct ex *e = &h->loops->ex.at[node];
    const uint64_t free = ex_ivars(h->loops, node);
    struct check c = {.loops = h->loops, .safe = e->op != RED_MOMENTS && e->op != RED_SOFTSUM};
    if (ivars_points(h->loops, e->u.bound) < WORTH || ivars_points(h->loops, scope & ~free) < 2) return false;
    if (__builtin_popcountll(free) > SOL_MAX_DIMS) return false;
    ex_walk(h->loops, node, check_node, &c);
    return c.data && c.safe;
}

/* `scope`: the index variables around a node, of the statement and of reductions. */
static void find(struct hoist *h, int32_t node, uint64_t scope)
{
    const struct ex e = h->loops->ex.at[node];
    if (!node || h->found) return;
    if (e.kind == EX_RED && may_go(h, node, scope)) {
        h->found = node;
        return;
    }
    const bool list = e.kind == EX_CALL || e.kind == EX_READ || e.kind == EX_AND || e.kind == EX_OR;
    if (e.kind == EX_RED) scope |= e.u.bound;
    for (int32_t i = e.a; i; i = list ? h->loops->ex.at[i].next : 0) find(h, i, scope);
    if (!list || e.kind == EX_READ) find(h, e.b, scope);
}

/* The tensor with the value of a reduction in this statement. */
static bool type_of(const struct loops *loops, const struct loops_stmt *s, int32_t node, enum sol_dtype *out)
{
    const bool whole = ex_is_int(loops, node);
    *out = whole ? SOL_I64 : (enum sol_dtype)loops->tensors.at[s->out[0]].dtype;
    return whole || dtype_def(*out)->is_float;
}

/* The list of the index variables in `set`, with their sizes. */
static int32_t index_of(struct loops *loops, uint64_t set, int64_t *out_shape, int *out_n)
{
    int32_t index[SOL_MAX_DIMS];
    *out_n = 0;
    for (int i = 0; i < loops->ivars.n; i++) {
        if (!(set >> i & 1)) continue;
        out_shape[*out_n] = loops->ivars.at[i].size;
        index[(*out_n)++] = ex_ivar(loops, i);
    }
    return *out_n ? ex_list(loops, *out_n, index) : 0;
}

/* Returns the statement `reduced[variables] = reduction`, and in *out_read the read of `loops` that replaces the
 * reduction. */
static const struct loops *move_out(struct plan *p, struct loops *loops, const char *label, int32_t node,
                                    enum sol_dtype type, int32_t *out_read)
{
    const uint64_t free = ex_ivars(loops, node);
    int64_t shape[SOL_MAX_DIMS];
    int n;
    struct loops *own = loops_copy_with(p->scratch, loops, 0, NULL);
    struct loops_stmt s = {.nout = 1, .index = index_of(own, free, shape, &n), .value = node, .label = label};
    struct sol_tensor *t = plan_tensor(p, "reduced", type, n, shape);
    s.out[0] = (uint16_t)loops_tensor(own, "reduced", LOOPS_OUTPUT, type, n, shape);
    loops_set_user(own, s.out[0], t);
    loops_stmt(own, s);
    const int in = loops_tensor(loops, "reduced", LOOPS_INPUT, type, n, shape);
    loops_set_user(loops, in, t);
    *out_read = ex_read(loops, in, index_of(loops, free, shape, &n), 0);
    return rewrite_sweep(own);
}

const struct loops *plan_hoist(struct plan *p, const struct loops *from, const struct unit *like, int *at)
{
    struct loops *loops = loops_copy(p->scratch, from);
    for (int i = 0; i < loops->stmts.n; i++) {
        struct loops_stmt s = loops->stmts.at[i];
        for (struct hoist h = {.loops = loops}; s.nout == 1 && !s.scan_step; h.found = 0) {
            enum sol_dtype type;
            int32_t read;
            find(&h, s.value, stmt_ivars(loops, &s));
            if (!h.found || !type_of(loops, &s, h.found, &type)) break;
            const struct loops *own = move_out(p, loops, like->label, h.found, type, &read);
            own = plan_hoist(p, own, like, at);
            plan_unit(p, at ? (*at)++ : -1, like->program, own, like->layer, like->label);
            s.value = ex_replace(loops, s.value, h.found, read);
            loops_set_stmt(loops, i, s);
        }
    }
    return rewrite_sweep(loops);
}
