/* Which bytes of a tensor do statements access? A bound for the verifier: the lowest and the highest index in each
 * dimension, of reads and writes, where the values of some index variables are known. */
#include "plan/verify.h"

struct reach { /* elements low .. high, relative to the tensor's first one */
    const struct view *v;
    bool any;
    int64_t low, high;
};

/* The range of an index. One that follows from data may be anywhere in the tensor; so may one that is not affine, whose
 * guards keep it inside without changing its bounds (adaptive pools). */
static void index_range(const struct view *v, int32_t index, int d, int64_t *low, int64_t *high)
{
    struct affine f;
    if (!ex_affine(v->loops, index, &f)) {
        const int64_t first = -v->memory->halo_low[d],
                      last = v->loops->tensors.at[v->tensor].shape[d] - 1 + v->memory->halo_high[d];
        const bool known = ex_range(v->loops, index, low, high);
        *low = known ? MAX(*low, first) : 0;
        *high = known ? MIN(*high, last) : last - v->memory->halo_high[d];
        return;
    }
    *low = *high = f.c;
    for (int i = 0; i < f.n; i++) {
        int64_t from = 0, to = v->loops->ivars.at[f.ivar[i]].size - 1;
        for (int k = 0; k < COUNT_OF(v->ivar); k++)
            if (v->ivar[k] == f.ivar[i]) {
                from = v->value[k] * v->block[k];
                to = from + v->block[k] - 1;
            }
        *low += MIN(f.coef[i] * from, f.coef[i] * to);
        *high += MAX(f.coef[i] * from, f.coef[i] * to);
    }
}

static bool is_meant(const struct view *v, int32_t first)
{
    struct affine f;
    return v->dim < 0 || !ex_affine(v->loops, ex_nth(v->loops, first, v->dim), &f) || f.c == v->shift;
}

static void add_access(struct reach *r, int32_t first)
{
    const struct view *v = r->v;
    int64_t low = 0, high = 0;
    int d = 0;
    if (!is_meant(v, first)) return;
    for (int32_t i = first; i; i = v->loops->ex.at[i].next, d++) {
        int64_t from, to;
        index_range(v, i, d, &from, &to);
        if (v->inside) {
            from = MAX(from, -v->memory->halo_low[d]);
            to = MIN(to, v->loops->tensors.at[v->tensor].shape[d] - 1 + v->memory->halo_high[d]);
        }
        if (from > to) return;
        low += from * v->memory->stride[d];
        high += to * v->memory->stride[d];
    }
    r->low = r->any ? MIN(r->low, low) : low;
    r->high = r->any ? MAX(r->high, high) : high;
    r->any = true;
}

static void see_read(void *user, int32_t node)
{
    struct reach *r = user;
    const struct ex *e = &r->v->loops->ex.at[node];
    if (e->kind == EX_READ && e->tensor == r->v->tensor) add_access(r, e->a);
}

struct span verify_bytes(const struct view *v)
{
    struct reach r = {.v = v};
    const int bytes = dtype_def(v->loops->tensors.at[v->tensor].dtype)->bytes;
    for (int i = v->first; i < v->last; i++) {
        const struct loops_stmt *s = &v->loops->stmts.at[i];
        if (!ivars_points(v->loops, stmt_ivars(v->loops, s))) continue;
        for (int o = 0; o < s->nout; o++)
            if (s->out[o] == v->tensor) add_access(&r, s->index);
        ex_walk(v->loops, s->value, see_read, &r);
    }
    return r.any ? (struct span){r.low * bytes, (r.high + 1) * bytes} : (struct span){0, 0};
}
