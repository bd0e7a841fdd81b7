/* Prints a group that runs in lanes: the register tile's borders and inner part, blocks that are transposed, and points
 * that are mapped to work items. */
#include <inttypes.h>
#include <math.h>

#include "dfp/making.h"

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

static void statements(struct dfp *d, void *user)
{
    const struct making *m = user;
    const struct print_group *g = m->now;
    for (int s = g->first, n; s < g->first + g->n; s += n) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        n = groups_scan(d->loops, s);
        const uint64_t open = g->shared | (st->scan_step ? bit(st->scan_ivar) : 0);
        for (int i = 0; st->scan_step && i < n * d->points; i++) {
            dfp_use(d, i % d->points);
            running_begin(&d->p, st + i / d->points, open, i % d->points);
        }
        dfp_use(d, 0);
        if (st->scan_step) nest_scan(&d->p, st);
        if (d->items && !st->scan_step) dfp_reduce_beside(d, st, g->first + g->n - s, open);
        for (int i = 0; i < n; i++) dfp_statement(d, st + i, open);
        if (!st->scan_step) continue;
        text_close(d->p.out, "}");
        running_end(&d->p);
        d->loads = NULL;
    }
}

/* Prints the statements for `points` values of the tile's index variable, and the end of the block around them. */
static void put_points(struct dfp *d, struct making *m, int points, struct print_ivar value)
{
    const int tile = m->plan->way.tile;
    const struct print_known *known = d->p.known;
    d->ivars[tile] = value;
    d->tile = tile;
    d->step = 1;
    d->across = m->plan->way.across;
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
    const char *name = d->loops->ivars.at[m->plan->way.tile].name;
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
    const char *name = d->loops->ivars.at[m->plan->way.tile].name;
    text_open(d->p.out, "for (; %s + %d <= %s && %s + %d <= %s; %s += %d) {", name, least, m->high, m->low, points,
              m->high, name, points);
    text_line(d->p.out, "%s = @sol_min_i64(%s, %s - %d);", name, name, m->high, points);
}

/* Is index variable number i of the tasks neither the vector's nor one of a tile? */
static bool has_loop(const struct making *m, int i)
{
    const struct dfp_way *way = &m->plan->way;
    const int ivar = m->tasks->ivar[i];
    return ivar != way->vector && (way->tile == way->vector || (ivar != way->tile && ivar != way->across));
}

/* Prints the task's range of the tile's index variable in blocks of as many points as lanes, inside of loops over what
 * is closer together in memory than lanes are. */
static void blocks(struct dfp *d, void *user)
{
    struct making *m = user;
    const int tile = m->plan->way.tile;
    const char *name = d->loops->ivars.at[tile].name;
    const int64_t size = d->loops->ivars.at[tile].size;
    int opened = 0;
    for (int i = m->at + 1; i < m->tasks->n; i++) opened += has_loop(m, i) && tasks_loop(&d->p, m->tasks, i);
    text_line(d->p.out, "int64_t %s = %s;", name, m->low);
    for (int points = m->plan->way.points; points >= 1; points = points > 1) {
        if (points == 1 && !size_varies(size) && size % m->plan->way.points == 0) break;
        if (points > 1 && (size_varies(size) || size % points > points / 2)) /* fewer are faster one by one */
            overlapping(d, m, points, size_varies(size) ? 1 : points / 2 + 1);
        else
            text_open(d->p.out, "for (; %s + %d <= %s; %s += %d) {", name, points, m->high, name, points);
        d->blocks = points > 1;
        put_points(d, m, points, (struct print_ivar){true, name, 0, 0, size_sub(size, points)});
    }
    d->blocks = false;
    while (opened--) text_close(d->p.out, "}");
}

/* Prints the statements for one value of the tile's index variable if `from` <= at < size. A value that varies is below
 * `size`, a number is not below `from`. */
static void border_point(struct dfp *d, struct making *m, int64_t at, int64_t from, int64_t size)
{
    const char *name = d->loops->ivars.at[m->plan->way.tile].name;
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
    const char *name = d->loops->ivars.at[p->way.tile].name;
    const int64_t size = d->loops->ivars.at[p->way.tile].size, right = size_sub(size, p->high);
    if (p->low <= FEW)
        for (int64_t u = 0; u < p->low; u++) border_point(d, m, u, 0, size);
    else
        region(d, m, 0, size_min(p->low, size), 1, false);
    text_open(d->p.out, "{");
    text_line(d->p.out, "int64_t %s = %" PRId64 ";", name, p->low);
    m->low = SAY(d, "%" PRId64, p->low);
    m->high = SAY(d, "%" PRId64, p->high);
    for (int points = p->way.points; points >= 1 && p->low != p->high;) {
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
    if (size_varies(d->loops->ivars.at[p->way.tile].size)) {
        tiles_of_any_size(d, m);
        return;
    }
    const int64_t n = p->high - p->low, count = (n + p->way.points - 1) / p->way.points;
    border(d, m, 0, p->low);
    if (n) {
        const int64_t larger = (n + count - 1) / count, many = n - count * (larger - 1);
        region(d, m, p->low, p->low + many * larger, (int)larger, false);
        region(d, m, p->low + many * larger, p->high, (int)larger - 1, false);
    }
    border(d, m, p->high, d->loops->ivars.at[p->way.tile].size);
}

void dfp_print_lanes(struct making *m, struct print_tasks *t)
{
    struct dfp *d = &m->d;
    const struct group_plan *p = m->plan;
    const struct print_group *g = m->now;
    const bool tiled = p->way.tile >= 0 && p->way.tile != p->way.vector;
    int opened = 0;
    m->tasks = t;
    for (int i = 0; i < t->n; i++) {
        if (t->ivar[i] == p->way.vector) m->at = i;
        if (p->blocks && t->ivar[i] == p->way.tile) m->low = t->low[i], m->high = t->high[i];
    }
    const int outside = p->blocks ? m->at : t->n;
    for (int i = 0; i < outside; i++) opened += has_loop(m, i) && tasks_loop(&d->p, t, i);
    d->vector = p->way.vector;
    d->p.read = dfp_read;
    d->p.user = d;
    uint64_t inner = bit(p->way.vector);
    if (tiled) inner |= bit(p->way.tile);
    for (int i = outside; i < t->n; i++) inner |= bit(t->ivar[i]);
    if (p->way.across >= 0) inner |= bit(p->way.across);
    text_open(d->p.out, "{");
    for (int s = g->first; s < g->first + g->n; s++) {
        const struct loops_stmt *st = &d->loops->stmts.at[s];
        const uint64_t own = stmt_ivars(d->loops, st) & ~g->shared;
        dfp_hoist(d, st->value, inner | own, compute_of((enum sol_dtype)d->loops->tensors.at[st->out[0]].dtype));
    }
    print_locals(d->p.out, d->pl, g);
    dfp_vector_loop(d, &(struct dfp_loop){.ivar = p->way.vector,
                                          .low = t->low[m->at],
                                          .high = t->high[m->at],
                                          .points = tiled ? 1 : p->way.points,
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

void dfp_print_mapped(struct making *m)
{
    struct dfp *d = &m->d;
    const struct dfp_map *map = &m->plan->map;
    d->p.read = dfp_read;
    d->p.user = d;
    d->p.vector_ivar = m->plan->way.vector;
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
