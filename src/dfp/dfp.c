/* The solver. A cluster becomes steps, a step becomes tasks over shared index variables, and inside a task there are a
 * vector index variable and a register tile.
 *
 *   expand     reductions with several results, shared expressions
 *   groups     statements that share loops (print/groups.c)
 *   vector     one index variable for a whole group (lanes), or one for each statement (rows)
 *   pack       constant operands get the vector index variable innermost
 *   print      tasks, loops; tiles.c: borders, tiles */
#include "dfp/making.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

/* What a variant chooses (variant.p). */
enum { P_POINTS, P_TASK };
enum { LONG_LOOP = 256 }; /* elements of a vector that a compiler makes of a loop; tasks are whole ones */

/* -- planning */

static const struct dfp_way no_way = {.vector = -1, .tile = -1, .points = 1, .across = -1};

/* Should the group run in lanes, not statement by statement, by these numbers of vector operations? */
static bool suit_lanes(const struct dfp *d, const struct print_group *g, double lanes, double rows)
{
    if (!target_is_card(d->sc->target)) return lanes <= rows;
    const struct card_ways ways = card_ways(d->pl, g);
    return ways.items <= 1.25 * ways.rows; /* estimates are not that exact */
}

static void make_groups(struct making *m, const struct variant *v)
{
    struct dfp *d = &m->d;
    for (int i = 0; i < d->pl->ngroup; i++) {
        const struct print_group *g = &d->pl->group[i];
        struct group_plan *p = &m->group[i];
        int vector;
        double rows = 0;
        *p = (struct group_plan){.way = no_way};
        const double lanes = dfp_group_vector(d, g, &vector);
        for (int s = g->first; s < g->first + g->n; s++) {
            double cost;
            dfp_stmt_vector(d, &d->loops->stmts.at[s], g->shared, &cost);
            rows += cost;
        }
        p->cost = rows;
        if (vector < 0 || !suit_lanes(d, g, lanes, rows)) continue;
        p->cost = lanes;
        p->way.vector = d->vector = vector;
        p->mapped = d->items && dfp_map_items(d, g, &p->map);
        if (p->mapped) p->way.vector = d->vector = p->map.ivar[p->map.n - 1], p->way.tile = p->map.tile;
        if (d->items || d->lanes == 1 || !dfp_points_fit(d, g)) continue;
        p->way.tile = dfp_block_ivar(d, g, p->step, &p->reads);
        p->blocks = p->way.tile >= 0;
        p->way.points = d->lanes;
        if (p->blocks) continue;
        p->way.tile = dfp_tile(d, g, &p->way.points);
        if (v && v->p[P_POINTS]) p->way.points = MIN(p->way.points, v->p[P_POINTS]);
        if (p->way.tile < 0 || p->way.tile == vector) continue;
        dfp_interior(d, &d->loops->stmts.at[g->first], g->n, p->way.tile, &p->low, &p->high);
        if (p->low == 0 && p->high == d->loops->ivars.at[p->way.tile].size)
            p->way.across = dfp_tile_across(d, g, p->way.tile, p->way.points);
    }
}

/* -- packing */

struct packing {
    const struct dfp *d;
    /* dim: the dimension that the vector index variable indexes; -1: none so far, -2: several */
    int tensor, vector, dim;
    bool read;
};
static void see_packing(void *user, int32_t node)
{
    struct packing *p = user;
    const struct ex *e = &p->d->loops->ex.at[node];
    if (e->kind != EX_READ || e->tensor != p->tensor) return;
    int d = 0;
    p->read = true;
    if (p->vector < 0) return;
    if (!dfp_packable(p->d, p->tensor, e->a)) p->dim = -2;
    for (int32_t i = e->a; i; i = p->d->loops->ex.at[i].next, d++) {
        struct affine a;
        if (!(ex_ivars(p->d->loops, i) >> p->vector & 1)) continue;
        if (!ex_affine(p->d->loops, i, &a)) p->dim = -2;
        for (int k = 0; k < a.n; k++)
            if (a.ivar[k] == p->vector && a.coef[k] != 1) p->dim = -2;
        p->dim = p->dim == -1 || p->dim == d ? d : -2;
    }
}

/* packed[others.. v] = t[.. v ..] */
static void pack(struct dfp *d, int tensor, int dim)
{
    const struct loops_tensor *t = &d->loops->tensors.at[tensor];
    struct loops *loops = loops_create(d->sc->arena, "pack");
    int64_t shape[SOL_MAX_DIMS];
    int32_t from[SOL_MAX_DIMS], to[SOL_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < t->ndim; i++) from[i] = ex_ivar(loops, loops_ivar(loops, SAY(d, "A%d", i), t->shape[i]));
    for (int i = 0; i < t->ndim; i++)
        if (i != dim) to[n] = from[i], shape[n++] = t->shape[i];
    to[n] = from[dim];
    shape[n++] = t->shape[dim];
    loops_tensor(loops, "w", LOOPS_INPUT, (enum sol_dtype)t->dtype, t->ndim, t->shape);
    loops_tensor(loops, "packed", LOOPS_OUTPUT, (enum sol_dtype)t->dtype, n, shape);
    struct loops_stmt s = {.nout = 1, .out = {1}};
    s.value = ex_read(loops, 0, ex_list(loops, t->ndim, from), 0);
    s.index = ex_list(loops, n, to);
    loops_stmt(loops, s);
    d->pack[d->npack++] = (struct kernel_pack){tensor, loops};
    struct memory *m = &d->pl->cluster.memory[tensor];
    int64_t step = t->shape[dim];
    m->stride[dim] = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        m->halo_low[i] = m->halo_high[i] = 0;
        if (i == dim) continue;
        m->stride[i] = step;
        step = size_mul(step, t->shape[i]);
    }
}

/* Packs constant operands whose lanes are not contiguous, if every group that reads them needs the same layout. */
static void make_packs(struct making *m)
{
    struct dfp *d = &m->d;
    if (!d->packs) return;
    for (int t = 0; t < d->loops->tensors.n; t++) {
        const struct memory *at = &d->pl->cluster.memory[t];
        if (d->loops->tensors.at[t].role != LOOPS_INPUT || !at->constant || d->npack == DFP_MAX_PACKS) continue;
        int dim = -1;
        for (int i = 0; i < d->pl->ngroup; i++) {
            struct packing p = {d, t, m->group[i].way.vector, -1, false};
            const struct print_group *g = &d->pl->group[i];
            for (int s = g->first; s < g->first + g->n; s++)
                ex_walk(d->loops, d->loops->stmts.at[s].value, see_packing, &p);
            if (!p.read) continue;
            if (p.vector < 0 || p.dim < 0 || (dim >= 0 && dim != p.dim))
                dim = -2;
            else if (dim == -1)
                dim = p.dim;
        }
        if (dim >= 0 && at->stride[dim] != 1) pack(d, t, dim);
    }
}

/* -- printing a group statement by statement */

static void rows_group(struct making *m, struct print_tasks *t)
{
    struct dfp *d = &m->d;
    const struct print_group *g = m->now;
    const bool recurrence = dfp_is_recurrence(d, g, t);
    int opened = 0;
    for (int i = 0; i < t->n - recurrence; i++) opened += tasks_loop(&d->p, t, i);
    if (recurrence) dfp_recurrence(d, g, t);
    if (!d->items) print_locals(d->p.out, d->pl, g);
    for (int s = g->first, n; s < g->first + g->n && !recurrence; s += n) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        uint64_t open = g->shared;
        n = groups_scan(d->loops, s);
        if (st->scan_step) {
            open |= bit(st->scan_ivar);
            d->p.lanes = 1;
            for (int j = 0; j < n && !d->items; j++) running_begin(&d->p, st + j, open, 0);
            nest_scan(&d->p, st);
        }
        for (int j = 0; j < n; j++) {
            const bool last = s + j + 1 == g->first + g->n;
            dfp_row_statement(d, st + j, open);
            if (d->items && dfp_row_waits(d, st + j, last ? NULL : st + j + 1, open)) text_line(d->p.out, "@BARRIER;");
        }
        if (st->scan_step) text_close(d->p.out, "}");
        running_end(&d->p);
    }
    while (opened--) text_close(d->p.out, "}");
}

/* Makes the vector index variable the outermost: windows of consecutive rows follow each other while what they share is
 * still in the cache. */
static void vector_first(struct print_tasks *t)
{
    const struct print_tasks old = *t;
    for (int i = 0; i < t->n; i++) {
        const int from = i ? i - 1 : t->n - 1;
        t->ivar[i] = old.ivar[from];
        t->parts[i] = old.parts[from];
        t->block[i] = old.block[from];
    }
}

static void print_group(struct making *m, int i, double task_ns, struct kernel *out)
{
    struct dfp *d = &m->d;
    const struct print_group *g = m->now = &d->pl->group[i];
    const struct group_plan *p = m->plan = &m->group[i];
    struct print_tasks t;
    const bool tiled = p->way.tile >= 0 && p->way.tile != p->way.vector;
    int64_t unit[LOOPS_MAX_IVARS];
    for (int j = 0; j < LOOPS_MAX_IVARS; j++) unit[j] = 1;
    if (p->way.vector >= 0) unit[p->way.vector] = d->lanes == 1 ? LONG_LOOP : d->lanes * (tiled ? 1 : p->way.points);
    if (tiled) unit[p->way.tile] = p->blocks ? p->way.points : 0;
    if (p->way.across >= 0) unit[p->way.across] = 0;
    const bool by_reads = p->blocks && p->reads; /* of vectors that lie far apart, each goes on where it ended */
    const struct print_division by = {
        .ops = p->blocks ? MAX(g->ops, d->lanes) : g->ops, /* copies are limited by memory */
        .least = task_ns * d->lanes,
        .last = by_reads ? -1 : p->way.vector,
        .step = by_reads ? p->step : NULL,
        .single = d->items && p->way.vector < 0, /* no loops around barriers that a device may not compute */
        .unit = unit,
    };
    tasks_make(d->pl, g, &by, &t);
    if (tiled && !p->blocks) vector_first(&t);
    kernel_open(d->p.out, i);
    text_line(d->p.out, "(void)f, (void)worker;");
    if (p->way.vector >= 0) dfp_place_temps(d, g);
    print_pointers(d->p.out, d->pl, g);
    if (d->items && p->way.vector >= 0) dfp_items_scratch(d, g);
    const int shared = d->items && p->way.vector < 0 ? dfp_items_shared(d, g) : 0;
    out->shared_bytes = MAX(out->shared_bytes, shared);
    if (p->mapped) t = (struct print_tasks){.tasks = dfp_map_tasks(d, g, &m->group[i].map, by.least)};
    tasks_open(&d->p, &t);
    if (p->mapped)
        dfp_print_mapped(m);
    else if (p->way.vector >= 0)
        dfp_print_lanes(m, &t);
    else
        rows_group(m, &t);
    text_close(d->p.out, "}");
    kernel_close(d->p.out);
    out->step[i].tasks = t.tasks;
}

/* -- the solver */

struct gathers {
    const struct cluster *c;
    bool found;
};

static bool reads_position(const struct loops *loops, int32_t node)
{
    const struct ex *e = &loops->ex.at[node];
    return e->kind == EX_READ && loops->tensors.at[e->tensor].dtype == SOL_I64;
}

/* A read, guarded by its limits, at a position that is data where its elements are neighbours. */
static void see_gather(void *user, int32_t node)
{
    struct gathers *g = user;
    const struct loops *loops = g->c->loops;
    const struct ex *e = &loops->ex.at[node];
    int d = 0;
    if (e->kind != EX_READ || !e->b || loops->tensors.at[e->tensor].role == LOOPS_TABLE) return;
    for (int32_t i = e->a; i; i = loops->ex.at[i].next, d++)
        if (g->c->memory[e->tensor].stride[d] == 1 && ex_any(loops, i, reads_position)) g->found = true;
}

/* Positions have 64 bits: where elements are gathered by them, a vector has as many lanes as it has room for them, for
 * compilers take longer vectors apart. */
static int lanes_for(const struct solver_context *sc, const struct cluster *c)
{
    const struct loops *loops = c->loops;
    struct gathers gathers = {c, false};
    bool narrow = !target_has_vectors(sc->target);
    if (narrow && !target_has_items(sc->target)) return 1;
    for (int i = 0; i < loops->tensors.n; i++)
        narrow = narrow || (loops->tensors.at[i].role != LOOPS_TABLE && loops->tensors.at[i].dtype == SOL_F32);
    if (target_has_items(sc->target)) return MAX(2, target_lanes(sc->target, narrow ? 4 : 8));
    for (int i = 0; i < loops->stmts.n && narrow; i++) ex_walk(loops, loops->stmts.at[i].value, see_gather, &gathers);
    return MAX(2, target_lanes(sc->target, narrow && !gathers.found ? 4 : 8));
}

/* Temporaries of a group whose statements run one by one stay in the memory of the work group. */
static void keep_temps(struct making *m)
{
    struct dfp *d = &m->d;
    bool some = false;
    for (int i = 0; i < d->pl->ngroup; i++)
        if (m->group[i].way.vector < 0) dfp_items_keep(d, &d->pl->group[i]);
    for (int i = 0; i < d->loops->tensors.n; i++) some = some || d->pl->temp[i].place == TEMP_SCRATCH;
    if (!some) d->pl->scratch_bytes = 0;
}

static struct making *make_with(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                                int lanes)
{
    struct making *m = NEW(sc->arena, struct making);
    struct dfp *d = &m->d;
    d->sc = sc;
    d->items = target_has_items(sc->target);
    d->lanes = lanes;
    const struct cluster expanded = dfp_expand(sc, c, d->lanes);
    d->pl = groups_make(sc, &expanded, d->lanes);
    dfp_collapse(d->pl);
    d->loops = d->pl->loops;
    d->ivars = NEW_ARRAY(sc->arena, struct print_ivar, LOOPS_MAX_IVARS);
    for (int i = 0; i < d->loops->ivars.n; i++)
        if (d->loops->ivars.at[i].size == 1) d->ivars[i].known = true; /* its value is 0 */
    d->vector = d->tile = d->across = -1;
    d->points = 1;
    struct text *out = NEW(sc->arena, struct text);
    *out = solver_text(sc);
    d->p = (struct print_expr){.out = out,
                               .loops = d->loops,
                               .memory = d->pl->cluster.memory,
                               .target = sc->target,
                               .lanes = 1,
                               .vector_ivar = -1,
                               .ivars = d->ivars};
    for (int i = 0; i < d->loops->tensors.n; i++)
        if (d->loops->tensors.at[i].role == LOOPS_INPUT && !d->p.memory[i].constant) d->packs = true;
    make_groups(m, v);
    for (int i = 0; i < d->pl->ngroup; i++)
        if (!dfp_temps_fit(d, &d->pl->group[i]))
            m->group[i] = (struct group_plan){.way = no_way, .cost = m->group[i].cost};
    if (d->items) keep_temps(m);
    make_packs(m);
    return m;
}

/* The items that suit all rows of the kernel; 0: it has none. */
static int row_items(struct making *m)
{
    struct dfp *d = &m->d;
    int items = 0;
    bool others = false;
    for (int i = 0; i < d->pl->ngroup; i++) {
        if (m->group[i].way.vector < 0)
            items = MAX(items, dfp_items_for_rows(d, &d->pl->group[i]));
        else
            others = true;
    }
    return items && others ? MAX(items, target_lanes(d->sc->target, sizeof(float))) : items;
}

static struct making *make(const struct solver_context *sc, const struct cluster *c, const struct variant *v)
{
    const int lanes = lanes_for(sc, c);
    struct making *m = make_with(sc, c, v, lanes);
    const int items = target_is_card(sc->target) ? row_items(m) : 0;
    if (!items || items == lanes) return m;
    struct making *other = make_with(sc, c, v, items);
    return row_items(other) == items ? other : m;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    if (!nest_solver.applicable(sc, c, out_why)) return false;
    bool some = false;
    for (int i = 0; i < c->loops->ivars.n; i++) {
        const int64_t size = c->loops->ivars.at[i].size;
        if (size == 0) {
            *out_why = "loops over nothing";
            return false;
        }
        some = some || size >= 2; /* or varies */
    }
    if (some) return true;
    *out_why = "nothing to vectorise";
    return false;
}

/* The bytes that packing reads, and writes, which counts twice. */
static double packed_bytes(const struct dfp *d)
{
    double bytes = 0;
    for (int i = 0; i < d->npack; i++) {
        const struct loops_tensor *t = &d->pack[i].loops->tensors.at[0]; /* the packed one has as many elements */
        bytes += 3.0 * dtype_def(t->dtype)->bytes * (double)size_hint(loops_elements(t));
    }
    return bytes;
}

/* The ns of a card's vector operations: at the rate of reads from its caches, and at least as long as an item waits for
 * those that it computes one after the other. Measured on an H100. */
static double card_ns(const struct making *m, const struct target *t)
{
    enum { READS = 16, WAIT = 70 }; /* elements that a core reads in a cycle; cycles of an operation */
    double most = 0, vectors = 0;
    for (int i = 0; i < m->d.pl->ngroup; i++) {
        const double points = (double)MAX(1, ivars_points(m->d.loops, m->d.pl->group[i].shared));
        const double items = m->group[i].way.vector < 0 ? 1 : m->d.lanes;
        most = MAX(most, m->group[i].cost * items / points * WAIT);
        vectors += m->group[i].cost;
    }
    return MAX(vectors * m->d.lanes / READS / t->cores, most) / t->clock;
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    const bool was = size_costs(true); /* it is priced as if it were made for this point */
    struct making *m = make(sc, c, NULL);
    size_costs(was);
    const struct target *t = sc->target;
    double vectors = 0, traffic = 0;
    for (int i = 0; i < m->d.pl->ngroup; i++) {
        const struct group_plan *g = &m->group[i];
        vectors += g->cost;
        if (!target_is_card(t)) traffic += dfp_traffic_ns(&m->d, &m->d.pl->group[i], &g->way);
    }
    const double bytes = m->d.pl->bytes;
    const double rate = bytes < (double)t->l2 * t->cores ? t->l2_rate
                        : bytes < (double)t->l3          ? t->l3_rate
                                                         : t->dram_rate;
    const double steps = (double)target_lanes(t, sizeof(float)) / t->simd; /* that a core takes for a vector */
    const double one = 0.1 * (t->fma ? 2 : 1) / t->fma_pipes * steps;      /* ns of a vector instruction, roughly */
    const double compute = target_is_card(t) ? card_ns(m, t) : one * vectors / t->cores;
    const double cost = MAX(MAX(compute, bytes / rate), traffic) + target_step_ns(t) * m->d.pl->ngroup;
    out[0] = (struct variant){.p = {0, 5000}, .cost = cost, .moved = packed_bytes(&m->d), .text = "usual"};
    return 1;
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct making *m = make(sc, c, v);
    struct dfp *d = &m->d;
    print_tables(d->p.out, d->loops);
    *out = (struct kernel){.nstep = d->pl->ngroup};
    for (int i = 0; i < d->pl->ngroup; i++) print_group(m, i, v->p[P_TASK], out);
    out->source = d->p.out->at;
    out->items = d->items ? d->lanes : 0;
    out->scratch_bytes = d->pl->scratch_bytes;
    out->nwork = d->pl->work_bytes > 0;
    out->work_bytes[0] = d->pl->work_bytes;
    out->npack = d->npack;
    memcpy(out->pack, d->pack, sizeof d->pack);
    return ctx_check(arena_ctx(sc->arena));
}

const struct solver dfp_solver = {
    .name = "dfp", .lanes = FOR_ANY, .dynamic = true, .applicable = applicable, .variants = variants, .emit = emit};
