/* Positions of elements that are not zero. */
#include <string.h>

#include "layers/reference.h"

static int is_nonzero(const struct reference *a, const char *data, int64_t i)
{
    switch (a->type) {
    case REFERENCE_F32: return ((const float *)(const void *)data)[i] != 0;
    case REFERENCE_F64: return ((const double *)(const void *)data)[i] != 0;
    case REFERENCE_OTHER: { /* half precision: everything but the sign */
        uint16_t v;
        memcpy(&v, data + i * 2, sizeof v);
        return (v & 0x7fff) != 0;
    }
    case REFERENCE_U64: return ((const uint64_t *)(const void *)data)[i] != 0;
    default: return reference_integer(a->type, data, i) != 0;
    }
}

static enum reference_error positions(const struct reference *a, char *const *p, void *scratch,
                                      struct reference_bad *out_bad)
{
    int64_t *to = (int64_t *)(void *)p[a->nin], at[REFERENCE_DIMS] = {0}, n = 1;
    (void)scratch;
    for (int d = 0; d < a->ndim; d++) n *= a->shape[d];
    for (int64_t i = 0; i < n; i++) {
        if (is_nonzero(a, p[0], i) && out_bad->index++ < a->keep) {
            memcpy(to, at, (size_t)a->ndim * sizeof *to);
            to += a->ndim;
        }
        for (int d = a->ndim - 1; d >= 0 && ++at[d] == a->shape[d]; d--) at[d] = 0;
    }
    return REFERENCE_GOOD;
}

REFERENCE_KIND reference_nonzero = {"reference_nonzero", "reference_nonzero.c", NULL, positions};
