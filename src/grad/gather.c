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

static void join_maps(struct adjoint *a, struct term *into, struct term *t)
{
    struct loops *w = a->w;
    for (int d = 0; d < w->tensors.at[t->tensor].ndim; d++)
        if (w->ex.at[t->index[d]].kind == EX_IVAR) term_replace(a, t, w->ex.at[t->index[d]].tensor, into->index[d]);
    into->value = ex_binary(w, EX_ADD, term_sum(a, into), term_sum(a, t));
    into->nguard = into->nbound = 0;
    into->ctx = 0;
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
    if (n == 1 && map && term_is_map(a, to->piece)) { /* such terms can be combined */
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
