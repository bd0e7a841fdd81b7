/* Descriptions of reference operators whose numbers are sizes that vary: libsol has forms there (base/size.h), deployed
 * libraries have quantities (sol/module.h). A call fills in its own. */
#ifndef SOL_REFERENCE_SIZED_H
#define SOL_REFERENCE_SIZED_H

#include "layers/reference.h"

struct reference_instance {
    struct reference what;
    struct reference_index index[REFERENCE_DIMS];
    int64_t number[REFERENCE_NUMBERS];
};
/* The value of a size; `of` is the caller's. */
typedef int64_t (*reference_value)(const void *of, int64_t size);

static inline void reference_values(int n, int64_t *size, reference_value value, const void *of)
{
    for (int i = 0; i < n; i++) size[i] = value(of, size[i]);
}

static inline const struct reference *reference_at(const struct reference *from, reference_value value, const void *of,
                                                   struct reference_instance *to)
{
    struct reference *r = &to->what;
    *r = *from;
    int64_t *const number[] = {&r->outer,    &r->n,    &r->inner, &r->keep, &r->first,
                               &r->elements, &r->rows, &r->cols,  &r->rhs};
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) reference_values(1, number[i], value, of);
    reference_values(r->ndim, r->shape, value, of);
    reference_values(r->ndim, r->from, value, of);
    reference_values(r->ndim, r->to, value, of);
    for (int i = 0; i < r->nindex; i++) {
        struct reference_index *x = &to->index[i];
        *x = from->index[i];
        reference_values(1, &x->offset, value, of);
        reference_values(1, &x->limit, value, of);
        reference_values(1, &x->step, value, of);
        reference_values(r->ndim, x->stride, value, of);
    }
    r->index = to->index;
    for (int i = 0; i < r->nnumber + r->ntemp; i++) to->number[i] = value(of, from->number[i]);
    r->number = to->number;
    return r;
}

#endif
