/* What a step takes on a graphics card, as an estimate, and which statements are a step there. A group of statements is
 * computed in one of two ways:
 *
 *   items   each point of the shared index variables is a work item, which goes alone through all loops inside
 *   rows    each point is a work group, whose items divide the longest index variable of each statement
 *
 * Items need many points, and neighbouring ones that read neighbours. Rows keep what a group's statements pass to each
 * other in the group's memory, but there are as few groups as points. Either takes as long as the traffic of its
 * operands, or as the accesses that an item waits for one after the other. */
#include <math.h>
#include <stdlib.h>

#include "print/print.h"

enum {
    NEIGHBOURS = 8, /* items whose elements fill a sector */
    AT_ONCE = 4,    /* accesses of an item's loop that are under way: compilers unroll it */
    JOIN = 200,     /* cycles of a barrier, with the sum over a group's items */
    GROUPS = 8,     /* work groups of a core at a time, or so */
    EACH = 4        /* elements of a row for an item, at least, where a group has more items than it must */
};

int64_t card_row_bytes(const struct target *t)
{
    const int64_t least = 1024;
    return MAX(least, MIN(t->l1 / GROUPS, t->group_bytes / 2));
}

int card_row_items(const struct target *t, int64_t length, double groups)
{
    const int least = target_lanes(t, sizeof(float)), most = MIN(256, MAX(t->group_items, least));
    int items = least;
    while (2 * items <= most && length >= (int64_t)2 * items * EACH &&
           groups * items < (double)t->cores * t->core_items)
        items *= 2;
    return items;
}

double card_resident(const struct target *t, int items, int shared, double registers)
{
    enum { REGISTERS = 65536, MOST = 255, OWN = 1024 }; /* of a core; of an item; bytes that a group has besides */
    double n = (double)t->core_items / items;
    n = fmin(n, floor((double)t->l1 / (shared + OWN)));
    n = fmin(n, floor(REGISTERS / (fmin(registers, MOST) * items)));
    return fmax(1, n);
}

double card_rate(const struct target *t, double items)
{
    const double half = 1.5; /* warps that hide so much of the latency of products that half of the rate is left */
    const double warps = items / 32, pipes = t->fma_pipes * target_lanes(t, sizeof(float));
    return pipes * fmin(1, items / pipes) * warps / (warps + half);
}

struct weigh {
    const struct print_plan *pl;
    const struct print_group *g;
    bool rows, fits; /* fits: temporaries of rows are in the group's memory */
    int along;       /* index variable that a group's items divide; -1: none */
    double times;    /* how often an access is done */
    double reads;    /* by the statement's most frequent access, */
    double traffic;  /* ns of all */
};

static double elements(const struct weigh *w, int tensor)
{
    const struct loops_tensor *t = &w->pl->loops->tensors.at[tensor];
    double n = 1;
    for (int d = 0; d < t->ndim; d++) n *= (double)size_hint(t->shape[d]);
    return n;
}

static bool writes(const struct loops_stmt *s, int tensor)
{
    for (int o = 0; o < s->nout; o++)
        if (s->out[o] == tensor) return true;
    return false;
}

/* Is it a temporary that no statement outside of the group uses? *out_private: its elements for one point of the shared
 * index variables. */
static bool is_inside(const struct weigh *w, int tensor, int64_t *out_private)
{
    const struct loops *loops = w->pl->loops;
    *out_private = 1;
    if (loops->tensors.at[tensor].role != LOOPS_TEMP) return false;
    for (int i = 0; i < loops->stmts.n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        const bool own = i >= w->g->first && i < w->g->first + w->g->n;
        if (writes(s, tensor) && own) *out_private = ivars_points(loops, stmt_ivars(loops, s) & ~w->g->shared);
        if (!own && (writes(s, tensor) || rewrite_reads(loops, s->value, tensor))) return false;
    }
    return true;
}

/* How many times its bytes an access moves: items that differ in `ivars` read neighbours, the same, or what is in other
 * sectors. An element that all items read counts for one of them. */
static double waste(const struct weigh *w, int tensor, const struct affine *a, uint64_t ivars, int bytes)
{
    const struct loops *loops = w->pl->loops;
    int64_t step = INT64_MAX;
    bool beside = false;
    for (int i = 0; i < a->n; i++) {
        if (ivars >> a->ivar[i] & 1) {
            step = MIN(step, llabs(size_hint(a->coef[i])));
            if (a->coef[i] == 1 && ivars_points(loops, bit(a->ivar[i])) < NEIGHBOURS) step = NEIGHBOURS / 2;
        }
        beside = beside || a->coef[i] == 1;
    }
    if (loops->tensors.at[tensor].role == LOOPS_TEMP) return 1; /* it has the strides that suit its writer */
    if (step == INT64_MAX) return 1.0 / NEIGHBOURS;
    const double most = (double)CARD_SECTOR / bytes;
    if (beside && step > 1 && !w->rows) return MIN(2, most); /* an item's loop follows the sector */
    return MIN((double)step, most);
}

static void add_access(struct weigh *w, int tensor, int32_t index)
{
    const struct target *t = w->pl->target;
    const struct loops *loops = w->pl->loops;
    const enum loops_role role = loops->tensors.at[tensor].role;
    const int bytes = dtype_def((enum sol_dtype)loops->tensors.at[tensor].dtype)->bytes;
    struct affine a;
    int64_t private;
    if (role == LOOPS_TABLE) return;
    if (is_inside(w, tensor, &private) && (w->rows ? w->fits : private == 1)) return;
    w->reads = MAX(w->reads, w->times);
    const uint64_t across = w->rows ? (w->along < 0 ? 0 : bit(w->along)) : w->g->shared;
    const bool affine = expr_affine_offset(loops, w->pl->cluster.memory, tensor, index, &a);
    const double all = elements(w, tensor) * bytes, near = (double)t->l1 / GROUPS;
    const double moved =
        w->times * bytes * (affine ? waste(w, tensor, &a, across, bytes) : (double)CARD_SECTOR / bytes);
    const double once = all <= (double)t->l3 / 2 ? 0 : MIN(all, moved);
    w->traffic += once / t->dram_rate + (moved - once) / t->l2_rate * (all <= near ? 0.25 : 1);
}

static void see_read(void *user, int32_t node, double times)
{
    struct weigh *w = user;
    const struct ex *e = &w->pl->loops->ex.at[node];
    w->times = times;
    if (e->kind == EX_RED)
        w->reads = MAX(w->reads, times); /* a loop takes its time even if it reads nothing */
    else
        add_access(w, e->tensor, e->a);
}

static void add_statement(struct weigh *w, const struct loops_stmt *s)
{
    w->reads = 0;
    const double times = (double)MAX(ivars_points(w->pl->loops, stmt_ivars(w->pl->loops, s)), 1);
    ex_walk_times(w->pl->loops, s->value, times, see_read, w);
    w->times = times;
    for (int o = 0; o < s->nout; o++) add_access(w, s->out[o], s->index);
}

/* The ns of cycles that each of `items` items needs, if the card keeps only some of them at a time. */
static double waiting(const struct weigh *w, double cycles, double items)
{
    const struct target *t = w->pl->target;
    return cycles / t->clock * MAX(1, items / ((double)t->cores * t->core_items));
}

static double points_of(const struct weigh *w)
{
    return (double)MAX(1, ivars_points(w->pl->loops, w->g->shared));
}

static double items_ns(struct weigh w)
{
    const double points = points_of(&w);
    double cycles = 0;
    for (int i = w.g->first; i < w.g->first + w.g->n; i++) {
        add_statement(&w, &w.pl->loops->stmts.at[i]);
        cycles += MAX(w.reads / points / AT_ONCE, 1) * CARD_WAIT;
    }
    return MAX(w.traffic, waiting(&w, cycles, points));
}

struct bound {
    const struct loops *loops;
    uint64_t ivars;
};
static void see_bound(void *user, int32_t node)
{
    struct bound *b = user;
    const struct ex *e = &b->loops->ex.at[node];
    if (e->kind == EX_RED) b->ivars |= e->u.bound;
}

/* Index variables that are one with v in all accesses of a statement, as collapse.c makes them. */
struct merge {
    const struct weigh *w;
    int v;
    int64_t extent;      /* of v and those found so far */
    uint64_t candidates; /* the next outer ones */
};

static void check_merge(struct merge *m, int tensor, int32_t index)
{
    const struct loops *loops = m->w->pl->loops;
    int64_t coef[LOOPS_MAX_IVARS] = {0};
    struct affine a = {0};
    if (!expr_affine_offset(loops, m->w->pl->cluster.memory, tensor, index, &a))
        m->candidates &= ~ex_ivars(loops, index);
    for (int i = 0; i < a.n; i++) coef[a.ivar[i]] = size_hint(a.coef[i]);
    for (int u = 0; u < loops->ivars.n; u++)
        if (coef[u] != coef[m->v] * m->extent) m->candidates &= ~bit(u);
}

static void see_merge(void *user, int32_t node)
{
    struct merge *m = user;
    const struct ex *e = &m->w->pl->loops->ex.at[node];
    if (e->kind == EX_READ && m->w->pl->loops->tensors.at[e->tensor].role != LOOPS_TABLE)
        check_merge(m, e->tensor, e->a);
}

/* The length of v with those among `ivars` that are one with it. */
static int64_t row_length(const struct weigh *w, const struct loops_stmt *s, int v, uint64_t ivars)
{
    const struct loops *loops = w->pl->loops;
    struct merge m = {w, v, MAX(1, ivars_points(loops, bit(v))), 0};
    for (ivars &= ~bit(v);; ivars &= ~(m.candidates & -m.candidates)) {
        m.candidates = ivars;
        ex_walk(loops, s->value, see_merge, &m);
        for (int o = 0; o < s->nout; o++) check_merge(&m, s->out[o], s->index);
        if (!m.candidates) return m.extent;
        m.extent *= MAX(1, ivars_points(loops, m.candidates & -m.candidates));
    }
}

/* The best time of a statement of rows. */
static double row_ns(struct weigh *w, const struct loops_stmt *s, double points)
{
    const struct loops *loops = w->pl->loops;
    struct bound bound = {loops, 0};
    const uint64_t own = stmt_ivars(loops, s) & ~w->g->shared;
    double best = INFINITY;
    ex_walk(loops, s->value, see_bound, &bound);
    for (int v = -1; v < loops->ivars.n; v++) {
        if (v >= 0 && (!((own | bound.ivars) >> v & 1) || s->nout > 1)) continue;
        struct weigh one = *w;
        one.along = v;
        one.traffic = 0;
        add_statement(&one, s);
        const bool bound_v = v >= 0 && bound.ivars >> v & 1;
        const int64_t size = v < 0 ? 1 : row_length(w, s, v, bound_v ? bound.ivars : own);
        const double items = card_row_items(w->pl->target, size, points),
                     joins = bound_v ? (double)MAX(1, ivars_points(loops, own)) : 1;
        const double rounds = one.reads / points / (double)size * ceil((double)size / items);
        best = MIN(best, MAX(one.traffic, waiting(w, rounds * CARD_WAIT + joins * JOIN, points * items)));
    }
    return best;
}

static double rows_ns(struct weigh w)
{
    const struct loops *loops = w.pl->loops;
    const double points = points_of(&w);
    int64_t bytes = 0, private;
    double ns = 0;
    w.rows = true;
    for (int i = 0; i < loops->tensors.n; i++)
        if (is_inside(&w, i, &private)) bytes += private * dtype_def((enum sol_dtype)loops->tensors.at[i].dtype)->bytes;
    w.fits = bytes <= card_row_bytes(w.pl->target);
    for (int i = w.g->first; i < w.g->first + w.g->n; i++) ns += row_ns(&w, &loops->stmts.at[i], points);
    return ns;
}

struct card_ways card_ways(const struct print_plan *pl, const struct print_group *g)
{
    const struct weigh w = {.pl = pl, .g = g, .along = -1};
    return (struct card_ways){items_ns(w), rows_ns(w)};
}

double card_group_ns(const struct print_plan *pl, const struct print_group *g)
{
    const struct card_ways ways = card_ways(pl, g);
    return MIN(ways.items, ways.rows);
}
