/* What sums cost that read the same data again and again. Each execution of a sum's loops passes over a region of an
 * operand. The next execution, for other results, finds as much of it as a cache has kept: nothing is counted for
 * regions that the first cache holds, others are read from the cache that holds them. Only whole cache lines move,
 * however little of a line an execution needs. */
#include <stdlib.h>

#include "dfp/dfp.h"

enum { LINE = 64 };

struct traffic {
    struct dfp *d;
    uint64_t bound;     /* index variables of the statement's reductions */
    int vector, tile;   /* index variables that an execution covers in part, -1: none; */
    int64_t wide, tall; /* as many values of them */
    double executions, ns;
};

static void see_bound(void *user, int32_t node)
{
    struct traffic *t = user;
    const struct ex *e = &t->d->loops->ex.at[node];
    if (e->kind == EX_RED) t->bound |= e->u.bound;
}

static int64_t usual(const struct traffic *t, int ivar)
{
    return MAX(size_hint(t->d->loops->ivars.at[ivar].size), 1);
}

/* The values of an index variable in an execution. */
static int64_t values(const struct traffic *t, int ivar)
{
    int64_t n = t->bound >> ivar & 1 ? usual(t, ivar) : 1;
    if (ivar == t->vector) n = MAX(n, MIN(t->wide, usual(t, ivar)));
    if (ivar == t->tile) n = MAX(n, MIN(t->tall, usual(t, ivar)));
    return n;
}

/* The elements of a dimension that an execution reads, at most `size`. */
static int64_t elements(const struct traffic *t, int32_t index, int64_t size)
{
    struct affine a;
    double product = 1, extent = 1;
    if (!ex_affine(t->d->loops, index, &a)) { /* data, anywhere */
        const uint64_t ivars = ex_ivars(t->d->loops, index);
        for (int i = 0; i < t->d->loops->ivars.n; i++)
            if (ivars >> i & 1) product *= (double)values(t, i);
        return (int64_t)MIN(product, (double)size);
    }
    for (int i = 0; i < a.n; i++) {
        const double n = (double)values(t, a.ivar[i]);
        product *= n;
        extent += (double)llabs(size_hint(a.coef[i])) * (n - 1);
    }
    return (int64_t)MIN(MIN(product, extent), (double)size);
}

/* The bytes that a cache of this size keeps of lines that are `apart` bytes from each other: those at multiples of a
 * power of two share few sets. */
static double room(int64_t cache, int64_t run, int64_t apart)
{
    const int64_t power = apart & -apart;
    return 0.8 * (double)cache * MIN(1, (double)run / (double)MAX(power, 1));
}

static void see_read(void *user, int32_t node)
{
    struct traffic *t = user;
    const struct loops *loops = t->d->loops;
    const struct ex *e = &loops->ex.at[node];
    if (e->kind != EX_READ || !(ex_ivars(loops, node) & t->bound)) return;
    const struct loops_tensor *x = &loops->tensors.at[e->tensor];
    const int64_t each = dtype_def((enum sol_dtype)x->dtype)->bytes;
    int64_t run = each, apart = 0; /* bytes: side by side; the powers of two of the distances of others */
    double runs = 1;
    int d = 0;
    for (int32_t i = e->a; i; i = loops->ex.at[i].next, d++) {
        const int64_t n = elements(t, i, MAX(size_hint(x->shape[d]), 1));
        const int64_t by = llabs(size_hint(t->d->p.memory[e->tensor].stride[d])) * each;
        if (n > 1 && by < LINE)
            run += by * (n - 1);
        else if (n > 1)
            runs *= (double)n, apart |= by;
    }
    run = (run + LINE - 1) / LINE * LINE;
    const struct target *target = t->d->sc->target;
    const double region = runs * (double)run;
    if (region <= room(target->l1, run, apart)) return;
    const double all = (double)size_hint(loops_elements(x)) * (double)each;
    t->ns += t->executions * region /
             (region <= room(target->l2, run, apart) ? target->l2_rate
              : all <= (double)target->l3            ? target->l3_rate
                                                     : target->dram_rate);
}

double dfp_traffic_ns(struct dfp *d, const struct print_group *g, const struct dfp_way *way)
{
    struct traffic t = {.d = d, .vector = way->vector, .tile = way->tile, .wide = d->lanes, .tall = way->points};
    if (way->tile >= 0 && way->tile == way->vector) t.wide *= way->points;
    for (int i = g->first; i < g->first + g->n; i++) {
        const struct loops_stmt *s = &d->loops->stmts.at[i];
        t.bound = 0;
        ex_walk(d->loops, s->value, see_bound, &t);
        if (!t.bound) continue;
        if (way->across >= 0) t.bound |= bit(way->across);
        t.executions = 1;
        const uint64_t own = stmt_ivars(d->loops, s);
        for (int v = 0; v < d->loops->ivars.n; v++)
            if (own >> v & 1 & ~(t.bound >> v)) t.executions *= (double)usual(&t, v) / (double)values(&t, v);
        ex_walk(d->loops, s->value, see_read, &t);
    }
    return t.ns;
}
