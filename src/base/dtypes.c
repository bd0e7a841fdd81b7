/* Properties of data types (dtypes.def), and the number of elements of a shape. */
#include "base/size.h"

static const struct dtype_def defs[] = {
#define X(enumerator, name, c_name, bytes, is_float, is_signed, is_bool) \
    {name, c_name, bytes, is_float, is_signed, is_bool},
#include "sol/dtypes.def"
#undef X
};

const struct dtype_def *dtype_def(enum sol_dtype t)
{
    return &defs[t];
}

int64_t dtype_int(enum sol_dtype t, const void *data, int64_t i)
{
    switch (t) {
    case SOL_BOOL:
    case SOL_U8: return ((const uint8_t *)data)[i];
    case SOL_I8: return ((const int8_t *)data)[i];
    case SOL_U16: return ((const uint16_t *)data)[i];
    case SOL_I16: return ((const int16_t *)data)[i];
    case SOL_U32: return ((const uint32_t *)data)[i];
    case SOL_I32: return ((const int32_t *)data)[i];
    default: return ((const int64_t *)data)[i];
    }
}

sol_status shape_elements(struct sol_ctx *ctx, int ndim, const int64_t *shape, int64_t *out_n)
{
    const int64_t most = (int64_t)1 << 47;
    bool empty = false;
    *out_n = 0;
    if (ndim < 0 || ndim > SOL_MAX_DIMS)
        return ctx_fail(ctx, SOL_ERR_INVALID, "shape: expected 0 to %d dimensions, got %d", SOL_MAX_DIMS, ndim);
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || (shape[i] > most && !size_varies(shape[i])))
            return ctx_fail(ctx, SOL_ERR_INVALID, "shape: dimension %d: expected 0 to 2^47 elements, got %lld", i,
                            (long long)shape[i]);
        empty |= shape[i] == 0;
    }
    if (empty) return SOL_OK;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        n = size_mul(n, shape[i]);
        if (size_hint(n) > most)
            return ctx_fail(ctx, SOL_ERR_INVALID, "shape: more than 2^47 elements at dimension %d (size %lld)", i,
                            (long long)size_hint(shape[i]));
    }
    *out_n = n;
    return SOL_OK;
}
