/* The solver. A cluster becomes steps, a step becomes tasks over shared index variables, and inside a task there are a
 * vector index variable and a register tile.
 *
 *   expand     reductions with several results, shared expressions
 *   groups     statements that share loops (print/groups.c)
 *   vector     one index variable for a whole group (lanes), or one for each statement (rows)
 *   pack       constant operands get the vector index variable innermost
 *   print      tasks, loops, borders, tiles */
#include "dfp/dfp.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

/* What a variant chooses (variant.p). */
enum { P_POINTS, P_TASK };
enum { LONG_LOOP = 256 }; /* elements of a vector that a compiler makes of a loop; tasks are whole ones */

struct group_plan {
    int vector, tile, points, across; /* as in struct dfp */
    bool blocks;                      /* of vector and tile, transposed in registers */
    bool mapped;                      /* to work items, by `map` */
    struct dfp_map map;
    int64_t low, high; /* range of the tile's index variable without borders: sizes */
    double cost;       /* in vector operations */
};
struct making {
    struct dfp d;
    struct group_plan group[KERNEL_MAX_STEPS];
    const struct print_group *now;
    const struct group_plan *plan;
    const char *low, *high; /* the task's range of the tile's index variable */
};

/* -- planning */

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
        *p = (struct group_plan){.vector = -1, .tile = -1, .points = 1, .across = -1};
        const double lanes = dfp_group_vector(d, g, &vector);
        for (int s = g->first; s < g->first + g->n; s++) {
            double cost;
            dfp_stmt_vector(d, &d->loops->stmts.at[s], g->shared, &cost);
            rows += cost;
        }
        p->cost = rows;
        if (vector < 0 || !suit_lanes(d, g, lanes, rows)) continue;
        p->cost = lanes;
        p->vector = d->vector = vector;
        p->mapped = d->items && dfp_map_items(d, g, &p->map);
        if (p->mapped) p->vector = d->vector = p->map.ivar[p->map.n - 1], p->tile = p->map.tile;
        if (d->items || d->lanes == 1 || !dfp_points_fit(d, g)) continue;
        p->tile = dfp_block_ivar(d, g);
        p->blocks = p->tile >= 0;
        p->points = d->lanes;
        if (p->blocks) continue;
        p->tile = dfp_tile(d, g, &p->points);
        if (v && v->p[P_POINTS]) p->points = MIN(p->points, v->p[P_POINTS]);
        if (p->tile < 0 || p->tile == vector) continue;
        dfp_interior(d, &d->loops->stmts.at[g->first], g->n, p->tile, &p->low, &p->high);
        if (p->low == 0 && p->high == d->loops->ivars.at[p->tile].size)
            p->across = dfp_tile_across(d, g, p->tile, p->points);
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
            struct packing p = {d, t, m->group[i].vector, -1, false};
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

/* -- printing a group that runs in lanes */

static void statements(struct dfp *d, void *user)
{
    const struct making *m = user;
    const struct print_group *g = m->now;
    for (int s = g->first, n; s < g->first + g->n; s += n) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        n = groups_scan(d->loops, s);
        if (st->scan_step) nest_scan(&d->p, st);
        const uint64_t open = g->shared | (st->scan_step ? bit(st->scan_ivar) : 0);
        if (d->items && !st->scan_step) dfp_reduce_beside(d, st, g->first + g->n - s, open);
        for (int i = 0; i < n; i++) dfp_statement(d, st + i, open);
        if (!st->scan_step) continue;
        text_close(d->p.out, "}");
        d->loads = NULL;
    }
}

/* Prints the statements for `points` values of the tile's index variable, and the end of the block around them. */
static void put_points(struct dfp *d, struct making *m, int points, struct print_ivar value)
{
    const int tile = m->plan->tile;
    const struct print_known *known = d->p.known;
    d->ivars[tile] = value;
    d->tile = tile;
    d->step = 1;
    d->across = m->plan->across;
    d->points = points * (d->across < 0 ? 1 : (int)d->loops->ivars.at[d->across].size);
    d->point = 0;
    d->loads = NULL;
    for (int q = 0; q < DFP_POINTS; q++) d->known[q] = known;
    statements(d, m);
    text_close(d->p.out, "}");
    d->ivars[tile].known = false;
    if (d->across >= 0) d->ivars[d->across].known = false;
    d->tile = d->across = -1;
    d->points = 1;
    d->point = 0;
    d->p.known = known;
    d->loads = NULL;
}

/* Prints the statements for the values `from` to `to` of the tile's index variable, `points` at a time: as a block for
 * a constant, or as a loop. */
static void region(struct dfp *d, struct making *m, int64_t from, int64_t to, int points, bool constant)
{
    const char *name = d->loops->ivars.at[m->plan->tile].name;
    if (size_le(to, from)) return;
    if (constant)
        text_open(d->p.out, "{ /* %s = %" PRId64 " */", name, from);
    else
        text_open(d->p.out, "for (int64_t %s = %" PRId64 "; %s < %" PRId64 "; %s += %d) {", name, from, name, to, name,
                  points);
    put_points(d, m, points,
               constant ? (struct print_ivar){true, NULL, from, from, from}
                        : (struct print_ivar){true, name, 0, from, size_sub(to, points)});
}

static void border(struct dfp *d, struct making *m, int64_t from, int64_t to)
{
    if (to - from > 4)
        region(d, m, from, to, 1, false);
    else
        for (int64_t u = from; u < to; u++) region(d, m, u, u + 1, 1, true);
}

/* Opens a loop over `points` values of the tile's index variable at a time, up to `high`. The last ones overlap those
 * before, if `least` or more are left. That is allowed, because statements store the same values when they run again.
 */
static void overlapping(struct dfp *d, const struct making *m, int points, int least)
{
    const char *name = d->loops->ivars.at[m->plan->tile].name;
    text_open(d->p.out, "for (; %s + %d <= %s && %s + %d <= %s; %s += %d) {", name, least, m->high, m->low, points,
              m->high, name, points);
    text_line(d->p.out, "%s = @sol_min_i64(%s, %s - %d);", name, name, m->high, points);
}

/* Prints the task's range of the tile's index variable in blocks of as many points as lanes. */
static void blocks(struct dfp *d, void *user)
{
    struct making *m = user;
    const int tile = m->plan->tile;
    const char *name = d->loops->ivars.at[tile].name;
    const int64_t size = d->loops->ivars.at[tile].size;
    text_line(d->p.out, "int64_t %s = %s;", name, m->low);
    for (int points = m->plan->points; points >= 1; points = points > 1) {
        if (points == 1 && !size_varies(size) && size % m->plan->points == 0) break;
        if (points > 1 && size_varies(size))
            overlapping(d, m, points, 1);
        else
            text_open(d->p.out, "for (; %s + %d <= %s; %s += %d) {", name, points, m->high, name, points);
        d->blocks = points > 1;
        put_points(d, m, points, (struct print_ivar){true, name, 0, 0, size_sub(size, points)});
    }
    d->blocks = false;
}

/* Prints the statements for one value of the tile's index variable if `from` <= at < size. A value that varies is below
 * `size`, a number is not below `from`. */
static void border_point(struct dfp *d, struct making *m, int64_t at, int64_t from, int64_t size)
{
    const char *name = d->loops->ivars.at[m->plan->tile].name;
    if (size_le(from, at) && size_lt(at, size))
        text_open(d->p.out, "{");
    else if (size_varies(at))
        text_open(d->p.out, "if (%" PRId64 " <= %" PRId64 ") {", from, at);
    else
        text_open(d->p.out, "if (%" PRId64 " < %" PRId64 ") {", at, size);
    text_line(d->p.out, "const int64_t %s = %" PRId64 ";", name, at);
    put_points(d, m, 1, (struct print_ivar){true, name, 0, size_max(at, from), size_min(at, size_sub(size, 1))});
}

/* The same for a size that is known only while running: tiles of all points, then of half of them. */
static void tiles_of_any_size(struct dfp *d, struct making *m)
{
    enum { FEW = 4 };
    const struct group_plan *p = m->plan;
    const char *name = d->loops->ivars.at[p->tile].name;
    const int64_t size = d->loops->ivars.at[p->tile].size, right = size_sub(size, p->high);
    if (p->low <= FEW)
        for (int64_t u = 0; u < p->low; u++) border_point(d, m, u, 0, size);
    else
        region(d, m, 0, size_min(p->low, size), 1, false);
    text_open(d->p.out, "{");
    text_line(d->p.out, "int64_t %s = %" PRId64 ";", name, p->low);
    m->low = SAY(d, "%" PRId64, p->low);
    m->high = SAY(d, "%" PRId64, p->high);
    for (int points = p->points; points >= 1 && p->low != p->high;) {
        const int next = points > FEW ? points / 2 : points > 1;
        if (points > 1)
            overlapping(d, m, points, next + 1);
        else
            text_open(d->p.out, "for (; %s < %s; %s++) {", name, m->high, name);
        put_points(d, m, points, (struct print_ivar){true, name, 0, p->low, size_sub(p->high, points)});
        points = next;
    }
    text_close(d->p.out, "}");
    if (right <= FEW)
        for (int64_t u = right; u > 0; u--) border_point(d, m, size_sub(size, u), p->low, size);
    else
        region(d, m, size_max(p->low, p->high), size, 1, false);
}

/* Prints the left border, tiles of one or two sizes, and the right border. */
static void tiles(struct dfp *d, void *user)
{
    struct making *m = user;
    const struct group_plan *p = m->plan;
    if (size_varies(d->loops->ivars.at[p->tile].size)) {
        tiles_of_any_size(d, m);
        return;
    }
    const int64_t n = p->high - p->low, count = (n + p->points - 1) / p->points;
    border(d, m, 0, p->low);
    if (n) {
        const int64_t larger = (n + count - 1) / count, many = n - count * (larger - 1);
        region(d, m, p->low, p->low + many * larger, (int)larger, false);
        region(d, m, p->low + many * larger, p->high, (int)larger - 1, false);
    }
    border(d, m, p->high, d->loops->ivars.at[p->tile].size);
}

static void lanes_group(struct making *m, struct print_tasks *t)
{
    struct dfp *d = &m->d;
    const struct group_plan *p = m->plan;
    const struct print_group *g = m->now;
    const bool tiled = p->tile >= 0 && p->tile != p->vector;
    int opened = 0, at = t->n - 1;
    for (int i = 0; i < t->n; i++) {
        if (t->ivar[i] == p->vector)
            at = i;
        else if (p->blocks && t->ivar[i] == p->tile)
            m->low = t->low[i], m->high = t->high[i];
        else if (!(tiled && (t->ivar[i] == p->tile || t->ivar[i] == p->across)))
            opened += tasks_loop(&d->p, t, i);
    }
    d->vector = p->vector;
    d->p.read = dfp_read;
    d->p.user = d;
    uint64_t inner = bit(p->vector);
    if (tiled) inner |= bit(p->tile);
    if (p->across >= 0) inner |= bit(p->across);
    text_open(d->p.out, "{");
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        const uint64_t own = stmt_ivars(d->loops, st) & ~g->shared;
        dfp_hoist(d, st->value, inner | own, compute_of((enum sol_dtype)d->loops->tensors.at[st->out[0]].dtype));
    }
    print_locals(d->p.out, d->pl, g);
    dfp_vector_loop(d, &(struct dfp_loop){.ivar = p->vector,
                                          .low = t->low[at],
                                          .high = t->high[at],
                                          .points = tiled ? 1 : p->points,
                                          .ops = tiled ? INFINITY : g->ops,
                                          .n = g->n,
                                          .stmts = &d->loops->stmts.at[g->first],
                                          .body = p->blocks ? blocks
                                                  : tiled   ? tiles
                                                            : statements,
                                          .user = m});
    text_close(d->p.out, "}");
    while (opened--) text_close(d->p.out, "}");
    d->hoisted = NULL;
    d->p.read = NULL;
    d->temp = NULL;
}

/* -- printing a group whose points are mapped to work items */

/* The statements for the tile of an item, whose first value the index variable has: all its points, or those up to the
 * end. */
static void item_tile(struct making *m)
{
    struct dfp *d = &m->d;
    const struct dfp_map *map = &m->plan->map;
    const int tile = map->tile;
    const char *name = d->loops->ivars.at[tile].name;
    const int64_t size = d->loops->ivars.at[tile].size, last = size_sub(size, 1);
    const bool whole = !size_varies(size) && size % map->points == 0;
    if (map->wide)
        text_open(d->p.out, "if (aligned_) {");
    else if (whole)
        text_open(d->p.out, "{");
    else
        text_open(d->p.out, "if (%s) {", dfp_fits(d, name, map->points, SAY(d, "%" PRId64, size)));
    if (map->wide) dfp_map_assume(d, m->now, map);
    put_points(d, m, map->points, (struct print_ivar){true, name, 0, 0, size_sub(size, map->points)});
    if (whole && !map->wide) return;
    const char *at = expr_name(&d->p), *end = SAY(d, "%" PRId64, size);
    if (whole)
        text_open(d->p.out, "else for (int64_t %s = %s; %s < %s + %d; %s++) {", at, name, at, name, map->points, at);
    else
        text_open(d->p.out, "else for (int64_t %s = %s; %s < %s; %s++) {", at, name, at, end, at);
    put_points(d, m, 1, (struct print_ivar){true, at, 0, 0, last});
}

static void mapped_group(struct making *m)
{
    struct dfp *d = &m->d;
    const struct dfp_map *map = &m->plan->map;
    d->p.read = dfp_read;
    d->p.user = d;
    d->p.vector_ivar = m->plan->vector;
    if (map->wide) dfp_map_aligned(d, m->now, map);
    dfp_map_open(d, map);
    print_locals(d->p.out, d->pl, m->now);
    for (int q = 0; q < DFP_POINTS; q++) d->known[q] = NULL;
    d->p.known = NULL;
    d->loads = NULL;
    if (map->points > 1)
        item_tile(m);
    else
        statements(d, m);
    text_close(d->p.out, "}");
    d->p.vector_ivar = -1;
    d->p.read = NULL;
    d->p.known = NULL;
    d->loads = NULL;
    d->temp = NULL;
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
            nest_scan(&d->p, st);
            open |= bit(st->scan_ivar);
        }
        for (int j = 0; j < n; j++) {
            const bool last = s + j + 1 == g->first + g->n;
            dfp_row_statement(d, st + j, open);
            if (d->items && dfp_row_waits(d, st + j, last ? NULL : st + j + 1, open)) text_line(d->p.out, "@BARRIER;");
        }
        if (st->scan_step) text_close(d->p.out, "}");
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
    const bool tiled = p->tile >= 0 && p->tile != p->vector;
    int64_t unit[LOOPS_MAX_IVARS];
    for (int j = 0; j < LOOPS_MAX_IVARS; j++) unit[j] = 1;
    if (p->vector >= 0) unit[p->vector] = d->lanes == 1 ? LONG_LOOP : d->lanes * (tiled ? 1 : p->points);
    if (tiled) unit[p->tile] = p->blocks ? p->points : 0;
    if (p->across >= 0) unit[p->across] = 0;
    const struct print_division by = {
        .ops = p->blocks ? MAX(g->ops, d->lanes) : g->ops, /* copies are limited by memory */
        .least = task_ns * d->lanes,
        .last = p->vector,
        .single = d->items && p->vector < 0, /* no loops around barriers that a device may not compute */
        .unit = unit,
    };
    tasks_make(d->pl, g, &by, &t);
    if (tiled && !p->blocks) vector_first(&t);
    kernel_open(d->p.out, i);
    text_line(d->p.out, "(void)f, (void)worker;");
    if (p->vector >= 0) dfp_place_temps(d, g);
    print_pointers(d->p.out, d->pl, g);
    if (d->items && p->vector >= 0) dfp_items_scratch(d, g);
    const int shared = d->items && p->vector < 0 ? dfp_items_shared(d, g) : 0;
    out->shared_bytes = MAX(out->shared_bytes, shared);
    if (p->mapped) t = (struct print_tasks){.tasks = dfp_map_tasks(d, g, &m->group[i].map, by.least)};
    tasks_open(&d->p, &t);
    if (p->mapped)
        mapped_group(m);
    else if (p->vector >= 0)
        lanes_group(m, &t);
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
        if (m->group[i].vector < 0) dfp_items_keep(d, &d->pl->group[i]);
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
            m->group[i] =
                (struct group_plan){.vector = -1, .tile = -1, .points = 1, .across = -1, .cost = m->group[i].cost};
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
        if (m->group[i].vector < 0)
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
        const double items = m->group[i].vector < 0 ? 1 : m->d.lanes;
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
        if (!target_is_card(t)) {
            const struct dfp_way way = {g->vector, g->tile, g->points, g->across};
            traffic += dfp_traffic_ns(&m->d, &m->d.pl->group[i], &way);
        }
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
