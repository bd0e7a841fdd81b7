/* Versions of units for dimensions that are 1: a batch of one, one token, one step. Their loops have the number in
 * place of the dimension, so they are those of a network with fixed sizes: a product with one row is one with a vector,
 * a sum over one element is none, and the first step of a recurrence is the only one. */
#include "plan/plan.h"

bool plan_possible(const struct loops *loops, const int64_t *at)
{
    for (int i = 0; i < loops->ivars.n; i++)
        if (size_varies(loops->ivars.at[i].size) && size_at(loops->ivars.at[i].size, at) < 0) return false;
    return true;
}

bool plan_one(struct plan *p, const struct loops *loops, uint32_t dims, struct plan_one *out)
{
    int64_t *point = NEW_ARRAY(p->arena, int64_t, SIZE_MOST_DIMS),
            *fixed = NEW_ARRAY(p->arena, int64_t, SIZE_MOST_DIMS);
    int64_t all = 1;
    for (int i = 0; i < p->g->dims.n; i++) {
        const struct size_dim *d = &p->g->dims.at[i].dim;
        const bool is_one = dims >> i & 1;
        if (is_one && (d->min > 1 || d->max < 1 || d->multiple > 1)) return false;
        point[i] = is_one ? 1 : d->hint;
        fixed[i] = is_one ? 1 : size_of_dim(d);
        if (is_one) all = size_mul(all, size_of_dim(d));
    }
    *out = (struct plan_one){
        .all = all, .when = size_sub(plan_is_from(all, 1), plan_is_from(all, 2)), .point = point, .fixed = fixed};
    return dims && size_varies(out->when) && plan_possible(loops, point);
}

static const struct loops *loops_fixed(struct plan *p, const struct loops *loops, const int64_t *fixed)
{
    const struct loops *from = loops_at(p->arena, loops, fixed);
    struct loops *to = loops_create(p->arena, from->name);
    int32_t ivar[LOOPS_MAX_IVARS];
    int scan[LOOPS_MAX_IVARS], *tensor = NEW_ARRAY(p->arena, int, from->tensors.n + 1);
    for (int i = 0; i < from->ivars.n; i++) {
        const struct loops_ivar *x = &from->ivars.at[i];
        scan[i] = x->size == 1 ? -1 : loops_ivar(to, x->name, x->size);
        ivar[i] = scan[i] < 0 ? ex_int(to, 0) : ex_ivar(to, scan[i]);
    }
    for (int i = 0; i < from->tensors.n; i++) tensor[i] = loops_tensor_like(to, &from->tensors.at[i]);
    const struct rewrite r = {.to = to, .from = from, .ivar = ivar, .tensor = tensor};
    for (int i = 0; i < from->stmts.n; i++) {
        struct loops_stmt s = from->stmts.at[i];
        for (int k = 0; k < s.nout; k++) s.out[k] = (uint16_t)tensor[s.out[k]];
        s.index = rewrite_list(&r, s.index);
        s.value = rewrite_ex(&r, s.value);
        if (s.scan_step && scan[s.scan_ivar] < 0) s.scan_step = 0;
        if (s.scan_step) s.scan_ivar = (uint8_t)scan[s.scan_ivar];
        loops_stmt(to, s);
    }
    return rewrite_sweep(to);
}

struct unit plan_fixed(struct plan *p, const struct unit *u, const struct plan_one *one)
{
    struct unit x = *u;
    x.when = one->when;
    x.point = one->point;
    x.fixed = one->fixed;
    x.memory = NULL;
    unit_loops(&x, loops_fixed(p, u->loops, one->fixed));
    return x;
}
