/* Forwards views: where `y[L] = x[f(L)]`, a reader of y reads x at f of its own indices instead. A slice, a transpose,
 * a broadcast, a reshape or a channel shuffle then is only an index, and mixed-radix splits keep it affine. They do so
 * for other units with such indices, too. */
#include "plan/plan.h"

struct forwarding {
    struct plan *p;
    const struct loops *from, *view;
    const struct loops_stmt *stmt; /* of the view */
    int tensor;                    /* of `from`: what the view writes */
    int *view_tensor;              /* by tensor of the view: tensor of `to` */
    bool failed;
};

/* Can a read outside of y be expressed as a read of x? The index must pass through unchanged, or move by a constant
 * such that everything outside of y is outside of x, with the same value there. */
static bool outside_survives(const struct forwarding *c, const struct ex *read, const struct loops *to,
                             const int32_t *index, int32_t outside)
{
    const struct loops *m = c->view;
    const struct ex *source = &m->ex.at[c->stmt->value];
    if (source->kind != EX_READ) return false;
    const struct loops_tensor *y = &c->from->tensors.at[read->tensor], *x = &m->tensors.at[source->tensor];
    int d = 0;
    for (int32_t w = c->stmt->index; w; w = m->ex.at[w].next, d++) {
        int64_t low, high;
        if (ex_bounds(to, index[d], &low, &high) && size_le(0, low) && size_lt(high, y->shape[d])) continue;
        if (m->ex.at[w].kind != EX_IVAR) return false;
        int from_dim = -1, k = 0;
        struct affine f = {0};
        for (int32_t i = source->a; i; i = m->ex.at[i].next, k++) {
            if (!(ex_ivars(m, i) >> m->ex.at[w].tensor & 1)) continue;
            if (from_dim >= 0 || !ex_affine(m, i, &f) || f.n != 1 || f.coef[0] != 1) return false;
            from_dim = k;
        }
        if (from_dim < 0 || !size_le(f.c, 0) || !size_le(x->shape[from_dim], size_add(y->shape[d], f.c))) return false;
    }
    if (!source->b) return true;
    const struct ex *v = &m->ex.at[source->b], *o = &to->ex.at[outside];
    double a = v->kind == EX_INT ? (double)v->u.i : v->u.r, b = o->kind == EX_INT ? (double)o->u.i : o->u.r;
    bool numbers = (v->kind == EX_INT || v->kind == EX_REAL) && (o->kind == EX_INT || o->kind == EX_REAL);
    return numbers && a == b;
}

bool plan_radix(const struct loops *loops, int32_t index, int64_t size, struct affine *out)
{
    if (!ex_affine(loops, index, out) || out->c) return false;
    for (int i = 1; i < out->n; i++)
        for (int k = i; k > 0 && size_hint(out->coef[k]) < size_hint(out->coef[k - 1]); k--) {
            int64_t coef = out->coef[k];
            uint8_t ivar = out->ivar[k];
            out->coef[k] = out->coef[k - 1], out->ivar[k] = out->ivar[k - 1];
            out->coef[k - 1] = coef, out->ivar[k - 1] = ivar;
        }
    int64_t weight = 1;
    for (int i = 0; i < out->n; i++) {
        if (out->coef[i] != weight) return false;
        weight = size_mul(weight, loops->ivars.at[out->ivar[i]].size);
    }
    return weight == size;
}

static int32_t forwarded_read(void *user, struct loops *to, const struct ex *read, const int32_t *index, int nindex,
                              int32_t outside)
{
    struct forwarding *c = user;
    if (read->tensor != c->tensor) return 0;
    int32_t ivar[LOOPS_MAX_IVARS] = {0};
    const struct loops *m = c->view;
    int d = 0;
    for (int32_t w = c->stmt->index; w && d < nindex; w = m->ex.at[w].next, d++) {
        struct affine f;
        if (m->ex.at[w].kind == EX_INT || !plan_radix(m, w, m->tensors.at[c->stmt->out[0]].shape[d], &f)) continue;
        for (int k = 0; k < f.n; k++) {
            int32_t digit = ex_binary(to, EX_FLOOR, index[d], ex_int(to, f.coef[k]));
            if (k < f.n - 1) digit = ex_binary(to, EX_MOD, digit, ex_int(to, m->ivars.at[f.ivar[k]].size));
            ivar[f.ivar[k]] = digit;
        }
    }
    if (outside && !outside_survives(c, read, to, index, outside)) {
        c->failed = true;
        return ex_int(to, 0);
    }
    struct rewrite r = {.to = to, .from = m, .ivar = ivar, .tensor = c->view_tensor};
    int32_t node = rewrite_ex(&r, c->stmt->value);
    if (outside && to->ex.at[node].kind == EX_READ) {
        int32_t list[SOL_MAX_DIMS];
        int n = 0;
        for (int32_t i = to->ex.at[node].a; i; i = to->ex.at[i].next) list[n++] = i;
        node = ex_read(to, to->ex.at[node].tensor, ex_list(to, n, list), outside);
    }
    return node;
}

static bool is_non_affine_read(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    struct affine f;
    for (int32_t i = e->kind == EX_READ ? e->a : 0; i; i = loops->ex.at[i].next)
        if (!ex_affine(loops, i, &f)) return true;
    return false;
}

static int count_non_affine(const struct loops *loops)
{
    int n = 0;
    for (int i = 0; i < loops->stmts.n; i++) n += ex_any(loops, loops->stmts.at[i].value, is_non_affine_read);
    return n;
}

bool plan_digits(const struct loops *loops, int t, int32_t index, uint64_t *out_ivars)
{
    int d = 0;
    *out_ivars = 0;
    for (int32_t i = index; i; i = loops->ex.at[i].next, d++) {
        struct affine f;
        if (!plan_radix(loops, i, loops->tensors.at[t].shape[d], &f)) return false;
        for (int k = 0; k < f.n; k++) {
            if (*out_ivars >> f.ivar[k] & 1) return false;
            *out_ivars |= UINT64_C(1) << f.ivar[k];
        }
    }
    return true;
}

const struct loops *plan_inlined(struct plan *p, const struct loops *from, int t, const struct loops *m, bool gathers)
{
    uint64_t digits;
    if (m->stmts.n != 1 || m->stmts.at[0].nout != 1 || m->stmts.at[0].scan_step ||
        !plan_digits(m, m->stmts.at[0].out[0], m->stmts.at[0].index, &digits))
        return NULL;
    if (rewrite_has_reduction(m, m->stmts.at[0].value)) return NULL;
    struct forwarding c = {.p = p, .from = from, .view = m, .stmt = &m->stmts.at[0], .tensor = t};
    struct loops *to = loops_create(p->scratch, from->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    int *tensor = NEW_ARRAY(p->scratch, int, from->tensors.n + 1);
    rewrite_ivars(to, from, ivar);
    for (int i = 0; i < from->tensors.n; i++) tensor[i] = i == t ? -1 : rewrite_tensor(to, from, i);
    c.view_tensor = NEW_ARRAY(p->scratch, int, m->tensors.n + 1);
    for (int i = 0; i < m->tensors.n; i++)
        c.view_tensor[i] = m->tensors.at[i].role == LOOPS_OUTPUT ? -1 : rewrite_tensor(to, m, i);
    rewrite_stmts(
        &(struct rewrite){.to = to, .from = from, .ivar = ivar, .tensor = tensor, .read = forwarded_read, .user = &c});
    if (c.failed) return NULL;
    to = rewrite_sweep(rewrite_narrow(rewrite_split_ivars(to)));
    bool map = from->stmts.n == 1 && !rewrite_has_reduction(from, from->stmts.at[0].value);
    if (!gathers && count_non_affine(to) > count_non_affine(from) &&
        !(map && plan_allocation(p, from->tensors.at[t].user)->readers == 1))
        return NULL;
    return to;
}

/* Is the view in its reader's program, or in `prepare`? Otherwise its input would be saved for backward instead of its
 * result, which must not take more memory. */
static bool source_at_hand(struct plan *p, const struct unit *u, const struct unit *view)
{
    if (view->program == u->program || view->program == PROGRAM_PREPARE) return true;
    double in = 0, out = 0; /* elements */
    for (int i = 0; i < view->loops->tensors.n; i++) {
        const struct loops_tensor *t = &view->loops->tensors.at[i];
        if (!t->user) continue;
        const struct allocation *s = plan_allocation(p, t->user);
        if (t->role == LOOPS_OUTPUT)
            out += (double)size_hint(tensor_elements(s->t));
        else if (s->t->role == TENSOR_VALUE && !s->output && !plan_prepared(s))
            in += (double)size_hint(tensor_elements(s->t));
    }
    return in <= out;
}

static void forward_unit(struct plan *p, struct unit *u)
{
    for (int t = 0; t < u->loops->tensors.n; t++) {
        const struct loops_tensor *lt = &u->loops->tensors.at[t];
        if (lt->role != LOOPS_INPUT || !lt->user) continue;
        struct allocation *s = plan_allocation(p, lt->user);
        if (s->writers != 1 || !s->writer->view || s->writer->dead || s->writer == u) continue;
        if (!source_at_hand(p, u, s->writer)) continue;
        const struct loops *loops = plan_inlined(p, u->loops, t, s->writer->loops, false);
        if (!loops) continue;
        u->loops = loops;
        t = -1; /* the tensors were renumbered */
    }
}

/* Removes units without readers, last first, so that whole chains disappear. */
static void drop_unread(struct plan *p)
{
    plan_count(p);
    for (int i = p->units.n - 1; i >= 0; i--) {
        struct unit *u = p->units.at[i];
        bool read = u->opaque && layer_sets(u->layer) >= 0; /* its number of elements is */
        for (int k = 0; k < u->loops->tensors.n; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role == LOOPS_OUTPUT && plan_allocation(p, t->user)->readers) read = true;
        }
        if (read) continue;
        u->dead = true;
        for (int k = 0; k < u->loops->tensors.n; k++) {
            const struct loops_tensor *t = &u->loops->tensors.at[k];
            if (t->role == LOOPS_INPUT) plan_allocation(p, t->user)->readers--;
        }
    }
}

/* Splits the index variables of a unit whose own indices are quotients and remainders, such as im2col's columns. */
static void split_unit(struct unit *u)
{
    const int before = count_non_affine(u->loops);
    if (!before) return;
    const struct loops *split = rewrite_split_ivars(u->loops);
    if (split != u->loops && count_non_affine(split = rewrite_sweep(rewrite_narrow(split))) < before) u->loops = split;
}

sol_status plan_forward_views(struct plan *p)
{
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->opaque) forward_unit(p, p->units.at[i]);
    drop_unread(p);
    for (int i = 0; i < p->units.n; i++)
        if (!p->units.at[i]->opaque && !p->units.at[i]->dead) split_unit(p->units.at[i]);
    return ctx_check(p->ctx);
}
