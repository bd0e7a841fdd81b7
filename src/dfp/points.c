/* Points of work items. Where the lanes of a group are work items and nothing crosses them, the points of all its index
 * variables are numbered, and item i of a work group computes every point whose number is i modulo the group's items.
 * So all items have work, however short an index variable is. An item may compute several neighbouring points of one
 * index variable, the tile: elements that one access loads or stores, or those of a read that is contiguous along
 * another index variable than the writes.
 *
 * The order of the index variables and the tile are those with the fewest sectors of memory: the accesses of the items
 * that run together (a warp) are counted, each at its offset. */
#include <inttypes.h>
#include <stdlib.h>

#include "dfp/dfp.h"
#include "print/flavour.h"

#define SAY(d, ...) arena_printf((d)->p.out->arena, __VA_ARGS__)

enum {
    WARP = 32,   /* items that access memory together */
    SECTOR = 32, /* bytes that memory moves at least */
    WIDE = 16    /* bytes of an item's access, at most */
};

/* -- accesses */

struct access {
    int tensor;
    bool affine, write, tested; /* tested: an element outside of the tensor is not read */
    bool packed;                /* contiguous along the innermost index variable, whatever it is */
    struct affine at;
    double times; /* for each point */
};
struct accesses {
    struct dfp *d;
    const struct print_group *g;
    VECTOR(struct access) all;
    bool reduces;
    double times;
};

static void add_access(struct accesses *w, int tensor, int32_t index, bool write, bool tested)
{
    const struct dfp *d = w->d;
    struct access a = {.tensor = tensor, .write = write, .tested = tested, .times = w->times};
    const enum temp_place place = d->pl->temp[tensor].place;
    if (d->loops->tensors.at[tensor].role == LOOPS_TABLE || place == TEMP_LOCAL || place == TEMP_SCRATCH) return;
    a.packed = !write && !tested && dfp_packable(d, tensor, index);
    a.affine = expr_affine_offset(d->loops, d->p.memory, tensor, index, &a.at);
    PUSH(d->sc->arena, w->all, a);
}

static void see_read(void *user, int32_t node, double times)
{
    struct accesses *w = user;
    const struct ex *e = &w->d->loops->ex.at[node];
    w->times = times;
    if (e->kind == EX_RED)
        w->reduces = true;
    else
        add_access(w, e->tensor, e->a, false, e->b);
}

static void find_accesses(struct accesses *w)
{
    const struct loops *loops = w->d->loops;
    for (int i = w->g->first; i < w->g->first + w->g->n; i++) {
        const struct loops_stmt *s = &loops->stmts.at[i];
        const double times = (double)MAX(ivars_points(loops, stmt_ivars(loops, s) & ~w->g->shared), 1);
        ex_walk_times(loops, s->value, times, see_read, w);
        w->times = times;
        for (int o = 0; o < s->nout; o++) add_access(w, s->out[o], s->index, true, false);
        w->reduces = w->reduces || s->scan_step || (stmt_ivars(loops, s) & ~w->g->shared);
    }
}

static int bytes_of(const struct dfp *d, int tensor)
{
    return dtype_def((enum sol_dtype)d->loops->tensors.at[tensor].dtype)->bytes;
}

static int64_t step_along(const struct affine *a, int ivar)
{
    for (int i = 0; i < a->n; i++)
        if (a->ivar[i] == ivar) return a->coef[i];
    return 0;
}

/* -- the cost of a map */

/* Is this access along ivar contiguous, and are `points` elements of it aligned where its tensor is? */
static bool is_aligned(const struct access *a, int ivar, int points)
{
    if (!a->affine || a->tested || step_along(&a->at, ivar) != 1) return false;
    if (size_varies(a->at.c) || a->at.c % points) return false;
    for (int k = 0; k < a->at.n; k++)
        if (a->at.ivar[k] != ivar && (size_varies(a->at.coef[k]) || a->at.coef[k] % points)) return false;
    return true;
}

static int64_t usual(const struct dfp *d, int ivar)
{
    return MAX(size_hint(d->loops->ivars.at[ivar].size), 1);
}

/* The offset in bytes of an access by point `q` of item `item`. */
static int64_t offset_of(const struct dfp *d, const struct dfp_map *m, const struct access *a, int item, int q)
{
    int64_t off = 0, rest = item;
    for (int i = m->n - 1; i >= 0; i--) {
        const int ivar = m->ivar[i];
        const int64_t size = usual(d, ivar), n = ivar == m->tile ? (size + m->points - 1) / m->points : size;
        const int64_t at = ivar == m->tile ? rest % n * m->points + q : rest % n;
        off += at * size_hint(step_along(&a->at, ivar));
        rest /= n;
    }
    return off * bytes_of(d, a->tensor);
}

static int compare(const void *x, const void *y)
{
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static int distinct(int64_t *at, int n)
{
    int some = n > 0;
    qsort(at, (size_t)n, sizeof *at, compare);
    for (int i = 1; i < n; i++) some += at[i] != at[i - 1];
    return some;
}

/* Does the first cache of a core keep the operand? Then its sectors come from memory only once. */
static bool is_near(const struct dfp *d, const struct access *a)
{
    return !a->write && (double)size_hint(loops_elements(&d->loops->tensors.at[a->tensor])) * bytes_of(d, a->tensor) <=
                            (double)d->sc->target->l1 / 8;
}

/* Sectors per point. Points of a read come from the first cache, which takes time for each line, too; what is written
 * is sent by each access on its own. */
static double access_cost(const struct dfp *d, const struct dfp_map *m, const struct access *a)
{
    const int wide = MIN(m->points, WIDE / bytes_of(d, a->tensor)); /* points of an access */
    int64_t at[WARP * DFP_POINTS], each[WARP];
    int single = 0;
    if (!a->affine) return a->times;
    if (a->packed) return a->times * bytes_of(d, a->tensor) / SECTOR;
    for (int q = 0; q < m->points; q++) {
        for (int i = 0; i < WARP; i++) each[i] = at[q * WARP + i] = offset_of(d, m, a, i, q) / SECTOR;
        single += distinct(each, WARP);
    }
    if (m->wide && is_aligned(a, m->tile, m->points)) single /= MAX(wide, 1);
    const double all = distinct(at, WARP * m->points), near = is_near(d, a) ? 0.25 : 1;
    return near * a->times * (a->write ? MAX(all, single) : MAX(all, all * 0.75 + single * 0.25)) / (WARP * m->points);
}

static double map_cost(const struct accesses *w, const struct dfp_map *m)
{
    const double issue = 0.01; /* of an access */
    double cost = 0;
    for (int i = 0; i < w->all.n; i++)
        cost += access_cost(w->d, m, &w->all.at[i]) + issue * w->all.at[i].times / (m->wide ? m->points : 1);
    return cost;
}

/* -- the choice */

/* May `points` elements along ivar be one access where operands are aligned? Along the innermost index variable all
 * accesses must be such, or else items access what is not side by side. */
static bool is_wide(const struct accesses *w, int ivar, int points, bool inner)
{
    const struct dfp *d = w->d;
    const int64_t size = d->loops->ivars.at[ivar].size;
    bool some = false;
    if (!*flavour_of(d->sc->target)->assume || size_varies(size) || size % points) return false;
    for (int i = 0; i < w->all.n; i++) {
        const struct access *a = &w->all.at[i];
        const bool aligned = is_aligned(a, ivar, points) && (inner || !a->packed);
        some = some || aligned;
        if (inner && !aligned && (!a->affine || step_along(&a->at, ivar) != 0)) return false;
    }
    return some;
}

static void keep_best(const struct accesses *w, const struct dfp_map *m, double *best, struct dfp_map *out)
{
    const double cost = map_cost(w, m);
    if (out->n && cost >= *best * 0.97) return;
    *best = cost;
    *out = *m;
}

/* Tries every tile for the order of m. */
static void try_tiles(const struct accesses *w, struct dfp_map m, double *best, struct dfp_map *out)
{
    enum { ENOUGH = 256 }; /* items that keep a core busy */
    const struct dfp *d = w->d;
    const int64_t room = ivars_points(d->loops, w->g->shared) / ((int64_t)MAX(d->sc->target->cores, 1) * ENOUGH);
    int widest = 1;
    for (int i = 0; i < w->all.n; i++) widest = MAX(widest, bytes_of(d, w->all.at[i].tensor));
    m.tile = -1;
    m.points = 1;
    m.wide = false;
    keep_best(w, &m, best, out);
    if (w->reduces || !dfp_points_fit(d, w->g)) return;
    for (int i = 0; i < m.n; i++) {
        const bool inner = i == m.n - 1;
        const int64_t size = usual(d, m.ivar[i]);
        m.tile = m.ivar[i];
        m.points = (int)MIN(inner ? MIN(WIDE / widest, 4) : MIN(SECTOR / widest, 8), MIN(size, room));
        m.wide = m.points > 1 && is_wide(w, m.tile, m.points, inner);
        if (m.points > 1 && (m.wide || !inner)) keep_best(w, &m, best, out);
    }
}

/* The index variables in the order of the tasks, but `last` innermost. */
static void try_order(const struct accesses *w, const struct print_tasks *t, int last, double *best,
                      struct dfp_map *out)
{
    struct dfp_map m = {0};
    for (int i = 0; i < t->n; i++)
        if (t->ivar[i] != last && w->d->loops->ivars.at[t->ivar[i]].size != 1) m.ivar[m.n++] = t->ivar[i];
    m.ivar[m.n++] = (uint8_t)last;
    try_tiles(w, m, best, out);
}

bool dfp_map_items(struct dfp *d, const struct print_group *g, struct dfp_map *out)
{
    struct accesses w = {.d = d, .g = g};
    struct print_tasks t;
    double best = 0;
    *out = (struct dfp_map){0};
    find_accesses(&w);
    tasks_make(d->pl, g, &(struct print_division){.least = 1, .last = -1}, &t);
    for (int i = t.n - 1; i >= 0; i--)
        if (d->loops->ivars.at[t.ivar[i]].size != 1) try_order(&w, &t, t.ivar[i], &best, out);
    out->total = 1;
    for (int i = 0; i < out->n; i++) {
        const int64_t size = d->loops->ivars.at[out->ivar[i]].size;
        out->total = size_mul(out->total, out->ivar[i] == out->tile ? size_ceil_div(size, out->points) : size);
    }
    return out->n && out->total != SIZE_BAD;
}

/* -- tasks */

/* The groups that a device may have waiting; each has a part of the scratch memory. */
static double most_tasks(const struct dfp *d, const struct print_group *g)
{
    enum { WAVES = 4, FEW = 512 };
    const struct target *t = d->sc->target;
    for (int s = g->first; s < g->first + g->n; s++)
        for (int o = 0; o < d->loops->stmts.at[s].nout; o++)
            if (d->pl->temp[d->loops->stmts.at[s].out[o]].place == TEMP_SCRATCH) return FEW;
    return target_is_card(t) ? (double)MAX(FEW, (int64_t)t->cores * t->core_items / d->lanes * WAVES) : FEW;
}

int64_t dfp_map_tasks(const struct dfp *d, const struct print_group *g, struct dfp_map *m, double least)
{
    const double all = (double)MAX(size_hint(m->total), 1), groups = all / d->lanes;
    const double most = most_tasks(d, g);
    const double want = target_is_card(d->sc->target) ? most : MIN(most, g->ops * all * m->points / least);
    const int64_t rounds = want < 1 ? (int64_t)groups + 1 : (int64_t)((groups + want - 1) / want);
    m->block = MAX(rounds, 1) * d->lanes;
    return size_ceil_div(m->total, m->block);
}

/* -- printing */

/* Declares the index variables of a point, whose number is at_. */
static void decompose(struct dfp *d, const struct dfp_map *m, const char *type)
{
    const char *rest = "at_";
    for (int i = m->n - 1; i >= 0; i--) {
        const int ivar = m->ivar[i];
        const int64_t size = d->loops->ivars.at[ivar].size, by = ivar == m->tile ? m->points : 1;
        const int64_t n = by > 1 ? size_ceil_div(size, by) : size;
        const char *name = d->loops->ivars.at[ivar].name;
        const char *at = i ? SAY(d, "%s %% %" PRId64, rest, n) : rest;
        if (by > 1)
            text_line(d->p.out, "const int64_t %s = (int64_t)(%s) * %d;", name, at, (int)by);
        else
            text_line(d->p.out, "const int64_t %s = %s;", name, at);
        if (!i) break;
        const char *next = SAY(d, "at%d_", i);
        text_line(d->p.out, "const %s %s = %s / %" PRId64 ";", type, next, rest, n);
        rest = next;
    }
}

void dfp_map_open(struct dfp *d, const struct dfp_map *m)
{
    const bool narrow = !size_varies(m->total) && m->total < INT32_MAX / 2;
    const char *type = narrow ? "uint32_t" : "int64_t";
    text_line(d->p.out, "const %s end_ = (%s)@sol_min_i64((task_ + 1) * %" PRId64 ", %" PRId64 ");", type, type,
              m->block, m->total);
    text_open(d->p.out, "for (%s at_ = (%s)(task_ * %" PRId64 " + @ITEM); at_ < end_; at_ += %d) {", type, type,
              m->block, d->lanes);
    decompose(d, m, type);
}

/* The operands that the group accesses along the tile. */
static const char *addresses(struct dfp *d, const struct print_group *g, const struct dfp_map *m, bool assume)
{
    struct accesses w = {.d = d, .g = g};
    struct text t = text_new(d->p.out->arena);
    uint64_t seen = 0;
    find_accesses(&w);
    for (int i = 0; i < w.all.n; i++) {
        const struct access *a = &w.all.at[i];
        if (!is_aligned(a, m->tile, m->points) || (a->tensor < 64 && seen >> a->tensor & 1)) continue;
        if (a->tensor < 64) seen |= bit(a->tensor);
        const char *name = d->loops->tensors.at[a->tensor].name;
        if (assume)
            text_line(d->p.out, "@ASSUME(((uint64_t)%s & 15) == 0);", name);
        else
            text_put(&t, "%s(uint64_t)%s", t.at && *t.at ? " | " : "", name);
    }
    return t.at;
}

void dfp_map_aligned(struct dfp *d, const struct print_group *g, const struct dfp_map *m)
{
    const char *all = addresses(d, g, m, false); /* none: packed operands have another layout now */
    text_line(d->p.out, "const int aligned_ = ((%s) & 15) == 0;", all && *all ? all : "0");
}

void dfp_map_assume(struct dfp *d, const struct print_group *g, const struct dfp_map *m)
{
    addresses(d, g, m, true);
}
