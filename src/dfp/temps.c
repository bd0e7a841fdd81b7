/* Where a group that runs in lanes keeps its temporaries: in registers, or in rows of full vectors. Where lanes are
 * work items, a row is memory in which neighbouring items have neighbouring elements. */
#include "dfp/dfp.h"

static bool writes_plainly(const struct loops *loops, const struct print_group *g, int tensor)
{
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        for (int o = 0; o < s->nout; o++)
            if (s->out[o] == tensor && (s->nout > 1 || s->scan_step || (stmt_ivars(loops, s) & ~g->shared)))
                return false;
    }
    return true;
}

/* Has a register the value that the tensor's element would have? Integers wrap when they are computed, and a half is
 * rounded when it is stored. */
static bool keeps_value(const struct dfp *d, int tensor)
{
    const enum sol_dtype dtype = (enum sol_dtype)d->loops->tensors.at[tensor].dtype;
    return dtype == SOL_F32 || dtype == SOL_F64 || compute_is_int(compute_of(dtype));
}

static bool temp_in_register(const struct dfp *d, const struct print_group *g, int tensor)
{
    return d->pl->temp[tensor].elements == 1 && writes_plainly(d->loops, g, tensor) && keeps_value(d, tensor);
}

/* With several points at a time, each temporary needs a value per point. Registers can hold them; memory has room for
 * one. */
bool dfp_points_fit(const struct dfp *d, const struct print_group *g)
{
    for (int s = g->first; s < g->first + g->n; s++)
        for (int o = 0; o < d->loops->stmts.at[s].nout; o++) {
            const int t = d->loops->stmts.at[s].out[o], place = d->pl->temp[t].place;
            if ((place == TEMP_LOCAL || place == TEMP_SCRATCH) && !temp_in_register(d, g, t)) return false;
        }
    return true;
}

/* Is the tensor stored in the type that it is computed in? */
static bool lanes_type(const struct dfp *d, int tensor)
{
    const int dtype = d->loops->tensors.at[tensor].dtype;
    return dtype == SOL_F32 || dtype == SOL_F64 || dtype == SOL_I64;
}

void dfp_place_temps(struct dfp *d, const struct print_group *g)
{
    d->temp = NEW_ARRAY(d->sc->arena, struct dfp_temp, d->loops->tensors.n);
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        for (int o = 0; o < st->nout; o++) {
            const int t = st->out[o];
            struct print_temp *at = &d->pl->temp[t];
            if ((at->place != TEMP_LOCAL && at->place != TEMP_SCRATCH) || d->temp[t].row || d->temp[t].in_register)
                continue;
            if (temp_in_register(d, g, t)) {
                d->temp[t].in_register = true;
                at->place = TEMP_NONE;
                continue;
            }
            const int bytes = dtype_def((enum sol_dtype)d->loops->tensors.at[t].dtype)->bytes;
            if (d->items && at->place == TEMP_LOCAL) continue; /* an array of the item */
            d->temp[t].row = !d->items;
            at->elements = size_mul(at->elements, d->lanes);
            int64_t *stride = d->pl->cluster.memory[t].stride;
            for (int i = 0; i < SOL_MAX_DIMS; i++) stride[i] = size_mul(stride[i], d->lanes);
            const int64_t room = size_mul(at->elements, bytes);
            at->place = d->items || size_varies(room) || room > 4096 ? TEMP_SCRATCH : TEMP_LOCAL;
            if (at->place == TEMP_LOCAL) continue;
            at->offset = d->pl->scratch_bytes;
            d->pl->scratch_bytes =
                size_add(d->pl->scratch_bytes, size_mul(size_floor_div(size_add(room, 127), 64), 64));
        }
    }
}

/* Each work item of a card has a row of its own, in every group that the card keeps. Is that more than the group's
 * share of the cache? Then the items of a group share one row. */
static bool rows_are_large(const struct dfp *d, const struct print_group *g)
{
    double bytes = 0;
    for (int s = g->first; s < g->first + g->n; s++)
        for (int o = 0; o < d->loops->stmts.at[s].nout; o++) {
            const int t = d->loops->stmts.at[s].out[o], place = d->pl->temp[t].place;
            const int each = dtype_def((enum sol_dtype)d->loops->tensors.at[t].dtype)->bytes;
            if ((place != TEMP_LOCAL && place != TEMP_SCRATCH) || temp_in_register(d, g, t)) continue;
            bytes += (double)size_hint(d->pl->temp[t].elements) * d->lanes * each;
        }
    return bytes > (double)d->sc->target->l2;
}

/* Temporaries that become rows of vectors are stored in the type they are computed in; only some types allow that. */
bool dfp_temps_fit(const struct dfp *d, const struct print_group *g)
{
    if (target_is_card(d->sc->target) && rows_are_large(d, g)) return false;
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        for (int o = 0; o < st->nout; o++) {
            const struct print_temp *at = &d->pl->temp[st->out[o]];
            if (at->place != TEMP_LOCAL && at->place != TEMP_SCRATCH) continue;
            if (!lanes_type(d, st->out[o]) || st->nout > 1) return d->items;
        }
    }
    return true;
}
