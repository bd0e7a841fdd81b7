/* A scan: statements that run step by step along an index variable, such as a recurrent layer's. Its gradient is a scan
 * in the opposite direction. For every tensor that the scan writes, one statement adds up the contributions from later
 * steps, from the same step and from after the scan. They form one layer of kind Row, since each step needs the next
 * one. What the scan reads from outside then gets its gradient from them as from any other statement. */
#include <string.h>

#include "grad/grad.h"

struct back {
    struct adjoint *a;
    int first, last; /* statements */
    int ntensors;    /* of the layer */
    bool *writes;    /* by tensor: the scan does */
    bool *reached;   /* by tensor: its gradient has a contribution */
    /* by index variable: another of the same size, because an index variable of a sum must not be one of the result */
    int *twin;
    int nivars;
};

static bool is_own(const struct back *b, const struct term *t)
{
    return b->writes[t->tensor];
}

/* The index at which the scan writes the tensor: distinct index variables, which its gradient's statement also has. */
static bool find_index(const struct back *b, int tensor, int32_t *out_index)
{
    const struct loops *w = b->a->w;
    int found = 0;
    for (int i = b->first; i <= b->last; i++) {
        const struct loops_stmt *s = &w->stmts.at[i];
        uint64_t seen = 0;
        int d = 0;
        for (int o = 0; o < s->nout; o++) found += s->out[o] == tensor;
        if (s->out[0] != tensor) continue;
        for (int32_t k = s->index; k; k = w->ex.at[k].next, d++) {
            const struct ex *e = &w->ex.at[k];
            out_index[d] = k;
            if (w->tensors.at[tensor].shape[d] == 1) continue;
            if (e->kind != EX_IVAR || seen >> e->tensor & 1) return false;
            seen |= UINT64_C(1) << e->tensor;
        }
    }
    return found == 1;
}

/* The term with the result's index variables in its index, and others in its sum. */
static bool rename_term(const struct back *b, struct term *t, const int32_t *index)
{
    struct adjoint *a = b->a;
    struct loops *w = a->w;
    int32_t map[LOOPS_MAX_IVARS];
    uint64_t ctx = 0, taken = 0;
    const int ndim = w->tensors.at[t->tensor].ndim, n = w->ivars.n;
    for (int i = 0; i < n; i++) map[i] = ex_ivar(w, i);
    for (int i = 0; i < n; i++) {
        if (!(t->ctx >> i & 1)) continue;
        int to = -1;
        for (int k = 0; k < b->nivars && to < 0; k++)
            if (w->ivars.at[k].size == w->ivars.at[i].size && !(taken >> b->twin[k] & 1)) to = b->twin[k];
        if (to < 0) return false;
        taken |= UINT64_C(1) << to;
        ctx |= UINT64_C(1) << to;
        map[i] = ex_ivar(w, to);
    }
    for (int d = 0; d < ndim; d++)
        if (w->tensors.at[t->tensor].shape[d] > 1) map[w->ex.at[t->index[d]].tensor] = index[d];
    for (int i = 0; i < t->nbound; i++) t->bound[i].e = ex_copy(w, w, t->bound[i].e, map, NULL);
    for (int i = 0; i < t->nguard; i++) t->guard[i] = ex_copy(w, w, t->guard[i], map, NULL);
    t->value = ex_copy(w, w, t->value, map, NULL);
    t->ctx = ctx;
    for (int d = 0; d < ndim; d++) t->index[d] = index[d];
    return true;
}

struct highest {
    const struct loops *w;
    int ivar;
};

static void find_highest(void *user, int32_t node)
{
    struct highest *h = user;
    const struct ex *e = &h->w->ex.at[node];
    if (e->kind == EX_IVAR) h->ivar = MAX(h->ivar, e->tensor);
    if (e->kind == EX_RED && e->u.bound) h->ivar = MAX(h->ivar, 63 - __builtin_clzll(e->u.bound));
}

/* Frees index variables that only solving needed, because their number is limited. */
static void free_ivars(struct adjoint *a, int32_t value, int ivars)
{
    struct highest h = {a->w, ivars - 1};
    ex_walk(a->w, value, find_highest, &h);
    loops_drop_ivars(a->w, h.ivar + 1);
}

/* d tensor[index] = what was given + every term. */
static sol_status gather(struct back *b, int tensor, struct grad_line *line)
{
    struct adjoint *a = b->a;
    struct loops *w = a->w;
    struct term *piece = NEW_ARRAY(w->arena, struct term, GRAD_MAX_PIECES);
    const int d = a->d[tensor];
    struct sol_tensor *given = w->tensors.at[d].user;
    *line = (struct grad_line){.tensor = d};
    if (!find_index(b, tensor, line->index)) return grad_reject(a, "it writes a tensor step by step and in parts");
    for (int i = 0, n; i < a->terms.n; i++) {
        const int ivars = w->ivars.n;
        if (a->terms.at[i].tensor != tensor) continue;
        TRY(solve_term(a, &a->terms.at[i], piece, GRAD_MAX_PIECES, &n));
        if (n != 1 || !term_is_map(a, piece) || !rename_term(b, piece, line->index))
            return grad_reject(a, "how a step reads another has no inverse as a step yet");
        int32_t value = term_written(a, piece);
        line->value = line->value ? ex_binary(w, EX_ADD, line->value, value) : value;
        free_ivars(a, value, ivars);
    }
    if (!given) return SOL_OK;
    struct loops_tensor t = w->tensors.at[d];
    int from = loops_tensor(w, arena_printf(w->arena, "%s0", t.name), LOOPS_INPUT, t.dtype, t.ndim, t.shape);
    loops_set_user(w, from, given);
    int32_t read = ex_read(w, from, t.ndim ? ex_list(w, t.ndim, line->index) : 0, 0);
    line->value = line->value ? ex_binary(w, EX_ADD, read, line->value) : read;
    return SOL_OK;
}

/* The terms of the scan's statements. They reach further tensors, so this repeats until there are no more. */
static void make_terms(struct back *b, struct sol_tensor *const *given)
{
    struct adjoint *a = b->a;
    struct loops *w = a->w;
    const int before = a->terms.n, ivars = w->ivars.n;
    for (bool more = true; more;) {
        more = false;
        a->terms.n = before;
        loops_drop_ivars(w, ivars);
        for (int t = 0; t < b->ntensors; t++)
            if (b->reached[t]) loops_set_user(w, a->d[t], GRAD_SOMEBODY(a));
        for (int i = b->last; i >= b->first; i--) adjoint_statement(a, &w->stmts.at[i]);
        for (int i = before; i < a->terms.n; i++) {
            const int t = a->terms.at[i].tensor;
            if (!is_own(b, &a->terms.at[i]) || b->reached[t]) continue;
            b->reached[t] = more = true;
        }
    }
    for (int t = 0; t < b->ntensors; t++)
        if (b->reached[t]) loops_set_user(w, a->d[t], given[t]);
}

static void find_outside(void *user, int32_t node)
{
    struct back *b = user;
    const struct ex *e = &b->a->w->ex.at[node];
    if (e->kind != EX_READ) return;
    for (int t = 0; t < b->ntensors; t++)
        if (b->reached[t] && b->a->d[t] == e->tensor) b->a->exposed[t] = true;
}

sol_status adjoint_scan(struct adjoint *a, int first, int last)
{
    struct loops *w = a->w;
    const int n = a->layer->loops->tensors.n;
    struct back b = {.a = a, .first = first, .last = last, .ntensors = n, .nivars = a->layer->loops->ivars.n};
    struct sol_tensor **given = NEW_ARRAY(w->arena, struct sol_tensor *, n + 1);
    struct grad_line *line = NEW_ARRAY(w->arena, struct grad_line, n + 1);
    int nline = 0;
    bool any = false;
    b.writes = NEW_ARRAY(w->arena, bool, n + 1);
    b.reached = NEW_ARRAY(w->arena, bool, n + 1);
    b.twin = NEW_ARRAY(w->arena, int, b.nivars + 1);
    for (int i = first; i <= last; i++)
        for (int o = 0; o < w->stmts.at[i].nout; o++) b.writes[w->stmts.at[i].out[o]] = true;
    for (int t = 0; t < n; t++)
        if (b.writes[t] && a->d[t] >= 0) b.reached[t] = (given[t] = w->tensors.at[a->d[t]].user) != NULL;
    for (int i = 0; i < a->terms.n; i++)
        if (is_own(&b, &a->terms.at[i])) b.reached[a->terms.at[i].tensor] = true;
    for (int t = 0; t < n; t++) any |= b.reached[t];
    if (!any) return SOL_OK;
    for (int i = 0; i < b.nivars; i++) {
        if (w->ivars.n == LOOPS_MAX_IVARS) return grad_reject(a, "it has more loops than a row can name");
        b.twin[i] = loops_ivar(w, w->ivars.at[i].name, w->ivars.at[i].size);
    }
    make_terms(&b, given);
    TRY(a->rejected);
    memset(a->exposed, 0, (size_t)n * sizeof *a->exposed); /* from here on: by gradient */
    for (int i = 0; i < a->terms.n; i++) {
        const struct term *t = &a->terms.at[i];
        if (is_own(&b, t)) continue;
        ex_walk(w, t->value, find_outside, &b);
        for (int k = 0; k < t->nguard; k++) ex_walk(w, t->guard[k], find_outside, &b);
    }
    for (int t = 0; t < n; t++) {
        if (!b.reached[t]) continue;
        TRY(gather(&b, t, &line[nline]));
        line[nline++].output = a->exposed[t];
    }
    TRY(a->rejected);
    return write_lines(a, line, nline);
}
