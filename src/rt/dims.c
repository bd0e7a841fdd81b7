/* The dimensions of a call and what follows from them: checks them, and lets the module compute its sizes. Places of
 * blocks are chosen apart from that (sizes.c). It depends on nothing and allocates nothing. */
#include "rt/rt.h"

static enum rt_fit check_dims(const struct sol_module *m, const int64_t *size, int32_t *out_which)
{
    for (int i = 0; i < m->ndim; i++) {
        *out_which = i;
        if (m->dim[i].most >= 0) continue;
        if (size[i] < m->dim[i].min || size[i] > m->dim[i].max) return RT_LIMITS;
        if (size[i] % m->dim[i].multiple) return RT_MULTIPLE;
    }
    return RT_FITS;
}

/* Dimensions that steps set begin with the most. */
static int32_t begin_set(const struct sol_module *m, int64_t *size)
{
    int any = 0;
    for (int i = 0; i < m->ndim; i++)
        if (m->dim[i].most >= 0) size[i] = 0, any = 1;
    if (any && !m->sizes(size)) return 0; /* of the other dimensions alone: what the most are */
    for (int i = 0; i < m->ndim; i++)
        if (m->dim[i].most >= 0) size[i] = rt_quantity(m->dim[i].most, size);
    return 1;
}

enum rt_fit rt_needs(const struct sol_module *m, const int64_t *size, int set, int32_t *out_which)
{
    for (*out_which = 0; *out_which < m->ncheck; ++*out_which)
        if (m->check[*out_which].set == set && rt_quantity(m->check[*out_which].size, size) < 0) return RT_NEEDS;
    return RT_FITS;
}

enum rt_fit rt_dims(const struct sol_module *m, int64_t *size, int32_t *out_which)
{
    const enum rt_fit fit = check_dims(m, size, out_which);
    if (fit) return fit;
    if (!begin_set(m, size) || !m->sizes(size)) return RT_TOO_LARGE;
    return rt_needs(m, size, -1, out_which);
}
