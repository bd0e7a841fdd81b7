/* Turns the terms of a tensor into layers: all element-wise terms into one, each sum into one, and scattered terms as
 * scatter.c does. */
#include "grad/grad.h"

static sol_status plus(struct adjoint *a, struct sol_tensor *x, struct sol_tensor *y, struct sol_tensor **out)
{
    if (!x || !y) {
        *out = x ? x : y;
        return SOL_OK;
    }
    struct sol_layer *l;
    struct sol_tensor *in[] = {x, y};
    TRY(graph_add(
        a->g, NULL,
        &(struct new_layer){.kind = "add", .nin = 2, .in = in, .name = a->layer->name, .where = a->layer->where}, &l));
    for (int d = 0; d < x->ndim; d++) l->out[0]->dim[d].purpose = x->dim[d].purpose;
    *out = l->out[0];
    return SOL_OK;
}

bool term_is_map(const struct adjoint *a, const struct term *t)
{
    const struct loops_tensor *to = &a->w->tensors.at[t->tensor];
    uint64_t seen = 0;
    for (int d = 0; d < to->ndim; d++) {
        const struct ex *e = &a->w->ex.at[t->index[d]];
        if (to->shape[d] == 1) continue;
        if (e->kind != EX_IVAR || t->rest[d] != to->shape[d] || seen >> e->tensor & 1) return false;
        seen |= UINT64_C(1) << e->tensor;
    }
    return true;
}

/* The index of an element-wise term by dimension: an index variable, or several as the digits of one number, such as
 * 8*G+C of groups of channels. The lowest digit comes first. */
struct digits {
    int n[SOL_MAX_DIMS]; /* 0: the size is 1 */
    uint8_t ivar[SOL_MAX_DIMS][COUNT_OF(((struct affine *)0)->ivar)];
};

static bool find_digits(const struct adjoint *a, const struct term *t, struct digits *out)
{
    const struct loops *w = a->w;
    const struct loops_tensor *to = &w->tensors.at[t->tensor];
    uint64_t seen = 0;
    *out = (struct digits){0};
    for (int d = 0; d < to->ndim; d++) {
        struct affine f;
        if (to->shape[d] == 1) continue;
        if (t->rest[d] != to->shape[d] || !ex_affine(w, t->index[d], &f) || f.c) return false;
        int64_t unit = 1;
        for (int i = 0; i < f.n; i++) {
            int k = 0;
            while (k < f.n && f.coef[k] != unit) k++;
            if (k == f.n || seen >> f.ivar[k] & 1) return false;
            seen |= UINT64_C(1) << f.ivar[k];
            out->ivar[d][out->n[d]++] = f.ivar[k];
            unit = size_mul(unit, w->ivars.at[f.ivar[k]].size);
        }
        if (unit != to->shape[d]) return false;
    }
    return true;
}

/* Do both have the same digits, or one of them an index variable for all digits of the other? */
static bool digits_fit(const struct adjoint *a, const struct digits *x, const struct digits *y)
{
    for (int d = 0; d < SOL_MAX_DIMS; d++) {
        if (x->n[d] == 1 || y->n[d] == 1) continue;
        if (x->n[d] != y->n[d]) return false;
        for (int i = 0; i < x->n[d]; i++)
            if (a->w->ivars.at[x->ivar[d][i]].size != a->w->ivars.at[y->ivar[d][i]].size) return false;
    }
    return true;
}

static void join_maps(struct adjoint *a, struct term *into, struct term *t)
{
    struct loops *w = a->w;
    struct digits x, y;
    find_digits(a, into, &x);
    find_digits(a, t, &y);
    for (int d = 0; d < w->tensors.at[t->tensor].ndim; d++) {
        if (y.n[d] == 1)
            term_replace(a, t, y.ivar[d][0], into->index[d]);
        else if (x.n[d] == 1)
            term_replace(a, into, x.ivar[d][0], t->index[d]);
        else
            for (int i = 0; i < x.n[d]; i++) term_replace(a, t, y.ivar[d][i], ex_ivar(w, x.ivar[d][i]));
    }
    into->value = ex_binary(w, EX_ADD, term_sum(a, into), term_sum(a, t));
    into->nguard = into->nbound = 0;
    into->ctx = 0;
}

/* May the term join the element-wise ones? */
static bool may_join(const struct adjoint *a, const struct term *t, const struct term *maps)
{
    struct digits x, y;
    return find_digits(a, t, &x) && (!maps || (find_digits(a, maps, &y) && digits_fit(a, &x, &y)));
}

struct gathered {
    struct sol_tensor *sum; /* of the layers so far */
    struct term *piece, maps;
    bool any; /* element-wise terms */
};

static sol_status gather(struct adjoint *a, struct term *t, bool borders, struct gathered *to)
{
    struct loops *w = a->w;
    struct sol_tensor *part;
    int n, ivars = w->ivars.n;
    TRY(window_term(a, t));
    TRY(solve_term(a, t, to->piece, GRAD_MAX_PIECES, &n));
    bool map = !to->piece->ctx || (borders && size_le(ivars_size(w, to->piece->ctx), GRAD_BORDER));
    if (n == 1 && map && may_join(a, to->piece, to->any ? &to->maps : NULL)) {
        if (to->any) join_maps(a, &to->maps, to->piece);
        if (!to->any) to->maps = to->piece[0];
        to->any = true;
        return SOL_OK;
    }
    TRY(write_terms(a, to->piece, n, &part));
    TRY(plus(a, to->sum, part, &to->sum));
    loops_drop_ivars(w, ivars); /* what is written no longer needs its own */
    return SOL_OK;
}

sol_status gather_terms(struct adjoint *a, int tensor, struct sol_tensor *given, struct sol_tensor **out_d)
{
    struct arena *arena = a->w->arena;
    struct gathered to = {.sum = given, .piece = NEW_ARRAY(arena, struct term, GRAD_MAX_PIECES)};
    struct term *run = NEW_ARRAY(arena, struct term, GRAD_MAX_RUNS);
    struct sol_tensor *part;
    for (int i = 0, n = 1; i < a->terms.n; i++) {
        if (a->terms.at[i].tensor != tensor) continue;
        if (term_scatters(a, &a->terms.at[i])) {
            TRY(write_scattered(a, &a->terms.at[i], &part));
            TRY(plus(a, to.sum, part, &to.sum));
            continue;
        }
        run[0] = a->terms.at[i];
        const bool borders = pieces_term(a, run, GRAD_MAX_RUNS, &n);
        for (int k = 0; k < n; k++) TRY(gather(a, &run[k], borders, &to));
    }
    if (to.any) {
        TRY(write_terms(a, &to.maps, 1, &part));
        TRY(plus(a, to.sum, part, &to.sum));
    }
    *out_d = to.sum;
    TRY(a->rejected);
    return ctx_check(a->g->ctx);
}
