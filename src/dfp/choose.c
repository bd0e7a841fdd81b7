/* Chooses the vector index variable: the one along which most reads and writes are contiguous. Each candidate has a
 * cost in vector operations. A contiguous access, or one that is equal for all lanes, costs one per vector, a read of
 * every second element three; any other costs one per lane. A remainder that fills no full vector costs one vector for
 * each of the smaller pieces. Costs are those for the hints of sizes that vary. */
#include <stdlib.h>
#include <string.h>

#include "dfp/dfp.h"

struct weigh {
    struct dfp *d;
    int ivar;
    double points, cost; /* points: how often the expression is computed */
    double vectors;      /* vectors for one pass over the index variable */
    /* constant operands count as packed: those of a group that has one vector index variable can be. Work items count
     * those of all groups, so that they add up rows of weights together: PoCL 3.1 computes the steps of a GRU wrongly
     * whose items take a result each */
    bool packs;
};

static double pieces(int64_t n, int lanes)
{
    double k = (double)(n / lanes);
    for (int64_t rest = n % lanes; rest; rest &= rest - 1) k += 1;
    return k;
}

static int64_t usual(const struct loops *loops, int ivar)
{
    return MAX(size_hint(loops->ivars.at[ivar].size), 1);
}

/* An index variable other than v, shared by the group, that has stride 1 in an offset and is long enough to form blocks
 * with v. */
static int block_ivar(const struct dfp *d, const struct affine *a, int v)
{
    for (int i = 0; i < a->n; i++)
        if (a->coef[i] == 1 && a->ivar[i] != v && (d->shared >> a->ivar[i] & 1) &&
            usual(d->loops, a->ivar[i]) >= d->lanes && usual(d->loops, v) >= d->lanes / 2)
            return a->ivar[i];
    return -1;
}

/* May this read's tensor be packed? It must be constant, and every index must stay inside its own dimension. (That
 * fails for index variables that were merged with a neighbour.) */
bool dfp_packable(const struct dfp *d, int tensor, int32_t first)
{
    const struct loops_tensor *t = &d->loops->tensors.at[tensor];
    if (!d->packs || t->role != LOOPS_INPUT || !d->p.memory[tensor].constant) return false;
    int dim = 0;
    for (int32_t i = first; i; i = d->loops->ex.at[i].next, dim++) {
        int64_t low, high;
        if (!ex_bounds(d->loops, i, &low, &high) || !size_le(0, low) || !size_lt(high, t->shape[dim])) return false;
    }
    return true;
}

/* The cost of a non-contiguous access along the whole vector index variable; a step of 0 is not known. In vectors it is
 * one of each lane, and higher if all lanes map to one set of L1, because their lines then evict one another. Work
 * items access memory together, too, and take time for each sector that they reach. */
static double apart_cost(const struct weigh *w, int tensor, int64_t step)
{
    enum { SETS_BYTES = 4096, WAYS = 8, SECTOR = 32 };
    const int64_t bytes = dtype_def(w->d->loops->tensors.at[tensor].dtype)->bytes, by = size_hint(step) * bytes;
    const double size = (double)usual(w->d->loops, w->ivar);
    if (w->d->items) return w->vectors * (double)(by ? MIN(llabs(by), SECTOR) : SECTOR) / (double)bytes;
    return size * (by && by % SETS_BYTES == 0 && w->d->lanes >= WAYS ? 6 : 2);
}

static void access_cost(struct weigh *w, int tensor, int32_t first, bool read)
{
    struct affine a;
    const struct loops *loops = w->d->loops;
    const double size = (double)usual(loops, w->ivar), n = w->points / size;
    int64_t step;
    bool has = false;
    for (int32_t i = first; i; i = loops->ex.at[i].next) has = has || (ex_ivars(loops, i) >> w->ivar & 1);
    if (!has) {
        w->cost += n * 0.2; /* hoisted, or broadcast once */
        return;
    }
    step = expr_step(loops, w->d->p.memory, tensor, first, w->ivar);
    if (step == INT64_MAX) {
        w->cost += n * apart_cost(w, tensor, 0);
        return;
    }
    if (step && read && w->packs && dfp_packable(w->d, tensor, first)) step = 1;
    if (step && step != 1 && read && expr_affine_offset(loops, w->d->p.memory, tensor, first, &a) &&
        block_ivar(w->d, &a, w->ivar) >= 0) {
        w->cost += n * w->vectors * 3; /* transposed in registers */
        return;
    }
    if (read && expr_seconds(loops->tensors.at[tensor].dtype, step)) {
        w->cost += n * w->vectors * 3;
        return;
    }
    w->cost += n * (step == 1 ? w->vectors : step == 0 ? w->vectors * 0.2 : apart_cost(w, tensor, step));
}

static void see_cost(void *user, int32_t node)
{
    struct weigh *w = user;
    const struct ex *e = &w->d->loops->ex.at[node];
    if (e->kind == EX_READ)
        access_cost(w, e->tensor, e->a, true);
    else if (e->kind >= EX_NEG && e->kind != EX_IVAR)
        w->cost += w->points / (double)usual(w->d->loops, w->ivar) * w->vectors * 0.5;
}

/* Adds the cost of an expression, weighted by the number of points at which it is computed. */
static void expr_cost(struct weigh *w, int32_t node)
{
    struct loops *loops = w->d->loops;
    const double points = w->points;
    if (loops->ex.at[node].kind == EX_RED) {
        w->points *= (double)ivars_points(loops, loops->ex.at[node].u.bound);
        expr_cost(w, loops->ex.at[node].b);
        w->points = points;
        return;
    }
    see_cost(w, node);
    switch (loops->ex.at[node].kind) {
    case EX_TEST: expr_cost(w, loops->ex.at[node].a); break;
    case EX_CALL:
    case EX_AND:
    case EX_OR:
        for (int32_t i = loops->ex.at[node].a; i; i = loops->ex.at[i].next) expr_cost(w, i);
        break;
    case EX_READ:
        if (loops->ex.at[node].b) expr_cost(w, loops->ex.at[node].b);
        break;
    case EX_NEG:
    case EX_ADD:
    case EX_SUB:
    case EX_MUL:
    case EX_DIV:
    case EX_CMP:
        expr_cost(w, loops->ex.at[node].a);
        if (loops->ex.at[node].b) expr_cost(w, loops->ex.at[node].b);
        break;
    default: break;
    }
}

struct bound {
    const struct loops *loops;
    uint64_t ivars;
};
static void see_bound(void *user, int32_t node)
{
    struct bound *b = user;
    if (b->loops->ex.at[node].kind == EX_RED) b->ivars |= b->loops->ex.at[node].u.bound;
}

/* The cost of a statement whose vectors run along `ivar`: that of its whole group, or its own. A statement without that
 * index variable runs as scalars. */
static double stmt_cost(struct dfp *d, const struct loops_stmt *s, int ivar, bool group)
{
    struct loops *loops = d->loops;
    const uint64_t own = stmt_ivars(loops, s);
    struct weigh w = {.d = d, .ivar = ivar, .points = (double)ivars_points(loops, own), .packs = group || d->items};
    w.vectors = pieces(usual(loops, ivar), d->lanes);
    struct bound b = {loops, own};
    ex_walk(loops, s->value, see_bound, &b);
    if (!(b.ivars >> ivar & 1)) return (expr_ops(loops, s->value) + 1) * w.points;
    expr_cost(&w, s->value);
    for (int o = 0; o < s->nout; o++)
        if (own >> ivar & 1) access_cost(&w, s->out[o], s->index, false);
    return w.cost;
}

double dfp_group_vector(struct dfp *d, const struct print_group *g, int *out_ivar)
{
    double best = 0;
    d->shared = g->shared;
    *out_ivar = -1;
    for (int v = 0; v < d->loops->ivars.n; v++) {
        if (!(g->shared >> v & 1) || d->loops->ivars.at[v].size < 2) continue;
        double cost = 0;
        for (int s = g->first; s < g->first + g->n; s++) cost += stmt_cost(d, &d->loops->stmts.at[s], v, true);
        if (*out_ivar >= 0 && cost >= best) continue;
        best = cost;
        *out_ivar = v;
    }
    return best;
}

int dfp_stmt_vector(struct dfp *d, const struct loops_stmt *s, uint64_t open, double *out_cost)
{
    struct bound b = {.loops = d->loops};
    ex_walk(d->loops, s->value, see_bound, &b);
    const uint64_t candidates = (stmt_ivars(d->loops, s) & ~open) | b.ivars;
    int best = -1;
    d->shared = 0;
    *out_cost = (expr_ops(d->loops, s->value) + 1) * (double)ivars_points(d->loops, stmt_ivars(d->loops, s));
    for (int v = 0; v < d->loops->ivars.n; v++) {
        if (!(candidates >> v & 1) || usual(d->loops, v) < 4) continue;
        const double cost = stmt_cost(d, s, v, false);
        if (cost >= *out_cost) continue;
        *out_cost = cost;
        best = v;
    }
    return best;
}

/* -- register tiles */

struct windows {
    const struct loops *loops;
    uint64_t bound, found; /* index variables that occur in an index together with a bound one */
    bool reduces, apart;   /* apart: the lanes of some read are neither contiguous nor equal */
    const struct dfp *d;
};
static void see_window(void *user, int32_t node)
{
    struct windows *w = user;
    const struct ex *e = &w->loops->ex.at[node];
    if (e->kind == EX_RED) w->bound |= e->u.bound, w->reduces = true;
    if (e->kind != EX_READ) return;
    struct affine a;
    const int64_t step = expr_step(w->loops, w->d->p.memory, e->tensor, e->a, w->d->vector);
    if (step != 0 && step != 1 && !dfp_packable(w->d, e->tensor, e->a)) w->apart = true;
    for (int32_t i = e->a; i; i = w->loops->ex.at[i].next) {
        if (!ex_affine(w->loops, i, &a)) continue;
        int64_t extent = 1; /* of the window: closer points share elements */
        for (int k = 0; k < a.n; k++)
            if (w->bound >> a.ivar[k] & 1) extent += llabs(size_hint(a.coef[k])) * (usual(w->loops, a.ivar[k]) - 1);
        for (int k = 0; k < a.n; k++)
            if (!(w->bound >> a.ivar[k] & 1) && llabs(size_hint(a.coef[k])) < extent)
                w->found |= UINT64_C(1) << a.ivar[k];
    }
}

static int64_t store_step(const struct dfp *d, const struct loops_stmt *s, int ivar)
{
    const int64_t step = expr_step(d->loops, d->p.memory, s->out[0], s->index, ivar);
    return step && step != INT64_MAX ? llabs(size_hint(step)) : INT64_MAX;
}

struct blocks {
    struct dfp *d;
    int ivar;
    double *step;
};
static void see_block(void *user, int32_t node)
{
    struct blocks *b = user;
    const struct ex *e = &b->d->loops->ex.at[node];
    struct affine a;
    if (e->kind != EX_READ || e->b || b->d->loops->tensors.at[e->tensor].role != LOOPS_INPUT) return;
    if (!(ex_ivars(b->d->loops, node) >> b->d->vector & 1)) return;
    if (!expr_affine_offset(b->d->loops, b->d->p.memory, e->tensor, e->a, &a)) return;
    for (int i = 0; i < a.n; i++)
        if (a.ivar[i] == b->d->vector && (a.coef[i] == 1 || a.coef[i] == 0)) return;
    if (b->ivar < 0) b->ivar = block_ivar(b->d, &a, b->d->vector);
    const int bytes = dtype_def((enum sol_dtype)b->d->loops->tensors.at[e->tensor].dtype)->bytes;
    for (int i = 0; i < a.n; i++) b->step[a.ivar[i]] += (double)(llabs(size_hint(a.coef[i])) * bytes);
}

int dfp_block_ivar(struct dfp *d, const struct print_group *g, double *step, bool *out_reads)
{
    struct blocks b = {d, -1, step};
    memset(step, 0, LOOPS_MAX_IVARS * sizeof *step);
    d->shared = g->shared;
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        int32_t red;
        if (stmt_ivars(d->loops, st) & ~g->shared || st->scan_step) return -1;
        if (dfp_reductions(d->loops, st->value, &red, 1)) return -1;
        ex_walk(d->loops, st->value, see_block, &b);
    }
    if (b.ivar < 0) return -1;
    const struct loops_stmt *last = &d->loops->stmts.at[g->first + g->n - 1];
    const int bytes = dtype_def((enum sol_dtype)d->loops->tensors.at[last->out[0]].dtype)->bytes;
    *out_reads = step[d->vector] > (double)store_step(d, last, b.ivar) * bytes;
    return b.ivar;
}

static struct windows find_windows(const struct dfp *d, const struct print_group *g)
{
    struct windows w = {.loops = d->loops, .d = d};
    for (int s = g->first; s < g->first + g->n; s++) ex_walk(d->loops, d->loops->stmts.at[s].value, see_window, &w);
    return w;
}

int dfp_tile(struct dfp *d, const struct print_group *g, int *out_points)
{
    struct loops *l = d->loops;
    const struct windows w = find_windows(d, g);
    *out_points = 1;
    for (int s = g->first; s < g->first + g->n; s++) /* it has loops of its own */
        if (stmt_ivars(l, &l->stmts.at[s]) & ~g->shared || l->stmts.at[s].scan_step) return -1;
    if (!w.reduces || w.apart) return -1; /* code for each lane of each point would be long */
    int64_t least = INT64_MAX;
    int tile = -1;
    for (int i = 0; i < l->ivars.n; i++) {
        if (i == d->vector || !(g->shared & w.found & UINT64_C(1) << i) || l->ivars.at[i].size < 2) continue;
        const int64_t step = store_step(d, &l->stmts.at[g->first + g->n - 1], i);
        if (step < least) least = step, tile = i;
    }
    if (tile >= 0) {
        *out_points = d->sc->target->registers >= 32 ? 8 : 6;
        return tile;
    }
    *out_points = (int)MAX(1, MIN(4, usual(l, d->vector) / d->lanes));
    return *out_points > 1 ? d->vector : -1;
}

int dfp_tile_across(struct dfp *d, const struct print_group *g, int tile, int points)
{
    const struct windows w = find_windows(d, g);
    const int most = d->sc->target->registers >= 32 ? 16 : 10;
    const int64_t all = d->loops->ivars.at[tile].size;
    if (size_varies(all) || all > points) return -1; /* the tile has all values of the first one, too */
    struct dfp_way way = {d->vector, tile, (int)all, -1};
    double best = dfp_traffic_ns(d, g, &way) * 0.8;
    int across = -1;
    for (int i = 0; i < d->loops->ivars.n; i++) {
        const int64_t size = d->loops->ivars.at[i].size;
        if (i == d->vector || i == tile || !(g->shared & w.found & bit(i)) || size_varies(size) || size < 2) continue;
        if (size * all > MIN(most, DFP_POINTS)) continue;
        int64_t low, high;
        dfp_interior(d, &d->loops->stmts.at[g->first], g->n, i, &low, &high);
        way.across = i;
        const double ns = low == 0 && high == size ? dfp_traffic_ns(d, g, &way) : best;
        if (ns < best) best = ns, across = i;
    }
    return across;
}

/* -- the range without borders */

struct borders {
    struct dfp *d;
    int ivar;
    bool known, any; /* known: every test is decided; any: there is a test */
    bool cases;      /* where positions have other affine forms (expr_affine) are borders, too */
    uint64_t bits;   /* a hash of the results of the tests */
};

static void add_test(struct borders *b, int decided)
{
    b->any = true;
    if (decided < 0) b->known = false;
    b->bits = (b->bits ^ (uint64_t)(decided > 0)) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static void see_case(void *user, int32_t node)
{
    struct borders *b = user;
    const struct ex *e = &b->d->loops->ex.at[node];
    if ((e->kind != EX_CALL && e->kind != EX_FLOOR && e->kind != EX_MOD) || !ex_is_int(b->d->loops, node)) return;
    if (!(ex_ivars(b->d->loops, node) >> b->ivar & 1)) return;
    b->any = true;
    b->bits = (b->bits ^ (uint64_t)expr_case(&b->d->p, node)) * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static void check_part(struct borders *b, int32_t part)
{
    const struct ex *e = &b->d->loops->ex.at[part];
    if (e->kind == EX_AND) {
        for (int32_t i = e->a; i; i = b->d->loops->ex.at[i].next) check_part(b, i);
        return;
    }
    if (ex_ivars(b->d->loops, part) >> b->ivar & 1) add_test(b, nest_decide(&b->d->p, part));
}

static void see_border(void *user, int32_t node)
{
    struct borders *b = user;
    const struct ex *e = &b->d->loops->ex.at[node];
    if (e->kind == EX_RED && e->a) check_part(b, e->a);
    if (e->kind != EX_READ) return;
    for (int32_t i = b->cases ? e->a : 0; i; i = b->d->loops->ex.at[i].next) ex_walk(b->d->loops, i, see_case, b);
    int d = 0;
    for (int32_t i = e->b ? e->a : 0; i; i = b->d->loops->ex.at[i].next, d++) {
        int64_t low, high;
        const int64_t n = b->d->loops->tensors.at[e->tensor].shape[d];
        if (!(ex_ivars(b->d->loops, i) >> b->ivar & 1)) continue;
        const bool known = expr_bounds(&b->d->p, i, &low, &high);
        const bool outside = known && (size_lt(high, 0) || size_le(n, low));
        add_test(b, outside ? 0 : known && size_le(0, low) && size_lt(high, n) ? 1 : -1);
    }
}

/* -- the same for a size that varies, by what the tests say */

struct span {
    struct dfp *d;
    int ivar;
    bool known;        /* every test is affine in the index variable */
    int64_t low, high; /* all tests hold from low to high - 1 */
};

/* A test: sign * node <= most. */
static void hold(struct span *b, int32_t node, int64_t sign, int64_t most)
{
    struct affine a, rest = {0};
    int64_t c = 0, low, high;
    if (!ex_affine(b->d->loops, node, &a)) {
        b->known = false;
        return;
    }
    expr_fold(&b->d->p, &a);
    rest.c = size_mul(sign, a.c);
    for (int i = 0; i < a.n; i++) {
        const int64_t by = size_mul(sign, a.coef[i]);
        if (a.ivar[i] == b->ivar) {
            c = by;
            continue;
        }
        rest.ivar[rest.n] = a.ivar[i];
        rest.coef[rest.n++] = by;
    }
    const bool rises = size_le(1, c);
    if ((!rises && !size_le(c, -1)) || !expr_affine_bounds(&b->d->p, &rest, &low, &high)) {
        b->known = false;
        return;
    }
    const int64_t left = size_sub(most, high);
    if (rises)
        b->high = size_min(b->high, size_add(size_floor_div(left, c), 1));
    else
        b->low = size_max(b->low, size_ceil_div(size_sub(0, left), size_sub(0, c)));
}

static void hold_part(struct span *b, int32_t part)
{
    struct loops *loops = b->d->loops;
    const struct ex e = loops->ex.at[part];
    if (e.kind == EX_AND) {
        for (int32_t i = e.a; i; i = loops->ex.at[i].next) hold_part(b, i);
        return;
    }
    if (!(ex_ivars(loops, part) >> b->ivar & 1)) return;
    if (e.kind != EX_CMP || e.op == CMP_EQ || e.op == CMP_NE || !ex_is_int(loops, e.a) || !ex_is_int(loops, e.b)) {
        b->known = false;
        return;
    }
    const bool less = e.op == CMP_LT || e.op == CMP_LE, strict = e.op == CMP_LT || e.op == CMP_GT;
    hold(b, ex_binary(loops, EX_SUB, e.a, e.b), less ? 1 : -1, strict ? -1 : 0);
}

static void see_span(void *user, int32_t node)
{
    struct span *b = user;
    const struct loops *loops = b->d->loops;
    const struct ex e = loops->ex.at[node];
    if (e.kind == EX_RED && e.a) hold_part(b, e.a);
    if (e.kind != EX_READ || !e.b) return;
    int d = 0;
    for (int32_t i = e.a; i; i = loops->ex.at[i].next, d++) {
        if (!(ex_ivars(loops, i) >> b->ivar & 1)) continue;
        hold(b, i, -1, 0);
        hold(b, i, 1, size_sub(loops->tensors.at[e.tensor].shape[d], 1));
    }
}

static void proven_interior(struct dfp *d, const struct loops_stmt *s, int n, struct span *out)
{
    struct print_ivar *ivar = &d->ivars[out->ivar];
    const struct print_ivar old = *ivar;
    struct borders b = {.d = d, .ivar = out->ivar, .known = true};
    for (int i = 0; i < n; i++) ex_walk(d->loops, s[i].value, see_span, out);
    *ivar = (struct print_ivar){true, d->loops->ivars.at[out->ivar].name, 0, out->low, size_sub(out->high, 1)};
    for (int i = 0; i < n; i++) ex_walk(d->loops, s[i].value, see_border, &b);
    *ivar = old;
    if (!out->known || !b.known || out->low == SIZE_BAD || out->high == SIZE_BAD) out->low = out->high = 0;
}

/* The longest range between *out_low and *out_high, for a size that is known, in which every test is decided in the
 * same way. */
static void known_interior(struct dfp *d, const struct loops_stmt *s, int n, const struct borders *how,
                           int64_t *out_low, int64_t *out_high)
{
    const int ivar = how->ivar;
    const struct print_ivar old = d->ivars[ivar];
    uint64_t bits = 0;
    const int64_t begin = *out_low, end = *out_high;
    int64_t start = begin;
    *out_low = *out_high = begin;
    for (int64_t u = begin; u < end; u++) {
        struct borders b = *how;
        d->ivars[ivar] = (struct print_ivar){true, NULL, u, u, u};
        for (int i = 0; i < n; i++) ex_walk(d->loops, s[i].value, see_border, &b);
        if (!b.known || b.bits != bits) start = b.known ? u : u + 1;
        bits = b.bits;
        if (b.known && u + 1 - start > *out_high - *out_low) *out_low = start, *out_high = u + 1;
        if (u == begin && !b.any) { /* no test contains the index variable */
            *out_high = end;
            break;
        }
    }
    d->ivars[ivar] = old;
}

void dfp_interior(struct dfp *d, const struct loops_stmt *s, int n, int ivar, int64_t *out_low, int64_t *out_high)
{
    const int64_t size = d->loops->ivars.at[ivar].size;
    struct borders b = {.d = d, .ivar = ivar, .known = true, .cases = ivar == d->p.vector_ivar};
    if (size_varies(size)) {
        struct span all = {.d = d, .ivar = ivar, .known = true, .high = size};
        proven_interior(d, s, n, &all);
        *out_low = all.low;
        *out_high = all.high;
        return;
    }
    *out_low = 0, *out_high = size;
    if (b.cases) known_interior(d, s, n, &b, out_low, out_high);
    if (b.cases && 4 * (*out_high - *out_low) >= 3 * size) return;
    b.cases = false; /* too much would be done without vectors */
    *out_low = 0, *out_high = size;
    known_interior(d, s, n, &b, out_low, out_high);
}

/* Adds the ranges of at least a vector between low and high, first to last. More than DFP_PARTS: counts them. */
static void add_parts(struct dfp *d, const struct loops_stmt *s, int n, const struct borders *how,
                      struct dfp_parts *out, struct dfp_part in)
{
    struct dfp_part part = in;
    if (in.high - in.low < d->lanes || out->n > DFP_PARTS) return;
    known_interior(d, s, n, how, &part.low, &part.high);
    if (part.high - part.low < d->lanes) return;
    add_parts(d, s, n, how, out, (struct dfp_part){in.low, part.low});
    if (out->n < DFP_PARTS) out->at[out->n] = part;
    out->n++;
    add_parts(d, s, n, how, out, (struct dfp_part){part.high, in.high});
}

struct dfp_parts dfp_parts(struct dfp *d, const struct loops_stmt *s, int n, int ivar)
{
    const int64_t size = d->loops->ivars.at[ivar].size;
    struct dfp_parts parts = {0};
    const struct borders b = {.d = d, .ivar = ivar, .known = true};
    dfp_interior(d, s, n, ivar, &parts.at[0].low, &parts.at[0].high);
    const int64_t inside = size_sub(parts.at[0].high, parts.at[0].low);
    if (inside != size && !size_varies(size) && 4 * inside < 3 * size)
        add_parts(d, s, n, &b, &parts, (struct dfp_part){0, size});
    if (parts.n && parts.n <= DFP_PARTS) return parts;
    if (parts.n) dfp_interior(d, s, n, ivar, &parts.at[0].low, &parts.at[0].high);
    parts.n = inside != size && size_hint(inside) >= d->lanes;
    return parts;
}
