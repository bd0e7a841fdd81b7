/* Constants whose elements are all the same number: makes and finds them. */
#include "hlir/graph.h"

#define UNIFORM_LIMIT 65536 /* elements; larger constants count as not uniform */

static double element(const struct sol_tensor *t, int64_t i)
{
    const void *d = t->data;
    switch ((enum sol_dtype)t->dtype) {
    case SOL_F32: return ((const float *)d)[i];
    case SOL_F64: return ((const double *)d)[i];
    case SOL_I64: return (double)((const int64_t *)d)[i];
    case SOL_I32: return ((const int32_t *)d)[i];
    case SOL_BOOL: return ((const uint8_t *)d)[i] != 0;
    default: return 0.0 / 0.0;
    }
}

bool tensor_uniform(const struct sol_tensor *t, double *out_v)
{
    int64_t n = tensor_elements(t);
    if (t->role != TENSOR_CONST || n < 1 || n > UNIFORM_LIMIT) return false;
    *out_v = element(t, 0);
    for (int64_t i = 1; i < n; i++)
        if (element(t, i) != *out_v) return false;
    return *out_v == *out_v;
}

sol_status graph_number(struct sol_graph *g, double v, enum sol_dtype t, struct sol_tensor **out_t)
{
    return sol_graph_const(g, t, 0, NULL,
                           t == SOL_F32   ? (void *)&(float){(float)v}
                           : t == SOL_F64 ? (void *)&v
                                          : (void *)&(int64_t){(int64_t)v},
                           out_t);
}
