/* Concat without a copy. A unit that only copies x into a part of y is removed, and x is stored in that part of y from
 * the beginning. The last Concat is taken first: DenseNet's later ones contain the earlier ones, which then lie in them
 * as a whole. */
#include "plan/plan.h"

/* Does u only copy, as `y[.. X+at ..] = x[.. X ..]`? */
static bool is_part(const struct unit *u, int64_t *out_at)
{
    const struct loops *loops = u->loops;
    if (u->opaque || loops->stmts.n != 1 || loops->stmts.at[0].nout != 1) return false;
    const struct loops_stmt *s = &loops->stmts.at[0];
    const struct ex *v = &loops->ex.at[s->value];
    if (v->kind != EX_READ || v->b) return false;
    const struct loops_tensor *y = &loops->tensors.at[s->out[0]], *x = &loops->tensors.at[v->tensor];
    if (!x->user || y->dtype != x->dtype || y->ndim != x->ndim) return false;
    int d = 0, parts = 0;
    uint64_t seen = 0;
    for (int32_t w = s->index, r = v->a; w && r; w = loops->ex.at[w].next, r = loops->ex.at[r].next, d++) {
        struct affine f, e;
        if (!ex_affine(loops, w, &f) || !ex_affine(loops, r, &e) || e.c || e.n > 1 || f.n != e.n) return false;
        if (f.n && (f.ivar[0] != e.ivar[0] || f.coef[0] != 1 || e.coef[0] != 1 || seen >> f.ivar[0] & 1)) return false;
        int64_t size = f.n ? loops->ivars.at[f.ivar[0]].size : 1;
        if (size != x->shape[d]) return false;
        if (f.n) seen |= UINT64_C(1) << f.ivar[0];
        out_at[d] = f.c;
        parts += y->shape[d] != x->shape[d];
    }
    return parts == 1;
}

static struct sol_tensor *part_of(const struct unit *u)
{
    const struct loops *loops = u->loops;
    return loops->tensors.at[loops->ex.at[loops->stmts.at[0].value].tensor].user;
}

static bool may_move(const struct allocation *x, const struct allocation *y)
{
    if (x->t->role != TENSOR_VALUE || x->root != x->t || x->output || x->program != y->program) return false;
    return x->writers && !x->opaque;
}

/* Are all parts of y already contiguous, in order, in one tensor? Then y is a part of that tensor. */
static bool alias_whole(struct plan *p, int from, int to, struct allocation *y)
{
    struct sol_tensor *root = NULL;
    int64_t base[SOL_MAX_DIMS] = {0};
    for (int i = from; i < to; i++) {
        int64_t at[SOL_MAX_DIMS];
        if (!is_part(p->units.at[i], at)) return false;
        struct allocation *x = plan_allocation(p, part_of(p->units.at[i]));
        if (x->root == x->t || (root && x->root != root)) return false;
        for (int d = 0; d < y->t->ndim; d++) {
            const int64_t first = size_sub(x->alias_at[d], at[d]);
            if (root && first != base[d]) return false;
            base[d] = first;
            if (!size_le(0, first)) return false;
        }
        root = x->root;
    }
    if (!root || root == y->t || y->opaque) return false;
    y->root = root;
    for (int d = 0; d < y->t->ndim; d++) y->alias_at[d] = base[d];
    for (int i = from; i < to; i++) p->units.at[i]->dead = true;
    return true;
}

static void alias_parts(struct plan *p, int from, int to, struct allocation *y)
{
    for (int i = from; i < to; i++) {
        int64_t at[SOL_MAX_DIMS];
        if (!is_part(p->units.at[i], at)) continue;
        uint32_t dims = 0;
        for (int d = 0; d < y->t->ndim; d++) dims |= size_dims(at[d]);
        if (dims & graph_data_dims(p->g)) continue; /* its place is known late */
        struct allocation *x = plan_allocation(p, part_of(p->units.at[i]));
        if (!may_move(x, y)) continue;
        x->root = y->t;
        for (int d = 0; d < y->t->ndim; d++) x->alias_at[d] = at[d];
        p->units.at[i]->dead = true;
    }
}

static struct sol_tensor *written(const struct unit *u)
{
    return u->dead || u->opaque ? NULL : u->loops->tensors.at[u->loops->stmts.at[0].out[0]].user;
}

/* Follows chains, so that `root` is always the outermost tensor. */
static void flatten(struct plan *p, struct allocation *s)
{
    while (s->root != s->t) {
        struct allocation *r = plan_allocation(p, s->root);
        if (r->root == r->t) return;
        for (int d = 0; d < s->t->ndim; d++) s->alias_at[d] = size_add(s->alias_at[d], r->alias_at[d]);
        s->root = r->root;
    }
}

static uint32_t tensor_dims(const struct sol_tensor *t)
{
    uint32_t dims = 0;
    for (int d = 0; d < t->ndim; d++) dims |= size_dims(t->dim[d].size);
    return dims;
}

sol_status plan_alias(struct plan *p)
{
    for (int to = p->units.n; to > 0;) {
        struct sol_tensor *t = written(p->units.at[to - 1]);
        int from = to - 1;
        while (t && from > 0 && written(p->units.at[from - 1]) == t) from--;
        if (t && t->role == TENSOR_VALUE) {
            struct allocation *y = plan_allocation(p, t);
            const bool set = tensor_dims(t) & graph_data_dims(p->g); /* its strides are known late */
            if (!set && !y->output && (y->root != y->t || !alias_whole(p, from, to, y))) alias_parts(p, from, to, y);
        }
        to = from;
    }
    for (int i = 0; i < p->nallocations; i++)
        if (p->allocations[i].t) flatten(p, &p->allocations[i]);
    return ctx_check(p->ctx);
}
