/* Kernels of layers without loops. */
#include "layers/layers.h"
#include "print/order.h"

typedef bool (*maker)(struct arena *a, const struct target *t, const struct reference *r, struct kernel *out);

static maker maker_of(const struct reference *r)
{
    if (r->kind == &reference_sort) return sort_kernel;
    if (r->kind == &reference_scatter) return scatter_kernel;
    return NULL;
}

/* All that the planner computes with sizes. */
static bool good_sizes(const struct kernel *k)
{
    bool good = true;
    for (int i = 0; i < k->nstep; i++) good &= k->step[i].tasks != SIZE_BAD;
    for (int i = 0; i < k->nwork; i++) good &= k->work_bytes[i] != SIZE_BAD;
    return good;
}

static bool varies(const struct sol_layer *l)
{
    bool vary = false;
    for (int i = 0; i < l->nin + l->nout; i++) {
        const struct sol_tensor *t = i < l->nin ? l->in[i] : l->out[i - l->nin];
        for (int d = 0; d < t->ndim; d++) vary |= size_varies(t->dim[d].size);
    }
    return vary;
}

sol_status opaque_kernel(struct arena *a, const struct target *t, const struct sol_layer *l, struct kernel *out)
{
    struct reference r;
    *out = (struct kernel){0};
    if (!target_launches(t) || !target_has_items(t)) return SOL_OK;
    l->def->describe(a, l, &r);
    const maker make = maker_of(&r);
    struct kernel k;
    if (!make || !make(a, t, &r, &k) || !good_sizes(&k)) return SOL_OK;
    kernel_launch(a, t, l->nin + l->nout + k.nwork, &k);
    TRY(kernel_sizes(a, varies(l), &k));
    *out = k;
    return ctx_check(arena_ctx(a));
}
