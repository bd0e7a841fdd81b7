/* Lanes that are work items. In a flavour without vectors a work group computes a task, and each of its items what a
 * lane of a vector would: kernels are scalar code over an index variable that starts at the item's number.
 *
 * In a group that runs in lanes nothing crosses items: temporaries are registers, or memory of the item. Where each
 * statement has a vector index variable of its own, temporaries are shared by the work group, with a barrier behind
 * each statement. A reduction along lanes is joined by a tree in shared memory, which gives all items its value; item 0
 * stores it. Barriers are in uniform control flow only: inside loops over what the items share. */
#include <inttypes.h>
#include <string.h>

#include "dfp/dfp.h"

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

/* -- memory */

static bool in_group(const struct dfp *d, const struct print_group *g, int tensor)
{
    for (int s = g->first; s < g->first + g->n; s++)
        for (int o = 0; o < d->loops->stmts.at[s].nout; o++)
            if (d->loops->stmts.at[s].out[o] == tensor) return true;
    return false;
}

int64_t dfp_items_room(const struct target *t)
{
    enum { LEAST = 1024 };
    return target_is_card(t) ? card_row_bytes(t) : LEAST;
}

void dfp_items_keep(struct dfp *d, const struct print_group *g)
{
    int64_t room = dfp_items_room(d->sc->target);
    for (int i = 0; i < d->loops->tensors.n; i++) {
        struct print_temp *at = &d->pl->temp[i];
        const int64_t bytes = size_mul(at->elements, dtype_def((enum sol_dtype)d->loops->tensors.at[i].dtype)->bytes);
        if (at->place != TEMP_SCRATCH || !in_group(d, g, i) || size_varies(bytes) || bytes > room) continue;
        at->place = TEMP_LOCAL;
        room -= bytes;
    }
}

/* The elements that a work group computes or reads for each task, in its longest statement. */
static int64_t row_length(const struct dfp *d, const struct print_group *g)
{
    int64_t longest = 0;
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        int32_t red[8];
        uint64_t ivars = stmt_ivars(d->loops, st) & ~g->shared;
        const int n = dfp_reductions(d->loops, st->value, red, COUNT_OF(red));
        for (int i = 0; i < n; i++) ivars |= d->loops->ex.at[red[i]].u.bound;
        longest = MAX(longest, ivars_points(d->loops, ivars));
    }
    return longest;
}

int dfp_items_for_rows(const struct dfp *d, const struct print_group *g)
{
    enum {
        WARP = 32,
        EACH = 4,
        ENOUGH = 16,
        MOST = 256
    }; /* elements of an item: of a warp at most, of more at least */
    const struct target *t = d->sc->target;
    const int64_t length = row_length(d, g);
    int64_t bytes = 0, items = target_lanes(t, sizeof(float));
    for (int i = 0; i < d->loops->tensors.n; i++)
        if (d->pl->temp[i].place == TEMP_LOCAL && in_group(d, g, i))
            bytes += d->pl->temp[i].elements * dtype_def((enum sol_dtype)d->loops->tensors.at[i].dtype)->bytes;
    if (length <= WARP * EACH) return WARP;
    while (bytes && items < MOST && length / items >= 2 * ENOUGH && t->l1 / bytes * items < t->core_items) items *= 2;
    return MAX((int)items, card_row_items(t, length, (double)ivars_points(d->loops, g->shared)));
}

int dfp_items_shared(struct dfp *d, const struct print_group *g)
{
    int64_t bytes = d->lanes * (int64_t)sizeof(uint64_t);
    text_line(d->p.out, "@SHARED uint64_t *const join_ = (@SHARED uint64_t *)shared_;");
    for (int i = 0; i < d->loops->tensors.n; i++) {
        const struct dtype_def *t = dtype_def((enum sol_dtype)d->loops->tensors.at[i].dtype);
        if (d->pl->temp[i].place != TEMP_LOCAL || !in_group(d, g, i)) continue;
        text_line(d->p.out, "@SHARED %s *const %s = (@SHARED %s *)(shared_ + %" PRId64 ");", t->c_name,
                  d->loops->tensors.at[i].name, t->c_name, bytes);
        bytes += (d->pl->temp[i].elements * t->bytes + 7) / 8 * 8;
    }
    return (int)bytes;
}

void dfp_items_scratch(struct dfp *d, const struct print_group *g)
{
    for (int i = 0; i < d->loops->tensors.n; i++)
        if (d->pl->temp[i].place == TEMP_SCRATCH && in_group(d, g, i))
            text_line(d->p.out, "%s += @ITEM;", d->loops->tensors.at[i].name);
}

/* -- loops */

void dfp_items_open(struct dfp *d, int ivar, const char *low, const char *high)
{
    const char *name = d->loops->ivars.at[ivar].name;
    const char *first = SAY(d, !strcmp(low, "0") ? "@ITEM" : "%s + @ITEM", low);
    text_open(d->p.out, "for (int64_t %s = %s; %s < %s; %s += %d) {", name, first, name, high, name, d->lanes);
}

void dfp_items_one_open(struct dfp *d)
{
    text_open(d->p.out, "if (@ITEM == 0) {");
}

/* -- a reduction across the items */

/* Adds the item's share of one row to acc[0], in strips where it is long. */
static void add_row(struct dfp_reduction *r, int v, const char *low, const char *high)
{
    struct dfp *d = r->d;
    const char *name = d->loops->ivars.at[v].name;
    const int64_t size = d->loops->ivars.at[v].size;
    const int64_t strip = d->lanes * dfp_chunk(MAX(size_hint(size) / d->lanes, 1));
    const char *total = r->acc[0];
    const bool strips = !size_le(size, 2 * strip) && (r->e->op == RED_SUM || r->e->op == RED_PROD);
    if (strips) {
        const char *from = expr_name(&d->p), *end = expr_name(&d->p);
        text_open(d->p.out, "for (int64_t %s = %s; %s < %s; %s += %" PRId64 ") {", from, low, from, high, from, strip);
        text_line(d->p.out, "const int64_t %s = @sol_min_i64(%s, %s + %" PRId64 ");", end, high, from, strip);
        dfp_declare(r, r->acc);
        low = from;
        high = end;
    }
    d->ivars[v] = (struct print_ivar){true, name, 0, 0, size_sub(size, 1)};
    d->loads = NULL;
    dfp_items_open(d, v, low, high);
    dfp_accumulate(r);
    text_close(d->p.out, "}");
    d->ivars[v].known = false;
    if (!strips) return;
    dfp_join(d, r->e->op, r->k, total, r->acc[0]);
    text_close(d->p.out, "}");
    r->acc[0] = total;
}

static void begin_chunk(void *user)
{
    struct dfp_reduction *r = user;
    dfp_declare(r, r->acc);
}

void dfp_items_reduce(struct dfp_reduction *r, int32_t node, int v)
{
    struct dfp *d = r->d;
    static const char *const names[] = {[RED_SUM] = "sum", [RED_PROD] = "prod", [RED_MAX] = "max", [RED_MIN] = "min"};
    const char *low, *high;
    int64_t rows = 1;
    for (int i = 0; i < r->loops.n; i++) rows = size_mul(rows, d->loops->ivars.at[r->loops.ivar[i]].size);
    const int64_t most = dfp_chunk(size_hint(rows));
    d->p.vector_ivar = v;
    d->p.lanes = d->points = 1;
    dfp_declare(r, r->total);
    r->acc[0] = r->total[0];
    if (!size_le(rows, 2 * most) && (r->e->op == RED_SUM || r->e->op == RED_PROD)) {
        r->loops.between = begin_chunk;
        r->loops.user = r;
        r->loops.inner = r->loops.n - 1;
        r->loops.strip = size_le(d->loops->ivars.at[r->loops.ivar[r->loops.n - 1]].size, 2 * most) ? 0 : most;
    }
    nest_open(&d->p, &r->loops);
    nest_open_last(&d->p, &r->loops, v, &low, &high);
    add_row(r, v, low, high);
    if (r->loops.between) {
        for (int i = 0; i < r->loops.inner_opened; i++) text_close(d->p.out, "}");
        dfp_join(d, r->e->op, r->k, r->total[0], r->acc[0]);
        r->loops.opened -= r->loops.inner_opened;
    }
    nest_close(&d->p, &r->loops);
    d->p.vector_ivar = -1;
    const struct compute_def *k = compute_def(r->k);
    const char *value = expr_name(&d->p);
    text_line(d->p.out, "const %s %s = @sol_join_%s_%s(%s, (@SHARED %s *)join_);", k->type, value, names[r->e->op],
              k->name, r->total[0], k->type);
    expr_know(&d->p, node, r->k, value);
}
